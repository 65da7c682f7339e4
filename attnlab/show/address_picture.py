"""Which bytes are read, and in which order: layouts of memory on one axis of addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from attnlab.show.card import MARGIN, open_card
from attnlab.show.numeric import Number
from attnlab.show.palette import segment_colour
from attnlab.show.picture import Picture
from attnlab.show.svg import Svg, box_path, number
from attnlab.show.text_width import text_width
from attnlab.show.token_axes import TICK
from attnlab.show.units import UNITS

__all__ = ["address_picture"]

_WIDTH, _LEFT = 900.0, 90.0
_MOST_RUNS, _LARGEST_ROW, _PLOT = 512, 22.0, 200.0


def address_picture(
    layouts: Mapping[str, Sequence[tuple[int, int]]],
    *,
    total_bytes: int | None = None,
    title: str | None = "Which bytes, in which order",
    sentence: str | None = None,
) -> Picture:
    """Draw the bytes that are read in one or more layouts of the same data.

    In each plot a row is one run of bytes, the first that is read at the top; a thin line leads from the end
    of a run to the start of the next.

    Parameters
    ----------
    layouts
        By name, the runs ``(start, stop)`` of byte addresses in reading order, half-open; for example
        ``{trace.layout: trace.runs}`` of an `attnlab.ring.trace.Trace`.
    total_bytes
        Length of the axis: bytes of the whole storage. By default it ends with the last byte that is read.
    title
        Title of the picture; None leaves the header out.
    sentence
        What to say instead of the count of bytes and runs.

    Raises
    ------
    ValueError
        If there is no layout, one has no run or more than 512, or a run is empty or leaves the storage.
    """
    if not layouts:
        raise ValueError("layouts must hold at least one layout, got none")
    if total_bytes is None:
        total_bytes = max((stop for runs in layouts.values() for _, stop in runs), default=1)
    for name, runs in layouts.items():
        _check(name, runs, total_bytes)
    said = [
        f"{name}: {UNITS['bytes'].write(_read(runs))} in {len(runs):,} run{'s' if len(runs) > 1 else ''}"
        for name, runs in layouts.items()
    ]
    sentence = sentence or f"{'; '.join(said)}."
    rows = {name: min(_LARGEST_ROW, _PLOT / len(runs)) for name, runs in layouts.items()}
    heights = {name: rows[name] * len(runs) for name, runs in layouts.items()}
    body = sum(heights.values()) + len(layouts) * 56 + 34
    canvas, top = open_card(_WIDTH, body, title=title, sentence=sentence)
    scale = (_WIDTH - MARGIN - 20 - _LEFT) / total_bytes
    y = top
    for i, (name, runs) in enumerate(layouts.items()):
        _draw_layout(canvas, y, name, runs, rows[name], scale, segment_colour(i + 1), total_bytes)
        y += heights[name] + 56
    _draw_axis(canvas, y - 16, total_bytes, scale)
    return Picture(canvas.render(title=title or "", sentence=sentence), sentence)


def _check(name: str, runs: Sequence[tuple[int, int]], total_bytes: int) -> None:
    if not 1 <= len(runs) <= _MOST_RUNS:
        raise ValueError(f"layouts[{name!r}] must hold 1 to {_MOST_RUNS} runs to be drawn, got {len(runs)}")
    for start, stop in runs:
        if not 0 <= start < stop <= total_bytes:
            raise ValueError(
                f"layouts[{name!r}]: a run must lie in the {total_bytes:,} bytes, got {start:,} to {stop:,}"
            )


def _read(runs: Sequence[tuple[int, int]]) -> int:
    return sum(stop - start for start, stop in runs)


def _draw_layout(
    canvas: Svg,
    y: Number,
    name: str,
    runs: Sequence[tuple[int, int]],
    row: Number,
    scale: Number,
    role: str,
    total: int,
) -> None:
    canvas.text(MARGIN, y + 14, name, size=16, bold=True)
    between = [later[0] - earlier[1] for earlier, later in pairwise(runs)]
    longest = max(stop - start for start, stop in runs)
    note = f"{len(runs):,} run{'s' if len(runs) > 1 else ''}, the longest {UNITS['bytes'].write(longest)}"
    if any(gap < 0 for gap in between):
        back = sum(gap < 0 for gap in between)
        note += f", {back:,} step{'s' if back > 1 else ''} back"
    canvas.text(MARGIN + text_width(name, 16, bold=True) + 16, y + 14, note, fill="quiet")
    top = y + 28
    canvas.rect(_LEFT, top, total * scale, row * len(runs), fill="skip")
    bar = max(row - 2, row * 0.7, 1.4)
    d, jumps = "", ""
    for i, (start, stop) in enumerate(runs):
        x, wide = round(_LEFT + start * scale, 1), max(round((stop - start) * scale, 1), 1.5)
        d += box_path(x, round(top + i * row, 1), wide, bar)
        # Where rows are thin, only the steps back are worth a line.
        if i + 1 < len(runs) and (row >= 3 or between[i] < 0):
            middle = round(top + i * row + bar / 2, 1)
            onto = round(_LEFT + runs[i + 1][0] * scale, 1)
            jumps += f"M{number(x + wide)} {number(middle)}L{number(onto)} {number(middle + row)}"
    if jumps:
        canvas.path(jumps, stroke="muted", stroke_width=0.8)
    canvas.path(d, fill=role)
    step = max(1, -(-16 // row))
    marks = [(_LEFT - 8, top + i * row + bar / 2 + 4.5, f"{i + 1:,}") for i in range(0, len(runs), int(step))]
    canvas.texts(marks, size=TICK, fill="quiet", anchor="end")
    canvas.text(MARGIN, top + bar / 2 + 4.5, "run", size=TICK, fill="quiet")


def _draw_axis(canvas: Svg, y: Number, total: int, scale: Number) -> None:
    unit = UNITS["bytes"]
    spacing = (text_width(unit.write(total), TICK) + 40) / scale
    step = 1
    while step < spacing:
        step *= 2
    canvas.line(_LEFT, y, _LEFT + total * scale, y, stroke="muted")
    words = [(_LEFT + at * scale, y + 19, unit.write(at)) for at in range(0, total + 1, step)]
    canvas.texts(words, size=TICK, fill="quiet", anchor="middle")
    canvas.text(_LEFT + total * scale / 2, y + 40, "address", anchor="middle")
