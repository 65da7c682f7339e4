"""The exercises on packed sequences: wrong answers of many kinds are told what broke them."""

from __future__ import annotations

import bisect
import math
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings

from attnlab.exercises import segments_cases
from attnlab.exercises.segments import check_lengths, check_offsets, check_starts, check_valid
from attnlab.exercises.segments_bugs import lengths_trust_order, offsets_keep_trimmed
from attnlab.segments import reference

EXERCISES = [check_lengths, check_offsets, check_valid, check_starts]
by_name = pytest.mark.parametrize("exercise", EXERCISES, ids=[exercise.name for exercise in EXERCISES])


@by_name
def test_a_stub_is_shown_the_example(exercise):
    result = exercise(lambda *arguments: ...)
    assert result.sentence.startswith("Not solved yet. The function should return ")
    assert "For the row " in result.sentence
    assert result.picture is not None


@by_name
def test_there_are_hints_and_no_solution_among_the_public_names(exercise):
    assert 2 <= len(exercise.hints) <= 3
    assert exercise.level in ("fill in", "find the bug", "open")
    assert exercise.name in exercise.task or exercise is check_offsets


# Other right ways, which must pass too.


def lengths_in_a_loop(segment_ids, max_segments):
    out = np.zeros(max_segments, np.int32)
    for segment_id in segment_ids:
        if segment_id:
            out[segment_id - 1] += 1
    return out


def lengths_one_id_at_a_time(segment_ids, max_segments):
    return np.array([np.count_nonzero(segment_ids == s + 1) for s in range(max_segments)], np.int32)


def offsets_in_a_loop(segment_ids, visible, max_segments):
    first = {}
    for place, (segment_id, seen) in enumerate(zip(segment_ids.tolist(), visible.tolist(), strict=True)):
        if seen:
            first.setdefault(segment_id, place)
    out = [*first.values()]
    return np.array(out + [-1] * (max_segments + 1 - len(out)), np.int32)


def valid_in_a_loop(segment_ids, max_segments):
    largest = last = 0
    for segment_id in segment_ids:
        if segment_id and segment_id != last and segment_id <= largest:
            return False
        largest, last = max(largest, segment_id), segment_id
    return largest <= max_segments


def starts_from_run_to_run(row, max_segments):
    """Visit only the segments that occur: from each start, bisect for the end of its run."""
    starts, low = [], 0
    while low < len(row) and row[low]:
        starts.append(low)
        here, high = row[low], len(row)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if row[middle] == here else (low, middle)
    return starts


OTHER_WAYS = [
    (check_lengths, lengths_in_a_loop),
    (check_lengths, lengths_one_id_at_a_time),
    (check_offsets, offsets_in_a_loop),
    (check_valid, valid_in_a_loop),
    (check_starts, starts_from_run_to_run),
    (check_starts, lambda row, s: np.array(starts_from_run_to_run(row, s), np.int64)),
]


@pytest.mark.parametrize(("exercise", "fn"), OTHER_WAYS)
def test_other_right_ways_pass(exercise, fn):
    result = exercise(fn)
    assert result.passed, result.sentence


def int32(values):
    return np.array(values, np.int32)


def counted(segment_ids, max_segments):
    return np.bincount(segment_ids, minlength=max_segments + 1)[1:].astype(np.int32)


def lengths_of_last_run(segment_ids, max_segments):
    cuts = np.flatnonzero(np.diff(segment_ids, prepend=-1))
    out = np.zeros(max_segments, np.int32)
    for start, stop in pairwise(cuts):  # the last run is forgotten
        if segment_ids[start]:
            out[segment_ids[start] - 1] = stop - start
    return out


def pairs(segment_ids, max_segments):
    table = segment_ids[:, None] == segment_ids
    sizes = table.sum(axis=1)
    return int32([max(sizes[segment_ids == s + 1], default=0) for s in range(max_segments)])


def sorts_in_place(segment_ids, max_segments):
    segment_ids.sort()
    return counted(segment_ids, max_segments)


def wrong_from_five_to_twelve(segment_ids, max_segments):
    out = counted(segment_ids, max_segments)
    return np.where((out >= 5) & (out <= 12), 4, out).astype(np.int32)


