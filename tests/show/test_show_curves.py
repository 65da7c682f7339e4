"""Curves: units, ticks, names at the ends, and a cursor that needs no new drawing."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from attnlab.show import Axes, Curve, curve_figure, to_picture
from attnlab.show.mpl_svg import figure_svg
from attnlab.show.units import UNITS

X = 2.0 ** np.arange(12, 21)
STYLE = {"title": "Memory", "sentence": "It grows.", "x_label": "tokens", "y_label": "bytes"}
LOG = STYLE | {"x_unit": "tokens", "y_unit": "bytes", "log_x": True, "log_y": True}


def three() -> list[Curve]:
    return [
        Curve("mask", X, X**2, "muted"),
        Curve("floor", X, X, dashed=True),
        Curve("tree", X, 1.05 * X, "better", points=True),
    ]


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("bytes", 0, "0"),
        ("bytes", 512, "512 B"),
        ("bytes", 1536, "1.5 KiB"),
        ("bytes", 64 * 2**30, "64 GiB"),
        ("seconds", 0, "0"),
        ("seconds", 6.5e-5, "65 µs"),
        ("seconds", 1e-3, "1 ms"),
        ("seconds", 2.5, "2.5 s"),
        ("seconds", 3e-8, "30 ns"),
        ("tokens", 131072, "128k"),
        ("tokens", 2**20, "1M"),
        ("tokens", 100, "100"),
        ("count", 1024, "1,024"),
        ("count", 1e9, "10⁹"),
        ("count", 2.5e8, "2.5 × 10⁸"),
        ("count", 1e-4, "10⁻⁴"),
        ("count", -2, "−2"),
        ("count", 0.25, "0.25"),
    ],
)
def test_values_are_written_with_their_unit(unit, value, text):
    assert UNITS[unit].write(value) == text


def test_logarithmic_ticks_are_round():
    assert UNITS["bytes"].log_ticks(700, 3e9, 4) == [2.0**10, 2.0**20, 2.0**30]
    assert UNITS["seconds"].log_ticks(2e-6, 0.5, 9) == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2, 1e-1])


def test_the_axes_map_data_to_pixels():
    axes = Axes(100, 50, 200, 100, (1, 100), (0, 10), log_x=True)
    assert axes.to_x(10) == pytest.approx(200)
    assert axes.to_y(2.5) == pytest.approx(125)
    assert axes.moved(1, 2).to_x(10) == pytest.approx(201)
    with pytest.raises(ValueError, match="x must be positive"):
        axes.to_x(0)


def test_the_mapping_agrees_with_what_matplotlib_drew():
    curves = curve_figure(three(), **LOG)
    axes = curves.axes
    path = re.search(
        r'<path d="([^"]*)" class="s-muted" fill="none" stroke="#8a929c" stroke-width="2.4"', curves._body
    )
    drawn = np.array(re.findall(r"[-\d.]+", path[1]), float).reshape(-1, 2)
    wanted = [(axes.to_x(X[0]), axes.to_y(X[0] ** 2)), (axes.to_x(X[-1]), axes.to_y(X[-1] ** 2))]
    assert drawn[[0, -1]] == pytest.approx(np.array(wanted), abs=0.05)


def test_names_stand_at_the_ends_and_apart():
    svg = curve_figure(three(), **LOG).picture().svg
    baselines = {
        name: float(re.search(rf'y="([\d.]+)"[^>]*>{name}</text>', svg)[1])
        for name in ("mask", "floor", "tree")
    }
    assert baselines["floor"] - baselines["tree"] >= 18.9


def test_a_cursor_reports_only_values_that_are_there():
    curves = curve_figure(three(), **LOG)
    picture = curves.with_cursor(131072)
    assert picture.sentence == "At 128k: mask 16 GiB, floor 128 KiB, tree 134 KiB."
    assert curves.with_cursor(100_000).sentence == "It grows."
    named = curves.with_cursor(100_000, {"tree": "about 100 KiB"}, at="100,000 tokens")
    assert named.sentence == "At 100,000 tokens: tree about 100 KiB."
    assert ">about 100 KiB</text>" in named.svg


def test_a_cursor_lies_over_the_same_drawing():
    curves = curve_figure(three(), **LOG)
    plain, moved = curves.picture(), curves.with_cursor(2.0**14)
    assert curves._body in plain.svg and curves._body in moved.svg
    x = float(re.search(r'<line x1="([\d.]+)"[^>]*class="s-now"', moved.svg)[1])
    assert x == pytest.approx(curves.axes.to_x(2.0**14), abs=0.01)


def test_spread_and_gaps_are_drawn():
    y = np.array([1.0, np.nan, 3.0])
    picture = curve_figure(
        [Curve("a", [1, 2, 3], y, low=y - 0.5, high=y + 0.5, points=True)], **STYLE
    ).picture()
    assert 'fill-opacity=".18"' in picture.svg
    ElementTree.fromstring(picture.svg)


def test_two_figures_on_a_page_cannot_meet():
    body = curve_figure(three(), **LOG)._body
    assert "id=" not in body and "url(" not in body and "xlink" not in body


def test_any_figure_can_be_themed():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 3))
    ax = figure.add_subplot()
    ax.semilogx([1, 10, 100], [1, 2, 50], "o-", color="#3b6fb6", label="a < b")
    ax.set_ylim(0, 10)  # the line leaves the axes and has to be cut
    ax.legend()
    picture = to_picture(figure, "A line.", title="Line")
    root = ElementTree.fromstring(picture.svg)
    assert 'class="s-dense"' in picture.svg and 'class="f-ink"' in picture.svg
    assert "a &lt; b" in picture.svg
    assert len(root.findall(".//{http://www.w3.org/2000/svg}svg")) >= 1
    axes = picture.plots[0]
    assert axes.log_x and not axes.log_y
    assert axes.to_y(0) - axes.to_y(10) == pytest.approx(axes.height)
    assert figure_svg(figure) == figure_svg(figure)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("curves", "style", "message"),
    [
        ([], {}, "at least one curve"),
        ([Curve("a", [1], [1]), Curve("a", [1], [2])], {}, "names of their own"),
        ([Curve("a", [1, 2], [1])], {}, "'a': x and y must be equally long"),
        ([Curve("a", [2, 1], [1, 2])], {}, "'a': x must increase"),
        ([Curve("a", [1, 2], [0, 2])], {"log_y": True}, "'a': y must be positive on a logarithmic axis"),
        ([Curve("a", [1, 2], [np.nan, np.nan])], {}, "'a': x must be finite, and y somewhere"),
        ([Curve("a", [1, 2], [1, 2], low=[1, 2])], {}, "low and high must both"),
        ([Curve("a", [1, 2], [1, 2], "teal")], {}, "no role 'teal-text'"),
        ([Curve("a", [1, 2], [1, 2])], {"y_unit": "pounds"}, "y_unit must be one of"),
    ],
)
def test_bad_curves_are_named(curves, style, message):
    with pytest.raises(ValueError, match=message):
        curve_figure(curves, **STYLE, **style)


@pytest.mark.unchecked
def test_bad_cursors_are_named():
    curves = curve_figure(three(), **LOG)
    with pytest.raises(ValueError, match="x must be on the axis"):
        curves.with_cursor(1)
    with pytest.raises(ValueError, match=r"labels must name curves of the figure, got \['nobody'\]"):
        curves.with_cursor(4096, {"nobody": "1"})
