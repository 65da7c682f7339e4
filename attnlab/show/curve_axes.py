"""Axes and lines of a figure of curves, by matplotlib: no box, faint lines at ticks, units in the labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnlab.show.card import MARGIN
from attnlab.show.curve import Curve
from attnlab.show.grid import Axes
from attnlab.show.numeric import Number
from attnlab.show.palette import colour
from attnlab.show.text_width import text_width
from attnlab.show.units import UNITS, Unit

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["LABEL", "PlotStyle", "draw_axes"]

LABEL, _TICK = 14.0, 13.0


@dataclass(frozen=True)
class PlotStyle:
    """The choices of `attnlab.show.curves.curve_figure` that concern the axes."""

    x_label: str
    y_label: str
    x_unit: str
    y_unit: str
    log_x: bool
    log_y: bool
    x_range: tuple[Number, Number] | None
    y_range: tuple[Number, Number] | None
    width: Number
    height: Number


def draw_axes(curves: Sequence[Curve], style: PlotStyle) -> tuple[Figure, Axes]:
    """Draw the lines, and return the figure and the mapping from data to its pixels."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    x_range = style.x_range or _extent([line.x for line in curves], style.log_x, room=0)
    values = [v for line in curves for v in (line.y, line.low, line.high) if v is not None]
    y_range = style.y_range or _extent(values, style.log_y, room=0.05)
    above, below = 42.0, 50.0
    y_ticks = _ticks(UNITS[style.y_unit], y_range, style.log_y, int((style.height - above - below) // 38))
    labels = max((text_width(UNITS[style.y_unit].write(tick), _TICK) for tick in y_ticks), default=0)
    left = MARGIN + labels + 10
    axes = Axes(
        left,
        above,
        style.width - left,
        style.height - above - below,
        x_range,
        y_range,
        style.log_x,
        style.log_y,
    )
    ink, quiet, muted, rule = (colour(role).light for role in ("ink", "quiet", "muted", "rule"))
    with rc_context({"font.family": "DejaVu Sans", "font.size": _TICK, "path.simplify": True}):
        figure = Figure(figsize=(style.width / 72, style.height / 72), dpi=72)
        ax = figure.add_axes(
            (
                left / style.width,
                below / style.height,
                axes.width / style.width,
                axes.height / style.height,
            )
        )
        ax.set_xscale("log" if style.log_x else "linear")
        ax.set_yscale("log" if style.log_y else "linear")
        ax.set_xlim(x_range)
        ax.set_ylim(y_range)
        for side in ("top", "left", "right"):
            ax.spines[side].set_visible(False)
        ax.spines["bottom"].set_color(muted)
        ax.set_axisbelow(True)
        ax.grid(axis="y", color=rule, linewidth=1)
        widest = text_width(UNITS[style.x_unit].write(x_range[1]), _TICK)
        x_ticks = _ticks(UNITS[style.x_unit], x_range, style.log_x, int(axes.width // (widest + 26)))
        _write_ticks(ax.xaxis, UNITS[style.x_unit], x_ticks)
        _write_ticks(ax.yaxis, UNITS[style.y_unit], y_ticks)
        ax.tick_params(axis="x", length=4, width=1, color=muted, labelcolor=quiet, pad=5)
        ax.tick_params(axis="y", length=0, labelcolor=quiet, pad=8)
        figure.text(
            (left + axes.width / 2) / style.width,
            6 / style.height,
            style.x_label,
            ha="center",
            color=ink,
            size=LABEL,
        )
        # The name of the y axis lies flat above it: nobody has to turn their head.
        top = 1 - 14 / style.height
        figure.text(MARGIN / style.width, top, style.y_label, va="baseline", color=ink, size=LABEL)
        for line in curves:
            value = colour(line.role).light
            if line.low is not None and line.high is not None:
                ax.fill_between(line.x, line.low, line.high, color=value, alpha=0.18, linewidth=0)
            dashes = (0, (4, 3)) if line.dashed else "-"
            ax.plot(line.x, line.y, color=value, linewidth=2.4, linestyle=dashes, solid_capstyle="round")
    return figure, axes


def _extent(rows: Sequence[np.ndarray], log: bool, *, room: Number) -> tuple[Number, Number]:
    values = np.concatenate([row[np.isfinite(row)] for row in rows])
    low, high = float(values.min()), float(values.max())
    if log:
        if low == high:
            return low / 2, high * 2
        grow = (high / low) ** room
        return low / grow, high * grow
    if low >= 0 and low < 0.5 * high and room:
        low = 0.0  # an axis of amounts begins at nothing
    grow = (high - low or abs(high) or 1.0) * room
    return low - (grow if low else 0), high + (grow or (1.0 if low == high else 0))


def _ticks(unit: Unit, ends: tuple[Number, Number], log: bool, most: int) -> list[Number]:
    from matplotlib.ticker import MaxNLocator

    low, high = ends
    most = max(most, 2)
    if log:
        ticks = unit.log_ticks(low, high, most)
        if len(ticks) >= 2:
            return ticks
        # Less than two powers in sight: a few round values instead.
        return [
            tick
            for tick in MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(low, high)
            if low <= tick <= high
        ]
    if unit.base == 2 and high >= 4:
        # Round in units of two: 512, 1k, 1.5k rather than 500 and 1000.
        step = 2.0 ** math.ceil(math.log2((high - low) / most))
        return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    slack = 1e-9 * abs(high)
    values = MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(value) for value in values if low - slack <= value <= high + slack]


def _write_ticks(axis: Axis, unit: Unit, ticks: Sequence[Number]) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_major_formatter(FixedFormatter([unit.write(tick) for tick in ticks]))
    axis.set_minor_locator(NullLocator())
