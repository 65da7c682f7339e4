"""How an answer is compared with what was expected, and put into words."""

from __future__ import annotations

import numpy as np
import pytest

from attnlab.exercises.answers import describe, say, wrong_kind, wrong_values

ARRAY = np.array([2, 1, 0], np.int32)
MANY = np.arange(100, dtype=np.int32)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ARRAY.copy(), ARRAY),
        ([0, 3], [0, 3]),
        ((0, 3), [0, 3]),
        (np.array([0, 3]), [0, 3]),
        ([np.int32(0), 3], [0, 3]),
        ([], []),
        (np.array([]), []),
        (np.bool_(True), True),
        (False, False),
    ],
)
def test_right_answers_have_nothing_wrong(answer, expected):
    assert wrong_kind(answer, expected) == ""
    assert wrong_values(answer, expected) == ""


@pytest.mark.parametrize(
    ("answer", "expected", "words"),
    [
        (
            ARRAY.astype(np.int64),
            ARRAY,
            "gave an int64 array of shape [3], expected an int32 array of shape [3]",
        ),
        (
            ARRAY[None],
            ARRAY,
            "gave an int32 array of shape [1, 3], expected an int32 array of shape [3]: 2 1 0",
        ),
        ([2, 1, 0], ARRAY, "gave a list, expected an int32 array of shape [3]: 2 1 0"),
        (None, ARRAY, "gave None, expected an int32 array of shape [3]: 2 1 0"),
        ([0, True], [0, 3], "gave a list, expected a list of ints: 0 3"),
        ([0.0, 3.0], [0, 3], "gave a list, expected a list of ints: 0 3"),
        (np.array([0.5]), [0], "gave a float64 array of shape [1], expected a list of ints: 0"),
        ((n for n in [0]), [0], "gave a generator, expected a list of ints: 0"),
        (3, [3], "gave 3, an int, expected a list of ints: 3"),
        (1, True, "gave 1, an int, expected a bool: True"),
        (np.array([True]), True, "gave a bool array of shape [1], expected a bool: True"),
    ],
)
def test_an_answer_of_another_kind_is_named(answer, expected, words):
    assert wrong_kind(answer, expected).startswith(words)


@pytest.mark.parametrize(
    ("answer", "expected", "words"),
    [
        (np.array([2, 1, 1], np.int32), ARRAY, "gave 2 1 1, expected 2 1 0"),
        ([0], [0, 3], "gave 0, expected 0 3"),
        ([0], [], "gave 0, expected an empty list"),
        ([], [0], "gave an empty list, expected 0"),
        (True, False, "gave True, expected False"),
        (np.where(MANY == 70, 0, MANY), MANY, "gave 0 at index 70, expected 70 there"),
    ],
)
def test_a_wrong_value_is_shown_beside_the_right_one(answer, expected, words):
    assert wrong_values(answer, expected) == words


def test_a_long_list_is_cut_and_counted():
    assert say(MANY).endswith("22 23 ... (100 numbers)")
    cut = wrong_values(MANY[:50], MANY)
    assert "(50 numbers)" in cut and "(100 numbers)" in cut


def test_a_value_is_described_without_its_address():
    assert describe(object()) == "an object"
    assert describe(...) == "Ellipsis"
    assert describe(0.5) == "0.5, a float"
