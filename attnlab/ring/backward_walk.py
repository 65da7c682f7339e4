"""The backward pass over tiles as a list of events: load these, compute, merge into the sums, store those.

The twin of `attnlab.ring.tiled.walk`. At each visit the weights are computed again from Q, K and lse, and
give three terms: one to dQ of the query tile, one each to dK and dV of the key tile. The outer side keeps its
sums on chip until the loop moves on. Those of the inner side leave at every visit: unfinished in float32, or
finished in the tensors' own type at the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int64

from attnlab.ring.order import TileOrder
from attnlab.ring.traffic_forms import ROW_BYTES, check_order, head_tiles
from attnlab.tiles import PARTIAL_BYTES, SKIP, TileMap

__all__ = ["BackwardEvent", "walk_backward"]


@dataclass(frozen=True)
class BackwardEvent:
    """One step of the backward walk.

    Attributes
    ----------
    kind : "load", "compute", "merge", "skip" or "store"
        ``merge`` adds the terms of this tile to dQ, dK and dV.
    tensor : str
        What a load or a store moves, a name of `BackwardTraffic`; "" otherwise.
    q_tile, k_tile : int
        The tile being visited; for a store, the one last visited.
    bytes : int
        Moved for all query heads of this pass; 0 unless the event is a load or a store.
    head_tile : int
        The pass: which tile of query heads.
    """

    kind: Literal["load", "compute", "merge", "skip", "store"]
    tensor: str
    q_tile: int
    k_tile: int
    bytes: int = 0
    head_tile: int = 0


def walk_backward(
    tiles: TileMap,
    order: TileOrder = TileOrder.K_MAJOR,
    *,
    head_dim: int,
    bytes_per_element: int,
    query_heads: int = 1,
    head_tile_size: int = 1,
) -> Iterator[BackwardEvent]:
    """Say what a backward pass over the tiles loads, computes, merges, skips and stores, in order.

    Parameters
    ----------
    tiles : TileMap
    order : TileOrder
        The outer loop.
    head_dim, bytes_per_element : int
        Of Q, K, V, dO and the finished gradients; unfinished ones are counted in float32.
    query_heads : int
        Query heads of the K/V head.
    head_tile_size : int
        Query heads that share each load of K and V; it need not divide `query_heads`.

    Yields
    ------
    BackwardEvent
        Summed by tensor, their bytes are those of `backward_traffic`.
    """
    check_order(order)
    nq, nk = tiles.kinds.shape
    visits = [(i, j) for i in range(nq) for j in range(nk)]
    outer = 0 if order is TileOrder.Q_MAJOR else 1
    if outer == 1:
        visits.sort(key=lambda visit: visit[::-1])
    row_bytes, sum_bytes = head_dim * bytes_per_element, head_dim * PARTIAL_BYTES
    passes = head_tiles(query_heads, head_tile_size)
    q_reads = {"q": row_bytes, "do": row_bytes, "lse": ROW_BYTES, "delta": ROW_BYTES}
    heights = [min(tiles.block_q, tiles.q_len - i * tiles.block_q) for i in range(nq)]
    widths = [min(tiles.block_kv, tiles.kv_len - j * tiles.block_kv) for j in range(nk)]
    k_left = np.count_nonzero(tiles.kinds, axis=0) * len(passes)  # dK and dV go on from pass to pass
    k_side = _Side({"k": row_bytes, "v": row_bytes}, {"dk": row_bytes, "dv": row_bytes}, widths, k_left)

    for head_tile, heads in enumerate(passes):
        q_left = np.count_nonzero(tiles.kinds, axis=1)
        q_side = _Side(q_reads, {"dq": row_bytes}, [heads * height for height in heights], q_left)
        sides = (q_side, k_side)
        held: tuple[int, int] | None = None  # the visit whose outer tile is still on chip
        for visit in visits:
            if tiles.kinds[visit] == SKIP:
                yield BackwardEvent("skip", "", *visit, head_tile=head_tile)
                continue
            new_outer = held is None or held[outer] != visit[outer]
            if new_outer and held is not None:
                for tensor, moved in sides[outer].evict(held[outer], sum_bytes):
                    yield BackwardEvent("store", tensor, *held, moved, head_tile)
            for side in (outer, 1 - outer) if new_outer else (1 - outer,):
                for tensor, moved in sides[side].load(visit[side], sum_bytes):
                    yield BackwardEvent("load", tensor, *visit, moved, head_tile)
            yield BackwardEvent("compute", "", *visit, head_tile=head_tile)
            yield BackwardEvent("merge", "", *visit, head_tile=head_tile)
            for side in (0, 1):
                sides[side].left[visit[side]] -= 1
            for tensor, moved in sides[1 - outer].evict(visit[1 - outer], sum_bytes):
                yield BackwardEvent("store", tensor, *visit, moved, head_tile)
            held = visit
        if held is not None:
            for tensor, moved in sides[outer].evict(held[outer], sum_bytes):
                yield BackwardEvent("store", tensor, *held, moved, head_tile)


class _Side:
    """The tiles of queries, or of keys: what they read, the sums they wait for, and how far those are.

    ``reads`` and ``sums`` give bytes a row by tensor, ``rows`` the rows that each tile moves and ``left`` the
    visits that each tile's sums still wait for.
    """

    def __init__(
        self, reads: dict[str, int], sums: dict[str, int], rows: list[int], left: Int64[np.ndarray, " tiles"]
    ):
        self.left = left
        self._reads, self._sums, self._rows = reads, sums, rows
        self._begun: set[int] = set()

    def load(self, tile: int, sum_bytes: int) -> Iterator[tuple[str, int]]:
        """Tensors and bytes that come onto the chip: what the tile reads, and its sums if it has any yet."""
        for tensor, row_bytes in self._reads.items():
            yield tensor, self._rows[tile] * row_bytes
        if tile in self._begun:
            for tensor in self._sums:
                yield f"{tensor}_partial", self._rows[tile] * sum_bytes
        self._begun.add(tile)

    def evict(self, tile: int, sum_bytes: int) -> Iterator[tuple[str, int]]:
        """Tensors and bytes that leave: the sums, finished or not."""
        for tensor, row_bytes in self._sums.items():
            if self.left[tile]:
                yield f"{tensor}_partial", self._rows[tile] * sum_bytes
            else:
                yield tensor, self._rows[tile] * row_bytes
