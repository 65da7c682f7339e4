"""From a layout to ``jax.nn.dot_product_attention``: one batch entry per segment, with its lengths (JAX)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from .checks import MaskKind, check_mask
from .layout import SegmentLayout


class DotProductArguments(NamedTuple):
    """How to lay segments out for ``jax.nn.dot_product_attention``, which knows no offsets.

    Attributes
    ----------
    indices_q, indices_kv : int32 [B * S, L]
        Which token of the flattened batch stands at each place; places past a segment's end repeat some
        token.
    query_seq_lengths, key_value_seq_lengths : int32 [B * S]
        As the function's arguments of that name.
    """

    indices_q: Int32[Array, "entries q_length"]
    indices_kv: Int32[Array, "entries kv_length"]
    query_seq_lengths: Int32[Array, "entries"]
    key_value_seq_lengths: Int32[Array, "entries"]


def dot_product_arguments(
    layout: SegmentLayout, *, q_tokens: int, kv_tokens: int, max_seqlen_q: int, max_seqlen_kv: int
) -> DotProductArguments:
    """Turn a layout into index tables and lengths; works under ``jit`` with the four integers static.

    Parameters
    ----------
    layout : SegmentLayout
        From `attnlab.segments.jax`, valid in every row.
    q_tokens, kv_tokens : int
        Tq and Tkv, the row lengths the layout was made from.
    max_seqlen_q, max_seqlen_kv : int
        Room for one segment. If a segment is longer, `dot_product_attention` gives NaN everywhere: a traced
        function cannot raise, and must not cut in silence.

    Returns
    -------
    DotProductArguments

    Raises
    ------
    ValueError
        If one of the four integers is below 1.
    """
    named = {"q_tokens": q_tokens, "kv_tokens": kv_tokens}
    named |= {"max_seqlen_q": max_seqlen_q, "max_seqlen_kv": max_seqlen_kv}
    for name, value in named.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")
    indices_q, q_lengths = _table(layout.q_seqlens, layout.q_offsets, q_tokens, max_seqlen_q)
    indices_kv, kv_lengths = _table(layout.kv_seqlens, layout.kv_offsets, kv_tokens, max_seqlen_kv)
    return DotProductArguments(indices_q, indices_kv, q_lengths, kv_lengths)


def dot_product_attention(
    q: Float[Array, "batch q_tokens heads head_dim"],
    k: Float[Array, "batch kv_tokens heads head_dim"],
    v: Float[Array, "batch kv_tokens heads head_dim"],
    arguments: DotProductArguments,
    *,
    mask: MaskKind,
    **options: Any,
) -> Float[Array, "batch q_tokens heads head_dim"]:
    """Attend through ``jax.nn.dot_product_attention``, segment by segment; tokens that see nothing get 0.

    ``is_causal`` lines up the first query with the first key, so ``"causal"`` is exact for any pair of
    lengths where positions count from 0. For ``"bottom_right_causal"`` a mask is built per segment.

    Parameters
    ----------
    q, k, v : float [B, T, heads, head_dim]
    arguments : DotProductArguments
    mask : "padding", "causal" or "bottom_right_causal"
        The mask the layout was made with.
    **options
        Passed on, for instance ``scale`` or ``implementation``.

    Returns
    -------
    float [B, Tq, heads, head_dim]

    Raises
    ------
    ValueError
        For an unknown mask, or q, k or v without four dimensions.
    """
    check_mask(mask)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4:
            raise ValueError(f"{name} must have shape [batch, tokens, heads, head_dim]; got {list(x.shape)}")
    flat_q, flat_k, flat_v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))
    seen = None
    if mask == "bottom_right_causal":
        from_end_q = arguments.query_seq_lengths[:, None] - jnp.arange(arguments.indices_q.shape[1])
        from_end_k = arguments.key_value_seq_lengths[:, None] - jnp.arange(arguments.indices_kv.shape[1])
        seen = (from_end_q[:, :, None] <= from_end_k[:, None, :])[:, None]
    out = jax.nn.dot_product_attention(
        flat_q[arguments.indices_q],
        flat_k[arguments.indices_kv],
        flat_v[arguments.indices_kv],
        mask=seen,
        is_causal=mask == "causal",
        query_seq_lengths=arguments.query_seq_lengths,
        key_value_seq_lengths=arguments.key_value_seq_lengths,
        **options,
    )
    fits = jnp.all(arguments.query_seq_lengths <= arguments.indices_q.shape[1])
    fits &= jnp.all(arguments.key_value_seq_lengths <= arguments.indices_kv.shape[1])
    inside = jnp.arange(arguments.indices_q.shape[1]) < arguments.query_seq_lengths[:, None]
    target = jnp.where(inside, arguments.indices_q, flat_q.shape[0])  # past the end, where a scatter drops it
    out = jnp.zeros_like(flat_q).at[target].set(out, mode="drop").reshape(q.shape)
    return jnp.where(fits, out, jnp.nan)


def _table(lengths, offsets, tokens, room):
    """Index of every token of every segment; the k-th start belongs to the k-th non-zero length."""
    batch, segments = lengths.shape
    rank = jnp.maximum(jnp.cumsum(lengths > 0, axis=1) - 1, 0)
    first = jnp.take_along_axis(offsets, rank, axis=1) + jnp.arange(batch, dtype=jnp.int32)[:, None] * tokens
    indices = first[:, :, None] + jnp.arange(room, dtype=jnp.int32)
    indices = jnp.clip(indices, 0, batch * tokens - 1).reshape(batch * segments, room)
    return indices, lengths.reshape(-1)
