"""The oracle: lengths and starts read off the T x T mask, literally. O(B Tq Tkv) memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Int32

from .checks import MaskKind, check_sides
from .layout import SegmentLayout


def visibility(
    segment_ids_q: Int32[np.ndarray, "batch q_tokens"],
    segment_ids_kv: Int32[np.ndarray, "batch kv_tokens"],
    segment_pos_q: Int32[np.ndarray, "batch q_tokens"],
    segment_pos_kv: Int32[np.ndarray, "batch kv_tokens"],
    *,
    mask: MaskKind,
) -> Bool[np.ndarray, "batch q_tokens kv_tokens"]:
    """Write out the mask: entry i, j says whether query token i may attend to key token j.

    Same segment and not padding; for ``"causal"`` also ``pos_q >= pos_kv``; for ``"bottom_right_causal"``
    instead ``run_length_q - pos_q <= run_length_kv - pos_kv``, which lines the last query up with the last
    key.
    """
    ids_q, ids_kv = segment_ids_q[:, :, None], segment_ids_kv[:, None, :]
    pos_q, pos_kv = segment_pos_q[:, :, None].astype(np.int64), segment_pos_kv[:, None, :].astype(np.int64)
    visible = (ids_q == ids_kv) & (ids_q != 0)
    if mask == "causal":
        visible &= pos_q >= pos_kv
    if mask == "bottom_right_causal":
        visible &= (
            run_lengths(segment_ids_q)[:, :, None] - pos_q <= run_lengths(segment_ids_kv)[:, None, :] - pos_kv
        )
    return visible


def seqlens_and_offsets(
    segment_ids_q: Int32[np.ndarray, "batch q_tokens"],
    segment_ids_kv: Int32[np.ndarray, "batch kv_tokens"],
    segment_pos_q: Int32[np.ndarray, "batch q_tokens"],
    segment_pos_kv: Int32[np.ndarray, "batch kv_tokens"],
    *,
    mask: MaskKind,
    max_segments: int,
) -> SegmentLayout:
    """Segment lengths and starts through the mask: the row maximum of mask x id is the id of a visible token.

    Parameters and result as `attnlab.segments.numpy.seqlens_and_offsets`; raises as it does. Where
    ``valid`` is False the numbers still follow the rules to the letter, which no other path promises.
    """
    inputs = (segment_ids_q, segment_ids_kv, segment_pos_q, segment_pos_kv)
    check_sides(*inputs, mask=mask, max_segments=max_segments, kind=np.ndarray)
    check_values(*inputs)
    table = visibility(*inputs, mask=mask)
    seen_q = (table * segment_ids_q[:, :, None]).max(axis=2, initial=0)
    seen_kv = (table * segment_ids_kv[:, None, :]).max(axis=1, initial=0)
    sides = [(count(seen, max_segments), starts(seen, max_segments)) for seen in (seen_q, seen_kv)]
    (q_seqlens, q_offsets), (kv_seqlens, kv_offsets) = sides
    valid = trusted(segment_ids_q, segment_pos_q, max_segments) & trusted(
        segment_ids_kv, segment_pos_kv, max_segments
    )
    return SegmentLayout(q_seqlens, kv_seqlens, q_offsets, kv_offsets, valid)


def count(seen: Int32[np.ndarray, "batch tokens"], max_segments: int) -> Int32[np.ndarray, "batch segments"]:
    """Count the tokens of each id 1..S in every row."""
    ids = np.arange(1, max_segments + 1)
    return (seen[:, :, None] == ids).sum(axis=1, dtype=np.int32)


def starts(
    seen: Int32[np.ndarray, "batch tokens"], max_segments: int
) -> Int32[np.ndarray, "batch segments_plus_1"]:
    """List where a visible id follows a different one, first S + 1 of each row, then -1."""
    out = np.full((len(seen), max_segments + 1), -1, np.int32)
    for row, ids in enumerate(seen):
        found = [i for i, s in enumerate(ids) if s != 0 and (i == 0 or ids[i - 1] != s)][: max_segments + 1]
        out[row, : len(found)] = found
    return out


def run_lengths(segment_ids: Int32[np.ndarray, "batch tokens"]) -> np.ndarray:
    """Give every token the length of the run of equal ids it stands in; int64 [batch, tokens]."""
    out = np.zeros(segment_ids.shape, np.int64)
    for row, ids in enumerate(segment_ids):
        for start, stop in runs(ids):
            out[row, start:stop] = stop - start
    return out


def runs(ids: Int32[np.ndarray, "tokens"]) -> list[tuple[int, int]]:
    """Cut one row into maximal runs of equal ids, as (start, stop)."""
    cuts = [i for i in range(1, len(ids)) if ids[i] != ids[i - 1]]
    edges = [0, *cuts, len(ids)] if len(ids) else []
    return list(pairwise(edges))


def trusted(ids: np.ndarray, pos: np.ndarray, max_segments: int) -> Bool[np.ndarray, "batch"]:
    """Say which rows hold segments 1..S, each one run, in increasing order, with increasing positions."""
    out = np.ones(len(ids), bool)
    for row in range(len(ids)):
        spans = [(start, stop) for start, stop in runs(ids[row]) if ids[row, start] != 0]
        order = [int(ids[row, start]) for start, _ in spans]
        rising = all((np.diff(pos[row, start:stop].astype(np.int64)) > 0).all() for start, stop in spans)
        out[row] = rising and order == sorted(set(order)) and max(order, default=0) <= max_segments
    return out


def check_values(ids_q: np.ndarray, ids_kv: np.ndarray, pos_q: np.ndarray, pos_kv: np.ndarray) -> None:
    """Raise ValueError on a negative id, or on a negative position of a token that is not padding."""
    for side, ids, pos in (("q", ids_q, pos_q), ("kv", ids_kv, pos_kv)):
        if (ids < 0).any():
            raise ValueError(f"segment_ids_{side} must not be negative; got {ids.min()}")
        if (pos[ids > 0] < 0).any():
            raise ValueError(f"segment_pos_{side} must not be negative; got {pos[ids > 0].min()}")
