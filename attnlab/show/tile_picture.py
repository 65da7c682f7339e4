"""A mask cut into tiles: which a kernel computes, which it masks, and which it never loads."""

from __future__ import annotations

import numpy as np

from attnlab.show.card import MARGIN, open_card
from attnlab.show.grid import Grid
from attnlab.show.hatch import hatch
from attnlab.show.numeric import Number
from attnlab.show.outline import outline
from attnlab.show.picture import Picture
from attnlab.show.svg import Svg, number
from attnlab.show.text_width import text_width
from attnlab.show.token_axes import TICK, TokenAxes
from attnlab.tiles import DENSE, EDGE, SKIP, TileMap

__all__ = ["tile_picture", "visited_tiles"]

_LARGEST_TILE = 48.0
_LEGEND = (
    ("dense", DENSE, "every pair is visible"),
    ("edge", EDGE, "the mask is applied inside"),
    ("skip", SKIP, "never loaded"),
)


def tile_picture(
    tiles: TileMap,
    *,
    title: str | None = "tiles",
    sentence: str | None = None,
    x_label: str = "key token",
    y_label: str = "query token",
    side: Number = 420,
    legend: bool = True,
    above: Number = 0,
    panel: bool = False,
) -> Picture:
    """Draw the tiles of a mask: dense, edge (hatched) and skipped.

    Parameters
    ----------
    tiles
        From `attnlab.tiles.tile_map`.
    title
        Title of the picture; None leaves the header out.
    sentence
        What to say instead of "91 of 256 tiles are visited, 165 are skipped."
    x_label, y_label
        Names of the axes.
    side
        Length of the longer side of the matrix, in pixels.
    legend
        Whether to name the kinds, with their counts, at the right of the plot.
    above
        Pixels to keep free above the plot, to line it up with a neighbour's.
    panel
        A smaller title and no sentence, for a part of a larger picture.

    Returns
    -------
    Picture
        Its only plot is a `Grid` with one cell for each tile, so ``picture.plots[0].box(query_tile,
        key_tile)`` is where a tile lies.

    Raises
    ------
    ValueError
        If there are no tiles.
    """
    kinds = tiles.kinds
    if kinds.size == 0:
        raise ValueError(f"tiles must have at least one tile, got kinds of shape {kinds.shape}")
    counts = {kind: int(np.count_nonzero(kinds == kind)) for kind in (SKIP, EDGE, DENSE)}
    if sentence is None:
        sentence = visited_tiles(counts[EDGE] + counts[DENSE], counts[SKIP])

    # Pixels per token, so that tiles keep their proportions and a ragged last tile is as small as it is.
    scale = min(side / max(tiles.q_len, tiles.kv_len), _LARGEST_TILE / min(tiles.block_q, tiles.block_kv))
    axes = TokenAxes(
        tiles.q_len,
        tiles.kv_len,
        width=max(scale * tiles.kv_len, 60),
        height=max(scale * tiles.q_len, 24),
        above=4 + above,
        x_label=x_label,
        y_label=y_label,
        block_q=tiles.block_q,
        block_kv=tiles.block_kv,
    )
    key = max(text_width(f"{counts[kind]:,} {name}", 15, bold=True) for name, kind, _ in _LEGEND)
    words = max(text_width(meaning, TICK) for *_, meaning in _LEGEND)
    legend_x = axes.left + axes.width + 32
    right = legend_x + 34 + max(key, words) if legend else axes.right
    width = max(right + MARGIN, 0 if panel else 470)
    body = max(axes.body_height, 190 if legend else 0)
    canvas, top = open_card(width, body, title=title, sentence=sentence, panel=panel)
    grid = Grid(
        axes.left,
        top + axes.top,
        axes.width,
        axes.height,
        axes.width * tiles.block_kv / tiles.kv_len,
        axes.height * tiles.block_q / tiles.q_len,
    )
    _draw_tiles(canvas, grid, kinds)
    axes.draw(canvas, top)
    if legend:
        _draw_legend(canvas, legend_x, grid.y, counts, f"{tiles.block_q} × {tiles.block_kv} pairs a tile")
    return Picture(canvas.render(title=title or "", sentence=sentence), sentence, (grid,))


def visited_tiles(visited: int, skipped: int) -> str:
    """Say how many tiles are visited and how many skipped."""

    def are(count: int) -> str:
        return f"{count:,} is" if count == 1 else f"{count:,} are"

    total = visited + skipped
    of = f"{visited:,} of {total:,} tiles {'is' if visited == 1 else 'are'} visited"
    return f"{of}, {are(skipped) if skipped else 'none is'} skipped."


def _draw_tiles(canvas: Svg, grid: Grid, kinds: np.ndarray) -> None:
    rows, columns = kinds.shape
    canvas.rect(grid.x, grid.y, grid.width, grid.height, fill="skip")
    canvas.raw(
        f'<svg x="{number(grid.x)}" y="{number(grid.y)}" width="{number(grid.width)}" '
        f'height="{number(grid.height)}"><g transform="scale({grid.cell_width:.5g} {grid.cell_height:.5g})">'
    )
    for role, kind in (("dense", DENSE), ("edge", EDGE)):
        if (kinds == kind).any():
            canvas.path(outline(kinds == kind), fill=role)
    canvas.raw("</g></svg>")
    small = min(grid.cell_width, grid.cell_height)
    if small >= 5:
        # Few lines in a small tile: the texture must not swell the notebook.
        gap = max(small / 2.5, 6)
        lines = "".join(hatch(*grid.box(int(r), int(c)), gap) for r, c in np.argwhere(kinds == EDGE))
        if lines:
            canvas.path(lines, stroke="paper", stroke_width=1.4, opacity=0.75)
    if small >= 4:
        d = "".join(
            f"M{number(grid.x + c * grid.cell_width)} {number(grid.y)}v{number(grid.height)}"
            for c in range(1, columns)
        )
        d += "".join(
            f"M{number(grid.x)} {number(grid.y + r * grid.cell_height)}h{number(grid.width)}"
            for r in range(1, rows)
        )
        if d:
            canvas.path(d, stroke="paper", stroke_width=1.6 if small >= 12 else 0.8)


def _draw_legend(canvas: Svg, x: Number, y: Number, counts: dict[int, int], size: str) -> None:
    for i, (name, kind, meaning) in enumerate(_LEGEND):
        at = y + i * 52
        canvas.rect(x, at, 22, 22, fill=name, stroke="rule" if name == "skip" else None)
        if name == "edge":
            canvas.path(hatch(x, at, 22, 22, 8), stroke="paper", stroke_width=1.4, opacity=0.75)
        fill = "quiet" if name == "skip" else f"{name}-text"
        canvas.text(x + 34, at + 13, f"{counts[kind]:,} {name}", size=15, fill=fill, bold=True)
        canvas.text(x + 34, at + 31, meaning, size=TICK, fill="quiet")
    canvas.text(x, y + 3 * 52 + 16, size, size=TICK, fill="quiet")