EXAMPLE = "for the row 1 1 0 2 and max_segments = 3 your function "
WRONG_LENGTHS = {
    "a constant": (lambda ids, s: int32([2, 1, 0]), "for the row 1 1 1 and max_segments = 1"),
    "zeros": (lambda ids, s: np.zeros(s, np.int32), EXAMPLE + "gave 0 0 0, expected 2 1 0."),
    "the example": (
        lambda ids, s: int32([2, 1, 0]) if s == 3 else counted(ids, s)[::-1],
        "for the row 0 0 1 2 2 and max_segments = 2 your function gave 2 1",
    ),
    "padding counted": (
        lambda ids, s: np.bincount(ids, minlength=s + 1)[:s].astype(np.int32),
        EXAMPLE + "gave 1 2 1",
    ),
    "off by one": (lambda ids, s: counted(ids, s + 1)[1:], EXAMPLE + "gave 1 0 0, expected 2 1 0."),
    "no minlength": (
        lambda ids, s: np.bincount(ids)[1:].astype(np.int32),
        EXAMPLE + "gave an int32 array of shape [2]",
    ),
    "the last run": (lengths_of_last_run, EXAMPLE + "gave 2 0 0, expected 2 1 0."),
    "int64": (
        lambda ids, s: np.bincount(ids, minlength=s + 1)[1:],
        EXAMPLE + "gave an int64 array of shape [3], expected",
    ),
    "a list": (
        lambda ids, s: counted(ids, s).tolist(),
        EXAMPLE + "gave a list, expected an int32 array of shape [3]",
    ),
    "a batch": (
        lambda ids, s: counted(ids, s)[None],
        EXAMPLE + "gave an int32 array of shape [1, 3], expected",
    ),
    "tokens by tokens": (
        pairs,
        "a row of 4,096 tokens and max_segments = 512 your function gave the right answer but",
    ),
    "tokens by ids": (
        lambda ids, s: int32((ids[:, None] == np.arange(1, s + 1)).sum(0)),
        "at most 590 KB is allowed",
    ),
    "one-hot": (lambda ids, s: int32(np.eye(s + 1, dtype=bool)[ids].sum(0)[1:]), "MB of memory; at most"),
    "changed input": (sorts_in_place, EXAMPLE + "gave the right answer but changed its input"),
    "an exception": (
        lambda ids, s: counted(ids, s)[[s]],
        EXAMPLE + "raised IndexError (index 3 is out of bounds",
    ),
    "None": (
        lambda ids, s: counted(ids, s) if ids[0] else None,
        "for the row 0 0 1 2 2 and max_segments = 2 your",
    ),
    "negative": (lambda ids, s: -counted(ids, s), EXAMPLE + "gave -2 -1 0, expected 2 1 0."),
    "absent id": (lambda ids, s: counted(ids, s) + int32(1), EXAMPLE + "gave 3 2 1, expected 2 1 0."),
}


def no_front(segment_ids, visible, max_segments):
    """Drop the starts of segments that vanished, but keep raw starts for the others."""
    keep = np.unique(segment_ids[visible])
    starts = [int(np.argmax(segment_ids == s)) for s in keep]
    return int32(starts + [-1] * (max_segments + 1 - len(starts)))


def pushes_to_buckets(segment_ids, visible, max_segments):
    out = np.full(max_segments + 1, -1, np.int32)
    for s in np.unique(segment_ids[visible]):
        out[s - 1] = np.argmax((segment_ids == s) & visible)
    return out


def fixed(segment_ids, visible, max_segments):
    return offsets_keep_trimmed(np.where(visible, segment_ids, 0), visible, max_segments)


WRONG_OFFSETS = {
    "as shipped": (
        offsets_keep_trimmed,
        "for the row 1 1 2 2 3, visible 1 1 0 0 1 and max_segments = 3 your function gave 0 2 4 -1, "
        "expected 0 4 -1 -1. Segment 2 has no visible token, so it has no start.",
    ),
    "raw starts": (no_front, "gave 0 4 -1, expected 1 4 -1. The first token of segment 1 is not visible."),
    "by id": (pushes_to_buckets, "gave 0 -1 4 -1, expected 0 4 -1 -1."),
    "a constant": (lambda ids, v, s: int32([0, 4, -1, -1]), "for the row 1 1 2 2 3, visible 1 1 1 1 1"),
    "filled with 0": (lambda ids, v, s: np.maximum(fixed(ids, v, s), 0), "gave 0 4 0 0, expected 0 4 -1 -1."),
    "too short": (lambda ids, v, s: fixed(ids, v, s)[:-1], "gave an int32 array of shape [3], expected"),
    "physical gaps": (lambda ids, v, s: fixed(ids[v], v[v], s), "gave 0 2 -1 -1, expected 0 4 -1 -1."),
    "overwrites the ids": (
        lambda ids, v, s: (np.putmask(ids, ~v, 0), offsets_keep_trimmed(ids, v, s))[1],
        "changed its input",
    ),
}


