"""Packed batches for hypothesis to draw: valid ones, and ones that try to break an answer.

`packed_rows` keeps every rule of a packed batch and varies all the rest; `any_rows` keeps none but the dtypes
and shapes. Both shrink towards few, short segments, so that what a failing check prints can be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from jaxtyping import Int32

LARGEST = 2**31 - 1
# Lengths on either side of a power of two that blocked code may cut at.
EDGES = (15, 16, 17, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025)

Draw = Callable[..., Any]


class Shape(NamedTuple):
    """How large a packed batch is: B rows of Tq and Tkv tokens, with room for S segments."""

    batch: int
    q_tokens: int
    kv_tokens: int
    max_segments: int


# A compiled function is compiled anew for each shape, so its checks keep to these few.
FEW_SHAPES = (
    Shape(2, 8, 8, 2),
    Shape(3, 1, 2, 1),
    Shape(1, 2, 1, 2),
    Shape(2, 32, 33, 5),
    Shape(1, 33, 64, 40),
    Shape(3, 64, 32, 2),
    Shape(1, 1023, 1024, 5),
    Shape(2, 1024, 1025, 40),
    Shape(1, 1025, 1023, 1),
    Shape(1, 2049, 2049, 5),
)


@dataclass(frozen=True, eq=False)
class Rows:
    """A packed batch, under the names of the arguments of ``seqlens_and_offsets``."""

    segment_ids_q: Int32[np.ndarray, "batch q_tokens"]
    segment_ids_kv: Int32[np.ndarray, "batch kv_tokens"]
    segment_pos_q: Int32[np.ndarray, "batch q_tokens"]
    segment_pos_kv: Int32[np.ndarray, "batch kv_tokens"]
    max_segments: int

    @property
    def tokens(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The four arrays, in the order of the arguments."""
        return self.segment_ids_q, self.segment_ids_kv, self.segment_pos_q, self.segment_pos_kv


def shapes(
    *,
    min_batch: int = 0,
    max_batch: int = 3,
    min_tokens: int = 0,
    max_tokens: int = 24,
    max_segments: int = 6,
) -> st.SearchStrategy[Shape]:
    """Draw small shapes, empty ones among them unless the minima forbid it."""
    tokens = st.integers(min_tokens, max_tokens)
    return st.builds(Shape, st.integers(min_batch, max_batch), tokens, tokens, st.integers(1, max_segments))


@st.composite
def packed_rows(
    draw: Draw,
    shape: st.SearchStrategy[Shape] | Shape | None = None,
    *,
    from_zero: bool = False,
    tail_padding: bool = False,
    equal_sides: bool = False,
) -> Rows:
    """Draw a valid packed batch.

    Ids increase along a row, with gaps or without. Padding stands before, between and after segments, and
    carries any position. Positions increase inside a segment: from 0 one by one, from elsewhere, with gaps,
    or up to 2**31 - 1.

    Parameters
    ----------
    shape : Shape, or a strategy that draws one
        `shapes` by default.
    from_zero : bool
        Let positions count 0, 1, 2, ... in every segment.
    tail_padding : bool
        Let padding stand only at the end of a row.
    equal_sides : bool
        Make keys and values of the same ids and positions as queries; Tkv is then Tq.
    """
    batch, q_tokens, kv_tokens, max_segments = _drawn(draw, shape)
    ids_q, ids_kv = np.zeros((batch, q_tokens), np.int32), np.zeros((batch, kv_tokens), np.int32)
    for row in range(batch):
        names = draw(_names(max_segments))
        ids_q[row] = _lay_out(draw, q_tokens, names, tail_padding)
        if not equal_sides:
            names = draw(st.just(names) | _names(max_segments))
            ids_kv[row] = _lay_out(draw, kv_tokens, names, tail_padding)
    pos_q = _number(draw, ids_q, from_zero)
    if equal_sides:
        return Rows(ids_q, ids_q.copy(), pos_q, pos_q.copy(), max_segments)
    return Rows(ids_q, ids_kv, pos_q, _number(draw, ids_kv, from_zero), max_segments)


