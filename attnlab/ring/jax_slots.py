"""Writing and reading the slots of a ring in JAX, with wrap and static shapes.

``dynamic_update_slice`` does not wrap: where rows would stick out at the end of the ring it moves the whole
slice back until it fits, and so overwrites slots that nobody meant. A stretch of L slots that may pass the
end is therefore handled as two windows of the static length L, one at the clamped start and one at slot 0::

    slots    0 1 2 3 4 5 6 7         L = 4 from slot 6: two rows are before the end, and two wrap
                     . . a b         first window, at slot 4: its last two rows count
             c d . .                 second window, at slot 0: its first two rows count

The rows to be written are rolled so that a, b stand in place in the first window and c, d in the second, and
each window keeps what it held elsewhere. Reading takes the same two windows and gives c, d, a, b: the order
of keys does not matter to attention, as long as each is masked by its own position.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .jax_checks import work_dtype
from .jax_state import RingState

QUERY_ROWS = 128  # queries handled at a time, which bounds the scores to this many rows of W - 1 + this many


def _windows(start: Any, length: int, capacity: int) -> tuple[Any, Any]:
    """The clamped start of the first window, and how many of the rows wrap into the second."""
    first = jnp.minimum(start, capacity - length)
    return first, start - first


@partial(jax.jit, static_argnames="axis")
def write(ring: Any, rows: Any, start: Any, *, axis: int) -> Any:
    """Put `rows` into the slots of `ring` from `start` on, with wrap, along `axis`."""
    length = rows.shape[axis]
    if length == 1:
        return lax.dynamic_update_slice_in_dim(ring, rows, start, axis)
    first, wrapped = _windows(start, length, ring.shape[axis])
    rows = jnp.roll(rows, wrapped, axis)
    index = lax.broadcasted_iota(jnp.int32, rows.shape, axis)
    for at, mine in ((first, index >= wrapped), (0, index < wrapped)):
        kept = lax.dynamic_slice_in_dim(ring, at, length, axis)
        ring = lax.dynamic_update_slice_in_dim(ring, jnp.where(mine, rows, kept), at, axis)
    return ring


def _read(ring: Any, start: Any, length: int, axis: int) -> Any:
    """The rows of `ring` from slot `start` on; those that wrap come first."""
    first, wrapped = _windows(start, length, ring.shape[axis])
    ahead, behind = (lax.dynamic_slice_in_dim(ring, at, length, axis) for at in (first, 0))
    return jnp.where(lax.broadcasted_iota(jnp.int32, ahead.shape, axis) >= wrapped, ahead, behind)


@jax.jit
def attend_slots(state: RingState, q: Any) -> tuple[Any, Any]:
    """Output and log-sum-exp of the newest tokens, q [B, Hq, L, D]; the attend law must hold."""
    batch, heads, length, head_dim = q.shape
    kv_heads = state.k.shape[1]
    grouped = q.reshape(batch, kv_heads, heads // kv_heads, length, head_dim)
    if length <= QUERY_ROWS:
        out, lse = _attend_rows(state, grouped, state.position - length)
    else:
        blocks, rest = divmod(length, QUERY_ROWS)
        whole = grouped[:, :, :, : blocks * QUERY_ROWS]
        whole = whole.reshape(batch, kv_heads, -1, blocks, QUERY_ROWS, head_dim)
        first = state.position - length + QUERY_ROWS * jnp.arange(blocks, dtype=jnp.int32)
        results = lax.map(lambda x: _attend_rows(state, *x), (jnp.moveaxis(whole, 3, 0), first))
        parts = [tuple(lax.collapse(jnp.moveaxis(x, 0, 3), 3, 5) for x in results)]
        if rest:
            parts.append(_attend_rows(state, grouped[:, :, :, -rest:], state.position - rest))
        out, lse = (jnp.concatenate(x, axis=3) for x in zip(*parts, strict=True))
    return out.reshape(q.shape).astype(q.dtype), lse.reshape(q.shape[:-1])


def _attend_rows(state: RingState, q: Any, first: Any) -> tuple[Any, Any]:
    """Queries [B, H_kv, G, L, D] at `first` and after; reads no more than W - 1 + L slots."""
    window, length, work = state.window, q.shape[3], work_dtype(q.dtype)
    # If the ring has fewer slots than that, the attend law holds only before it is first full.
    keys = min(window - 1 + length, state.capacity)
    oldest = first + length - keys
    start = oldest % state.capacity
    _, wrapped = _windows(start, keys, state.capacity)
    position = oldest + (jnp.arange(keys, dtype=jnp.int32) - wrapped) % keys

    # An unseen row must not matter even if it is NaN, and 0 * NaN is NaN, also in a gradient.
    keep = ~_read(state.padding, start, keys, axis=1) & (position >= 0)
    k, v = (
        jnp.where(keep[:, None, :, None], _read(x, start, keys, axis=2), 0).astype(work)
        for x in (state.k, state.v)
    )
    ahead = position - (first + jnp.arange(length, dtype=jnp.int32))[:, None]
    seen = (ahead <= 0) & (ahead > -window) & keep[:, None, None, None]
    rows = q.astype(work) * q.shape[-1] ** -0.5
    scores = jnp.einsum("bhgld,bhkd->bhglk", rows, k, precision=lax.Precision.HIGHEST)
    scores = jnp.where(seen, scores, -jnp.inf)

    m = lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    m = jnp.where(m == -jnp.inf, 0, m)
    weights = jnp.exp(scores - m)
    total = weights.sum(axis=-1)
    some = jnp.where(total > 0, total, 1)
    out = jnp.einsum("bhglk,bhkd->bhgld", weights, v, precision=lax.Precision.HIGHEST) / some[..., None]
    return out, jnp.where(total > 0, m[..., 0] + jnp.log(some), -jnp.inf)
