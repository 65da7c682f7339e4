"""The outline of a set of cells, filled again, is the set."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attnlab.show.hatch import hatch
from attnlab.show.outline import corner_count, outline
from attnlab.show.spread import spread
from attnlab.show.text_width import text_width, wrap


def winding(d: str, shape: tuple[int, int]) -> np.ndarray:
    """How often the outline goes round each cell, by walking it."""
    turns = np.zeros(shape, int)

    def upright(x: int, y0: int, y1: int) -> None:
        turns[min(y0, y1) : max(y0, y1), x:] += 1 if y1 > y0 else -1

    for part in d.split("M")[1:]:
        x, y = start = tuple(map(int, re.match(r"(\d+) (\d+)", part).groups()))
        for kind, step in re.findall(r"([hv])(-?\d+)", part):
            if kind == "h":
                x += int(step)
            else:
                upright(x, y, y + int(step))
                y += int(step)
        assert x == start[0]
        upright(x, y, start[1])
    return turns


@given(hnp.arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_the_outline_goes_once_round_every_cell(cells):
    d = outline(cells)
    turns = winding(d, cells.shape)
    assert (np.abs(turns) == cells).all()
    assert corner_count(cells) == d.count("h") + d.count("v") + d.count("z")


def test_a_causal_mask_has_few_corners():
    assert len(outline(np.tri(512, dtype=bool))) < 2100


@given(st.lists(st.floats(0, 300), max_size=12), st.floats(1, 20))
def test_labels_are_moved_apart_and_keep_their_order(wishes, gap):
    places = spread(wishes, gap, -1e4, 1e4)
    ordered = [places[i] for i in sorted(range(len(wishes)), key=lambda i: wishes[i])]
    assert all(b - a >= gap - 1e-6 for a, b in pairwise(ordered))


def test_labels_that_are_apart_stay():
    assert spread([30, 10, 90], 15, 0, 100) == [30, 10, 90]
    assert spread([50, 50], 10, 0, 100) == [45, 55]
    assert spread([99, 99], 10, 0, 100) == [90, 100]


def test_text_is_measured_and_broken():
    assert text_width("iiii", 10) < text_width("mmmm", 10) < text_width("mmmm", 10, bold=True)
    lines = wrap("one two three four", 10, text_width("one two", 10) + 1)
    assert lines == ["one two", "three", "four"]


@pytest.mark.parametrize("box", [(0, 0, 20, 10), (7.3, 2, 3, 30), (100, 50, 1, 1)])
def test_a_hatch_stays_inside(box):
    x, y, width, height = box
    for start in re.findall(r"M([\d.]+) ([\d.]+)l([\d.]+) -([\d.]+)", hatch(*box, 4)):
        x0, y0, dx, dy = map(float, start)
        assert x - 0.01 <= x0 and x0 + dx <= x + width + 0.02
        assert y0 <= y + height + 0.01 and y0 - dy >= y - 0.02