@st.composite
def any_rows(
    draw: Draw, shape: st.SearchStrategy[Shape] | Shape | None = None, *, negative: bool = False
) -> Rows:
    """Draw a batch of the right dtypes and shapes, and not much more.

    Valid rows, rows with a token or a position overwritten, runs of any ids (holes ``1 1 0 1``, repeats
    ``1 2 1``, ids out of order or above S), ids that change at every token, and nothing but padding.

    Parameters
    ----------
    shape : Shape, or a strategy that draws one
        `shapes` by default.
    negative : bool
        Let ids and positions be negative as well. Positions of padding always may.
    """
    batch, q_tokens, kv_tokens, max_segments = _drawn(draw, shape)
    ids = [np.zeros((batch, tokens), np.int32) for tokens in (q_tokens, kv_tokens)]
    for row in range(batch):
        for side in ids:
            side[row] = _any_ids(draw, side.shape[1], max_segments, negative)
    pos = [_number(draw, side, from_zero=draw(st.booleans())) for side in ids]
    value = st.integers(-3 if negative else 0, 5) | st.just(LARGEST)
    for side in pos:
        for _ in range(draw(st.integers(0, 2)) if side.size else 0):
            side[draw(st.integers(0, batch - 1)), draw(st.integers(0, side.shape[1] - 1))] = draw(value)
    if not negative:
        pos = [np.where(i == 0, p, np.maximum(p, 0)) for i, p in zip(ids, pos, strict=True)]
    return Rows(ids[0], ids[1], pos[0], pos[1], max_segments)


def _drawn(draw: Draw, shape: st.SearchStrategy[Shape] | Shape | None) -> Shape:
    if isinstance(shape, Shape):
        return shape
    return draw(shapes() if shape is None else shape)


def _names(max_segments: int) -> st.SearchStrategy[list[int]]:
    """Some of the ids 1..S, or all of them, in order."""
    some = st.sets(st.integers(1, max_segments)).map(sorted)
    return some | st.just(list(range(1, max_segments + 1)))


def _length(tokens: int) -> st.SearchStrategy[int]:
    return st.integers(0, 4) | st.sampled_from(EDGES) | st.integers(0, tokens)


def _lay_out(draw: Draw, tokens: int, names: list[int], tail_padding: bool) -> np.ndarray:
    """Lay segments out from left to right until the row is full."""
    ids, at = np.zeros(tokens, np.int32), 0
    length = draw(
        st.sampled_from([st.integers(0, 2), _length(tokens)])
    )  # short ones, so that many fit, or any
    for name in names:
        if at >= tokens:
            break
        if not tail_padding:
            at += draw(st.just(0) | length)
        stop = at + draw(length)
        ids[at:stop] = name
        at = stop
    return ids


def _any_ids(draw: Draw, tokens: int, max_segments: int, negative: bool) -> np.ndarray:
    """Draw one row of ids that may break every rule."""
    odd = st.sampled_from([max_segments, max_segments + 1, LARGEST])
    name = st.integers(-2 if negative else 0, min(max_segments + 1, 4)) | odd
    kind = draw(st.sampled_from(["packed", "overwritten", "runs", "pattern"]))
    if kind == "pattern":
        return np.resize(np.array(draw(st.lists(name, min_size=1, max_size=4)), np.int32), tokens)
    if kind == "runs":
        runs = draw(st.lists(st.tuples(name, _length(tokens)), max_size=2 * min(max_segments, 8) + 3))
        ids = np.repeat(np.array([i for i, _ in runs], np.int32), [n for _, n in runs] or 0)[:tokens]
        return np.pad(ids, (0, tokens - ids.size))
    ids = _lay_out(draw, tokens, draw(_names(max_segments)), tail_padding=False)
    if kind == "overwritten" and tokens:
        for _ in range(draw(st.integers(1, 3))):
            ids[draw(st.integers(0, tokens - 1))] = draw(name)
    return ids


def _number(draw: Draw, ids: np.ndarray, from_zero: bool) -> np.ndarray:
    """Give every token a position that increases along its run; padding gets any."""
    pos = np.zeros(ids.shape, np.int32)
    for row in range(len(ids)):
        cuts = np.flatnonzero(np.diff(ids[row])) + 1
        for run in np.split(np.arange(ids.shape[1]), cuts) if ids.shape[1] else []:
            if ids[row, run[0]] == 0:
                pos[row, run] = draw(st.just(0) | st.integers(-(2**31), LARGEST))
            elif from_zero:
                pos[row, run] = np.arange(run.size)
            else:
                steps = draw(st.just([1]) | st.lists(st.integers(1, 5), min_size=1, max_size=3))
                rising = np.cumsum(np.resize(steps, run.size)) - steps[0]
                room = LARGEST - int(rising[-1])
                first = draw(st.integers(0, 5) | st.just(room) | st.integers(0, room))
                pos[row, run] = rising + first
    return pos
