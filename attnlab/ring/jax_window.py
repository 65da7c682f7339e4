"""Sliding-window attention over a whole sequence in JAX: blocks of queries, each against the keys it needs.

A block of T queries sees at most W - 1 + T keys in a row, and a loop over the blocks cuts them out with
``dynamic_slice``. So time is O(S * (W + T) * D) and the largest table is T x (W - 1 + T) per head, where the
dense way needs S x S. The gradient recomputes the weights from the log-sum-exp (`attnlab.ring.jax_gradient`),
so that nothing of the size of the scores lives from the forward pass to the backward pass.

``jax.nn.dot_product_attention(q, k, v, is_causal=True, local_window_size=(W - 1, 0))`` gives the same
numbers, for arrays laid out as [batch, length, heads, head_dim]; (left, right) do not count the query's own
key. Its XLA implementation, the only one on a CPU, computes all S x S scores and masks them. Its cuDNN
implementation does not.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from attnlab.intervals import check_whole

from .jax_checks import check_sequence, work_dtype
from .jax_gradient import block, gradients, scores
from .order import TileOrder

__all__ = ["sliding_window_attention"]


def sliding_window_attention(
    q: Float[Array, "batch q_heads tokens head_dim"],
    k: Float[Array, "batch kv_heads tokens head_dim"],
    v: Float[Array, "batch kv_heads tokens head_dim"],
    *,
    window: int,
    causal: bool = True,
    order: TileOrder = TileOrder.Q_MAJOR,
    return_lse: bool = False,
    block_size: int = 128,
) -> (
    Float[Array, "batch q_heads tokens head_dim"]
    | tuple[Float[Array, "batch q_heads tokens head_dim"], Float[Array, "batch q_heads tokens"]]
):
    """softmax(q k^T / sqrt(D)) v, each query over the keys in its window; differentiable in reverse mode.

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
        Has no effect here: a block holds all its keys at once, so there is no inner loop to exchange.
    return_lse : bool
        Also return the log-sum-exp of the scaled scores; it is differentiable too.
    block_size : int
        T, 1 or more. It changes time and workspace alone.

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
        If shapes do not belong together, or W or T is below 1.
    """
    window = check_sequence(q, k, v, window, causal, order, return_lse)
    rows = min(check_whole("block_size", block_size, least=1), q.shape[2])
    if q.size == 0:
        out, lse = q, jnp.zeros(q.shape[:-1], work_dtype(q.dtype))
    else:
        out, lse = _compiled(q, k, v, min(window, q.shape[2]), causal, rows)
    return (out, lse) if return_lse else out


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def _attention(q, k, v, window, causal, rows):
    tokens, work = q.shape[2], work_dtype(q.dtype)
    grouped = q.reshape(*k.shape[:2], -1, *q.shape[2:])

    def step(number, results):
        part = block(number, rows, tokens, window, causal)
        q_part = part.queries(grouped, 3).astype(work)
        k_part, v_part = (part.key_rows(x, 2).astype(work) for x in (k, v))
        table = scores(q_part, k_part, part)
        m = table.max(axis=-1, keepdims=True)  # finite, since every query sees its own key
        weights = jnp.exp(table - m)
        total = weights.sum(axis=-1, keepdims=True)
        out = jnp.einsum("bhgqk,bhkd->bhgqd", weights, v_part, precision=lax.Precision.HIGHEST) / total
        found = out.astype(q.dtype), (m + jnp.log(total))[..., 0]
        return tuple(
            lax.dynamic_update_slice_in_dim(all_rows, some, part.first, 3)
            for all_rows, some in zip(results, found, strict=True)
        )

    start = jnp.zeros_like(grouped), jnp.zeros(grouped.shape[:-1], work)
    out, lse = lax.fori_loop(0, -(-tokens // rows), step, start)
    return out.reshape(q.shape), lse.reshape(q.shape[:-1])


def _forward(q, k, v, window, causal, rows):
    out, lse = _attention(q, k, v, window, causal, rows)
    return (out, lse), (q, k, v, out, lse)


def _backward(window, causal, rows, kept, cotangents):
    (q, k, v, out, lse), (dout, dlse) = kept, cotangents
    return gradients(q, k, v, out, lse, dout, dlse, window, causal, rows)


_attention.defvjp(_forward, _backward)
_compiled = jax.jit(_attention, static_argnums=(3, 4, 5))
