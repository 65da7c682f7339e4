"""Two levels of tiles: large blocks to schedule by, and small tiles where a block is cut by the mask."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnlab.ring.levels import TwoLevelMap, two_level_map
from attnlab.show.card import MARGIN, open_card
from attnlab.show.grid import Grid
from attnlab.show.numeric import Number
from attnlab.show.picture import Picture
from attnlab.show.schedule_map import EDGE_TINT, draw_cells, draw_visible, grid_lines, swatch
from attnlab.show.svg import Svg, box_path
from attnlab.show.text_width import text_width
from attnlab.show.token_axes import TICK, TokenAxes
from attnlab.tiles import DENSE, EDGE

__all__ = ["two_level_explorer_picture", "two_level_picture"]

_SIDE, _PANEL, _GAP = 440.0, 330.0, 36.0


def two_level_picture(levels: TwoLevelMap, *, title: str | None = None) -> Picture:
    """Draw the blocks of a window mask, the edge ones cut into tiles, and what that saves.

    Parameters
    ----------
    levels : TwoLevelMap
        From `attnlab.ring.two_level.two_level_map`, of a mask that sees one stretch of keys in every row.
    title
        Title of the picture; by default it names both sizes.

    Raises
    ------
    ValueError
        If there are no tokens.
    """
    blocks = levels.blocks
    if blocks.kinds.size == 0:
        raise ValueError(f"levels must have at least one block, got kinds of shape {blocks.kinds.shape}")
    title = title or f"Two levels · blocks of {levels.block_size}, tiles of {levels.tile_size}"
    said = (
        f"{_count(levels.n_dense_blocks, 'dense block')}; {_count(levels.n_edge_blocks, 'edge block')} cut",
        f"into {_count(levels.n_dense_tiles, 'dense tile')}, {levels.n_edge_tiles:,} edge",
        f"and {levels.n_skip_tiles:,} skipped. {levels.useful:.1%} of what is computed is useful;",
        f"with blocks alone {blocks.useful:.1%}.",
    )
    sentence = " ".join(said)
    scale = _SIDE / max(blocks.q_len, blocks.kv_len)
    axes = TokenAxes(
        blocks.q_len, blocks.kv_len, width=scale * blocks.kv_len, height=scale * blocks.q_len, above=4,
        x_label="key position", y_label="query position",
        block_q=levels.block_size, block_kv=levels.block_size,
    )  # fmt: skip
    x = axes.left + _SIDE + _GAP
    canvas, top = open_card(
        x + _PANEL + MARGIN, max(axes.body_height, 400), title=title, sentence=sentence, room_for=2
    )
    cell = levels.block_size * scale
    grid = Grid(axes.left, top + axes.top, axes.width, axes.height, cell, cell)
    _draw_map(canvas, grid, levels, scale)
    axes.draw(canvas, top)
    _draw_counts(canvas, x, grid.y, levels)
    _draw_bars(canvas, x, grid.y + 236, levels)
    return Picture(canvas.render(title=title, sentence=sentence), sentence, (grid,))


def two_level_explorer_picture(
    window: int = 768, block: int = 256, tile: int = 32, *, tokens: int = 2048
) -> Picture:
    """Draw a causal window in two levels, for an explorer.

    Parameters
    ----------
    window : int
        W, keys visible to a query, its own included.
    block, tile : int
        Sides in tokens; ``block`` is a multiple of ``tile``.
    tokens : int
        Length of the sequence.
    """
    from attnlab.ring.tiled import window_mask

    return two_level_picture(two_level_map(window_mask(window, True), tokens, tokens, block, tile))


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _draw_map(canvas: Svg, grid: Grid, levels: TwoLevelMap, scale: Number) -> None:
    blocks, tile = levels.blocks, levels.tile_size
    canvas.rect(grid.x, grid.y, grid.width, grid.height, fill="skip")
    cells = _kinds(levels)
    for kind, role, opacity in ((EDGE, "edge", EDGE_TINT), (DENSE, "dense", 1)):
        if kind == DENSE:
            draw_visible(canvas, blocks.mask, blocks.q_len, blocks.kv_len, grid.x, grid.y, scale)
        if (cells == kind).any():
            fine = replace(grid, cell_width=tile * scale, cell_height=tile * scale)
            draw_cells(canvas, fine, cells == kind, role, opacity)
    step = tile * scale
    if step >= 3:
        boxes = (Grid(*grid.box(i, j), step, step) for i, j in levels.refined)
        d = "".join(grid_lines(box) for box in boxes)
        if d:
            canvas.path(d, stroke="paper", stroke_width=0.7)
    d = grid_lines(grid)
    if d:
        canvas.path(d, stroke="paper", stroke_width=2.4 if grid.cell_width >= 12 else 1.2)
    # A frame around the blocks that are cut.
    d = "".join(box_path(*grid.box(i, j)) for i, j in levels.refined)
    if d and grid.cell_width >= 12:
        canvas.path(d, stroke="edge", stroke_width=1.4)


def _kinds(levels: TwoLevelMap) -> np.ndarray:
    """What happens to each small tile, uint8 [tiles, tiles]; those of a dense block are dense."""
    blocks, fine = levels.blocks, levels.block_size // levels.tile_size
    kinds = np.kron(blocks.kinds, np.ones((fine, fine), np.uint8))
    for (i, j), tiles in levels.refined.items():
        rows, columns = tiles.kinds.shape
        kinds[i * fine : i * fine + rows, j * fine : j * fine + columns] = tiles.kinds
    return kinds[: -(-blocks.q_len // levels.tile_size), : -(-blocks.kv_len // levels.tile_size)]


def _draw_counts(canvas: Svg, x: Number, y: Number, levels: TwoLevelMap) -> None:
    canvas.text(x, y + 14, "What is visited", size=16, bold=True)
    rows = (
        ("dense", levels.n_dense_blocks, "dense blocks, taken whole"),
        ("dense", levels.n_dense_tiles, "dense tiles in edge blocks"),
        ("edge", levels.n_edge_tiles, "edge tiles, masked inside"),
        ("skip", levels.n_skip_tiles, "tiles skipped in edge blocks"),
        ("skip", levels.n_skip_blocks, "blocks skipped whole"),
    )
    wide = max(text_width(f"{count:,}", 14, bold=True) for _, count, _ in rows)
    for i, (role, count, meaning) in enumerate(rows):
        at, small = y + 34 + i * 32, "tile" in meaning
        side = 13 if small else 22
        left, up = x + (22 - side) / 2, at + (22 - side) / 2
        swatch(canvas, left, up, side, role)
        canvas.text(x + 34 + wide, at + 16, f"{count:,}", anchor="end", bold=True)
        canvas.text(x + 44 + wide, at + 16, meaning, fill="quiet")


def _draw_bars(canvas: Svg, x: Number, y: Number, levels: TwoLevelMap) -> None:
    alone = levels.blocks.n_visited * levels.block_size**2
    canvas.text(x, y, "Score entries computed, one head", size=16, bold=True)
    rows = (
        ("muted", alone, f"blocks alone, {levels.blocks.useful:.1%} useful"),
        ("dense", levels.visited, f"two levels, {levels.useful:.1%} useful"),
        ("better", levels.visible, "visible"),
    )
    room = _PANEL - text_width(f"{max(alone, 1):,}", 14, bold=True) - 8
    for i, (role, entries, name) in enumerate(rows):
        at = y + 28 + i * 48
        wide = room * entries / max(alone, 1)
        canvas.text(x, at, name, size=TICK, fill="quiet")
        canvas.rect(x, at + 6, max(wide, 1), 16, fill=role)
        canvas.text(x + wide + 8, at + 19, f"{entries:,}", bold=True)
