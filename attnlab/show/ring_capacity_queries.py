"""What the queries of a chunk find in a ring: the keys they need, and those that have been overwritten."""

from __future__ import annotations

import numpy as np

from attnlab.show.grid import Grid
from attnlab.show.numeric import Number
from attnlab.show.ring_capacity import Consequence
from attnlab.show.ring_capacity_slots import LABELS
from attnlab.show.schedule_map import draw_cells, grid_lines
from attnlab.show.svg import Svg, number
from attnlab.show.text_width import text_width
from attnlab.show.token_axes import TICK

__all__ = ["draw_queries"]

_CELL = 24.0


def draw_queries(canvas: Svg, box: tuple[Number, Number, Number, Number], found: Consequence) -> None:
    """Draw one row for each query of the chunk, within a box ``(x, y, width, height)``."""
    left, top, across, high = box
    rows, columns = found.needed.shape
    size = min(_CELL, (across - LABELS) / columns, (high - 96) / rows)
    grid = Grid(left + LABELS, top + 42, columns * size, rows * size, size, size)
    canvas.text(left, top + 12, "What the queries of the chunk find", size=16, bold=True)
    canvas.rect(grid.x, grid.y, grid.width, grid.height, fill="skip")
    for role, cells in (("dense", found.needed & ~found.lost), ("now", found.lost)):
        if cells.any():
            draw_cells(canvas, grid, cells, role)
    lines = grid_lines(grid)
    if lines:
        canvas.path(lines, stroke="paper", stroke_width=1.5 if size > 12 else 0.8)
    arm = size * 0.28
    crosses = ""
    for r, c in np.argwhere(found.lost):
        x, y = grid.centre(int(r), int(c))
        b = number(2 * arm)
        # Where cells are small one stroke must do: two would swell the notebook.
        second = f"m0 -{b}l-{b} {b}" if size > 12 else ""
        crosses += f"M{number(round(x - arm, 1))} {number(round(y - arm, 1))}l{b} {b}{second}"
    if crosses:
        canvas.path(crosses, stroke="paper", stroke_width=1.8 if size > 12 else 1.2)
    step = -(-16 // size) if size < 16 else 1
    labels = [
        (grid.x - 8, grid.y + (i + 0.5) * size + 4.5, str(found.start + i)) for i in range(0, rows, int(step))
    ]
    canvas.texts(labels, size=TICK, fill="quiet", anchor="end")
    canvas.text(left, grid.y + 13, "query", fill="ink")
    wide = text_width(str(found.start + found.chunk), TICK) + 6
    step = max(1, -(-wide // size))
    marks = [
        (grid.x + (i + 0.5) * size, grid.y - 7, str(found.first_key + i))
        for i in range(0, columns, int(step))
    ]
    canvas.texts(marks, size=TICK, fill="quiet", anchor="middle")
    canvas.text(left, grid.y - 7, "key", fill="ink")
    x, base = grid.x, grid.y + rows * size + 23
    for role, word in (
        ("dense", "found"),
        ("now", "overwritten, another key is there"),
        ("skip", "not needed"),
    ):
        canvas.rect(x, base - 12, 15, 15, fill=role, stroke="hatch" if role == "skip" else None)
        if role == "now":
            d = f"M{number(x + 3.5)} {number(base - 8.5)}l8 8m0 -8l-8 8"
            canvas.path(d, stroke="paper", stroke_width=1.8)
        canvas.text(x + 23, base, word, size=TICK, fill="quiet")
        x += text_width(word, TICK) + 50
