"""Each exercise is passed by the solution that stands in the notebook of solutions."""

import runpy
from functools import cache

import pytest

from attnlab.exercises import ring, ring_more, segments, tiles
from attnlab.exercises.check import Exercise

NOTEBOOKS = {
    segments: "01_packed_sequences",
    ring: "02_ring_buffers",
    ring_more: "02_ring_buffers",
    tiles: "03_tiles",
}
EXERCISES = {
    f"{room.__name__.rpartition('.')[2]}: {exercise.name}": (exercise, notebook)
    for room, notebook in NOTEBOOKS.items()
    for exercise in vars(room).values()
    if isinstance(exercise, Exercise)
}


@cache
def solutions(path):
    """The functions of a solutions notebook, by name."""
    return runpy.run_path(path)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_passes(name, checkout):
    exercise, notebook = EXERCISES[name]
    functions = solutions(str(checkout / "notebooks" / "solutions" / f"{notebook}.py"))
    result = exercise(functions[exercise.name])
    assert result.passed, result.sentence
    assert result.sentence.startswith("Passed on ")


def test_no_exercise_is_missing():
    assert len(EXERCISES) == 4 + 5 + 3 + 4
