"""Pictures put together, and the cost of importing them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import attnlab.show
from attnlab.show import beside, mask_picture, stack

A = mask_picture(np.tri(8, dtype=bool), title="A", panel=True)
B = mask_picture(np.eye(16, dtype=bool), title="B", panel=True)


def test_side_by_side_shares_one_paper_and_one_sentence():
    both = beside(A, B)
    assert both.sentence == f"{A.sentence} {B.sentence}"
    assert both.svg.count("al-card") == 1
    assert both.size[0] == A.size[0] + B.size[0] + 8 - 24
    assert both.size[1] == max(A.size[1], B.size[1])


def test_a_stack_is_as_wide_as_its_widest():
    both = stack(A, B, gap=10)
    assert both.size == (max(A.size[0], B.size[0]), A.size[1] + B.size[1] + 10 - 24)


def test_a_title_brings_its_sentence():
    both = beside(A, B, title="Both", sentence="Two masks.")
    assert both.sentence == "Two masks."
    assert ">Both</text>" in both.svg and ">Two masks.</text>" in both.svg


def test_the_plots_move_along():
    both = beside(A, B, title="Both")
    first, second = both.plots
    assert first.x == A.plots[0].x
    assert second.x == B.plots[0].x + A.size[0] + 8 - 24
    assert first.y > A.plots[0].y
    nested = stack(A, both)
    assert len(nested.plots) == 3


@pytest.mark.unchecked
def test_nothing_cannot_be_laid_out():
    with pytest.raises(ValueError, match="at least one picture"):
        beside()


def test_every_public_name_is_there():
    for name in attnlab.show.__all__:
        assert not isinstance(getattr(attnlab.show, name), type(sys)), f"{name} is a module"


def test_importing_pictures_loads_no_drawing_library():
    code = (
        "import sys, attnlab.show;"
        "heavy = {'matplotlib', 'ipywidgets', 'anywidget', 'torch', 'jax', 'IPython', 'pygments'};"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
