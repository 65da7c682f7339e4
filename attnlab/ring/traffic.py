"""Which loop order moves fewer bytes between memory and chip, forward and backward.

The chip holds the tiles of one visit. What belongs to the outer loop stays while the inner tiles stream past;
what belongs to the inner loop is loaded at every visit, and an unfinished sum of the inner side travels, in
float32, to memory and back. Forward the query side has a sum, (m, l, O). Backward both sides have::

                       stays on chip             loaded at every visit    read and written at every visit
    forward   Q-major  Q, (m, l, O)              K, V                     -
              K-major  K, V                      Q                        (m, l, O)
    backward  Q-major  Q, dO, lse, delta, dQ     K, V                     dK, dV
              K-major  K, V, dK, dV              Q, dO, lse, delta        dQ

So with one query head to a K/V head, keep the side whose sums would otherwise travel: queries forward, keys
backward. FlashAttention-2 has these loops (Dao 2023, https://arxiv.org/abs/2307.08691, algorithms 1 and 2).

With grouped queries, `head_tile_size` query heads are handled together and share each load of K and V. What
the query side carries is then that many times as much, and from two heads on Q-major is the cheaper order
backward too. Query heads beyond the head tile are another pass over the tiles, and dK and dV go on from pass
to pass.

`attnlab.ring.traffic_forms` has the closed forms, and `attnlab.ring.backward_walk` the walk that they count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int64

from attnlab.intervals import check_whole
from attnlab.ring.backward_walk import BackwardEvent, walk_backward
from attnlab.ring.order import TileOrder
from attnlab.ring.traffic_forms import (
    ROW_BYTES,
    BackwardTraffic,
    backward_traffic,
    forward_traffic,
    head_tiles,
)
from attnlab.tiles import PARTIAL_BYTES, TileMap, Traffic

__all__ = [
    "Advice",
    "BackwardEvent",
    "BackwardTraffic",
    "Choice",
    "advise",
    "backward_traffic",
    "forward_traffic",
    "head_tiles",
    "walk_backward",
]

_NAMES = {TileOrder.Q_MAJOR: "Q-major", TileOrder.K_MAJOR: "K-major"}


@dataclass(frozen=True)
class Choice:
    """The two orders of one pass, compared. Bytes are for the query heads of one K/V head of one sequence.

    Attributes
    ----------
    which : "forward" or "backward"
    q_major_bytes, k_major_bytes : int
        Moved between memory and chip.
    q_major_needs, k_major_needs : int
        Bytes of a chip that can keep every tile until its last visit, so that nothing crosses twice. Tables
        of scores are not counted.
    q_major_fits, k_major_fits : bool
        Whether that much is on chip.
    """

    which: Literal["forward", "backward"]
    q_major_bytes: int
    k_major_bytes: int
    q_major_needs: int
    k_major_needs: int
    q_major_fits: bool
    k_major_fits: bool

    @property
    def order(self) -> TileOrder | None:
        """The order that moves fewer bytes; None if both move the same."""
        if self.q_major_bytes == self.k_major_bytes:
            return None
        return TileOrder.Q_MAJOR if self.q_major_bytes < self.k_major_bytes else TileOrder.K_MAJOR

    @property
    def ratio(self) -> float:
        """Bytes of the dearer order over those of the cheaper one; 1.0 if nothing moves."""
        low, high = sorted((self.q_major_bytes, self.k_major_bytes))
        return high / low if low else 1.0

    @property
    def sentence(self) -> str:
        """What to choose and why, without a capital or a full stop."""
        if self.q_major_fits and self.k_major_fits:
            return f"{self.which}, the order does not matter: the chip holds all that is needed again"
        if self.order is None:
            return f"{self.which}, the order does not matter: both move the same bytes"
        other = TileOrder.K_MAJOR if self.order is TileOrder.Q_MAJOR else TileOrder.Q_MAJOR
        more = f"{self.ratio:.1f} times" if self.ratio >= 1.15 else f"{self.ratio:.3f} times"
        return f"{self.which}, {_NAMES[self.order]} moves fewer bytes and {_NAMES[other]} {more} as many"


@dataclass(frozen=True)
class Advice:
    """What `advise` found: a `Choice` for each pass."""

    forward: Choice
    backward: Choice

    @property
    def sentence(self) -> str:
        """Both choices in one plain sentence."""
        text = f"{self.forward.sentence}; {self.backward.sentence}."
        return text[0].upper() + text[1:]


def advise(
    tiles: TileMap,
    head_dim: int,
    bytes_per_element: int,
    on_chip_bytes: int | None = None,
    head_tile_size: int = 1,
    query_heads: int | None = None,
) -> Advice:
    """Say which loop order moves fewer bytes, forward and backward.

    Parameters
    ----------
    tiles : TileMap
    head_dim, bytes_per_element : int
        Of Q, K, V, O and the finished gradients: 2 bytes for bfloat16.
    on_chip_bytes : int, optional
        What one core of the chip can hold: an order whose tiles all fit there until their last visit moves
        each of them once. None means that the chip holds the tiles of one visit and no more.
    head_tile_size : int
        Query heads that share each load of K and V.
    query_heads : int, optional
        Query heads of one K/V head; `head_tile_size` of them if not given.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type or out of range, or the chip cannot hold the tiles of one visit.
    """
    heads = head_tile_size if query_heads is None else query_heads
    if on_chip_bytes is not None:
        on_chip_bytes = check_whole("on_chip_bytes", on_chip_bytes, least=1)
    together = max(head_tiles(heads, head_tile_size))
    row, total = head_dim * bytes_per_element, head_dim * PARTIAL_BYTES
    # Bytes on chip for a row of queries, and for one of keys: what is read, and the sums.
    kept = {
        "forward": (together * (row + total + 2 * PARTIAL_BYTES), 2 * row),
        "backward": (together * (2 * row + 2 * ROW_BYTES + total), 2 * row + 2 * total),
    }
    forms: dict[str, Callable[..., Traffic | BackwardTraffic]] = {
        "forward": forward_traffic,
        "backward": backward_traffic,
    }

    def choose(which: Literal["forward", "backward"]) -> Choice:
        needs = {order: _needs(tiles, order, *kept[which]) for order in TileOrder}
        fits = {order: on_chip_bytes is not None and need <= on_chip_bytes for order, need in needs.items()}
        one_visit = _one_visit(tiles, *kept[which])
        if on_chip_bytes is not None and on_chip_bytes < one_visit:
            raise ValueError(
                f"on_chip_bytes must hold the tiles of one {which} visit, {one_visit} bytes, "
                f"got {on_chip_bytes}; smaller tiles would fit"
            )
        moved = {
            order: forms[which](
                tiles,
                order,
                head_dim=head_dim,
                bytes_per_element=bytes_per_element,
                query_heads=heads,
                head_tile_size=head_tile_size,
                all_fits=fits[order],
            ).bytes
            for order in TileOrder
        }
        q, k = TileOrder.Q_MAJOR, TileOrder.K_MAJOR
        return Choice(which, moved[q], moved[k], needs[q], needs[k], fits[q], fits[k])

    return Advice(choose("forward"), choose("backward"))


def _one_visit(tiles: TileMap, q_row: int, k_row: int) -> int:
    """The most bytes that the tiles of one visit take on chip, at so many bytes a row of either side."""
    each = _sizes(tiles.q_len, tiles.block_q)[:, None] * q_row + _sizes(tiles.kv_len, tiles.block_kv) * k_row
    return int(each.max(where=tiles.kinds > 0, initial=0))


def _needs(tiles: TileMap, order: TileOrder, q_row: int, k_row: int) -> int:
    """The most bytes on chip at once, if an inner tile stays from its first visit to its last."""
    visited = tiles.kinds > 0
    outer = _sizes(tiles.q_len, tiles.block_q) * q_row
    inner = _sizes(tiles.kv_len, tiles.block_kv) * k_row
    if order is TileOrder.K_MAJOR:
        visited, outer, inner = visited.T, inner, outer
    begun = np.logical_or.accumulate(visited, axis=0)
    awaited = np.logical_or.accumulate(visited[::-1], axis=0)[::-1]
    staying = (begun & awaited) @ inner + outer * visited.any(axis=1)
    return int(staying.max(initial=0))


def _sizes(length: int, block: int) -> Int64[np.ndarray, " tiles"]:
    return np.minimum(block, length - np.arange(0, length, block)).astype(np.int64)
