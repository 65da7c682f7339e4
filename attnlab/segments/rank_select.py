"""Find the k-th change of id in a row without looking at every token twice (JAX).

The structure is a rank/select directory (Jacobson, "Space-efficient static trees and graphs", 1989): counts
of changes per block of 32 tokens, running totals per 32 such blocks. A query bisects the running totals,
descends by halves through the 32 counts of one block, then by halves through the 32 tokens of one count.
"Change i" means that tokens i and i + 1 differ in id.

Every function works on one row; `attnlab.segments.jax` maps it over a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int32, UInt8

FINE = 32  # tokens per count, and counts per running total

Reader = Callable[[Array], Array]
"""Reads the row at an array of indices. What it gives beyond the ends of the row does not matter."""


class Directory(NamedTuple):
    """Where the changes are, coarsely.

    Attributes
    ----------
    fine : uint8 [ceil(T / 1024) * 32]
        Changes in each block of 32 tokens, padded with zeros.
    coarse : int32 [ceil(T / 1024)]
        Running total of changes up to and with each block of 1024 tokens.
    """

    fine: UInt8[Array, "fine_blocks"]
    coarse: Int32[Array, "coarse_blocks"]


def neighbours(row: Int32[Array, "tokens"]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Pair each token with the next: whole blocks as two [blocks, 32], then the rest, at most 31 pairs."""
    pairs = row.size - 1
    whole = pairs - pairs % FINE
    blocks = (row[:whole].reshape(-1, FINE), row[1 : whole + 1].reshape(-1, FINE))
    return blocks, (row[whole:pairs], row[whole + 1 :])


def build(ids: Int32[Array, "tokens"]) -> Directory:
    """Count the changes; one pass over the ids, and the only one."""
    (left, right), (rest_left, rest_right) = neighbours(ids)
    # Counted in uint8, since at most 32: one byte is kept for 32 tokens.
    ones = jnp.where(left != right, jnp.uint8(1), jnp.uint8(0))
    rest = jnp.where(rest_left != rest_right, jnp.uint8(1), jnp.uint8(0))
    fine = jnp.concatenate([ones.sum(axis=1, dtype=jnp.uint8), rest.sum(dtype=jnp.uint8)[None]])
    fine = jnp.pad(fine, (0, -fine.size % FINE))
    return Directory(fine, jnp.cumsum(fine.reshape(-1, FINE).sum(axis=1, dtype=jnp.int32)))


def coarse_block(coarse: Int32[Array, "coarse_blocks"], rank: Int32[Array, "k"]) -> tuple[Array, Array]:
    """Bisect the running totals: which block of 1024 holds change `rank`, and how many precede it there."""
    block = jnp.searchsorted(coarse, rank, side="right")
    block = jnp.minimum(block, coarse.size - 1)
    return block, rank - jnp.where(block > 0, coarse[block - 1], 0)


def descend(
    count: Reader, base: Int32[Array, "k"], rank: Int32[Array, "k"], width: int
) -> tuple[Int32[Array, "k"], Int32[Array, "k"]]:
    """Halve `width` entries: go right when the left half holds `rank` changes or fewer, and take them off."""
    half = width // 2
    in_left = count(base[:, None] + jnp.arange(half, dtype=jnp.int32)).sum(axis=1, dtype=jnp.int32)
    right = rank >= in_left
    return base + jnp.where(right, half, 0), rank - jnp.where(right, in_left, 0)


def select(
    directory: Directory, read_ids: Reader, rank: Int32[Array, "k"]
) -> tuple[Int32[Array, "k"], Int32[Array, "k"]]:
    """Find the changes with the given ranks (0 is the first).

    Parameters
    ----------
    directory : Directory
    read_ids : callable
        Reads ids at an integer array of indices.
    rank : int32 [K]

    Returns
    -------
    index : int32 [K]
        Token before each change; meaningless where the row has fewer changes.
    block : int32 [K]
        First token of the 32 in which each was found.
    """
    block, rank = coarse_block(directory.coarse, rank)

    def fine_counts(i):
        return directory.fine.at[i].get(mode="clip", wrap_negative_indices=False)

    def changes(i):
        return read_ids(i) != read_ids(i + 1)

    base = block * FINE
    for shift in (5, 4, 3, 2, 1):
        base, rank = descend(fine_counts, base, rank, 1 << shift)
    block = base = base * FINE
    for shift in (5, 4, 3, 2, 1):
        base, rank = descend(changes, base, rank, 1 << shift)
    return base, block


def all_increase(
    ids: Int32[Array, "tokens"],
    positions: Int32[Array, "tokens"],
    directory: Directory,
    read_ids: Reader,
    read_positions: Reader,
    blocks: Int32[Array, "k"],
) -> Array:
    """Say whether positions increase from token to token wherever the id stays the same and is not 0.

    With few segments, blocks in which no id changes are settled by one comparison per token, and the
    others, whose first tokens are `blocks`, are looked at one by one. With so many that these would hold
    half the row, it is quicker to compare everything.
    """
    pairs = ids.size - 1
    if 2 * blocks.size * FINE > pairs:
        one_run = (ids[1:] == ids[:-1]) & (ids[1:] != 0)
        return ~jnp.any(one_run & (positions[1:] <= positions[:-1]))
    (left, right), _ = neighbours(positions)
    settled = (directory.fine[: len(left)] == 0) & (ids[: left.size : FINE] != 0)
    stuck = jnp.any(settled & jnp.any(right <= left, axis=1))
    # The last, incomplete block is always looked at.
    at = jnp.append(blocks, left.size)[:, None] + jnp.arange(FINE, dtype=jnp.int32)
    one_run = (read_ids(at) == read_ids(at + 1)) & (read_ids(at) != 0) & (at < pairs)
    return ~(stuck | jnp.any(one_run & (read_positions(at + 1) <= read_positions(at))))
