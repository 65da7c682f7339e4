"""The optimised path in torch: a running count of changes, bisected; no host synchronisation, no graph break.

Shapes depend on shapes alone, nothing calls ``.item()``, so the functions run under
``torch.compile(fullgraph=True)`` and leave a CUDA stream undisturbed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Int32
from torch import Tensor

from .checks import MaskKind, check_sides, check_tokens
from .layout import SegmentLayout


def positions(segment_ids: Int32[Tensor, "batch tokens"]) -> Int32[Tensor, "batch tokens"]:
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
    check_tokens("segment_ids", segment_ids, Tensor)
    index = torch.arange(segment_ids.shape[1], dtype=torch.int32, device=segment_ids.device)
    if segment_ids.shape[1] == 0:
        return torch.zeros_like(segment_ids)
    changed = torch.nn.functional.pad(segment_ids[:, 1:] != segment_ids[:, :-1], (1, 0))
    start = torch.where(changed, index, 0).cummax(dim=1).values
    return torch.where(segment_ids == 0, 0, index - start)


def seqlens_and_offsets(
    segment_ids_q: Int32[Tensor, "batch q_tokens"],
    segment_ids_kv: Int32[Tensor, "batch kv_tokens"],
    segment_pos_q: Int32[Tensor, "batch q_tokens"],
    segment_pos_kv: Int32[Tensor, "batch kv_tokens"],
    *,
    mask: MaskKind,
    max_segments: int,
) -> SegmentLayout:
    """Segment lengths and starts in O(B T) time and memory, on the device of the inputs.

    Parameters
    ----------
    segment_ids_q, segment_ids_kv : int32 [B, Tq], int32 [B, Tkv]
        Segment of each token, 1..S; 0 is padding.
    segment_pos_q, segment_pos_kv : int32, shaped as the ids
        Position of each token inside its segment; it increases along a segment. `positions` makes them.
    mask : "padding", "causal" or "bottom_right_causal"
        Which keys a query of the same segment may attend to.
    max_segments : int
        S, the most segments a row can hold.

    Returns
    -------
    SegmentLayout
        Negative ids or positions, which could not be raised on without a synchronisation, set ``valid``
        False.

    Raises
    ------
    TypeError
        For a dtype other than int32, something that is no tensor, or an S that is no int.
    ValueError
        For another number of dimensions, shapes or devices that do not belong together, an unknown mask, or
        S < 1.
    """
    inputs = (segment_ids_q, segment_ids_kv, segment_pos_q, segment_pos_kv)
    check_sides(*inputs, mask=mask, max_segments=max_segments, kind=Tensor)
    for name, tensor in zip(("segment_ids_kv", "segment_pos_q", "segment_pos_kv"), inputs[1:], strict=True):
        if tensor.device != segment_ids_q.device:
            raise ValueError(
                f"{name} must be on the device of segment_ids_q, {segment_ids_q.device}; got {tensor.device}"
            )
    q = _runs(segment_ids_q, segment_pos_q, max_segments)
    kv = _runs(segment_ids_kv, segment_pos_kv, max_segments)
    valid = q.valid & kv.valid
    both = (q.length > 0) & (kv.length > 0)
    if mask != "padding" and segment_ids_q.shape[1] and segment_ids_kv.shape[1]:
        q, kv = _trim(q, kv, segment_pos_q, segment_pos_kv, mask)
    q, kv = q._replace(length=q.length * both), kv._replace(length=kv.length * both)
    return SegmentLayout(q.length.int(), kv.length.int(), _in_order(q), _in_order(kv), valid)


class _Runs(NamedTuple):
    """The segments of one side, int64 [B, S]: entry s - 1 is id s, and absent ids have length 0."""

    start: Tensor
    length: Tensor
    lane: Tensor  # int64 [B, S]: which run of its row, counting padding runs too
    of_token: Tensor  # int32 [B, T]: which run every token stands in
    valid: Tensor  # bool [B]


def _runs(ids, positions, max_segments):
    """Find the run of every id, and say which rows keep the rules."""
    batch, tokens = ids.shape
    if tokens == 0:
        nothing = torch.zeros(batch, max_segments, dtype=torch.int64, device=ids.device)
        return _Runs(nothing, nothing, nothing, ids, torch.ones(batch, dtype=torch.bool, device=ids.device))
    change = torch.nn.functional.pad(ids[:, 1:] != ids[:, :-1], (1, 0))
    of_token = change.cumsum(dim=1, dtype=torch.int32)
    # S segments with padding before, between and after them make at most 2 S + 1 runs.
    lanes = torch.arange(2 * max_segments + 2, dtype=torch.int32, device=ids.device).repeat(batch, 1)
    edges = torch.searchsorted(of_token, lanes)
    starts, stops = edges[:, :-1], edges[:, 1:]
    exists = starts < tokens
    starts_clipped = starts.clamp(max=tokens - 1)
    run_ids = torch.where(exists, ids.gather(1, starts_clipped), 0)

    # Padding is one run at a time, so the segment last seen is this run's or that of the run before.
    seen = torch.where(run_ids == 0, torch.nn.functional.pad(run_ids, (1, 0))[:, :-1], run_ids)
    in_order = (run_ids > torch.nn.functional.pad(seen, (1, 0))[:, :-1]) & (run_ids <= max_segments)
    in_order &= positions.gather(1, starts_clipped) >= 0
    valid = ((run_ids == 0) | in_order).all(dim=1) & (of_token[:, -1] <= 2 * max_segments)
    stuck = ~change[:, 1:] & (ids[:, 1:] != 0) & (positions[:, 1:] <= positions[:, :-1])
    valid &= ~stuck.any(dim=1)

    wanted = torch.arange(1, max_segments + 1, dtype=torch.int32, device=ids.device).repeat(batch, 1)
    key = torch.where(exists, seen, torch.iinfo(torch.int32).max)
    lane = torch.searchsorted(key, wanted).clamp(max=2 * max_segments)
    found = run_ids.gather(1, lane) == wanted
    start = torch.where(found, starts.gather(1, lane), 0)
    length = torch.where(found, stops.gather(1, lane) - start, 0)
    return _Runs(start, length, lane, of_token, valid)


def _trim(q, kv, pos_q, pos_kv, mask):
    """Drop the queries that see no key and the keys that no query sees."""
    oldest_key = pos_kv.gather(1, kv.start).long()
    newest_query = pos_q.gather(1, (q.start + q.length - 1).clamp(min=0)).long()
    # Bottom right causal is causal in positions counted back from the ends of the runs.
    shift = q.length - kv.length if mask == "bottom_right_causal" else 0
    hidden = _count_up_to(pos_q, q, oldest_key + shift - 1)
    shown = _count_up_to(pos_kv, kv, newest_query - shift)
    return q._replace(start=q.start + hidden, length=q.length - hidden), kv._replace(length=shown)


def _count_up_to(positions, runs, bound):
    """Count the leading positions of every run that are at most `bound`; they increase along a run.

    (run, position) written as one 64-bit number increases along the whole row, so one bisection serves all
    runs.
    """
    limit = 1 << 32
    key = runs.of_token.long() * limit + positions
    last = torch.searchsorted(key, runs.lane * limit + bound.clamp(-1, limit - 2), side="right")
    return (last - runs.start).clamp(min=0).minimum(runs.length)


def _in_order(runs):
    """List the starts of the segments that kept a token, then -1; ids already increase along a row."""
    batch, max_segments = runs.length.shape
    rank = (runs.length > 0).cumsum(dim=1)
    wanted = torch.arange(1, max_segments + 2, device=rank.device).repeat(batch, 1)
    at = torch.searchsorted(rank, wanted).clamp(max=max_segments - 1)
    return torch.where(wanted <= rank[:, -1:], runs.start.gather(1, at), -1).int()