def lengths_and_starts_agree(ids, s):
    lengths, offsets = lengths_trust_order(ids, s)
    return bool((lengths > 0).sum() == (offsets >= 0).sum())


def never_falls(ids, s):
    """Padding left out, neighbours may not fall; a hole is overlooked."""
    real = ids[ids > 0]
    return bool((np.diff(real) >= 0).all() and real.max(initial=0) <= s)


def steps_of_one(ids, s):
    starts = ids[(np.diff(ids, prepend=0) != 0) & (ids != 0)]
    return bool((starts == np.arange(1, starts.size + 1)).all() and starts.size <= s)


def compares_pairs(ids, s):
    table = ids[:, None] <= ids
    return valid_in_a_loop(ids, s) if table.any() else True


WRONG_VALID = {
    "always True": (lambda ids, s: True, "for the row 1 1 0 1 and max_segments = 3 your function gave True"),
    "always False": (lambda ids, s: False, EXAMPLE + "gave False, expected True."),
    "the range": (lambda ids, s: ids.max() <= s, "for the row 1 1 0 1 and max_segments = 3 your function"),
    "the count": (lengths_and_starts_agree, "for the row 2 1 and max_segments = 2 your function gave True"),
    "a hole": (never_falls, "gave True, expected False. Padding stands inside segment 1: a hole."),
    "no gaps": (steps_of_one, "gave False, expected True. Id 2 is not used, which is allowed."),
    "no bound": (lambda ids, s: valid_in_a_loop(ids, 10**6), "There is one segment too many."),
    "segments counted": (
        lambda ids, s: valid_in_a_loop(ids, 10**6) and np.unique(ids[ids > 0]).size <= s,
        "There are two segments, but id 3 is above 2.",
    ),
    "no padding": (
        lambda ids, s: valid_in_a_loop(ids, s) and bool(ids[0]),
        "Padding stands between segments",
    ),
    "empty rows": (lambda ids, s: valid_in_a_loop(ids, s) and ids[ids > 0].max() <= s, "raised ValueError"),
    "a number": (lambda ids, s: int(valid_in_a_loop(ids, s)), EXAMPLE + "gave 1, an int, expected a bool"),
    "tokens by tokens": (compares_pairs, "took 16.8 MB of memory"),
}


def scan(row, max_segments):
    starts, last = [], 0
    for place in range(len(row)):
        here = row[place]
        if here and here != last:
            starts.append(place)
        last = here
    return starts


def every_thousandth(row, max_segments):
    """Read in steps, then bisect inside a step: O(sqrt T), not O(log T)."""
    step = math.isqrt(len(row)) or 1
    marks = [row[i] or max_segments + 1 for i in range(0, len(row), step)]
    starts = []
    for s in range(1, max_segments + 1):
        low = max(bisect.bisect_left(marks, s) - 1, 0) * step
        high = min(low + step, len(row))
        place = bisect.bisect_left(row, s, low, high, key=lambda i: i or max_segments + 1)
        if place < len(row) and row[place] == s:
            starts.append(place)
    return starts


def bisects(row, max_segments, padding):
    places = (bisect.bisect_left(row, s, key=lambda i: i or padding) for s in range(1, max_segments + 1))
    return list(places)


def never_ends(row, max_segments):
    low, high = 0, len(row)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle, high) if row[middle] == 1 else (low, middle)
    return [low]


