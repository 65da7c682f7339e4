"""The optimised path in JAX: static shapes, jit, vmap, and one byte kept for every 32 tokens.

The ids are compared with their neighbours once; what survives that pass is a small directory of where they
change (`attnlab.segments.rank_select`). The k-th change is looked up in it for k = 0 .. 2 S - 1, which
gives every run of equal ids. From there on only O(S) numbers are handled: the runs are found by id, both
sides are trimmed to what the mask lets through by bisection in the positions, and starts are read off in
order.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int32

from . import rank_select
from .checks import MaskKind, check_sides, check_tokens
from .layout import SegmentLayout


def positions(segment_ids: Int32[Array, "batch tokens"]) -> Int32[Array, "batch tokens"]:
    """Number the tokens of every run of equal ids from 0; padding (id 0) gets 0.

    Parameters
    ----------
    segment_ids : int32 [B, T]

    Returns
    -------
    int32 [B, T]

    Raises
    ------
    TypeError, ValueError
        For another dtype or another number of dimensions.
    """
    check_tokens("segment_ids", segment_ids, jax.Array)
    index = lax.broadcasted_iota(jnp.int32, segment_ids.shape, 1)
    changed = jnp.pad(segment_ids[:, 1:] != segment_ids[:, :-1], ((0, 0), (1, 0)))[:, : segment_ids.shape[1]]
    start = lax.cummax(jnp.where(changed, index, 0), axis=1)
    return jnp.where(segment_ids == 0, 0, index - start)


def seqlens_and_offsets(
    segment_ids_q: Int32[Array, "batch q_tokens"],
    segment_ids_kv: Int32[Array, "batch kv_tokens"],
    segment_pos_q: Int32[Array, "batch q_tokens"],
    segment_pos_kv: Int32[Array, "batch kv_tokens"],
    *,
    mask: MaskKind,
    max_segments: int,
) -> SegmentLayout:
    """Segment lengths and starts in O(T) time, with O(T / 32 + S) memory beside the inputs.

    Parameters
    ----------
    segment_ids_q, segment_ids_kv : int32 [B, Tq], int32 [B, Tkv]
        Segment of each token, 1..S; 0 is padding.
    segment_pos_q, segment_pos_kv : int32, shaped as the ids
        Position of each token inside its segment; it increases along a segment. `positions` makes them.
    mask : "padding", "causal" or "bottom_right_causal"
        Which keys a query of the same segment may attend to; static under ``jit``.
    max_segments : int
        S, the most segments a row can hold; static under ``jit``.

    Returns
    -------
    SegmentLayout
        int32 and bool arrays. Negative ids or positions, which a traced function cannot raise on, set
        ``valid`` False.

    Raises
    ------
    TypeError
        For a dtype other than int32, something that is no JAX array, or an S that is no int.
    ValueError
        For another number of dimensions, shapes that do not belong together, an unknown mask, S < 1, or
        more than 2**31 - 1 tokens in the batch.

    Notes
    -----
    NVIDIA TransformerEngine pull request 2522 replaced a T x T mask by O(T S) work; this replaces that by
    O(T).
    """
    check_sides(
        segment_ids_q, segment_ids_kv, segment_pos_q, segment_pos_kv,
        mask=mask, max_segments=max_segments, kind=jax.Array,
    )  # fmt: skip
    for name, ids in (("segment_ids_q", segment_ids_q), ("segment_ids_kv", segment_ids_kv)):
        if ids.size >= 2**31:
            raise ValueError(f"{name} must hold fewer than 2**31 tokens; got {ids.size}")
    return _layout(
        segment_ids_q, segment_ids_kv, segment_pos_q, segment_pos_kv, mask=mask, max_segments=max_segments
    )


class _Runs(NamedTuple):
    """The segments of one side of one row by id: entry s - 1 is id s, and absent ids have length 0."""

    start: Int32[Array, "segments"]
    length: Int32[Array, "segments"]


@partial(jax.jit, static_argnames=("mask", "max_segments"))
def _layout(ids_q, ids_kv, pos_q, pos_kv, *, mask, max_segments):
    def one(row, ids_q_row, ids_kv_row, pos_q_row, pos_kv_row):
        q, q_valid = _runs(ids_q_row, pos_q_row, _reader(ids_q, row), _reader(pos_q, row), max_segments)
        kv, kv_valid = _runs(ids_kv_row, pos_kv_row, _reader(ids_kv, row), _reader(pos_kv, row), max_segments)
        kind = mask if ids_q.size and ids_kv.size else "padding"  # no token, no position to compare
        q, kv = _trim(q, kv, _reader(pos_q, row), _reader(pos_kv, row), kind)
        return SegmentLayout(q.length, kv.length, _in_order(q), _in_order(kv), q_valid & kv_valid)

    rows = jnp.arange(ids_q.shape[0], dtype=jnp.int32)
    return jax.vmap(one)(rows, ids_q, ids_kv, pos_q, pos_kv)


def _reader(array, row):
    """Read one row of a batch at any indices; beyond its ends come other tokens, which the callers mask.

    Reads from the flat batch, since a gather mapped over rows would write its indices out.
    """
    flat, first = array.reshape(-1), row * array.shape[1]
    return lambda i: flat.at[first + i].get(mode="clip", wrap_negative_indices=False)


def _runs(ids, positions, read_ids, read_positions, max_segments):
    """Find the run of every id, and say whether the row keeps the rules."""
    if ids.size == 0:
        nothing = jnp.zeros(max_segments, jnp.int32)
        return _Runs(nothing, nothing), jnp.bool_(True)
    directory = rank_select.build(ids)
    n_changes = directory.coarse[-1]
    # S segments with padding before, between and after them make at most 2 S changes.
    rank = jnp.arange(2 * max_segments, dtype=jnp.int32)
    index, blocks = rank_select.select(directory, read_ids, rank)
    cuts = jnp.where(rank < n_changes, index + 1, ids.size)
    starts, stops = jnp.pad(cuts, (1, 0)), jnp.pad(cuts, (0, 1), constant_values=ids.size)
    run_ids = jnp.where(starts < ids.size, read_ids(starts), 0)

    # Padding is one run at a time, so the segment last seen is this run's or that of the run before.
    seen = jnp.where(run_ids == 0, jnp.pad(run_ids, (1, 0))[:-1], run_ids)
    in_order = (
        (run_ids > jnp.pad(seen, (1, 0))[:-1]) & (run_ids <= max_segments) & (read_positions(starts) >= 0)
    )
    valid = (n_changes <= 2 * max_segments) & jnp.all((run_ids == 0) | in_order)
    valid &= rank_select.all_increase(ids, positions, directory, read_ids, read_positions, blocks)

    wanted = jnp.arange(1, max_segments + 1, dtype=jnp.int32)
    key = jnp.where(starts < ids.size, seen, jnp.iinfo(jnp.int32).max)
    at = jnp.minimum(jnp.searchsorted(key, wanted), key.size - 1)
    found = run_ids[at] == wanted
    return _Runs(jnp.where(found, starts[at], 0), jnp.where(found, stops[at] - starts[at], 0)), valid


def _trim(q, kv, read_pos_q, read_pos_kv, mask):
    """Drop the queries that see no key and the keys that no query sees."""
    both = (q.length > 0) & (kv.length > 0)
    if mask == "padding":
        return q._replace(length=jnp.where(both, q.length, 0)), kv._replace(
            length=jnp.where(both, kv.length, 0)
        )
    # Bottom right causal is causal in positions counted back from the ends of the runs.
    shift = q.length - kv.length if mask == "bottom_right_causal" else jnp.zeros_like(q.length)
    oldest_key = read_pos_kv(kv.start)
    newest_query = read_pos_q(q.start + q.length - 1)
    hidden = _count_up_to(read_pos_q, q, _saturating_add(oldest_key - 1, shift))
    shown = _count_up_to(read_pos_kv, kv, _saturating_add(newest_query, -shift))
    return (
        _Runs(q.start + hidden, jnp.where(both, q.length - hidden, 0)),
        kv._replace(length=jnp.where(both, shown, 0)),
    )


def _saturating_add(position, shift):
    """Add without wrapping; `position` is at least -1, so only the upper end can be passed."""
    total = position + shift
    return jnp.where((shift > 0) & (total < position), jnp.iinfo(jnp.int32).max, total)


def _count_up_to(read, run, bound):
    """Count the leading positions of every run that are at most `bound`; they increase along a run."""

    def counted(i):
        return read(run.start + i) <= bound

    # Where positions are consecutive one subtraction finds the place; where that is not it, bisect.
    guess = jnp.clip(bound - read(run.start), -1, run.length - 1) + 1
    right = ((guess == run.length) | ~counted(guess)) & ((guess == 0) | counted(guess - 1))
    low, high = jnp.where(right, guess, 0), jnp.where(right, guess, run.length)

    def halve(bracket):
        low, high = bracket
        middle = (low + high) // 2
        up = (low < high) & counted(middle)
        return jnp.where(up, middle + 1, low), jnp.where(up, high, middle)

    return lax.while_loop(lambda bracket: jnp.any(bracket[0] < bracket[1]), halve, (low, high))[0]


def _in_order(runs):
    """List the starts of the segments that kept a token, then -1; ids already increase along the row."""
    rank = jnp.cumsum(runs.length > 0, dtype=jnp.int32)
    wanted = jnp.arange(1, rank.size + 2, dtype=jnp.int32)
    at = jnp.minimum(jnp.searchsorted(rank, wanted), rank.size - 1)
    return jnp.where(wanted <= rank[-1], runs.start[at], -1)
