"""The optimised path in NumPy: find where neighbouring ids differ, then handle runs instead of tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int32

from .checks import MaskKind, check_sides, check_tokens
from .layout import SegmentLayout


def positions(segment_ids: Int32[np.ndarray, "batch tokens"]) -> Int32[np.ndarray, "batch tokens"]:
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
    check_tokens("segment_ids", segment_ids, np.ndarray)
    index = np.broadcast_to(np.arange(segment_ids.shape[1], dtype=np.int32), segment_ids.shape)
    start = index * (np.diff(segment_ids, axis=1, prepend=segment_ids[:, :1]) != 0)
    np.maximum.accumulate(start, axis=1, out=start)
    return np.where(segment_ids == 0, np.int32(0), index - start)


def seqlens_and_offsets(
    segment_ids_q: Int32[np.ndarray, "batch q_tokens"],
    segment_ids_kv: Int32[np.ndarray, "batch kv_tokens"],
    segment_pos_q: Int32[np.ndarray, "batch q_tokens"],
    segment_pos_kv: Int32[np.ndarray, "batch kv_tokens"],
    *,
    mask: MaskKind,
    max_segments: int,
) -> SegmentLayout:
    """Segment lengths and starts in O(B T) time, with a few bytes of scratch per token, and O(B S).

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

    Raises
    ------
    TypeError
        For a dtype other than int32, something that is no NumPy array, or an S that is no int.
    ValueError
        For another number of dimensions, shapes that do not belong together, an unknown mask, S < 1, a
        negative id, or a negative position of a token that is not padding.
    """
    inputs = (segment_ids_q, segment_ids_kv, segment_pos_q, segment_pos_kv)
    check_sides(*inputs, mask=mask, max_segments=max_segments, kind=np.ndarray)
    q, q_valid = _runs("q", segment_ids_q, segment_pos_q, max_segments)
    kv, kv_valid = _runs("kv", segment_ids_kv, segment_pos_kv, max_segments)
    both = (q.length > 0) & (kv.length > 0)
    q, kv = q._replace(length=q.length * both), kv._replace(length=kv.length * both)
    if mask != "padding" and both.any():
        q, kv = _trim(q, kv, segment_pos_q, segment_pos_kv, both, mask)
    return SegmentLayout(
        q.length.astype(np.int32), kv.length.astype(np.int32), _in_order(q), _in_order(kv), q_valid & kv_valid
    )


class _Runs(NamedTuple):
    """The segments of one side, int64 [B, S]: entry s - 1 is id s, and absent ids have length 0."""

    start: np.ndarray
    length: np.ndarray


def _runs(side, ids, positions, max_segments):
    """Find the run of every id, and say which rows keep the rules."""
    batch, tokens = ids.shape
    table = _Runs(*np.zeros((2, batch, max_segments), np.int64))
    valid = np.ones(batch, bool)
    if ids.size == 0:
        return table, valid
    flat, flat_positions = ids.reshape(-1), positions.reshape(-1)
    change = flat[1:] != flat[:-1]
    change[tokens - 1 :: tokens] = True  # a run ends with its row
    cuts = np.flatnonzero(change) + 1
    starts, stops = np.append(0, cuts), np.append(cuts, flat.size)
    run_ids = flat[starts]
    if run_ids.min() < 0:
        raise ValueError(f"segment_ids_{side} must not be negative; got {run_ids.min()}")
    keep = run_ids > 0
    starts, stops, run_ids = starts[keep], stops[keep], run_ids[keep]
    row, column = np.divmod(starts, tokens)

    stuck = np.flatnonzero(flat_positions[1:] <= flat_positions[:-1])
    stuck = stuck[~change[stuck] & (flat[stuck] > 0)]
    valid[stuck // tokens] = False
    unordered = (row[1:] == row[:-1]) & (run_ids[1:] <= run_ids[:-1])
    valid[row[1:][unordered]] = False
    valid[row[run_ids > max_segments]] = False
    # In a row that increases the first position is the smallest; in any other look at all of them.
    lowest = flat_positions[starts].min(initial=0)
    if not valid.all():
        lowest = min(lowest, flat_positions[flat > 0].min(initial=0))
    if lowest < 0:
        raise ValueError(f"segment_pos_{side} must not be negative; got {lowest}")

    fits = run_ids <= max_segments
    at = row[fits], run_ids[fits] - 1
    table.start[at] = column[fits]
    table.length[at] = (stops - starts)[fits]
    return table, valid


def _trim(q, kv, pos_q, pos_kv, both, mask):
    """Drop the queries that see no key and the keys that no query sees."""
    row, segment = np.nonzero(both)
    q_start, q_length = q.start[both], q.length[both]
    kv_start, kv_length = kv.start[both], kv.length[both]
    oldest_key = pos_kv[row, kv_start].astype(np.int64)
    newest_query = pos_q[row, q_start + q_length - 1].astype(np.int64)
    # Bottom right causal is causal in positions counted back from the ends of the runs.
    shift = q_length - kv_length if mask == "bottom_right_causal" else 0
    hidden = _count_up_to(pos_q, row, q_start, q_length, oldest_key + shift - 1)
    shown = _count_up_to(pos_kv, row, kv_start, kv_length, newest_query - shift)
    q.start[row, segment] += hidden
    q.length[row, segment] -= hidden
    kv.length[row, segment] = shown
    return q, kv


def _count_up_to(positions, row, start, length, bound):
    """Count the leading positions of every run that are at most `bound`; they increase along a run."""
    first = positions[row, start].astype(np.int64)
    last = positions[row, start + length - 1].astype(np.int64)
    # Increasing integers that span exactly their number are consecutive: one subtraction finds the place.
    count = np.clip(bound - first + 1, 0, length)
    for i in np.flatnonzero(last - first != length - 1):
        run = positions[row[i], start[i] : start[i] + length[i]]
        count[i] = np.searchsorted(run, bound[i], side="right")
    return count


def _in_order(runs):
    """List the starts of the segments that kept a token, then -1; ids already increase along a row."""
    batch, max_segments = runs.length.shape
    kept = runs.length > 0
    out = np.full((batch, max_segments + 1), -1, np.int32)
    out[kept.nonzero()[0], (kept.cumsum(axis=1) - 1)[kept]] = runs.start[kept]
    return out
