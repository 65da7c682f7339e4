"""The tiles of a window, with the visible part of each: dense, edge and skip, and how many there are."""

from __future__ import annotations

from attnlab.show.card import MARGIN, open_card
from attnlab.show.grid import Grid
from attnlab.show.numeric import Number
from attnlab.show.picture import Picture
from attnlab.show.schedule_map import draw_schedule_map, swatch
from attnlab.show.text_width import text_width
from attnlab.show.tile_picture import visited_tiles
from attnlab.show.token_axes import TokenAxes
from attnlab.tiles import TileMap

__all__ = ["window_picture"]

_WORDS, _SWATCH = 15.0, 20.0


def window_picture(tiles: TileMap, *, title: str = "The tiles of a window", side: Number = 360) -> Picture:
    """Draw the tiles of a window mask with the visible part of each; the counts stand at the right.

    Parameters
    ----------
    tiles : TileMap
        Of a mask that sees one stretch of keys in every row, with at least one tile.
    title : str
    side : float
        Length of the longer side of the matrix, in pixels.

    Raises
    ------
    ValueError
        If there are no tiles, or the mask is no window.
    """
    if tiles.kinds.size == 0:
        raise ValueError(f"tiles must have at least one tile, got kinds of shape {tiles.kinds.shape}")
    said = visited_tiles(tiles.n_visited, tiles.n_skip)
    scale = side / max(tiles.q_len, tiles.kv_len)
    axes = TokenAxes(
        tiles.q_len, tiles.kv_len, width=scale * tiles.kv_len, height=scale * tiles.q_len, above=4,
        x_label="key token", y_label="query token", block_q=tiles.block_q, block_kv=tiles.block_kv,
    )  # fmt: skip
    legend = {
        "dense": f"{tiles.n_dense:,} dense: all visible",
        "edge": f"{tiles.n_edge:,} edge: visible in part",
        "skip": f"{tiles.n_skip:,} skip: nothing visible",
    }
    left = axes.left + axes.width + 34
    right = left + _SWATCH + 12 + max(text_width(words, _WORDS) for words in legend.values())
    canvas, top = open_card(right + MARGIN, max(axes.body_height, 120), title=title, sentence=said)
    cell = scale * tiles.block_kv, scale * tiles.block_q
    grid = Grid(axes.left, top + axes.top, axes.width, axes.height, *cell)
    draw_schedule_map(canvas, grid, tiles)
    axes.draw(canvas, top)
    for row, (kind, words) in enumerate(legend.items()):
        y = grid.y + 40 * row
        swatch(canvas, left, y, _SWATCH, kind)
        canvas.text(left + _SWATCH + 12, y + 15, words, size=_WORDS)
    return Picture(canvas.render(title=title, sentence=said), said, (grid,))
