"""Sizes of tiles for the Triton kernels, by head_dim and dtype, with an H100 in mind.

The numbers start from those that PyTorch's FlexAttention takes on the same card (the tables of
``torch/_inductor/template_heuristics/triton.py``). What bounds them is the 227 KiB of shared memory that a
program can have there, and its registers: the accumulators alone are rows * head_dim numbers of 4 bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SMALLEST_TILE = 16  # what a matrix instruction takes


class Blocks(NamedTuple):
    """How one kernel is cut and run.

    Attributes
    ----------
    queries, keys : int
        Rows of packed queries, and keys, of a tile; powers of two from 16.
    warps : int
        Groups of 32 threads for each program.
    stages : int
        Tiles under way at a time: later ones are loaded while this one is multiplied.
    """

    queries: int
    keys: int
    warps: int
    stages: int


# For a padded head_dim up to the number, in 16 and in 32 bits. float32 is multiplied without tensor cores, so
# that its results are those of float32, and there the registers run out first.
_FORWARD = {
    16: {64: Blocks(128, 64, 4, 3), 128: Blocks(128, 64, 8, 3), 256: Blocks(64, 32, 4, 3)},
    32: {64: Blocks(64, 32, 8, 2), 128: Blocks(32, 16, 8, 2), 256: Blocks(16, 32, 8, 1)},
}
_QUERY_GRADIENTS = {
    16: {64: Blocks(128, 64, 8, 3), 128: Blocks(128, 64, 8, 2), 256: Blocks(64, 32, 8, 2)},
    32: {64: Blocks(32, 32, 4, 2), 128: Blocks(32, 16, 8, 2), 256: Blocks(16, 16, 8, 2)},
}
_KEY_GRADIENTS = {
    16: {64: Blocks(64, 128, 8, 3), 128: Blocks(64, 128, 8, 2), 256: Blocks(32, 64, 8, 2)},
    32: {64: Blocks(32, 32, 4, 2), 128: Blocks(16, 32, 8, 2), 256: Blocks(16, 16, 8, 2)},
}
_TABLES = {"forward": _FORWARD, "query_gradients": _QUERY_GRADIENTS, "key_gradients": _KEY_GRADIENTS}


def padded_head_dim(head_dim: int) -> int:
    """The power of two, at least 16, that tiles are wide."""
    return max(16, 1 << (head_dim - 1).bit_length())


def choose(kernel: str, dtype: torch.dtype, head_dim: int, tiles: tuple[int, int] | None = None) -> Blocks:
    """The sizes for a kernel.

    Parameters
    ----------
    kernel : {"forward", "query_gradients", "key_gradients"}
    dtype : torch.dtype
        float32, bfloat16 or float16.
    head_dim : int
    tiles : (int, int), optional
        Rows of queries and of keys to take in place of the table's.

    Returns
    -------
    Blocks

    Raises
    ------
    ValueError
        If `tiles` is no pair of powers of two from 16.
    """
    by_width = _TABLES[kernel][8 * dtype.itemsize]
    width = padded_head_dim(head_dim)
    blocks = next((by_width[limit] for limit in by_width if width <= limit), None)
    if blocks is None:  # wider than any head in use: the smallest tile there is
        blocks = Blocks(SMALLEST_TILE, SMALLEST_TILE, 4, 1)
    if tiles is None:
        return blocks
    if len(tiles) != 2 or any(size < SMALLEST_TILE or size & (size - 1) for size in tiles):
        raise ValueError(f"tiles must be two powers of two from {SMALLEST_TILE}, got {tiles!r}")
    return blocks._replace(queries=tiles[0], keys=tiles[1])
