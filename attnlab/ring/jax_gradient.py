"""Which keys a block of queries needs, and the gradient of sliding-window attention block by block (JAX).

The forward pass keeps the output and the log-sum-exp, and no scores. Here the weights of one block come back
as exp(S - LSE); with dP = dO V^T and delta = sum(dO * O) - dLSE by row::

    dS = P * (dP - delta)     dQ = scale * dS K     dK = scale * dS^T Q     dV = P^T dO

as in FlashAttention-2 (Dao 2023, https://arxiv.org/abs/2307.08691). dK and dV of neighbouring blocks overlap
and are added in place, in float32 or better.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from .jax_checks import work_dtype


class Block(NamedTuple):
    """One block of queries.

    `first` is where the block starts, `rows` how many it has, `key_first` and `keys` which keys go with it,
    `seen` bool [rows, keys] which of those each query sees, and `fresh` bool [rows] is False in rows that an
    earlier block has handled already.
    """

    first: Any
    rows: int
    key_first: Any
    keys: int
    seen: Any
    fresh: Any

    def queries(self, x: Any, axis: int) -> Any:
        """The block's rows of `x`."""
        return lax.dynamic_slice_in_dim(x, self.first, self.rows, axis)

    def key_rows(self, x: Any, axis: int) -> Any:
        """The rows of `x` that belong to the block's keys."""
        return lax.dynamic_slice_in_dim(x, self.key_first, self.keys, axis)


def block(number: Any, rows: int, tokens: int, window: int, causal: bool) -> Block:
    """The block of this number. At the ends of the sequence it is moved inside, where masks settle the rest.

    Parameters
    ----------
    number : int or int32 []
        May be traced.
    rows, tokens, window : int
        With ``rows <= tokens`` and ``window <= tokens``.
    causal : bool

    Returns
    -------
    Block
    """
    first = jnp.minimum(number * rows, tokens - rows)
    keys = min((window - 1) * (1 if causal else 2) + rows, tokens)
    key_first = jnp.clip(first - window + 1, 0, tokens - keys)
    query = first + jnp.arange(rows, dtype=jnp.int32)
    ahead = key_first + jnp.arange(keys, dtype=jnp.int32) - query[:, None]
    seen = (ahead > -window) & (ahead <= 0 if causal else ahead < window)
    return Block(first, rows, key_first, keys, seen, query >= number * rows)


def scores(q: Any, k: Any, part: Block) -> Any:
    """Scaled scores of queries [B, H_kv, G, rows, D] and keys [B, H_kv, keys, D], -inf where unseen."""
    table = jnp.einsum("bhgqd,bhkd->bhgqk", q * q.shape[-1] ** -0.5, k, precision=lax.Precision.HIGHEST)
    return jnp.where(part.seen, table, -jnp.inf)


def gradients(
    q: Any, k: Any, v: Any, out: Any, lse: Any, dout: Any, dlse: Any, window: int, causal: bool, rows: int
) -> tuple[Any, Any, Any]:
    """The gradients of q, k and v from what the forward pass kept.

    Parameters
    ----------
    q, out, dout : [B, Hq, S, D]
    k, v : [B, H_kv, S, D]
    lse, dlse : [B, Hq, S]
    window, rows : int
        At most S each.
    causal : bool

    Returns
    -------
    dq, dk, dv : as q, k and v
    """
    tokens, work, exact = q.shape[2], work_dtype(q.dtype), lax.Precision.HIGHEST
    scale = q.shape[-1] ** -0.5
    delta = (dout.astype(work) * out.astype(work)).sum(axis=-1) - dlse
    heads = (*k.shape[:2], -1)
    q_rows, dout_rows = (x.reshape(*heads, *q.shape[2:]) for x in (q, dout))
    lse_rows, delta_rows = (x.reshape(*heads, tokens) for x in (lse, delta))

    def step(number, sums):
        dq, dk, dv = sums
        part = block(number, rows, tokens, window, causal)
        q_part, dout_part = (part.queries(x, 3).astype(work) for x in (q_rows, dout_rows))
        k_part, v_part = (part.key_rows(x, 2).astype(work) for x in (k, v))
        lse_part, delta_part = (part.queries(x, 3)[..., None] for x in (lse_rows, delta_rows))
        finite = jnp.where(lse_part == -jnp.inf, 0, lse_part)  # where nothing is seen, -inf - -inf is NaN
        weights = jnp.exp(scores(q_part, k_part, part) - finite)
        dweights = jnp.einsum("bhgqd,bhkd->bhgqk", dout_part, v_part, precision=exact)
        dscores = scale * weights * (dweights - delta_part)
        dq_part = jnp.einsum("bhgqk,bhkd->bhgqd", dscores, k_part, precision=exact)
        dq = lax.dynamic_update_slice_in_dim(dq, dq_part.astype(q.dtype), part.first, 3)
        # A row that an earlier block has handled is written to dq again, but must not be added twice.
        fresh = part.fresh[:, None]
        dk_part = jnp.einsum("bhgqk,bhgqd->bhkd", jnp.where(fresh, dscores, 0), q_part, precision=exact)
        dv_part = jnp.einsum("bhgqk,bhgqd->bhkd", jnp.where(fresh, weights, 0), dout_part, precision=exact)
        dk = lax.dynamic_update_slice_in_dim(dk, part.key_rows(dk, 2) + dk_part, part.key_first, 2)
        dv = lax.dynamic_update_slice_in_dim(dv, part.key_rows(dv, 2) + dv_part, part.key_first, 2)
        return dq, dk, dv

    start = jnp.zeros_like(q_rows), jnp.zeros(k.shape, work), jnp.zeros(v.shape, work)
    dq, dk, dv = lax.fori_loop(0, -(-tokens // rows), step, start)
    return dq.reshape(q.shape), dk.astype(k.dtype), dv.astype(v.dtype)
