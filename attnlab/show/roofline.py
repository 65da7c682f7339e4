"""A roofline: what a machine can do at best, by how much is computed for each byte moved, and what was done.

S. Williams, A. Waterman, D. Patterson, *Roofline: an insightful visual performance model for multicore
architectures*, CACM 52(4), 2009.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnlab.show.card import MARGIN, open_card
from attnlab.show.curve import Curve, check_curves
from attnlab.show.curve_axes import LABEL, PlotStyle, draw_axes
from attnlab.show.grid import Axes
from attnlab.show.mpl_svg import figure_svg
from attnlab.show.numeric import Number
from attnlab.show.palette import colour
from attnlab.show.picture import Picture
from attnlab.show.spread import LINE_STEP, spread
from attnlab.show.svg import Svg, number
from attnlab.show.text_width import text_width

__all__ = ["RooflinePoint", "roofline_picture"]


@dataclass(frozen=True)
class RooflinePoint:
    """One measurement.

    Attributes
    ----------
    label : str
        Written beside it.
    intensity : float
        FLOPs for each byte moved.
    flops : float
        FLOPs done in a second.
    role : str
        A colour of the palette.
    """

    label: str
    intensity: Number
    flops: Number
    role: str = "dense"


def roofline_picture(
    peak: Number,
    bandwidths: Mapping[str, Number],
    points: Sequence[RooflinePoint],
    *,
    title: str | None = "Roofline",
    sentence: str | None = None,
    width: Number = 760,
    height: Number = 420,
) -> Picture:
    """Draw points under a roof of peak FLOP/s and of one slope for each bandwidth.

    Parameters
    ----------
    peak : float
        FLOP/s that the machine can do.
    bandwidths
        Bytes a second, by the name of the memory.
    points
        At least one measurement.
    title
        Title of the picture; None leaves the header out.
    sentence
        What to say instead of the share of its roof that each point reaches. The roof is that of the fastest
        memory.
    width, height
        Pixels of axes, tick labels and plot.

    Returns
    -------
    Picture
        Its only plot is an `Axes`.

    Raises
    ------
    ValueError
        If there is no point or no bandwidth, or a number is not positive and finite.
    """
    if not points or not bandwidths:
        raise ValueError("points and bandwidths must each hold at least one entry, got none")
    named = {"peak": peak, **{f"bandwidths[{name!r}]": value for name, value in bandwidths.items()}}
    named |= {f"{p.label}: intensity": p.intensity for p in points} | {
        f"{p.label}: flops": p.flops for p in points
    }
    for name, value in named.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be positive and finite, got {value}")
    for point in points:
        colour(f"{point.role}-text")  # raises if the role does not exist
    fastest = max(bandwidths.values())
    if sentence is None:
        shares = [(p.label, p.flops / min(peak, fastest * p.intensity)) for p in points]
        said = "; ".join(f"{label}, {share:.0%}" for label, share in shares)
        sentence = f"How much of its roof each reaches: {said}."
    ridges = [peak / value for value in bandwidths.values()]
    low = min(*(p.intensity for p in points), *ridges) / 4
    high = max(*(p.intensity for p in points), *ridges) * 4
    bottom = min(*(p.flops for p in points), fastest * low) / 2
    curves = [Curve("peak", [min(ridges), high], [peak, peak], role="ink")]
    for name, value in bandwidths.items():
        first = max(low, bottom / value)
        curves.append(
            Curve(name, [first, peak / value], [value * first, peak], role="muted", dashed=value < fastest)
        )
    style = PlotStyle(
        "FLOPs for each byte moved", "FLOPs a second", "count", "count", True, True,
        (low, high), (bottom, peak * 2), width, height,
    )  # fmt: skip
    figure, axes = draw_axes(check_curves(curves, True, True), style)
    canvas, top = open_card(width + MARGIN, height, title=title, sentence=sentence)
    with canvas.group(0, top):
        canvas.raw(figure_svg(figure))
        _name_roofs(canvas, axes, peak, bandwidths)
        _draw_points(canvas, axes, points)
    return Picture(canvas.render(title=title or "", sentence=sentence), sentence, (axes.moved(0, top),))


def _name_roofs(canvas: Svg, axes: Axes, peak: Number, bandwidths: Mapping[str, Number]) -> None:
    right, y = axes.x + axes.width, axes.to_y(peak)
    word = f"peak, {_rate(peak)}FLOP/s"
    canvas.text(right - 6, y - 8, word, size=LABEL, anchor="end", bold=True)
    for name, value in bandwidths.items():
        # Along the slope, above it, in the middle of what is drawn of it.
        bottom = max(axes.x_range[0], axes.y_range[0] / value)
        (x0, x1), (y0, y1) = ([to(at) for at in ends] for to, ends in (
            (axes.to_x, (bottom, peak / value)), (axes.to_y, (value * bottom, peak))
        ))  # fmt: skip
        turn = math.degrees(math.atan2(y1 - y0, x1 - x0))
        lift = math.radians(turn - 90)
        x, y = (x0 + x1) / 2 + 8 * math.cos(lift), (y0 + y1) / 2 + 8 * math.sin(lift)
        word = f"{name}, {_rate(value)}B/s"
        canvas.text(
            round(x, 1), round(y, 1), word, size=LABEL, fill="quiet", anchor="middle", rotate=round(turn, 1)
        )


def _draw_points(canvas: Svg, axes: Axes, points: Sequence[RooflinePoint]) -> None:
    places = [(axes.to_x(p.intensity), axes.to_y(p.flops)) for p in points]
    wishes = [y for _, y in places]
    rows = spread(wishes, LINE_STEP, axes.y + 8, axes.y + axes.height - 8)
    right = axes.x + axes.width
    for point, (x, y), row in zip(points, places, rows, strict=True):
        wide = text_width(point.label, LABEL, bold=True)
        to_left = x + 16 + wide > right
        at = x - 14 if to_left else x + 14
        if abs(row - y) > 6:
            canvas.path(
                f"M{number(x)} {number(y)}L{number(at)} {number(row)}", stroke=point.role, stroke_width=1
            )
        canvas.path(f"M{number(x)} {number(y)}h0", stroke="paper", stroke_width=14, round_ends=True)
        canvas.path(f"M{number(x)} {number(y)}h0", stroke=point.role, stroke_width=10, round_ends=True)
        anchor = "end" if to_left else "start"
        fill = f"{point.role}-text"
        canvas.text(at, row + 5, point.label, size=LABEL, fill=fill, anchor=anchor, bold=True, halo="paper")


def _rate(value: Number) -> str:
    """A rate to three digits with its prefix: 312 T."""
    step = min(max(math.floor(math.log10(value * 1.0005) / 3), 0), 5)
    return f"{value / 1000**step:.3g} {('', 'k', 'M', 'G', 'T', 'P')[step]}"
