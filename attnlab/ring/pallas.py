"""Sliding-window attention by a Pallas kernel, over a whole sequence or over a ring.

The kernel is in `attnlab.ring.pallas_kernel`, with what it was written for. It is tested in interpret mode
only, where XLA runs it on any device, slowly: read it, compare with it, and take `attnlab.ring.jax` for work.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from attnlab.intervals import check_whole

from . import laws
from .jax_checks import check_sequence, work_dtype
from .jax_gradient import gradients
from .jax_state import RingState, check_queries
from .order import TileOrder
from .pallas_kernel import run

__all__ = ["attend", "sliding_window_attention"]


def sliding_window_attention(
    q: Float[Array, "batch q_heads tokens head_dim"],
    k: Float[Array, "batch kv_heads tokens head_dim"],
    v: Float[Array, "batch kv_heads tokens head_dim"],
    *,
    window: int,
    causal: bool = True,
    order: TileOrder = TileOrder.Q_MAJOR,
    return_lse: bool = False,
    tile_size: int = 64,
    interpret: bool = True,
) -> (
    Float[Array, "batch q_heads tokens head_dim"]
    | tuple[Float[Array, "batch q_heads tokens head_dim"], Float[Array, "batch q_heads tokens"]]
):
    """softmax(q k^T / sqrt(D)) v, each query over the keys in its window; differentiable in reverse mode.

    The gradient is not a kernel: it recomputes the weights with XLA from the log-sum-exp that the kernel left
    (`attnlab.ring.jax_gradient`).

    Parameters
    ----------
    q : float32, bfloat16, float16 or float64 [B, Hq, S, D]
    k, v : as q, [B, H_kv, S, D]
        Hq is a multiple of H_kv; query head h reads key head ``h // (Hq // H_kv)``.
    window : int
        W, 1 or more; it may exceed S. With ``causal``, query p sees the W keys ``p - W < k <= p``, its own
        included. Without, it sees ``|p - k| < W``.
    causal : bool
    order : TileOrder
        Has no effect here: programs own query tiles, so the kernel is Q-major.
    return_lse : bool
        Also return the log-sum-exp of the scaled scores; it is differentiable too.
    tile_size : int
        T, 1 or more.
    interpret : bool
        False hands the kernel to the compiler of the device; `attnlab.ring.pallas_kernel` says for which one
        it was written.

    Returns
    -------
    out : as q
    lse : float32, or float64 for float64 inputs, [B, Hq, S]
        Only with ``return_lse``.

    Raises
    ------
    TypeError
        If q, k or v is no JAX array of floats, k or v has another dtype than q, or another argument is of the
        wrong type.
    ValueError
        If shapes do not belong together, W or T is below 1, or ``interpret`` is False where nothing could
        compile the kernel.
    """
    window = check_sequence(q, k, v, window, causal, order, return_lse)
    tile = check_whole("tile_size", tile_size, least=1)
    _check_interpret(interpret)
    if q.size == 0:
        out, lse = q, jnp.zeros(q.shape[:-1], work_dtype(q.dtype))
    else:
        out, lse = _sequence(q, k, v, min(window, q.shape[2]), causal, tile, interpret)
    return (out, lse) if return_lse else out


def attend(
    state: RingState,
    q: Float[Array, "batch heads tokens head_dim"],
    *,
    return_lse: bool = False,
    tile_size: int = 64,
    interpret: bool = True,
) -> (
    Float[Array, "batch heads tokens head_dim"]
    | tuple[Float[Array, "batch heads tokens head_dim"], Float[Array, "batch heads tokens"]]
):
    """`attnlab.ring.jax.attend` by the kernel, without a gradient: differentiating it raises.

    A padding bit can stand anywhere, so each tile that is loaded looks at the bits of its slots.

    Parameters
    ----------
    state : RingState
        Its capacity must obey the tile laws for L rows: ``C % T == 0`` and
        ``C >= roundup(W - 1 + L, T) + T``.
    q : [B, Hq, L, D], the ring's dtype
        Row i is the token at position ``n - L + i``; Hq is a multiple of H_kv.
    return_lse : bool
        Return the log-sum-exp of the scores too.
    tile_size : int
        T, 1 or more.
    interpret : bool
        As in `sliding_window_attention`.

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
        For another shape, a broken tile law, and, where the numbers are known, an invalid state, more rows
        than tokens or a broken attend law.
    NotImplementedError
        When it is differentiated.
    """
    lawful = check_queries(state, q)
    tile = check_whole("tile_size", tile_size, least=1)
    laws.check_tiles(state.capacity, state.window, q.shape[2], tile)
    _check_interpret(interpret)
    if q.shape[2] == 0:
        out, lse = q, jnp.zeros(q.shape[:-1], work_dtype(q.dtype))
    else:
        out, lse = _ring(state, q, tile, interpret)
    if lawful is not None:
        out, lse = jnp.where(lawful, out, jnp.nan), jnp.where(lawful, lse, jnp.nan)
    return (out, lse) if return_lse else out


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5, 6))
@partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _sequence(q, k, v, window, causal, tile, interpret):
    tokens = q.shape[2]
    # A ring that never wraps: as many whole tiles as the sequence needs.
    k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, -tokens % tile), (0, 0))) for x in (k, v))
    pointers = jnp.array([0, tokens], jnp.int32)
    return run(pointers, q, k, v, None, window=window, causal=causal, tile=tile, interpret=interpret)


def _sequence_forward(q, k, v, window, causal, tile, interpret):
    out, lse = _sequence(q, k, v, window, causal, tile, interpret)
    return (out, lse), (q, k, v, out, lse)


def _sequence_backward(window, causal, tile, interpret, kept, cotangents):
    (q, k, v, out, lse), (dout, dlse) = kept, cotangents
    rows = min(max(tile, 64), q.shape[2])
    return gradients(q, k, v, out, lse, dout, dlse, window, causal, rows)


_sequence.defvjp(_sequence_forward, _sequence_backward)


@partial(jax.custom_jvp, nondiff_argnums=(2, 3))
@partial(jax.jit, static_argnums=(2, 3))
def _ring(state, q, tile, interpret):
    pointers = jnp.stack([state.position - q.shape[2], state.position])
    return run(
        pointers, q, state.k, state.v, state.padding,
        window=state.window, causal=True, tile=tile, interpret=interpret,
    )  # fmt: skip


@_ring.defjvp
def _ring_jvp(tile, interpret, primals, tangents):
    raise NotImplementedError("the kernel over a ring has no gradient; attnlab.ring.jax.attend has one")


def _check_interpret(interpret: Any) -> None:
    if not isinstance(interpret, bool):
        raise TypeError(f"interpret must be a bool; got {type(interpret).__name__}")
    if not interpret and jax.default_backend() == "cpu":
        raise ValueError("interpret must be True on a CPU, for which Pallas has no compiler; got False")