SORTED = "for the row 1 1 1 2 2 4 0 0 and max_segments = 4 your function "
WRONG_STARTS = {
    "every token": (
        scan,
        "gave the right answer but read 16,384 times from 16,384 tokens; 128 are allowed",
    ),
    "as an array": (lambda row, s: scan(np.asarray(row), s), "times from 16,384 tokens; 128 are allowed"),
    "the square root": (every_thousandth, "your function gave the right answer but read 1"),
    "absent ids": (lambda row, s: bisects(row, s, s + 1), SORTED + "gave 0 3 5 5, expected 0 3 5."),
    "padding as 0": (lambda row, s: bisects(row, s, 0), SORTED + "gave "),
    "a constant": (
        lambda row, s: [0, 3, 5],
        "for the row 1 and max_segments = 1 your function gave 0 3 5, expected 0.",
    ),
    "-1 at the end": (
        lambda row, s: [*starts_from_run_to_run(row, s), -1],
        SORTED + "gave 0 3 5 -1, expected 0 3 5.",
    ),
    "a slice": (lambda row, s: row[:10], SORTED + "raised TypeError (this row is read one token at a time"),
    "past the end": (
        lambda row, s: [row[len(row)]],
        SORTED + "raised IndexError (index 8 is outside a row of 8 tokens)",
    ),
    "never ends": (never_ends, SORTED + "was stopped after 117 reads of 8 tokens; 100 are allowed."),
    "writes": (lambda row, s: row.__setitem__(0, 1), SORTED + "raised AttributeError"),
    "floats": (
        lambda row, s: [float(i) for i in starts_from_run_to_run(row, s)],
        SORTED + "gave a list, expected a list of",
    ),
}

ZOO = [
    pytest.param(exercise, fn, words, id=f"{exercise.name}: {name}")
    for exercise, zoo in zip(
        EXERCISES, (WRONG_LENGTHS, WRONG_OFFSETS, WRONG_VALID, WRONG_STARTS), strict=True
    )
    for name, (fn, words) in zoo.items()
]


@pytest.mark.parametrize(("exercise", "fn", "words"), ZOO)
def test_a_wrong_answer_is_told_what_broke_it(exercise, fn, words):
    result = exercise(fn)
    assert not result.passed
    assert result.sentence.startswith(("Not yet: for the row ", "Not yet: for a row of "))
    assert words in result.sentence
    assert exercise(fn).sentence == result.sentence
    assert result.picture is not None
    assert result.picture.sentence == result.sentence
    ElementTree.fromstring(result.picture.svg)


def test_a_rare_mistake_is_found_and_made_small():
    """No chosen row has a segment of five to twelve tokens, so this one is left to hypothesis."""
    sentence = check_lengths(wrong_from_five_to_twelve).sentence
    row = sentence.removeprefix("Not yet: for the row ").partition(" and ")[0].split()
    assert 5 <= len(row) <= 12, sentence
    assert check_lengths(wrong_from_five_to_twelve).sentence == sentence


def test_the_picture_shows_where_a_wrong_number_leads():
    picture = check_offsets(offsets_keep_trimmed).picture
    assert picture is not None
    assert ">expected<" in picture.svg and ">your function<" in picture.svg


def test_an_invalid_row_is_marked_in_its_picture():
    picture = check_valid(lambda ids, s: True).picture
    assert picture is not None and "valid = False" in picture.svg


@settings(max_examples=50)
@given(segments_cases.valid_inputs)
def test_the_unsuspecting_lengths_are_right_on_valid_rows(case):
    ids, max_segments = case.arguments
    if case.expected:
        lengths, offsets = lengths_trust_order(ids, max_segments)
        np.testing.assert_array_equal(lengths, reference.count(ids[None], max_segments)[0])
        np.testing.assert_array_equal(offsets, reference.starts(ids[None], max_segments)[0])


@settings(max_examples=50)
@given(segments_cases.offsets_inputs)
def test_the_bug_shows_only_where_something_is_hidden(case):
    ids, visible, _ = case.arguments
    same = np.array_equal(offsets_keep_trimmed(*case.arguments), case.expected)
    assert same or not visible[ids > 0].all()


@settings(max_examples=50)
@given(segments_cases.starts_inputs)
def test_starts_are_where_the_reference_finds_them(case):
    row, max_segments = case.arguments
    ids = np.array([row[i] for i in range(len(row))], np.int32)
    found = reference.starts(ids[None], max_segments)[0]
    assert found[found >= 0].tolist() == case.expected
