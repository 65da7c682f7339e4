"""Tiles with what is visible inside them: edge tiles show their triangles, on both sides of the window."""

from __future__ import annotations

import math
from itertools import pairwise, starmap

import numpy as np

from attnlab.masks import Mask
from attnlab.show.grid import Grid
from attnlab.show.numeric import Number
from attnlab.show.outline import outline
from attnlab.show.svg import Svg, number
from attnlab.tiles import DENSE, EDGE, TileMap

__all__ = ["band", "draw_cells", "draw_schedule_map", "draw_visible", "grid_lines", "swatch"]

EDGE_TINT = 0.3  # opacity of what an edge tile computes and masks away
_EXACT = 3.0  # pixels of a token from which on its corners are drawn


def band(mask: Mask, q_len: int, kv_len: int, *, corners: bool) -> str:
    """Return the visible entries of a window mask as one path, in which an entry is a unit square.

    Parameters
    ----------
    mask : Mask
        In every row it must see one stretch of keys.
    q_len, kv_len : int
    corners : bool
        Whether to follow every entry; without, a slanted border is drawn as a straight line.

    Raises
    ------
    ValueError
        If the mask does not see one stretch of keys in every row.
    """
    spans = mask.intervals(q_len, kv_len)
    if spans is None or spans.shape[1] != 1:
        raise ValueError(f"mask must see one stretch of keys in every row, got {mask.name}")
    low, high = spans[:, 0, 0], spans[:, 0, 1]
    rows = np.arange(q_len)
    if corners:
        right = [(int(h), int(r) + d) for r, h in zip(rows, high, strict=True) for d in (0, 1)]
        left = [(int(a), int(r) + d) for r, a in zip(rows, low, strict=True) for d in (0, 1)]
    else:
        right = [(int(high[0]) - 1, 0), *((int(h), int(r) + 1) for r, h in zip(rows, high, strict=True))]
        left = [*((int(a), int(r)) for r, a in zip(rows, low, strict=True)), (int(low[-1]) + 1, q_len)]
    points = _bends([*right, *reversed(left)])
    return "M{} {}".format(*points[0]) + "".join(starmap(_line, pairwise(points))) + "z"


def _line(start: tuple[int, int], stop: tuple[int, int]) -> str:
    """A line to the next corner, in as few characters as it takes."""
    x, y = stop
    return f"H{x}" if y == start[1] else f"V{y}" if x == start[0] else f"L{x} {y}"


def _bends(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Leave out the points that lie on the line between their neighbours."""
    kept: list[tuple[int, int]] = []
    for point in points:
        while len(kept) > 1:
            (ax, ay), (bx, by) = kept[-2:]
            if (bx - ax) * (point[1] - ay) != (by - ay) * (point[0] - ax):
                break
            kept.pop()
        kept.append(point)
    return kept


def draw_visible(
    canvas: Svg, mask: Mask, q_len: int, kv_len: int, x: Number, y: Number, scale: Number
) -> None:
    """Fill what the mask sees in the colour of edge tiles, `scale` pixels a token."""
    canvas.raw(f'<g transform="translate({number(x)} {number(y)}) scale({scale:.6g})">')
    canvas.path(band(mask, q_len, kv_len, corners=scale >= _EXACT), fill="edge")
    canvas.raw("</g>")


def draw_cells(canvas: Svg, grid: Grid, chosen: np.ndarray, role: str, opacity: Number = 1) -> None:
    """Fill the chosen cells of a grid; a nested viewport cuts ragged ones off at the end of the data."""
    sides = {"x": grid.x, "y": grid.y, "width": grid.width, "height": grid.height}
    place = " ".join(f'{name}="{number(value)}"' for name, value in sides.items())
    canvas.raw(f'<svg {place}><g transform="scale({grid.cell_width:.6g} {grid.cell_height:.6g})">')
    canvas.path(outline(chosen), fill=role, opacity=opacity)
    canvas.raw("</g></svg>")


def grid_lines(grid: Grid) -> str:
    """Return the lines between the cells of a grid as one path."""
    columns, rows = (
        math.ceil(size / cell - 1e-6)
        for size, cell in ((grid.width, grid.cell_width), (grid.height, grid.cell_height))
    )
    across = (
        f"M{number(grid.x)} {number(grid.y + r * grid.cell_height)}h{number(grid.width)}"
        for r in range(1, rows)
    )
    down = (
        f"M{number(grid.x + c * grid.cell_width)} {number(grid.y)}v{number(grid.height)}"
        for c in range(1, columns)
    )
    return "".join((*down, *across))


def draw_schedule_map(canvas: Svg, grid: Grid, tiles: TileMap) -> None:
    """Draw the tiles: skipped ones pale, dense ones full, edge ones tinted with the visible part in full."""
    canvas.rect(grid.x, grid.y, grid.width, grid.height, fill="skip")
    for kind, role, opacity in ((EDGE, "edge", EDGE_TINT), (DENSE, "dense", 1)):
        if kind == DENSE:
            draw_visible(
                canvas, tiles.mask, tiles.q_len, tiles.kv_len, grid.x, grid.y, grid.width / tiles.kv_len
            )
        if (tiles.kinds == kind).any():
            draw_cells(canvas, grid, tiles.kinds == kind, role, opacity)
    small = min(grid.cell_width, grid.cell_height)
    lines = grid_lines(grid)
    if small >= 4 and lines:
        canvas.path(lines, stroke="paper", stroke_width=1.6 if small >= 12 else 0.8)


def swatch(canvas: Svg, x: Number, y: Number, side: Number, role: str) -> None:
    """Draw one kind of tile for a legend, as it looks in the map."""
    canvas.rect(
        x,
        y,
        side,
        side,
        fill=role,
        stroke="hatch" if role == "skip" else None,
        opacity=EDGE_TINT if role == "edge" else 1,
    )
    if role == "edge":
        canvas.path(f"M{number(x)} {number(y)}v{number(side)}h{number(side)}z", fill="edge")
