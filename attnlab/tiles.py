"""A mask cut into tiles: which to skip, which to compute without a mask, and in what order to visit them.

A kernel works on tiles of ``block_q`` queries by ``block_kv`` keys. A tile in which nothing is visible need
not be loaded (SKIP); one in which everything is visible needs no mask (DENSE); only the others (EDGE) look at
the mask entry by entry. A tile is classified by one number, how many of its entries are visible. For a mask
with key intervals those numbers are found in O(q_len * K + tiles), without a q_len x kv_len table.

>>> from attnlab.masks import causal, sliding_window
>>> tiles = tile_map(causal() & sliding_window(768), 2048, 2048, 128)
>>> tiles.n_visited, tiles.n_skip
(91, 165)

The three kinds are FlexAttention's full, partial and empty blocks (Dong et al. 2024,
https://arxiv.org/abs/2412.05496); the two visiting orders and what they move are the loop orders of
FlashAttention (Dao 2023, https://arxiv.org/abs/2307.08691).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Int64, UInt8

from attnlab.intervals import check_whole
from attnlab.masks import Mask

SKIP, EDGE, DENSE = 0, 1, 2

PARTIAL_BYTES = 4  # unfinished m, l and O are kept in float32, whatever the tensors are


@dataclass(frozen=True)
class Moves:
    """How often tiles of one tensor cross between memory and chip, and the bytes of all those crossings."""

    loads: int
    stores: int
    bytes: int


@dataclass(frozen=True)
class Traffic:
    """What one head of one sequence moves in a forward pass, by tensor.

    ``partial`` is the unfinished state (m, l, O), in float32, of a query tile that has to leave the chip
    before its last key tile. Loads and stores are counted in tiles; bytes are exact, so a ragged last tile
    counts for the rows it has.
    """

    order: str
    q: Moves
    k: Moves
    v: Moves
    o: Moves
    partial: Moves

    @property
    def bytes(self) -> int:
        """Bytes moved, all tensors together."""
        return sum(moves.bytes for moves in (self.q, self.k, self.v, self.o, self.partial))


@dataclass(frozen=True, eq=False)
class TileMap:
    """A mask cut into ``nq`` rows of ``nk`` tiles; made by `tile_map`.

    Attributes
    ----------
    mask : Mask
    q_len, kv_len, block_q, block_kv : int
        The last tile of either side is ragged if the block does not divide the length.
    counts : int64 array [nq, nk], read-only
        Visible entries in each tile.
    """

    mask: Mask
    q_len: int
    kv_len: int
    block_q: int
    block_kv: int
    counts: Int64[np.ndarray, "nq nk"]

    @cached_property
    def kinds(self) -> UInt8[np.ndarray, "nq nk"]:
        """SKIP (0), EDGE (1) or DENSE (2), read-only. A ragged tile lacks entries and is never DENSE."""
        kinds = np.where(self.counts == self.block_q * self.block_kv, DENSE, self.counts > 0).astype(np.uint8)
        kinds.flags.writeable = False
        return kinds

    @property
    def n_skip(self) -> int:
        """Tiles in which nothing is visible."""
        return int(np.count_nonzero(self.kinds == SKIP))

    @property
    def n_edge(self) -> int:
        """Tiles that need the mask."""
        return int(np.count_nonzero(self.kinds == EDGE))

    @property
    def n_dense(self) -> int:
        """Tiles in which everything is visible."""
        return int(np.count_nonzero(self.kinds == DENSE))

    @property
    def n_visited(self) -> int:
        """Tiles that are computed: edge and dense."""
        return int(np.count_nonzero(self.kinds))

    @property
    def useful(self) -> float:
        """Visible entries over computed ones, block_q * block_kv per visited tile; 1.0 if none is visited."""
        computed = self.n_visited * self.block_q * self.block_kv
        return int(self.counts.sum()) / computed if computed else 1.0

    def order(self, major: Literal["q", "k"]) -> Int64[np.ndarray, "visited 2"]:
        """The visited tiles as (query tile, key tile), in the order of a loop nest.

        Parameters
        ----------
        major : "q" or "k"
            The outer loop: ``"q"`` finishes a row of tiles before the next, ``"k"`` a column.
        """
        _check_order("major", major)
        if major == "q":
            return np.argwhere(self.kinds).astype(np.int64)
        return np.argwhere(self.kinds.T)[:, ::-1].astype(np.int64)

    def traffic(self, order: Literal["q", "k"], head_dim: int, bytes_per_element: int) -> Traffic:
        """What crosses between memory and chip if the chip holds one tile of each tensor.

        The outer tile stays while the inner ones stream past it. Q-major keeps Q and (m, l, O): each is
        touched once, and K and V are loaded for every visited tile. K-major keeps K and V: Q is loaded for
        every visited tile, and (m, l, O) is stored at every tile but the query tile's last, and loaded again
        at every tile but its first. O leaves finished, in the tensors' own type, once. Rows and columns of
        tiles in which nothing is visited move nothing.

        Parameters
        ----------
        order : "q" or "k"
        head_dim : int
            Of Q, K, V and O alike.
        bytes_per_element : int
            Of Q, K, V and O: 2 for bfloat16.
        """
        _check_order("order", order)
        head_dim = check_whole("head_dim", head_dim, least=1)
        row_bytes = head_dim * check_whole("bytes_per_element", bytes_per_element, least=1)
        partial_bytes = (head_dim + 2) * PARTIAL_BYTES
        heights = _tile_sizes(self.q_len, self.block_q)
        widths = _tile_sizes(self.kv_len, self.block_kv)
        in_row, in_column = np.count_nonzero(self.kinds, axis=1), np.count_nonzero(self.kinds, axis=0)

        once = np.minimum(in_row, 1)
        if order == "q":
            q_loads, kv_loads, again = once, in_column, np.zeros_like(in_row)
        else:
            q_loads, kv_loads, again = in_row, np.minimum(in_column, 1), in_row - once
        kv = Moves(int(kv_loads.sum()), 0, int(kv_loads @ widths) * row_bytes)
        return Traffic(
            order=order,
            q=Moves(int(q_loads.sum()), 0, int(q_loads @ heights) * row_bytes),
            k=kv,
            v=kv,
            o=Moves(0, int(once.sum()), int(once @ heights) * row_bytes),
            partial=Moves(int(again.sum()), int(again.sum()), 2 * int(again @ heights) * partial_bytes),
        )

    def block_mask(self, device: Any = None) -> Any:
        """The same tiles for FlexAttention, made without a q_len x kv_len table.

        Parameters
        ----------
        device : torch.device, str or None
            Where the index tensors live; None means torch's default device.

        Returns
        -------
        torch.nn.attention.flex_attention.BlockMask
            Equal to ``create_block_mask(mask, None, None, q_len, kv_len, BLOCK_SIZE=(block_q, block_kv))``,
            so it serves any batch size and number of heads.
        """
        import torch
        from torch.nn.attention.flex_attention import BlockMask

        def ordered(chosen: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
            # In each row the chosen tiles first, then the others, both ascending: create_block_mask's order.
            number, index = chosen.sum(axis=1), np.argsort(~chosen, axis=1, kind="stable")
            return tuple(
                torch.tensor(x[None, None], dtype=torch.int32, device=device) for x in (number, index)
            )

        return BlockMask.from_kv_blocks(
            *ordered(self.kinds == EDGE),
            *ordered(self.kinds == DENSE),
            BLOCK_SIZE=(self.block_q, self.block_kv),
            mask_mod=self.mask.mask_mod(device),
            seq_lengths=(self.q_len, self.kv_len),
        )


def tile_map(mask: Mask, q_len: int, kv_len: int, block_size: int | tuple[int, int]) -> TileMap:
    """Cut a mask into tiles.

    Parameters
    ----------
    mask : Mask
        With an interval form this takes O(q_len * K + tiles) time and memory. Without one (see
        `Mask.intervals`) the mask is evaluated everywhere, one row of tiles at a time: O(q_len * kv_len) time
        and O(block_q * kv_len) memory.
    q_len, kv_len : int
        Number of queries and keys, 0 or more.
    block_size : int or (int, int)
        Tile side, or (queries, keys) of a tile; 1 or more.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type or out of range, or the mask was built for other lengths.
    """
    if not isinstance(mask, Mask):
        raise TypeError(
            f"mask must be a Mask, got {type(mask).__name__}; wrap a function of your own in predicate()"
        )
    mask.check_lengths(q_len, kv_len)
    sides = block_size if isinstance(block_size, tuple) else (block_size, block_size)
    if len(sides) != 2:
        raise ValueError(f"block_size must be an int or a pair (block_q, block_kv), got {block_size}")
    block_q, block_kv = (check_whole("block_size", side, least=1) for side in sides)

    spans = mask.intervals(q_len, kv_len)
    if spans is None:
        counts = _count_values(mask, q_len, kv_len, block_q, block_kv)
    else:
        counts = _count_intervals(spans, kv_len, block_q, block_kv)
    counts.flags.writeable = False
    return TileMap(mask, q_len, kv_len, block_q, block_kv, counts)


def _count_intervals(
    spans: Int64[np.ndarray, "q_len k 2"], kv_len: int, block_q: int, block_kv: int
) -> Int64[np.ndarray, "nq nk"]:
    """Visible entries of each tile, from key intervals.

    Of an interval [lo, hi), the keys below x number (x - lo)+ - (x - hi)+. Summed over the rows of a tile
    row, for x at a tile boundary, that is a count times x minus a sum, taken over the ends at or below x. So
    each end is dropped once into the first boundary it does not exceed, running totals give the number of
    keys below each boundary, and differences those of each tile.
    """
    q_len, n_intervals, _ = spans.shape
    nq, nk = -(-q_len // block_q), -(-kv_len // block_kv)
    first = np.arange(q_len) // block_q * (nk + 1)  # where the query's tile row begins in the arrays below
    ends = np.zeros((nq, nk + 1), np.int64)
    places = np.zeros((nq, nk + 1), np.int64)
    for i in range(n_intervals):
        for side, sign in ((0, 1), (1, -1)):
            end = spans[:, i, side]
            boundary = first + -(-end // block_kv)
            np.add.at(ends.ravel(), boundary, sign)
            np.add.at(places.ravel(), boundary, sign * end)
    below = np.cumsum(ends, axis=1) * (np.arange(nk + 1) * block_kv) - np.cumsum(places, axis=1)
    return np.diff(below, axis=1)


def _count_values(
    mask: Mask, q_len: int, kv_len: int, block_q: int, block_kv: int
) -> Int64[np.ndarray, "nq nk"]:
    """Visible entries of each tile, by evaluating the mask one tile row at a time."""
    counts = np.zeros((-(-q_len // block_q), -(-kv_len // block_kv)), np.int64)
    if counts.size:
        for row, start in enumerate(range(0, q_len, block_q)):
            seen = mask.dense_rows(start, min(start + block_q, q_len), kv_len)
            counts[row] = np.add.reduceat(np.count_nonzero(seen, axis=0), np.arange(0, kv_len, block_kv))
    return counts


def _tile_sizes(length: int, block: int) -> Int64[np.ndarray, " tiles"]:
    return np.minimum(block, length - np.arange(0, length, block)).astype(np.int64)


def _check_order(name: str, order: str) -> None:
    if order not in ("q", "k"):
        raise ValueError(f'{name} must be "q" or "k", got {order!r}')
