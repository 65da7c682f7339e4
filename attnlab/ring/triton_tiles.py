"""What the Triton kernels share: which tiles a program visits, and how one tile is loaded.

Queries are packed. The G query heads that share a key head are laid under one another as rows, row r being
head ``r % G`` of the query ``r // G``, so a tile of keys is loaded once for all of them, and a G that is no
power of two leaves no row idle. A tile of rows is therefore a stretch of positions, ``first`` to ``last``.

The tiles that such a stretch visits are in three parts, for which the kernels have three loops::

    begin      dense              edge       end
      | far edge |  every key seen  | diagonal |

In the outer parts keys are compared with positions. In the middle nothing is compared, and tiles outside are
not loaded. A window of less than a tile has no middle.

Triton compiles the source of a kernel, where annotations do not mean types: hence ``no_type_check``.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def key_tiles(first, last, keys, window, CAUSAL: tl.constexpr, BLOCK_K: tl.constexpr):
    """For the queries at `first` to `last`: oldest and newest key seen, and begin, dense, edge, end."""
    ahead = 0 if CAUSAL else window - 1  # how far a query sees past itself
    oldest = tl.maximum(first - window + 1, 0)
    newest = tl.minimum(last + ahead, keys - 1)
    begin = oldest // BLOCK_K
    end = newest // BLOCK_K + 1
    # All of them see the keys from last - window + 1 to first + ahead: whole tiles of those are dense.
    dense = tl.minimum(tl.cdiv(tl.maximum(last - window + 1, 0), BLOCK_K), end)
    edge = tl.maximum((tl.minimum(first + ahead, keys - 1) + 1) // BLOCK_K, dense)
    return oldest, newest, begin, dense, edge, end


@triton.jit
@no_type_check
def query_tiles(
    first, last, queries, window, GROUP: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_Q: tl.constexpr
):
    """For the keys at `first` to `last`: begin, dense, edge and end, in tiles of packed rows.

    The same three parts seen from the other side; here the diagonal comes first.
    """
    ahead = 0 if CAUSAL else window - 1
    begin = tl.maximum(first - ahead, 0) * GROUP // BLOCK_Q
    end = tl.cdiv(tl.minimum(last + window, queries) * GROUP, BLOCK_Q)
    # All of these keys are seen by the queries from last - ahead to first + window - 1.
    dense = tl.minimum(tl.cdiv(tl.maximum(last - ahead, 0) * GROUP, BLOCK_Q), end)
    edge = tl.maximum(tl.minimum(first + window, queries) * GROUP // BLOCK_Q, dense)
    return begin, dense, edge, end


@triton.jit
@no_type_check
def load_tile(
    start,
    row_offsets,
    column_stride,
    inside,
    CHECK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Rows of head_dim numbers, zero past head_dim and, if CHECK, zero in rows that are not `inside`.

    A row that is not inside is not read: it may hold anything, and 0 times NaN would be NaN.
    """
    columns = tl.arange(0, BLOCK_D)
    at = start + row_offsets[:, None] + columns[None, :] * column_stride
    if CHECK:
        tile = tl.load(at, mask=inside[:, None] & (columns < HEAD_DIM)[None, :], other=0.0)
    elif BLOCK_D > HEAD_DIM:
        tile = tl.load(at, mask=(columns < HEAD_DIM)[None, :], other=0.0)
    else:
        tile = tl.load(at)
    return tile


@triton.jit
@no_type_check
def store_tile(
    start, row_offsets, column_stride, tile, inside, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Write the rows that are `inside`, as far as head_dim, in the dtype of the memory."""
    columns = tl.arange(0, BLOCK_D)
    at = start + row_offsets[:, None] + columns[None, :] * column_stride
    tl.store(at, tile.to(start.dtype.element_ty), mask=inside[:, None] & (columns < HEAD_DIM)[None, :])


@triton.jit
@no_type_check
def visible(positions, keys, window, CAUSAL: tl.constexpr):
    """Whether the query at each position sees each key, by the window alone; the shapes broadcast."""
    ahead = keys - positions
    if CAUSAL:
        seen = (ahead <= 0) & (ahead > -window)
    else:
        seen = (ahead < window) & (ahead > -window)
    return seen
