"""The ring in JAX: a state goes in, the next state comes out, and all shapes are static.

``dynamic_update_slice`` does not wrap; how rows are written and read across the end of the ring is told in
`attnlab.ring.jax_slots`.

What happens when a law is broken: capacity, window and chunk are static, so the cache law raises ValueError
while a call is traced. The rollback and attend laws depend on positions. Where those are known, outside
``jit``, they raise too (which waits for the state to be computed). Under trace nothing can raise: a refused
`rollback` or `append` leaves the position where it was and sets ``state.valid`` to False, for good, and
`attend` gives NaN, in the output and in the log-sum-exp, whenever the state is invalid or the attend law is
broken. Positions are int32: an `append` past 2**31 - 1 tokens is refused in the same way.

Everything is differentiable, and gradients flow through `append` and through a ``scan`` of decoding steps, to
every key that a query saw. That costs what ``scan`` saves for each step; `sliding_window_attention` gives the
same gradients for a whole sequence at once, and saves no scores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from attnlab.intervals import LARGEST

from . import laws
from .jax_checks import FLOATS, check_array, work_dtype
from .jax_slots import attend_slots, write
from .jax_state import RingState, check_queries, pointers
from .jax_window import sliding_window_attention

__all__ = ["RingState", "append", "attend", "init", "rollback", "sliding_window_attention"]


def init(
    batch_size: int,
    num_kv_heads: int,
    head_dim: int,
    capacity: int,
    *,
    window: int,
    dtype: Any = jnp.float32,
) -> RingState:
    """Make an empty ring.

    Parameters
    ----------
    batch_size, num_kv_heads, head_dim : int
        B, H_kv and D.
    capacity : int
        C, slots.
    window : int
        W: a query at p sees the keys p - W < k <= p, W of them with its own.
    dtype : dtype
        float32, bfloat16, float16, or float64 where ``jax_enable_x64`` is on.

    Returns
    -------
    RingState

    Raises
    ------
    TypeError
        For a number that is no int, or another dtype.
    ValueError
        For a number below 1, or if C < W, with which not even one token could be written.
    """
    sizes = {"batch_size": batch_size, "num_kv_heads": num_kv_heads, "capacity": capacity}
    sizes |= {"head_dim": head_dim, "window": window}
    for name, size in sizes.items():
        laws.whole(name, size, least=1)
    laws.check_cache(capacity, window, 1)
    if dtype is None or jnp.dtype(dtype) not in FLOATS:
        raise TypeError(f"dtype must be one of {', '.join(map(str, FLOATS))}; got {dtype!r}")
    if jnp.dtype(dtype) == jnp.float64 and not jax.config.jax_enable_x64:
        raise TypeError("dtype float64 needs jax_enable_x64, without which JAX would use float32")
    shape = (batch_size, num_kv_heads, capacity, head_dim)
    return RingState(
        # Two arrays each, because a buffer that is donated must not be two arguments at once.
        k=jnp.zeros(shape, dtype),
        v=jnp.zeros(shape, dtype),
        padding=jnp.zeros((batch_size, capacity), jnp.bool_),
        position=jnp.zeros((), jnp.int32),
        highest=jnp.zeros((), jnp.int32),
        valid=jnp.ones((), jnp.bool_),
        window=int(window),
    )


def append(
    state: RingState,
    k: Float[Array, "batch kv_heads tokens head_dim"],
    v: Float[Array, "batch kv_heads tokens head_dim"],
    key_padding_mask: Bool[Array, "batch tokens"] | None = None,
) -> RingState:
    """Write the next tokens; in place where the state is donated to ``jit`` or carried by a loop.

    Parameters
    ----------
    state : RingState
    k, v : [B, H_kv, L, D], the ring's dtype
        L is at most C - W + 1; 0 is allowed.
    key_padding_mask : bool [B, L], optional
        True marks padding. A padded token takes its slot and its position, and is never attended to.

    Returns
    -------
    RingState

    Raises
    ------
    TypeError
        For something that is no RingState or no JAX array, or another dtype.
    ValueError
        For another shape, a chunk that breaks the cache law, and, where the numbers are known, an invalid
        state or a position past 2**31 - 1.
    """
    known = pointers(state)
    batch, heads, capacity, head_dim = state.k.shape
    check_array("k", k, (batch, heads, None, head_dim), state.k.dtype)
    length = k.shape[2]
    check_array("v", v, k.shape, state.k.dtype)
    if key_padding_mask is not None:
        check_array("key_padding_mask", key_padding_mask, (batch, length), jnp.bool_)
    laws.check_cache(capacity, state.window, length)
    if known is not None and known[0] > LARGEST - length:
        raise ValueError(f"position must be at most {LARGEST}; got {known[0]} and {length} tokens more")
    if length == 0:
        return state

    fits = state.position <= LARGEST - length
    start = state.position % capacity
    position = jnp.where(fits, state.position + length, state.position)
    padding = jnp.zeros((batch, length), jnp.bool_) if key_padding_mask is None else key_padding_mask
    return replace(
        state,
        k=write(state.k, k, start, axis=2),
        v=write(state.v, v, start, axis=2),
        padding=write(state.padding, padding, start, axis=1),
        position=position,
        highest=jnp.maximum(state.highest, position),
        valid=state.valid & fits,
    )


def attend(
    state: RingState, q: Float[Array, "batch heads tokens head_dim"], *, return_lse: bool = False
) -> (
    Float[Array, "batch heads tokens head_dim"]
    | tuple[Float[Array, "batch heads tokens head_dim"], Float[Array, "batch heads tokens"]]
):
    """Causal sliding-window attention of the newest tokens, which must be in the ring already.

    At most W - 1 + 128 slots are read for every 128 queries, and W for one; what other slots hold does not
    matter.

    Parameters
    ----------
    state : RingState
    q : [B, Hq, L, D], the ring's dtype
        Row i is the token at position ``n - L + i``. Hq is a multiple of H_kv, and query head h shares
        key/value head ``h // (Hq / H_kv)``.
    return_lse : bool
        Return the log-sum-exp of the scores too; static under ``jit``.

    Returns
    -------
    out : [B, Hq, L, D], of the ring's dtype
        0 where a query sees only padding; NaN where a law is broken under trace.
    lse : [B, Hq, L], float32, or float64 in a float64 ring
        With `return_lse`; -inf where a query sees only padding; NaN as `out`.

    Raises
    ------
    TypeError
        For something that is no RingState or no JAX array, or another dtype.
    ValueError
        For another shape, more rows than slots, and, where the numbers are known, an invalid state, more rows
        than tokens or a broken attend law.
    """
    lawful = check_queries(state, q)
    if q.shape[2] == 0:
        out, lse = q, jnp.zeros(q.shape[:-1], work_dtype(q.dtype))
    else:
        out, lse = attend_slots(state, q)
    if lawful is not None:
        out, lse = jnp.where(lawful, out, jnp.nan), jnp.where(lawful, lse, jnp.nan)
    return (out, lse) if return_lse else out


def rollback(state: RingState, r: int | Int32[Array, ""]) -> RingState:
    """Take back the last `r` tokens; the next ones are written over them.

    Parameters
    ----------
    state : RingState
    r : int or int32 []
        May be traced.

    Returns
    -------
    RingState
        Under trace an `r` that is negative, more than the tokens written, or that breaks the rollback law
        leaves the position as it was and makes the state invalid.

    Raises
    ------
    TypeError
        For something that is no RingState, or an `r` of another type.
    ValueError
        Where the numbers are known: for an invalid state, or such an `r`. More than C - W + 1 tokens are
        always refused.
    """
    known = pointers(state)
    if isinstance(r, jax.Array):
        check_array("r", r, (), jnp.int32)
    if not isinstance(r, jax.core.Tracer):
        r = laws.whole("r", int(r) if isinstance(r, jax.Array) else r)
        if known is None and r > state.capacity - state.window + 1:
            raise ValueError(
                f"rollback law: at most capacity - window + 1 tokens, {state.capacity - state.window + 1}, "
                f"can be taken back; got {r}"
            )
    if known is not None and isinstance(r, int):
        written, highest = known
        if r > written:
            raise ValueError(f"r must be at most the tokens written, {written}; got {r}")
        laws.check_rollback(written - r, highest, state.window, state.capacity)
    left = state.position - r
    fits = (r >= 0) & (left >= 0) & (left - state.window + 1 >= state.highest - state.capacity)
    return replace(state, position=jnp.where(fits, left, state.position), valid=state.valid & fits)
