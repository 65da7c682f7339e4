"""Curves in the style of the house: names at the line ends, units on the axes, and a cursor.

matplotlib draws the axes and the lines once. The cursor and its labels are laid over that drawing, so that a
slider can move them in a few milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from attnlab.show.card import MARGIN, open_card
from attnlab.show.curve import Curve, check_curves
from attnlab.show.curve_axes import LABEL, PlotStyle, draw_axes
from attnlab.show.grid import Axes
from attnlab.show.mpl_svg import figure_svg
from attnlab.show.numeric import Number
from attnlab.show.picture import Picture
from attnlab.show.spread import LINE_STEP, aside, spread
from attnlab.show.svg import Svg, number
from attnlab.show.text_width import text_width
from attnlab.show.units import UNITS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Curves", "curve_figure", "to_picture"]

# Where the cursor stands, its own words, and each curve that it meets with the y and the words there.
_Cursor: TypeAlias = "tuple[Number, str, list[tuple[Curve, Number, str]]]"


@dataclass(frozen=True, eq=False)
class Curves:
    """A drawn figure on which a cursor can be moved; made by `curve_figure`.

    Attributes
    ----------
    figure : matplotlib.figure.Figure
        The axes and the lines, without labels at their ends.
    axes : Axes
        From data to pixels, in the coordinates of the figure.
    """

    figure: Figure
    axes: Axes
    style: PlotStyle
    curves: tuple[Curve, ...]
    title: str | None
    sentence: str
    panel: bool
    _body: str

    def picture(self) -> Picture:
        """Return the figure without a cursor."""
        return self._finish(self.sentence, None)

    def with_cursor(
        self,
        x: Number,
        labels: Mapping[str, str] | None = None,
        *,
        at: str | None = None,
        sentence: str | None = None,
    ) -> Picture:
        """Return the figure with a vertical line at ``x`` and a label where it meets each curve.

        Parameters
        ----------
        x
            Where the cursor stands, within the axes.
        labels
            Words for each curve by name. By default the y value, on those curves that have a data point at
            ``x``; the figure invents no value between two points.
        at
            Words at the top of the cursor; by default the value of ``x``.
        sentence
            What the picture says; by default the labels.

        Raises
        ------
        ValueError
            If ``x`` lies outside the axes or ``labels`` names no curve.
        """
        low, high = self.axes.x_range
        if not low <= x <= high:
            raise ValueError(f"x must be on the axis, from {low:g} to {high:g}, got {x:g}")
        unknown = set(labels or ()) - {curve.name for curve in self.curves}
        if unknown:
            raise ValueError(f"labels must name curves of the figure, got {sorted(unknown)}")
        at = UNITS[self.style.x_unit].write(x) if at is None else at
        met: list[tuple[Curve, Number, str]] = []
        for curve in self.curves:
            y = _meet(curve, x, self.style)
            if labels is not None and curve.name in labels and y is not None:
                met.append((curve, y, labels[curve.name]))
            elif labels is None and y is not None and np.isclose(curve.x, x).any():
                met.append((curve, y, UNITS[self.style.y_unit].write(y)))
        if sentence is None:
            said = ", ".join(f"{curve.name} {text}" for curve, _, text in met)
            sentence = f"At {at}: {said}." if met else self.sentence
        return self._finish(sentence, (x, at, met))

    def _finish(self, sentence: str, cursor: _Cursor | None) -> Picture:
        ends = 14 + max((text_width(c.name, LABEL, bold=True) for c in self.curves), default=0)
        width = max(self.axes.x + self.axes.width + ends + MARGIN, 0 if self.panel else 470)
        height = self.style.height
        canvas, top = open_card(width, height, title=self.title, sentence=sentence, panel=self.panel)
        with canvas.group(0, top):
            canvas.raw(self._body)
            self._draw_points(canvas)
            if cursor is not None:
                self._draw_cursor(canvas, *cursor)
            self._draw_names(canvas)
        return Picture(
            canvas.render(title=self.title or "", sentence=sentence), sentence, (self.axes.moved(0, top),)
        )

    def _draw_points(self, canvas: Svg) -> None:
        for curve in self.curves:
            if curve.points:
                d = "".join(
                    f"M{number(self.axes.to_x(x))} {number(self.axes.to_y(y))}h0"
                    for x, y in zip(curve.x, curve.y, strict=True)
                    if math.isfinite(y)
                )
                canvas.path(d, stroke=curve.role, stroke_width=7, round_ends=True)

    def _draw_names(self, canvas: Svg) -> None:
        right = self.axes.x + self.axes.width
        at_edge: list[tuple[Curve, Number, Number]] = []
        for curve in self.curves:
            last_x, last_y = _last(curve)
            x, y = self.axes.to_x(last_x), self.axes.to_y(last_y)
            if x + 20 + text_width(curve.name, LABEL, bold=True) < right:
                # A curve that stops early is named where it stops.
                name, fill = curve.name, f"{curve.role}-text"
                canvas.text(x + 9, y + 5, name, size=LABEL, fill=fill, bold=True, halo="paper")
            else:
                at_edge.append((curve, x, y))
        wishes = [y for *_, y in at_edge]
        places = spread(wishes, LINE_STEP, self.axes.y + 4, self.axes.y + self.axes.height)
        for (curve, x, y), place in zip(at_edge, places, strict=True):
            if abs(place - y) > 3 or right - x > 3:
                # A thin line leads from the end of the curve to a name that had to move.
                d = f"M{number(x + 3)} {number(y)}L{number(right + 8)} {number(place)}"
                canvas.path(d, stroke=curve.role, stroke_width=0.9, opacity=0.7)
            canvas.text(right + 12, place + 5, curve.name, size=LABEL, fill=f"{curve.role}-text", bold=True)

    def _draw_cursor(self, canvas: Svg, x: Number, at: str, met: list[tuple[Curve, Number, str]]) -> None:
        axes, px = self.axes, self.axes.to_x(x)
        canvas.line(px, axes.y - 4, px, axes.y + axes.height, stroke="now", width=1.8)
        wide = text_width(at, LABEL, bold=True) / 2
        middle = min(max(px, axes.x + wide), axes.x + axes.width - wide)
        canvas.text(middle, axes.y - 10, at, size=LABEL, fill="now-text", anchor="middle", bold=True)
        if not met:
            return
        widest = max(text_width(text, LABEL) for *_, text in met)
        # Most curves rise, and above a rising curve on its left is free paper.
        to_left = px - 14 - widest > axes.x
        wishes = [axes.to_y(y) for _, y, _ in met]
        offsets = [aside(wish, wishes, to_left) for wish in wishes]
        near = [wish + offset for wish, offset in zip(wishes, offsets, strict=True)]
        places = spread(near, LINE_STEP, axes.y + 8, axes.y + axes.height - 6)
        for (curve, _, text), wish, place in zip(met, wishes, places, strict=True):
            canvas.path(f"M{number(px)} {number(wish)}h0", stroke="paper", stroke_width=11, round_ends=True)
            canvas.path(f"M{number(px)} {number(wish)}h0", stroke=curve.role, stroke_width=8, round_ends=True)
            canvas.text(
                px - 10 if to_left else px + 10,
                place + 5,
                text,
                size=LABEL,
                fill=f"{curve.role}-text",
                anchor="end" if to_left else "start",
                halo="paper",
            )


def curve_figure(
    curves: Sequence[Curve],
    *,
    title: str | None,
    sentence: str,
    x_label: str,
    y_label: str,
    x_unit: str = "count",
    y_unit: str = "count",
    log_x: bool = False,
    log_y: bool = False,
    x_range: tuple[Number, Number] | None = None,
    y_range: tuple[Number, Number] | None = None,
    width: Number = 620,
    height: Number = 360,
    panel: bool = False,
) -> Curves:
    """Draw lines with their names at their ends.

    Parameters
    ----------
    curves
        At least one.
    title
        Title of the figure; None leaves the header out.
    sentence
        What the figure says.
    x_label, y_label
        Names of the axes, with a unit where the tick labels do not carry it.
    x_unit, y_unit
        How values are written: ``count``, ``bytes``, ``seconds`` or ``tokens`` (128k, where 1k is 1,024).
    log_x, log_y
        Whether an axis is logarithmic.
    x_range, y_range
        Ends of the axes; by default those of the data, with a little room above and below.
    width, height
        Pixels for axes, tick labels and plot; the names of the curves come on top of the width.
    panel
        A smaller title and no sentence, for a part of a larger picture.

    Raises
    ------
    ValueError
        If there is no curve, two share a name, the data of one do not fit together, a logarithmic axis meets
        a value that is not positive, or a unit or a colour does not exist.
    """
    checked = check_curves(curves, log_x, log_y)
    for name, unit in (("x_unit", x_unit), ("y_unit", y_unit)):
        if unit not in UNITS:
            raise ValueError(f"{name} must be one of {', '.join(UNITS)}, got {unit!r}")
    style = PlotStyle(x_label, y_label, x_unit, y_unit, log_x, log_y, x_range, y_range, width, height)
    figure, axes = draw_axes(checked, style)
    return Curves(figure, axes, style, checked, title, sentence, panel, figure_svg(figure))


def to_picture(figure: Figure, sentence: str, *, title: str | None = None) -> Picture:
    """Turn any matplotlib figure into a picture that follows the theme.

    Colours that are light values of the palette follow light and dark; others stay as they are. The figure is
    drawn at 72 pixels to the inch.

    Parameters
    ----------
    figure
        The figure; its axes keep the layout they have when they are drawn.
    sentence
        What the figure says.
    title
        Title of the picture; None leaves the header out.

    Returns
    -------
    Picture
        With one `Axes` in ``plots`` for each linear or logarithmic pair of axes of the figure.
    """
    body = figure_svg(figure)
    width, height = (72 * inches for inches in figure.get_size_inches())
    canvas, top = open_card(width + 2 * MARGIN, height, title=title, sentence=sentence)
    with canvas.group(MARGIN, top):
        canvas.raw(body)
    plots = []
    for ax in figure.axes:
        box = ax.get_position()
        log_x, log_y = ax.get_xscale() == "log", ax.get_yscale() == "log"
        place = (box.x0 * width, (1 - box.y1) * height, box.width * width, box.height * height)
        plots.append(Axes(*place, ax.get_xlim(), ax.get_ylim(), log_x, log_y).moved(MARGIN, top))
    return Picture(canvas.render(title=title or "", sentence=sentence), sentence, tuple(plots))


def _last(curve: Curve) -> tuple[Number, Number]:
    finite = np.flatnonzero(np.isfinite(curve.y))
    return float(curve.x[finite[-1]]), float(curve.y[finite[-1]])


def _meet(curve: Curve, x: Number, style: PlotStyle) -> Number | None:
    """Return the y at which the drawn line passes ``x``, or None if it does not reach it."""
    finite = np.isfinite(curve.y)
    xs, ys = curve.x[finite], curve.y[finite]
    if not xs[0] * (1 - 1e-12) <= x <= xs[-1] * (1 + 1e-12):
        return None
    if style.log_x:
        x, xs = math.log(x), np.log(xs)
    y = float(np.interp(x, xs, np.log(ys) if style.log_y else ys))
    return math.exp(y) if style.log_y else y
