"""A tile map in two levels: large blocks to schedule by, and small tiles inside the blocks that are cut.

Large blocks make a short schedule and large products, but a block on the edge of the mask is mostly waste;
small tiles waste little and are many. So a block that is wholly visible is taken whole, one in which nothing
is visible is skipped whole, and only a block on the edge is cut into small tiles, each dense, edge or skip in
its turn. What is computed is what small tiles alone would compute: of it, W / (W + tile) is useful for a long
causal window.

The blocks are FlexAttention's full, partial and empty ones (Dong et al. 2024,
https://arxiv.org/abs/2412.05496).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from attnlab.intervals import check_whole
from attnlab.masks import Mask
from attnlab.ring.order import TileOrder
from attnlab.ring.traffic_forms import check_order
from attnlab.tiles import DENSE, EDGE, TileMap, tile_map

__all__ = ["TwoLevelMap", "Visit", "two_level_map"]


class Visit(NamedTuple):
    """One piece to compute: queries ``[q_start, q_stop)`` by keys ``[k_start, k_stop)``, DENSE or EDGE."""

    q_start: int
    q_stop: int
    k_start: int
    k_stop: int
    kind: int


@dataclass(frozen=True, eq=False)
class TwoLevelMap:
    """A mask cut into blocks, and its edge blocks into tiles; made by `two_level_map`.

    Attributes
    ----------
    blocks : TileMap
        All blocks.
    tile_size : int
    refined : mapping of (query block, key block) to TileMap
        The tiles of each edge block, in ascending order. Their positions count from the corner of the block.
    """

    blocks: TileMap
    tile_size: int
    refined: Mapping[tuple[int, int], TileMap]

    @property
    def block_size(self) -> int:
        """Side of a block."""
        return self.blocks.block_q

    @property
    def n_dense_blocks(self) -> int:
        """Blocks in which everything is visible."""
        return self.blocks.n_dense

    @property
    def n_edge_blocks(self) -> int:
        """Blocks that are cut into tiles."""
        return self.blocks.n_edge

    @property
    def n_skip_blocks(self) -> int:
        """Blocks in which nothing is visible."""
        return self.blocks.n_skip

    @property
    def n_dense_tiles(self) -> int:
        """Tiles of edge blocks in which everything is visible."""
        return sum(tiles.n_dense for tiles in self.refined.values())

    @property
    def n_edge_tiles(self) -> int:
        """Tiles of edge blocks that need the mask: nothing else does."""
        return sum(tiles.n_edge for tiles in self.refined.values())

    @property
    def n_skip_tiles(self) -> int:
        """Tiles of edge blocks in which nothing is visible."""
        return sum(tiles.n_skip for tiles in self.refined.values())

    @property
    def visible(self) -> int:
        """Entries that the mask shows."""
        return int(self.blocks.counts.sum())

    @property
    def visited(self) -> int:
        """Entries that are computed, every visited block and tile at its full size."""
        tiles = self.n_dense_tiles + self.n_edge_tiles
        return self.n_dense_blocks * self.block_size**2 + tiles * self.tile_size**2

    @property
    def useful(self) -> float:
        """Visible entries over visited ones; 1.0 if none is visited."""
        return self.visible / self.visited if self.visited else 1.0

    def visits(self, order: TileOrder = TileOrder.Q_MAJOR) -> Iterator[Visit]:
        """What is computed, piece by piece: the blocks in this order, and the tiles of each in the same."""
        check_order(order)
        size, tile = self.block_size, self.tile_size
        for i, j in self.blocks.order(order.value).tolist():
            q_start, k_start = i * size, j * size
            if self.blocks.kinds[i, j] == DENSE:
                yield Visit(q_start, q_start + size, k_start, k_start + size, DENSE)
                continue
            tiles = self.refined[i, j]
            for m, n in tiles.order(order.value).tolist():
                yield Visit(
                    q_start + m * tile,
                    q_start + min(m * tile + tile, tiles.q_len),
                    k_start + n * tile,
                    k_start + min(n * tile + tile, tiles.kv_len),
                    int(tiles.kinds[m, n]),
                )


def two_level_map(mask: Mask, q_len: int, kv_len: int, block_size: int, tile_size: int) -> TwoLevelMap:
    """Cut a mask into blocks, and the blocks on its edge into tiles.

    With an interval form (see `Mask.intervals`) this takes O(q_len * K) time and memory, plus the blocks,
    plus the rows and tiles of the edge blocks. Other masks are evaluated everywhere, in edge blocks twice.

    Parameters
    ----------
    mask : Mask
    q_len, kv_len : int
        Number of queries and keys, 0 or more. The last block and the last tile of either side may be ragged;
        they are then edges, as in `tile_map`.
    block_size, tile_size : int
        Sides in tokens, 1 or more; `block_size` is a multiple of `tile_size`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type or out of range, or the mask was built for other lengths.
    """
    size = check_whole("block_size", block_size, least=1)
    tile = check_whole("tile_size", tile_size, least=1)
    if size % tile:
        raise ValueError(f"block_size must be a multiple of tile_size, {tile}, got {size}")
    blocks = tile_map(mask, q_len, kv_len, size)
    spans = mask.intervals(q_len, kv_len)
    refined = {}
    for i, j in np.argwhere(blocks.kinds == EDGE).tolist():
        rows, columns = min(size, q_len - i * size), min(size, kv_len - j * size)
        inside = _inside(mask, spans, i * size, j * size)
        refined[i, j] = tile_map(inside, rows, columns, tile)
    return TwoLevelMap(blocks, tile, MappingProxyType(refined))


def _inside(mask: Mask, spans: Int64[np.ndarray, "q_len k 2"] | None, q_start: int, k_start: int) -> Mask:
    """The mask of one block, counted from the block's corner; `spans` are the intervals of the whole."""

    def bind(place: Callable[[np.ndarray], Any]) -> Callable[[Any, Any, Any, Any], Any]:
        rule = mask.bind(place)
        return lambda b, h, q_idx, kv_idx: rule(b, h, q_idx + q_start, kv_idx + k_start)

    if spans is None:
        return Mask(mask.name, bind)
    rest = spans[q_start:]
    # Clipped they are not in the canonical form of `attnlab.intervals`, which counting does not need.
    return Mask(mask.name, bind, lambda q_len, kv_len: (rest[:q_len] - k_start).clip(0, kv_len))
