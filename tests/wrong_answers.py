"""What every exercise owes a reader whose answer is wrong: the input that broke it, in words and drawn."""

from xml.etree import ElementTree

import pytest


def parameters(zoo):
    """One test for each wrong function of each exercise, with words that its feedback must hold."""
    return [
        pytest.param(exercise, fn, words, id=f"{exercise.name}: {name}")
        for exercise, functions in zoo.items()
        for name, (fn, words) in functions.items()
    ]


def check_feedback(exercise, fn, words):
    """The answer is refused, twice in the same words, and the picture says what the sentence says."""
    result = exercise(fn)
    assert not result.passed
    assert result.sentence.startswith("Not yet: for ")
    assert words in result.sentence
    assert exercise(fn).sentence == result.sentence
    assert result.picture is not None
    assert result.picture.sentence == result.sentence
    ElementTree.fromstring(result.picture.svg)
