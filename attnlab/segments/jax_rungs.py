"""The slower ways, in the order in which a library climbed them (JAX).

All give the lengths and starts of valid rows, and have the signature of
`attnlab.segments.jax.seqlens_and_offsets`, but none of them notices bad input:
``valid`` is None. After NVIDIA TransformerEngine pull request 2522: what stood before it, its first form,
its reviewer's remark, and the one-hot over segments that was merged.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from .layout import SegmentLayout

_NEVER = jnp.iinfo(jnp.int32).max


@partial(jax.jit, static_argnames=("mask", "max_segments"))
def through_the_mask(ids_q, ids_kv, pos_q, pos_kv, *, mask, max_segments):
    """Read lengths and starts off the T x T mask: O(B Tq Tkv) time and memory."""
    pos_q, pos_kv = _causal_positions(ids_q, ids_kv, pos_q, pos_kv, mask)
    seen = (ids_q[:, :, None] == ids_kv[:, None, :]) & (ids_q[:, :, None] != 0)
    if mask != "padding":
        seen &= pos_q[:, :, None] >= pos_kv[:, None, :]
    table = jnp.where(seen, ids_q[:, :, None], 0)
    return _read_off(table.max(axis=2, initial=0), table.max(axis=1, initial=0), max_segments)


@partial(jax.jit, static_argnames=("mask", "max_segments"))
def by_compaction(ids_q, ids_kv, pos_q, pos_kv, *, mask, max_segments):
    """Sort the visible tokens to the front, count each id, then find boundaries: O(T log T) for the sort."""
    visible_q, visible_kv = _visible_ids(ids_q, ids_kv, pos_q, pos_kv, mask, max_segments)
    in_front = []
    for visible in (visible_q, visible_kv):
        order = jnp.argsort(visible == 0, axis=1, stable=True)
        in_front.append(jnp.take_along_axis(visible, order, axis=1))
    q_seqlens, kv_seqlens = (_count(visible, max_segments) for visible in in_front)
    q_offsets, kv_offsets = (_boundaries(visible, max_segments) for visible in (visible_q, visible_kv))
    return SegmentLayout(q_seqlens, kv_seqlens, q_offsets, kv_offsets, None)


@partial(jax.jit, static_argnames=("mask", "max_segments"))
def by_counting(ids_q, ids_kv, pos_q, pos_kv, *, mask, max_segments):
    """Leave out the sort, which a reviewer found idle: counting drops padding in any order."""
    visible_q, visible_kv = _visible_ids(ids_q, ids_kv, pos_q, pos_kv, mask, max_segments)
    return _read_off(visible_q, visible_kv, max_segments)


@partial(jax.jit, static_argnames=("mask", "max_segments"))
def by_one_hot(ids_q, ids_kv, pos_q, pos_kv, *, mask, max_segments):
    """Compare every token with every segment: no scatter and no sort, but O(B T S) time and memory."""
    pos_q, pos_kv = _causal_positions(ids_q, ids_kv, pos_q, pos_kv, mask)
    names = jnp.arange(1, max_segments + 1, dtype=jnp.int32)
    one_hot_q, one_hot_kv = (jnp.int32(ids[:, :, None] == names) for ids in (ids_q, ids_kv))
    seen_q = one_hot_q * one_hot_kv.any(axis=1, keepdims=True)
    seen_kv = one_hot_kv * one_hot_q.any(axis=1, keepdims=True)
    if mask != "padding":
        oldest_key = jnp.where(one_hot_kv > 0, pos_kv[:, :, None], _NEVER).min(axis=1, initial=_NEVER)
        newest_query = jnp.where(one_hot_q > 0, pos_q[:, :, None], -_NEVER).max(axis=1, initial=-_NEVER)
        seen_q *= pos_q[:, :, None] >= oldest_key[:, None, :]
        seen_kv *= pos_kv[:, :, None] <= newest_query[:, None, :]
    starts = [_boundaries(jnp.einsum("bts,s->bt", seen, names), max_segments) for seen in (seen_q, seen_kv)]
    return SegmentLayout(
        seen_q.sum(axis=1, dtype=jnp.int32), seen_kv.sum(axis=1, dtype=jnp.int32), starts[0], starts[1], None
    )


def _causal_positions(ids_q, ids_kv, pos_q, pos_kv, mask):
    """Positions in which the mask is causal; for bottom right causal, counted from the ends of the runs."""
    if mask != "bottom_right_causal":
        return pos_q, pos_kv
    return pos_q - _run_lengths(ids_q), pos_kv - _run_lengths(ids_kv)


def _run_lengths(ids):
    """Length of the run each token stands in, by a scan from either end."""
    index = jax.lax.broadcasted_iota(jnp.int32, ids.shape, 1)
    change = ids[:, 1:] != ids[:, :-1]
    first = jax.lax.cummax(jnp.where(jnp.pad(change, ((0, 0), (1, 0))), index, 0), axis=1)
    last = jax.lax.cummin(
        jnp.where(jnp.pad(change, ((0, 0), (0, 1))), index, ids.shape[1] - 1), axis=1, reverse=True
    )
    return last - first + 1


def _visible_ids(ids_q, ids_kv, pos_q, pos_kv, mask, max_segments):
    """Ids with every token that takes no part set to 0, from the extreme positions of each segment."""
    pos_q, pos_kv = _causal_positions(ids_q, ids_kv, pos_q, pos_kv, mask)
    if mask == "padding":
        pos_q, pos_kv = jnp.zeros_like(pos_q), jnp.zeros_like(pos_kv)

    def per_segment(reduce, values, ids):
        return jax.vmap(partial(reduce, num_segments=max_segments + 1))(values, ids)

    has_query = per_segment(jax.ops.segment_max, jnp.ones_like(ids_q), ids_q) > 0
    has_key = per_segment(jax.ops.segment_max, jnp.ones_like(ids_kv), ids_kv) > 0
    newest_query = per_segment(jax.ops.segment_max, pos_q, ids_q)
    oldest_key = per_segment(jax.ops.segment_min, pos_kv, ids_kv)

    def of_token(table, ids):
        return jnp.take_along_axis(table, ids, axis=1)

    seen_q = of_token(has_key, ids_q) & (pos_q >= of_token(oldest_key, ids_q))
    seen_kv = of_token(has_query, ids_kv) & (pos_kv <= of_token(newest_query, ids_kv))
    return jnp.where(seen_q, ids_q, 0), jnp.where(seen_kv, ids_kv, 0)


def _read_off(visible_q, visible_kv, max_segments):
    q_seqlens, kv_seqlens = (_count(visible, max_segments) for visible in (visible_q, visible_kv))
    q_offsets, kv_offsets = (_boundaries(visible, max_segments) for visible in (visible_q, visible_kv))
    return SegmentLayout(q_seqlens, kv_seqlens, q_offsets, kv_offsets, None)


def _count(visible, max_segments):
    """Count every id in every row; bucket 0, padding, is dropped."""
    return jax.vmap(partial(jnp.bincount, length=max_segments + 1))(visible)[:, 1:].astype(jnp.int32)


def _boundaries(visible, max_segments):
    """First S + 1 places in every row where a visible id follows another one."""
    if visible.shape[1] == 0:  # of nothing, flatnonzero returns 0 and not the fill value
        return jnp.full((visible.shape[0], max_segments + 1), -1, jnp.int32)
    before = jnp.pad(visible, ((0, 0), (1, 0)))[:, :-1]
    start = (visible != before) & (visible != 0)
    find = partial(jnp.flatnonzero, size=max_segments + 1, fill_value=-1)
    return jax.vmap(find)(start).astype(jnp.int32)
