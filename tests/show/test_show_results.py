"""Curves of a run show its rows and nothing else; the shelf is drawn by the code it is about."""

import pytest

from attnlab.bench.rows import Row
from attnlab.show.results import result_curves
from attnlab.show.shelf import IDEAS, shelf_picture

ROWS = [
    Row("room", "case", variant, "bytes", "B", value, {"T": tokens})
    for variant, factor in (("slow", 100), ("fast", 2))
    for tokens, value in ((8, 8 * factor), (4, 4 * factor), (16, 16 * factor))
]
LABELS = {"title": "t", "sentence": "s", "x_label": "tokens", "y_label": "bytes", "y_unit": "bytes"}


def test_rows_become_lines_in_order():
    curves = result_curves(
        ROWS, over="T", metric="bytes", roles={"fast": "better", "slow": "muted"}, **LABELS
    )
    assert [curve.name for curve in curves.curves] == ["fast", "slow"]
    assert curves.curves[0].x.tolist() == [4, 8, 16] and curves.curves[0].y.tolist() == [8, 16, 32]


def test_a_line_can_have_another_name_and_rows_can_be_narrowed():
    options = {"over": "T", "metric": "bytes", "roles": {"fast": "better"}, **LABELS}
    named = result_curves(ROWS, names={"fast": "ours"}, wanted={"case": "case"}, **options)
    assert [curve.name for curve in named.curves] == ["ours"]
    with pytest.raises(ValueError, match="roles: the run has no 'bytes' of 'fast'"):
        result_curves(ROWS, wanted={"case": "another"}, **options)


def test_the_shelf_names_its_four_ideas():
    picture = shelf_picture()
    assert all(name in picture.svg for name, _, _ in IDEAS)
    assert len(picture.svg) < 16_000
