"""The Pallas kernel: tiles, an online softmax, and keys read from a ring with wrap.

One program takes a tile of T queries of all the query heads that share a key head, and walks over the key
tiles that this tile sees, in the order of positions. A tile that it does not see is not in the walk, so it is
never loaded. The walk is three loops: masked tiles at the window's far edge, dense tiles without a single
comparison, and masked tiles at the diagonal. With C % T == 0 no tile straddles the end of the ring, and the
wrap is one remainder: tile a of the sequence lies in tile ``a mod (C / T)`` of the ring.

It is tested in interpret mode. Its form, whole rings as blocks of which the body loads tiles with ``pl.ds``,
is that of Pallas kernels for the Triton lowering on GPUs (as in ``jax.experimental.pallas.ops.gpu``), which
JAX 0.11 deprecates. That lowering wants sides that are powers of two, and has not been run. On a TPU, or with
the Mosaic lowering, such blocks would be copied whole into fast memory before the body starts, and the walk
would have to move into the grid.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from .jax_checks import work_dtype

__all__ = ["run", "tile_bounds"]


def tile_bounds(first: Any, rows: int, written: Any, *, window: int, causal: bool, tile: int) -> tuple:
    """The walk of one query tile: masked from `a` to `b`, dense from `b` to `c`, masked from `c` to `d`.

    Parameters
    ----------
    first : int or int32 []
        Position of the first query of the tile, below `written`.
    rows : int
        Queries in the tile; those at `written` and after do not count.
    written : int or int32 []
        Keys there are.
    window, tile : int
    causal : bool

    Returns
    -------
    a, b, c, d : int32 []
        Numbers of key tiles, half-open, ``a <= b <= c <= d``; tile number j holds the positions from j * T.
    """
    last = first + jnp.minimum(rows, written - first) - 1  # first + rows could pass 2**31 - 1
    ahead = 0 if causal else window - 1  # keys after the query
    start = jnp.maximum(first - window + 1, 0) // tile
    stop = jnp.minimum(last + ahead, written - 1) // tile + 1
    # Dense tiles lie in the window of the first query and in that of the last one.
    dense_start = -(-jnp.maximum(last - window + 1, 0) // tile)
    dense_stop = jnp.minimum(first + ahead + 1, written) // tile
    dense_start = jnp.minimum(dense_start, stop)
    return start, dense_start, jnp.clip(dense_stop, dense_start, stop), stop


def _kernel(pointers, q_ref, k_ref, v_ref, padding_ref, out_ref, lse_ref, *, window, causal, tile, masked):
    """One tile of queries of one key head: q [G, T, D] against k and v [C, D], padding [C]."""
    first, written = pointers[0] + pl.program_id(2) * tile, pointers[1]
    group, _, head_dim = q_ref.shape
    capacity, work = k_ref.shape[0], work_dtype(q_ref.dtype)
    q = (q_ref[...].astype(work) * head_dim**-0.5).reshape(group * tile, head_dim)
    query = first + lax.broadcasted_iota(jnp.int32, (group, tile, 1), 1).reshape(group * tile, 1)

    def visit(number, state, *, dense):
        m, l, o = state  # noqa: E741 (the papers' letter)
        rows = pl.ds(number % (capacity // tile) * tile, tile)
        k, v = k_ref[rows, :].astype(work), v_ref[rows, :].astype(work)
        scores = jnp.dot(q, k.T, precision=lax.Precision.HIGHEST)
        if not dense:
            key = number * tile + lax.broadcasted_iota(jnp.int32, (1, tile), 1)
            seen = (key > query - window) & (key < written)
            seen &= key <= query if causal else key < query + window
            if masked:
                seen &= ~padding_ref[rows][None, :]
            scores = jnp.where(seen, scores, -jnp.inf)
            # A row that no query sees must not matter even if it is NaN, and 0 * NaN is NaN.
            v = jnp.where(seen.any(axis=0)[:, None], v, 0)
        peak = jnp.maximum(m, scores.max(axis=1))
        finite = jnp.where(peak == -jnp.inf, 0, peak)  # nothing seen yet: -inf - -inf would be NaN
        weights, shrink = jnp.exp(scores - finite[:, None]), jnp.exp(m - finite)
        added = jnp.dot(weights, v, precision=lax.Precision.HIGHEST)
        return peak, shrink * l + weights.sum(axis=1), shrink[:, None] * o + added

    a, b, c, d = tile_bounds(first, tile, written, window=window, causal=causal, tile=tile)
    state = (
        jnp.full(group * tile, -jnp.inf, work),
        jnp.zeros(group * tile, work),
        jnp.zeros((group * tile, head_dim), work),
    )
    state = lax.fori_loop(a, b, partial(visit, dense=False), state)
    state = lax.fori_loop(b, c, partial(visit, dense=not masked), state)
    m, l, o = lax.fori_loop(c, d, partial(visit, dense=False), state)  # noqa: E741
    some = jnp.where(l > 0, l, 1)
    out_ref[...] = (o / some[:, None]).astype(out_ref.dtype).reshape(group, tile, head_dim)
    lse_ref[...] = jnp.where(l > 0, m + jnp.log(some), -jnp.inf).reshape(group, tile)


def run(
    pointers: Any,
    q: Any,
    k: Any,
    v: Any,
    padding: Any,
    *,
    window: int,
    causal: bool,
    tile: int,
    interpret: bool,
) -> tuple[Any, Any]:
    """Run the kernel.

    Parameters
    ----------
    pointers : int32 [2]
        The position of the first query, and the number of tokens written.
    q : [B, Hq, L, D]
    k, v : [B, H_kv, C, D]
        A ring, with ``C % tile == 0``.
    padding : bool [B, C] or None
        Slots to leave out.
    window, causal, tile, interpret
        As in `attnlab.ring.pallas`.

    Returns
    -------
    out : as q
    lse : float32, or float64 for float64 inputs, [B, Hq, L]
    """
    batch, heads, length, head_dim = q.shape
    kv_heads, capacity = k.shape[1:3]
    group, tiles = heads // kv_heads, -(-length // tile)
    q = q.reshape(batch, kv_heads, group, length, head_dim)
    q = jnp.pad(q, ((0, 0), (0, 0), (0, 0), (0, tiles * tile - length), (0, 0)))
    masked = padding is not None
    if padding is None:
        padding = jnp.zeros((batch, capacity), jnp.bool_)
    ring = pl.BlockSpec((None, None, capacity, head_dim), lambda b, h, i: (b, h, 0, 0))
    rows = pl.BlockSpec((None, None, group, tile, head_dim), lambda b, h, i: (b, h, 0, i, 0))
    out, lse = pl.pallas_call(
        partial(_kernel, window=window, causal=causal, tile=tile, masked=masked),
        grid=(batch, kv_heads, tiles),
        in_specs=[
            pl.BlockSpec((2,), lambda b, h, i: (0,)),
            rows,
            ring,
            ring,
            pl.BlockSpec((None, capacity), lambda b, h, i: (b, 0)),
        ],
        out_specs=[rows, pl.BlockSpec((None, None, group, tile), lambda b, h, i: (b, h, 0, i))],
        out_shape=[
            jax.ShapeDtypeStruct(q.shape, q.dtype),
            jax.ShapeDtypeStruct(q.shape[:-1], work_dtype(q.dtype)),
        ],
        interpret=interpret,
        name="sliding_window_attention",
    )(pointers, q, k, v, padding)
    shape = (batch, heads, length)
    return out[:, :, :, :length].reshape(*shape, head_dim), lse[:, :, :, :length].reshape(shape)
