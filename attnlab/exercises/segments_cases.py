"""The inputs of the exercises on packed sequences, each with its right answer and its picture.

Right answers come from `attnlab.segments.reference`, or are known because the row was made from them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from attnlab.exercises.check import Case
from attnlab.exercises.counting_row import CountingRow
from attnlab.exercises.rows import Rows, any_rows, packed_rows, shapes
from attnlab.exercises.segments_bugs import lengths_trust_order
from attnlab.segments import MASKS, reference
from attnlab.segments.packing import skewed_lengths
from attnlab.show.picture import Picture
from attnlab.show.segment_picture import segment_picture

ONE_ROW = shapes(min_batch=1, max_batch=1, min_tokens=1)
# Memory is measured on a row of 4,096 tokens with room for 512 segments. One byte for every pair of tokens
# would be 16 MiB, and for every token and id 2 MiB.
LONG, MANY = 4096, 512
MOST_BYTES = 128 * (LONG + MANY)
LONGEST = 2**20


def row_words(ids: np.ndarray) -> str:
    """Write a short row out, and count a long one: ``the row 1 1 0 2``, ``a row of 4,096 tokens``."""
    if len(ids) <= 32:
        return f"the row {' '.join(map(str, ids))}"
    return f"a row of {len(ids):,} tokens"


def long_row(segments: int, padding: int, tokens: int = LONG) -> np.ndarray:
    """Lay out segments 1, 2, ... of skewed lengths and padding at the tail, int32 [tokens]."""
    lengths = skewed_lengths(segments, tokens - padding, seed=segments)
    return np.append(np.repeat(np.arange(1, segments + 1), lengths), np.zeros(padding)).astype(np.int32)


def lengths_case(ids: Any, max_segments: int, note: str = "", max_bytes: int | None = None) -> Case:
    """Ask for the length of each segment."""
    ids = np.array(ids, np.int32)
    expected = reference.count(ids[None], max_segments)[0]
    words = f"{row_words(ids)} and max_segments = {max_segments}"
    draw = partial(_draw_lengths, ids, expected)
    return Case((ids, max_segments), expected, words, draw, note, max_bytes)


def lengths_cases() -> list[Case]:
    """Choose cases for `lengths`."""
    return [
        lengths_case([1, 1, 0, 2], 3),
        lengths_case([1, 1, 1], 1),
        lengths_case([0, 0, 1, 2, 2], 2, "Padding stands in front."),
        lengths_case([3, 3, 0], 4, "Ids 1, 2 and 4 do not occur."),
        lengths_case([0, 0, 0], 2, "There is nothing but padding."),
        lengths_case([1, 2, 3], 3, "Every segment is one token long."),
        lengths_case([1, 0, 0, 2, 0, 3, 3, 3, 0], 3),
        lengths_case(long_row(16, 100), MANY, max_bytes=MOST_BYTES),
    ]


lengths_inputs = packed_rows(ONE_ROW, from_zero=True, equal_sides=True).map(
    lambda rows: lengths_case(rows.segment_ids_q[0], rows.max_segments)
)


def offsets_case(
    ids: Any, visible: Any, max_segments: int, starts: list[int], note: str = "", max_bytes: int | None = None
) -> Case:
    """Ask for the starts of what is visible; `starts` says what they are."""
    ids, visible = np.array(ids, np.int32), np.array(visible, bool)
    expected = np.array(starts + [-1] * (max_segments + 1 - len(starts)), np.int32)
    shown = " ".join("01"[int(v)] for v in visible) if len(ids) <= 32 else f"{visible.sum():,} of them"
    words = f"{row_words(ids)}, visible {shown} and max_segments = {max_segments}"
    draw = partial(_draw_offsets, ids, visible, expected)
    return Case((ids, visible, max_segments), expected, words, draw, note, max_bytes)


def offsets_cases() -> list[Case]:
    """Choose cases for `offsets`."""
    long = long_row(16, 100)
    every = np.flatnonzero(np.diff(long, prepend=0))[:16].tolist()
    gone = "Segment 2 has no visible token, so it has no start."
    front = "The first token of segment 1 is not visible."
    return [
        offsets_case([1, 1, 2, 2, 3], [1, 1, 0, 0, 1], 3, [0, 4], gone),
        offsets_case([1, 1, 2, 2, 3], [1, 1, 1, 1, 1], 3, [0, 2, 4]),
        offsets_case([1, 1, 1, 0, 2], [0, 1, 1, 0, 1], 2, [1, 4], front),
        offsets_case([0, 1, 2, 3, 0], [0, 0, 0, 1, 0], 4, [3], "Segments 1 and 2 have no visible token."),
        offsets_case([1, 1, 2, 2], [1, 1, 0, 0], 2, [0], gone),
        offsets_case([1, 1, 1, 2, 2], [1, 0, 0, 1, 0], 2, [0, 3], "Segments lose tokens at the end."),
        offsets_case([1, 2, 0], [0, 0, 0], 2, [], "No token is visible."),
        offsets_case(long, (long > 0) & (long != 7), MANY, every[:6] + every[7:], max_bytes=MOST_BYTES),
    ]


@st.composite
def _offsets_input(draw: Any) -> Case:
    """Take visibility from a real pair of rows under a real mask."""
    rows: Rows = draw(packed_rows(ONE_ROW))
    mask = draw(st.sampled_from(MASKS))
    visible = reference.visibility(*rows.tokens, mask=mask)[0].any(axis=1)
    layout = reference.seqlens_and_offsets(*rows.tokens, mask=mask, max_segments=rows.max_segments)
    starts = [int(start) for start in layout.q_offsets[0] if start >= 0]
    return offsets_case(rows.segment_ids_q[0], visible, rows.max_segments, starts)


offsets_inputs = _offsets_input()


def valid_case(ids: Any, max_segments: int, note: str = "", max_bytes: int | None = None) -> Case:
    """Ask whether a row keeps the rules."""
    ids = np.array(ids, np.int32)
    counted = np.arange(len(ids), dtype=np.int32)
    expected = bool(reference.trusted(ids[None], counted[None], max_segments)[0])
    words = f"{row_words(ids)} and max_segments = {max_segments}"
    draw = partial(_draw_valid, ids, max_segments, expected)
    return Case((ids, max_segments), expected, words, draw, note, max_bytes)


def valid_cases() -> list[Case]:
    """Choose cases for `row_is_valid`."""
    long = long_row(16, 100)
    broken = long.copy()
    broken[-1] = 1
    return [
        valid_case([1, 1, 0, 2], 3),
        valid_case([1, 1, 0, 1], 3, "Padding stands inside segment 1: a hole."),
        valid_case([1, 2, 1], 2, "Segment 1 comes back: a repeat."),
        valid_case([1, 2, 3], 2, "There is one segment too many."),
        valid_case([1, 3], 2, "There are two segments, but id 3 is above 2."),
        valid_case([2, 1], 2, "Lengths go by id and starts by order, and here they cross."),
        valid_case([1, 3], 3, "Id 2 is not used, which is allowed."),
        valid_case([0, 0, 2, 2, 0, 5, 0], 5, "Padding stands between segments, which is allowed."),
        valid_case([0, 0, 0], 1, "There is nothing but padding, which is allowed."),
        valid_case([2], 2),
        valid_case([1, 0, 2, 0, 1], 2, "Segment 1 comes back: a repeat."),
        valid_case(broken, 16, "The last token is of segment 1."),
        valid_case(long, MANY, max_bytes=MOST_BYTES),
    ]


# Ids far above S are left out: counting up to two billion would fill the memory of the reader's machine.
valid_inputs = any_rows(ONE_ROW).map(
    lambda rows: valid_case(np.minimum(rows.segment_ids_q[0], rows.max_segments + 2), rows.max_segments)
)


def most_reads(tokens: int, max_segments: int) -> int:
    """Return the reads that are allowed: four bisections of the row for each segment, and for the end."""
    return 4 * (max_segments + 1) * (tokens.bit_length() + 1)


def starts_case(segments: dict[int, int], padding: int, max_segments: int, note: str = "") -> Case:
    """Ask for the starts of segments of the given lengths, with padding at the tail."""
    names, lengths = np.array(list(segments), np.int32), np.array(list(segments.values()), np.int64)
    ids = np.append(np.repeat(names, lengths), np.zeros(padding)).astype(np.int32)
    starts = (np.cumsum(lengths) - lengths).tolist()
    row = CountingRow(ids, most_reads(len(ids), max_segments))
    words = f"{row_words(ids)} and max_segments = {max_segments}"
    return Case((row, max_segments), starts, words, partial(_draw_starts, ids, max_segments, starts), note)


def starts_cases() -> list[Case]:
    """Choose cases for `starts_from_sorted`. The last is the one whose reads are reported."""
    cut = LONGEST // 4
    lengths = skewed_lengths(16, LONGEST - 1000, seed=16)
    return [
        starts_case({1: 3, 2: 2, 4: 1}, 2, 4),
        starts_case({1: 1}, 0, 1),
        starts_case({}, 3, 2, "There is nothing but padding."),
        starts_case({3: 2}, 0, 3, "Ids 1 and 2 do not occur."),
        starts_case({1: 1, 2: 1, 3: 1}, 0, 3, "Every segment is one token long, and there is no padding."),
        starts_case({2: 3}, 1, 4),
        # Whoever reads every token is told so here, before the rows become long.
        starts_case({1: 2**14}, 0, 1, "One segment fills the row."),
        starts_case({1: LONGEST}, 0, 1, "One segment fills the row."),
        starts_case({}, LONGEST, 3, "There is nothing but padding."),
        starts_case({1: 1, 2: LONGEST - 1}, 0, 3),
        starts_case({1: cut, 2: cut - 1, 3: cut + 1}, cut, 3),
        starts_case({5: 7, 40: cut, 64: 1}, LONGEST - cut - 8, 64),
        starts_case({i: int(n) for i, n in enumerate(lengths, 1)}, 1000, 16),
    ]


def _starts_input(rows: Rows) -> Case:
    ids = rows.segment_ids_q[0]
    names, lengths = np.unique(ids[ids > 0], return_counts=True)
    segments = dict(zip(names.tolist(), lengths.tolist(), strict=True))
    return starts_case(segments, int((ids == 0).sum()), rows.max_segments)


starts_inputs = packed_rows(ONE_ROW, from_zero=True, tail_padding=True, equal_sides=True).map(_starts_input)


def _pair(expected: Picture, given: Picture | None) -> list[Picture]:
    return [expected] if given is None else [expected, given]


def _draw_lengths(ids: np.ndarray, expected: np.ndarray, answer: Any) -> list[Picture]:
    def panel(lengths: np.ndarray, title: str) -> Picture:
        # A length is drawn where its segment stands; one that is claimed for an absent id has no place.
        claimed = [s for s in range(1, len(lengths) + 1) if lengths[s - 1] > 0 and (ids == s).any()]
        kept = np.where(np.isin(np.arange(1, len(lengths) + 1), claimed), lengths, 0)
        starts = np.array([int((ids == s).argmax()) for s in claimed], np.int64)
        return segment_picture(ids, kept, starts, title=title, panel=True)

    return _pair(panel(expected, "expected"), None if answer is None else panel(answer, "your function"))


def _draw_offsets(ids: np.ndarray, visible: np.ndarray, expected: np.ndarray, answer: Any) -> list[Picture]:
    lengths = reference.count(np.where(visible, ids, 0)[None], len(expected) - 1)[0]

    def panel(offsets: np.ndarray, title: str) -> Picture:
        return segment_picture(ids, lengths, offsets, title=title, panel=True)

    return _pair(panel(expected, "expected"), None if answer is None else panel(answer, "your function"))


def _draw_valid(ids: np.ndarray, max_segments: int, expected: bool, answer: Any) -> list[Picture]:
    lengths, offsets = lengths_trust_order(ids, max_segments)
    return [segment_picture(ids, lengths, offsets, title=None, invalid=not expected)]


def _draw_starts(ids: np.ndarray, max_segments: int, expected: list[int], answer: Any) -> list[Picture]:
    lengths, _ = lengths_trust_order(ids, max_segments)

    def panel(starts: Any, title: str) -> Picture:
        return segment_picture(ids, lengths, np.array(starts, np.int64), title=title, panel=True)

    return _pair(panel(expected, "expected"), None if answer is None else panel(answer, "your function"))
