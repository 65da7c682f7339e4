"""The exercises on ring buffers: wrong answers of many kinds are told what broke them."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from wrong_answers import check_feedback, parameters

from attnlab.exercises import ring_cases
from attnlab.exercises.ring import (
    check_capacity,
    check_positions,
    check_rollback,
    check_rolling,
    check_slots,
)
from attnlab.exercises.ring_bugs import chunk_larger_than_window, roll_too_early, slots_as_positions
from attnlab.exercises.ring_strip import Strip, strips

EXERCISES = [check_positions, check_capacity, check_slots, check_rolling, check_rollback]
by_name = pytest.mark.parametrize("exercise", EXERCISES, ids=[exercise.name for exercise in EXERCISES])


@by_name
def test_a_stub_is_shown_the_example(exercise):
    result = exercise(lambda *arguments: ...)
    assert result.sentence.startswith("Not solved yet. The function should return ")
    assert " = " in result.sentence
    assert result.picture is not None


@by_name
def test_there_are_hints_and_three_levels(exercise):
    assert 2 <= len(exercise.hints) <= 3
    assert exercise.name in exercise.task
    levels = [other.level for other in EXERCISES]
    assert levels == ["fill in", "fill in", "find the bug", "find the bug", "open"]


# Other right ways, which must pass too.


def positions_by_writing(slots, written, capacity):
    ring = {}
    for position in range(written):
        ring[position % capacity] = position
    return [ring.get(slot, -1) for slot in slots.tolist()]


def slots_by_writing(position, written, window):
    ring = positions_by_writing(np.arange(window), written, window)
    return [slot for slot, held in enumerate(ring) if 0 <= held <= position and held > position - window]


def suffices_by_writing(capacity, window, chunks):
    """Write a long stream of every pair of sizes, and look."""
    for first in chunks:
        for second in chunks:
            stream = [first] * (2 * capacity) + [second, first, second]
            found = chunk_larger_than_window(stream, window, capacity)
            needed = [min(p + 1, window) for p in range(sum(stream))]
            if [len(keys) for keys in found] != needed:
                return False
    return True


def positions_by_writing_and_reading(steps, written, window, capacity):
    """Try each step on a copy of a real ring, and see whether the next query misses a key."""
    ring = np.array(positions_by_writing(np.arange(capacity), written, capacity))
    out, n = [], written
    for step in steps:
        after, trial = n + step, ring.copy()
        for position in range(n, after):
            trial[position % capacity] = position
        query = n if step > 0 else after
        keys = range(query - window + 1, query + (step > 0))
        if all(trial[key % capacity] == key for key in keys):
            ring, n = trial, after
        out.append(n)
    return out


OTHER_WAYS = [
    (check_positions, positions_by_writing),
    (check_positions, lambda s, n, c: tuple(positions_by_writing(s, n, c))),
    (check_slots, slots_by_writing),
    (check_capacity, suffices_by_writing),
    (check_rolling, lambda n, w: [p if p < n else -1 for p in range(max(0, n - w), max(0, n - w) + w)]),
    (check_rollback, positions_by_writing_and_reading),
]


@pytest.mark.parametrize(("exercise", "fn"), OTHER_WAYS)
def test_other_right_ways_pass(exercise, fn):
    if fn is suffices_by_writing:
        # Slow, so it is not asked about the windows of a real model, nor on every input that can be drawn.
        for case in exercise.cases()[:-2]:
            assert fn(*case.arguments) == case.expected, case.words
        return
    result = exercise(fn)
    assert result.passed, result.sentence


def formula(slots, written, capacity):
    return np.maximum(written - 1 - (written - 1 - slots) % capacity, -1)


def forgets_the_highest(steps, written, window, capacity):
    """Count a rollback from the present position, as if what was taken back had never been written."""
    out, n = [], written
    for step in steps:
        most = capacity - window + 1
        n += step if -most <= step <= most else 0
        out.append(n)
    return out


def highest_of_refused(steps, written, window, capacity):
    """Let a step that is not taken move the highest position."""
    out, n, highest = [], written, written
    for step in steps:
        highest = max(highest, n + step)
        fits = step <= capacity - window + 1 if step > 0 else n + step - window + 1 >= highest - capacity
        n += step if fits else 0
        out.append(n)
    return out


def wrong_from_three_to_five(tokens, window):
    right = [
        p if p < tokens else -1 for p in range(max(0, tokens - window), max(0, tokens - window) + window)
    ]
    return [9] * window if 3 <= window <= 5 and tokens > 9 else right


ZOO = {
    check_positions: {
        "slots": (lambda s, n, c: s, "gave 0 1 2 3 4, expected 5 6 2 3 4."),
        "the example": (
            lambda s, n, c: [5, 6, 2, 3, 4],
            "for slots 0 1 2 3 4, written = 5 and capacity = 5 your function gave 5 6 2 3 4",
        ),
        "one round too early": (lambda s, n, c: formula(s, n + 1, c), "gave 5 6 7 3 4, expected 5 6 2 3 4."),
        "negative": (
            lambda s, n, c: n - 1 - (n - 1 - s) % c,
            "gave 0 1 2 -2 -1, expected 0 1 2 -1 -1. Two slots have not been reached yet.",
        ),
        "zero for empty": (lambda s, n, c: np.maximum(formula(s, n, c), 0), "expected 0 1 2 -1 -1."),
        "all slots": (lambda s, n, c: formula(np.arange(c), n, c), "Slots may be asked for in any order"),
        "floats": (
            lambda s, n, c: formula(s, n, c) * 1.0,
            "gave a float64 array of shape [5], expected a list",
        ),
        "changed input": (lambda s, n, c: (formula(s, n, c), s.fill(0))[0], "changed its input"),
        "an exception": (lambda s, n, c: [s[c] for _ in s], "raised IndexError (index 5 is out of bounds"),
    },
    check_capacity: {
        "always": (
            lambda c, w, k: True,
            "for capacity = 7, window = 5 and chunks of 1 4 your function gave True",
        ),
        "never": (lambda c, w, k: False, "gave False, expected True."),
        "the window": (lambda c, w, k: c >= w, "The first query of a chunk of 4 still sees 4 keys"),
        "the source's": (lambda c, w, k: c >= max(w, *k, 0), "The first query of a chunk of 4"),
        "two windows": (lambda c, w, k: c >= 2 * w, "gave False, expected True."),
        "one too many": (lambda c, w, k: c >= w + max(k), "gave False, expected True."),
        "the last chunk": (lambda c, w, k: c >= w - 1 + k[-1], "The largest chunk need not come last."),
        "the sum": (lambda c, w, k: c >= w - 1 + sum(k), "gave False, expected True."),
        "a number": (lambda c, w, k: int(c >= w - 1 + max(k)), "gave 1, an int, expected a bool: True"),
    },
    check_slots: {
        "as shipped": (
            slots_as_positions,
            "for position = 3, written = 6 and window = 5 your function gave 0 1 2 3, expected 1 2 3. "
            "Slot 0 holds position 5, which lies ahead of the query.",
        ),
        "everything": (lambda p, n, w: list(range(w)), "gave 0 1 2 3 4, expected 1 2 3."),
        "never written": (
            lambda p, n, w: np.flatnonzero(formula(np.arange(w), n, w) <= p),
            "expected 0 1 2 3. The ring has not wrapped yet, and slot 4 was never written.",
        ),
        "oldest first": (
            lambda p, n, w: sorted(slots_by_writing(p, n, w), key=lambda s: (s - n) % w),
            "gave 2 3 4 0 1, expected 0 1 2 3 4. The newest query sees the whole ring.",
        ),
        "not its own": (
            lambda p, n, w: [s for s in slots_by_writing(p, n, w) if s != p % w],
            "gave 1 2, expected 1 2 3.",
        ),
        "the newest only": (lambda p, n, w: slots_by_writing(n - 1, n, w), "expected 1 2 3."),
    },
    check_rolling: {
        "as shipped": (
            roll_too_early,
            "for tokens = 4 and window = 4 your function gave 1 2 -1 3, expected 0 1 2 3. The token at",
        ),
        "too late": (
            lambda n, w: [*range(w)] if n == w + 1 else roll_too_early(n, w) if n != w else [*range(w)],
            "for tokens = 5 and window = 4",
        ),
        "never shifted": (
            lambda n, w: [p if p < n else -1 for p in range(w)],
            "gave 0 1 2 3, expected 1 2 3 4. Now the oldest has to leave.",
        ),
        "a ring": (lambda n, w: formula(np.arange(w), n, w), "gave 4 1 2 3, expected 1 2 3 4."),
        "short": (lambda n, w: list(range(max(0, n - w), n)), "gave 0 1, expected 0 1 -1 -1."),
        "rare": (wrong_from_three_to_five, "for tokens = 1"),
    },
    check_rollback: {
        "every step": (
            lambda s, n, w, c: np.cumsum([n, *s])[1:],
            "for steps +10, written = 100, window = 8 and capacity = 16 your function gave 110",
        ),
        "no step": (lambda s, n, w, c: [n] * len(s), "gave 100 100 100, expected 104 101 102."),
        "no memory": (
            forgets_the_highest,
            "expected 109 100 102 102. What was overwritten before a rollback",
        ),
        "refused steps count": (highest_of_refused, "your function gave"),
        "strict": (
            lambda s, n, w, c: positions_by_writing_and_reading(s, n, w + 1, c),
            "C - W + 1 tokens can be written at once, and all taken back.",
        ),
    },
}


@pytest.mark.parametrize(("exercise", "fn", "words"), parameters(ZOO))
def test_a_wrong_answer_is_told_what_broke_it(exercise, fn, words):
    check_feedback(exercise, fn, words)


def test_the_picture_shows_the_answer_under_what_was_expected():
    picture = check_slots(slots_as_positions).picture
    assert picture is not None
    assert ">expected<" in picture.svg and ">your function<" in picture.svg


def test_a_long_strip_is_cut():
    picture = strips([Strip("slot", range(100), marked=[0], breaks=[2])], "Many")
    ElementTree.fromstring(picture.svg)
    assert ">23<" in picture.svg and ">24<" not in picture.svg and ">...<" in picture.svg


@settings(max_examples=60, deadline=None)
@given(ring_cases.capacity_inputs)
def test_the_law_says_what_a_long_stream_shows(case):
    assert suffices_by_writing(*case.arguments) == case.expected


@settings(max_examples=60, deadline=None)
@given(ring_cases.rollback_inputs)
def test_the_rollback_law_says_what_a_real_ring_shows(case):
    assert positions_by_writing_and_reading(*case.arguments) == case.expected
