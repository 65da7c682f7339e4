"""The three further exercises on ring buffers: what shipped is told what broke it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.exercises import ring_more_cases
from attnlab.exercises.ring_bugs import (
    chunk_larger_than_window,
    chunks_that_fill_the_ring,
    padding_takes_room,
    window_and_one,
)
from attnlab.exercises.ring_more import SentenceExercise, check_chunk, check_padding, check_window

EXERCISES = [check_window, check_padding, check_chunk]
by_name = pytest.mark.parametrize("exercise", EXERCISES, ids=[exercise.name for exercise in EXERCISES])


@by_name
def test_a_stub_is_shown_the_example_in_few_words(exercise):
    result = exercise(lambda *arguments: ...)
    assert result.sentence.startswith("Not solved yet. The function should return a list of ")
    assert "For " in result.sentence and " that is " in result.sentence
    shown = result._repr_mimebundle_()
    assert list(shown) == ["text/plain"] and len(shown["text/plain"].encode()) < 300


@by_name
def test_it_is_a_bug_to_find_with_hints_and_a_few_chosen_inputs(exercise):
    assert exercise.level == "find the bug"
    assert exercise.name in exercise.task
    assert 2 <= len(exercise.hints) <= 3
    assert exercise.hints._repr_html_().startswith("<details>")
    assert 6 <= len(exercise.cases()) <= 10
    assert all(case.draw(None) == [] for case in exercise.cases())


# Other right ways, which must pass too.


def attended_key_by_key(padded, window):
    seen = []
    for key, hidden in enumerate(padded.tolist()):
        if len(padded) - 1 - key < window and not hidden:
            seen.append(key)
    return seen


def all_are_there(chunks, window, capacity):
    """Fill a ring one token at a time, then write these chunks to it, and see whether every key is found."""
    stream = [1] * (2 * capacity) + list(chunks)
    found = chunk_larger_than_window(stream, window, capacity)
    return [len(keys) for keys in found] == [min(p + 1, window) for p in range(sum(stream))]


def chunks_by_trying(tokens, window, capacity):
    """Take the largest chunk that loses no key in a real ring, again and again."""
    sizes: list[int] = []
    while sum(sizes) < tokens:
        left = range(1, tokens - sum(sizes) + 1)
        sizes.append(max(size for size in left if all_are_there([*sizes, size], window, capacity)))
    return sizes


OTHER_WAYS = [
    (check_window, lambda p, w: np.arange(p + 1)[-w:]),
    (check_window, lambda p, w: tuple(k for k in range(p + 1) if p - k < w)),
    (check_padding, attended_key_by_key),
    (check_padding, lambda f, w: [k for k in np.flatnonzero(np.logical_not(f)) if k > len(f) - 1 - w]),
    (check_chunk, lambda n, w, c: np.diff([*range(0, n, c - w + 1), n])),
]


@pytest.mark.parametrize(("exercise", "fn"), OTHER_WAYS)
def test_other_right_ways_pass(exercise, fn):
    result = exercise(fn)
    assert result.passed, result.sentence


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 16), st.integers(1, 5), st.integers(0, 5))
def test_the_chunks_are_the_largest_that_lose_nothing_in_a_real_ring(tokens, window, room):
    case = ring_more_cases.chunk_case(tokens, window, window + room)
    assert chunks_by_trying(*case.arguments) == case.expected


SHIPPED: dict[SentenceExercise, tuple[Any, str]] = {
    check_window: (
        window_and_one,
        "Not yet: for position = 5 and window = 4 your function gave 1 2 3 4 5, expected 2 3 4 5. "
        "The query's own key is one of the 4.",
    ),
    check_padding: (
        padding_takes_room,
        "Not yet: for padded = 1 1 1 1 1 0 0 0 (1 is True) and window = 5 your function gave 3 4 5 6 7, "
        "expected 5 6 7. Positions 3 and 4 lie in the window and hold padding.",
    ),
    check_chunk: (
        chunks_that_fill_the_ring,
        "Not yet: for tokens = 20, window = 4 and capacity = 8 your function gave 8 8 4, expected 5 5 5 5. "
        "A chunk of 8 takes every slot of this ring, and its first query still sees 3 older keys.",
    ),
}


@by_name
def test_what_shipped_fails_with_its_sentence(exercise):
    fn, sentence = SHIPPED[exercise]
    result = exercise(fn)
    assert not result.passed and result.picture is None
    assert result.sentence == sentence
    assert exercise(fn).sentence == sentence


def test_chunks_that_fill_the_ring_lose_the_keys_that_the_note_names():
    found = chunk_larger_than_window([1] * 16 + chunks_that_fill_the_ring(8, 4, 8), 4, 8)
    assert found[16].tolist() == [16]  # 13, 14 and 15 are gone
    assert all_are_there([5, 5, 5, 5], 4, 8) and not all_are_there([6], 4, 8)


def skips_padding_first(padded, window):
    return np.flatnonzero(~padded)[-window:]


def wrong_far_out(position, window):
    return [] if position > 30 else list(range(max(0, position - window + 1), position + 1))


ZOO: dict[SentenceExercise, dict[str, tuple[Any, str]]] = {
    check_window: {
        "nothing": (lambda p, w: [], "gave an empty list, expected 2 3 4 5."),
        "everything": (lambda p, w: list(range(p + 1)), "gave 0 1 2 3 4 5, expected 2 3 4 5."),
        "the example": (lambda p, w: [2, 3, 4, 5], "for position = 3 and window = 4"),
        "not its own": (lambda p, w: list(range(max(0, p - w), p)), "gave 1 2 3 4, expected 2 3 4 5."),
        "negative": (
            lambda p, w: list(range(p - w + 1, p + 1)),
            "gave -2 -1 0 1, expected 0 1. There are fewer keys than the window has room for.",
        ),
        "newest first": (lambda p, w: list(range(p, max(-1, p - w), -1)), "gave 5 4 3 2"),
        "only the number": (lambda p, w: min(p + 1, w), "gave 4, an int, expected a list of ints"),
        "not far enough": (
            wrong_far_out,
            "for position = 31 and window = 1 your function gave an empty list",
        ),
        "an exception": (lambda p, w: [][p], "raised IndexError (list index out of range)"),
    },
    check_padding: {
        "nothing": (lambda f, w: [], "gave an empty list, expected 5 6 7."),
        "the example": (lambda f, w: [5, 6, 7], "for padded = 0 0 0 0 0 0 (1 is True) and window = 4"),
        "no window": (lambda f, w: np.flatnonzero(~f), "gave 0 1 2 3 4 5, expected 2 3 4 5."),
        "too far back": (skips_padding_first, "gave 0 1 3 5, expected 3 5. Padding takes up room"),
        "from the window": (lambda f, w: np.flatnonzero(~f[-w:]), "gave 2 3 4, expected 5 6 7."),
        "the padding": (lambda f, w: np.flatnonzero(f), "gave 0 1 2 3 4, expected 5 6 7."),
        "padding in front only": (
            lambda f, w: list(range(max(len(f) - w, int(np.argmin(f))), len(f))),
            "gave 2 3 4 5, expected 3 5.",
        ),
        "always its own": (
            lambda f, w: sorted({*attended_key_by_key(f, w), len(f) - 1}),
            "gave 2 4, expected 2. The newest token is padding itself.",
        ),
        "flags": (lambda f, w: ~f, "gave a bool array of shape [8], expected a list of ints"),
        "changed input": (lambda f, w: (attended_key_by_key(f, w), f.fill(True))[0], "changed its input"),
    },
    check_chunk: {
        "nothing": (lambda n, w, c: [], "gave an empty list, expected 5 5 5 5."),
        "the example": (lambda n, w, c: [5, 5, 5, 5], "for tokens = 12, window = 4 and capacity = 8"),
        "single steps": (lambda n, w, c: [1] * n, "expected 5 5 5 5."),
        "the window": (lambda n, w, c: [w] * (n // w), "gave 4 4 4 4 4, expected 5 5 5 5."),
        "two windows": (
            lambda n, w, c: [min(w + 1, n - i) for i in range(0, n, w + 1)],
            "gave 7 3, expected 5 5. Larger chunks lose keys",
        ),
        "no rest": (lambda n, w, c: [c - w + 1] * (n // (c - w + 1)), "gave 5 5, expected 5 5 2."),
        "a full last chunk": (
            lambda n, w, c: [c - w + 1] * -(-n // (c - w + 1)),
            "gave 5 5 5, expected 5 5 2.",
        ),
        "an empty rest": (
            lambda n, w, c: [*[c - w + 1] * (n // (c - w + 1)), n % (c - w + 1)],
            "gave 5 5 5 5 0, expected 5 5 5 5.",
        ),
        "the number": (lambda n, w, c: c - w + 1, "gave 5, an int, expected a list of ints: 5 5 5 5"),
    },
}
PARAMETERS = [
    pytest.param(exercise, fn, words, id=f"{exercise.name}: {name}")
    for exercise, zoo in ZOO.items()
    for name, (fn, words) in zoo.items()
]


@pytest.mark.parametrize(("exercise", "fn", "words"), PARAMETERS)
def test_a_wrong_answer_is_told_what_broke_it(exercise, fn, words):
    result = exercise(fn)
    assert not result.passed and result.picture is None
    assert result.sentence.startswith("Not yet: for ")
    assert words in result.sentence
    assert len(result.sentence.encode()) < 400
