"""What attention over tiles moves between memory and chip, by formula; `attnlab.ring.traffic` explains them.

All is for the query heads of one K/V head of one sequence. A tile is counted as often as it comes onto the
chip or leaves it, and a tile of several query heads, which move together, counts as one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from attnlab.intervals import check_whole
from attnlab.ring.order import TileOrder
from attnlab.tiles import PARTIAL_BYTES, Moves, TileMap, Traffic

__all__ = ["ROW_BYTES", "BackwardTraffic", "backward_traffic", "check_order", "forward_traffic", "head_tiles"]

ROW_BYTES = 4  # lse and delta have one float32 number a row


@dataclass(frozen=True)
class BackwardTraffic:
    """What a backward pass moves, by tensor.

    ``do`` is the gradient of the output and ``delta`` the row sums of dO * O. ``dq_partial``, ``dk_partial``
    and ``dv_partial`` are unfinished sums, in float32. Loads and stores are counted in tiles; bytes are
    exact, so a ragged last tile counts for the rows it has.
    """

    order: str
    q: Moves
    do: Moves
    lse: Moves
    delta: Moves
    k: Moves
    v: Moves
    dq: Moves
    dk: Moves
    dv: Moves
    dq_partial: Moves
    dk_partial: Moves
    dv_partial: Moves

    @property
    def bytes(self) -> int:
        """Bytes moved, all tensors together."""
        return sum(getattr(self, field.name).bytes for field in fields(self) if field.name != "order")


def check_order(order: TileOrder) -> None:
    """Raise TypeError for what is no TileOrder: ``"q"`` would otherwise pass for one of the two."""
    if not isinstance(order, TileOrder):
        raise TypeError(f"order must be a TileOrder, got {type(order).__name__}")


def head_tiles(query_heads: int, head_tile_size: int) -> list[int]:
    """How many query heads each pass takes: ``head_tile_size``, and in the last one those that are left.

    >>> head_tiles(8, 3)
    [3, 3, 2]
    """
    query_heads = check_whole("query_heads", query_heads, least=1)
    size = check_whole("head_tile_size", head_tile_size, least=1)
    return [min(size, query_heads - head) for head in range(0, query_heads, size)]


def forward_traffic(
    tiles: TileMap,
    order: TileOrder,
    *,
    head_dim: int,
    bytes_per_element: int,
    query_heads: int = 1,
    head_tile_size: int = 1,
    all_fits: bool = False,
) -> Traffic:
    """What the forward pass moves. For one query head it is what `TileMap.traffic` says.

    Parameters
    ----------
    tiles : TileMap
    order : TileOrder
        The outer loop.
    head_dim, bytes_per_element : int
        Of Q, K, V and O.
    query_heads : int
        Query heads of the K/V head.
    head_tile_size : int
        Query heads that share each load of K and V; it need not divide `query_heads`.
    all_fits : bool
        The chip keeps every tile until its last visit in a pass, so that nothing crosses twice in it.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type or out of range.
    """
    row_bytes = _row_bytes(head_dim, bytes_per_element)
    passes = len(head_tiles(query_heads, head_tile_size))
    q, kv = _sides(tiles, order, all_fits)
    q_moves = partial(_moves, q.sizes, times=passes, heads=query_heads)
    k = _moves(kv.sizes, kv.visits, 0 * kv.visits, row_bytes, times=passes, heads=passes)
    again = q.visits - q.once
    return Traffic(
        order=order.value,
        q=q_moves(q.visits, 0 * q.visits, row_bytes),
        k=k,
        v=k,
        o=q_moves(0 * q.once, q.once, row_bytes),
        partial=q_moves(again, again, (head_dim + 2) * PARTIAL_BYTES),
    )


def backward_traffic(
    tiles: TileMap,
    order: TileOrder,
    *,
    head_dim: int,
    bytes_per_element: int,
    query_heads: int = 1,
    head_tile_size: int = 1,
    all_fits: bool = False,
) -> BackwardTraffic:
    """What the backward pass moves; arguments as in `forward_traffic`.

    delta is taken as given: it is one cheap pass over O and dO beforehand, the same for both orders.
    """
    row_bytes = _row_bytes(head_dim, bytes_per_element)
    passes = len(head_tiles(query_heads, head_tile_size))
    q, kv = _sides(tiles, order, all_fits)
    q_moves = partial(_moves, q.sizes, times=passes, heads=query_heads)
    kv_moves = partial(_moves, kv.sizes)
    visits = passes * kv.visits
    q_again, kv_again = q.visits - q.once, visits - kv.once
    in_q, in_row = (q_moves(q.visits, 0 * q.visits, size) for size in (row_bytes, ROW_BYTES))
    in_k, out_k = kv_moves(visits, 0 * visits, row_bytes), kv_moves(0 * kv.once, kv.once, row_bytes)
    k_partial = kv_moves(kv_again, kv_again, head_dim * PARTIAL_BYTES)
    return BackwardTraffic(
        order=order.value,
        q=in_q,
        do=in_q,
        lse=in_row,
        delta=in_row,
        k=in_k,
        v=in_k,
        dq=q_moves(0 * q.once, q.once, row_bytes),
        dk=out_k,
        dv=out_k,
        dq_partial=q_moves(q_again, q_again, head_dim * PARTIAL_BYTES),
        dk_partial=k_partial,
        dv_partial=k_partial,
    )


class _Side(NamedTuple):
    """The tiles of queries, or of keys: their sizes, 1 where one is visited at all, and visits in a pass."""

    sizes: Int64[np.ndarray, " tiles"]
    once: Int64[np.ndarray, " tiles"]
    visits: Int64[np.ndarray, " tiles"]


def _sides(tiles: TileMap, order: TileOrder, all_fits: bool) -> tuple[_Side, _Side]:
    """Of the outer side a visited tile comes onto the chip once, of the inner side at every visit."""
    check_order(order)
    sides = []
    for axis, outer in ((1, TileOrder.Q_MAJOR), (0, TileOrder.K_MAJOR)):
        length, block = (tiles.q_len, tiles.block_q) if axis else (tiles.kv_len, tiles.block_kv)
        sizes = np.minimum(block, length - np.arange(0, length, block)).astype(np.int64)
        visits = np.count_nonzero(tiles.kinds, axis=axis).astype(np.int64)
        once = np.minimum(visits, 1)
        sides.append(_Side(sizes, once, once if all_fits or order is outer else visits))
    return sides[0], sides[1]


def _moves(
    sizes: Int64[np.ndarray, " tiles"],
    loads: Int64[np.ndarray, " tiles"],
    stores: Int64[np.ndarray, " tiles"],
    bytes_per_row: int,
    *,
    times: int = 1,
    heads: int = 1,
) -> Moves:
    """Crossings of tiles of these sizes, in all passes; `heads` rows for each row of a tile, together."""
    n_bytes = int((loads + stores) @ sizes) * bytes_per_row * heads
    return Moves(int(loads.sum()) * times, int(stores.sum()) * times, n_bytes)


def _row_bytes(head_dim: int, bytes_per_element: int) -> int:
    head_dim = check_whole("head_dim", head_dim, least=1)
    return head_dim * check_whole("bytes_per_element", bytes_per_element, least=1)
