"""The mask of a packed row in the language of `attnlab.masks`, so that it can be drawn and cut into tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int32, Int64

from attnlab import intervals
from attnlab.intervals import check_whole
from attnlab.masks import Mask

from .checks import MaskKind, check_sides

_LIMIT = 1 << 33  # more than any two aligned positions can differ by


def packed_mask(
    segment_ids_q: Int32[np.ndarray, "q_tokens"],
    segment_ids_kv: Int32[np.ndarray, "kv_tokens"],
    segment_pos_q: Int32[np.ndarray, "q_tokens"],
    segment_pos_kv: Int32[np.ndarray, "kv_tokens"],
    *,
    mask: MaskKind,
    window: int | None = None,
) -> Mask:
    """Which key each query of one packed row may see.

    Parameters
    ----------
    segment_ids_q, segment_ids_kv, segment_pos_q, segment_pos_kv : int32 [Tq] or [Tkv]
        One row of what `attnlab.segments.numpy.seqlens_and_offsets` takes.
    mask : "padding", "causal" or "bottom_right_causal"
    window : int, optional
        Of the past, a query sees this many positions, its own included (``pos_kv > pos_q - window``,
        positions counted from the ends of the runs for ``"bottom_right_causal"``). Lengths and offsets do
        not depend on it.

    Returns
    -------
    attnlab.masks.Mask
        For these lengths. Where every segment is one run with increasing positions it has an interval form,
        found in O(T log T); otherwise tiles are counted from its values.

    Raises
    ------
    TypeError, ValueError
        As `attnlab.segments.numpy.seqlens_and_offsets`; also for a window below 1.
    """
    rows = (segment_ids_q, segment_ids_kv, segment_pos_q, segment_pos_kv)
    names = ("segment_ids_q", "segment_ids_kv", "segment_pos_q", "segment_pos_kv")
    for name, row in zip(names, rows, strict=True):
        if isinstance(row, np.ndarray) and row.ndim != 1:
            raise ValueError(f"{name} must be one row, of shape [tokens]; got {list(row.shape)}")
    batch = (
        row[None] if isinstance(row, np.ndarray) else row for row in rows
    )  # the checks name what is none
    check_sides(*batch, mask=mask, max_segments=1, kind=np.ndarray)
    if window is not None:
        window = check_whole("window", window, least=1)
    ids_q, ids_kv = segment_ids_q, segment_ids_kv
    pos_q = aligned_positions(ids_q, segment_pos_q, mask)
    pos_kv = aligned_positions(ids_kv, segment_pos_kv, mask)

    def bind(place):
        q_ids, kv_ids, q_pos, kv_pos = (place(x) for x in (ids_q, ids_kv, pos_q, pos_kv))
        # Subtracted here, in 64 bits; no position is lower than the least 32-bit integer.
        unseen = None if window is None else place(np.maximum(pos_q - window, -(2**31)))

        def rule(b, h, q_idx, kv_idx):
            tokens = q_ids[q_idx], kv_ids[kv_idx], q_pos[q_idx], kv_pos[kv_idx]
            return may_attend(*tokens, None if unseen is None else unseen[q_idx], mask=mask)

        return rule

    def spans(q_len, kv_len):
        return _spans(ids_q, ids_kv, pos_q, pos_kv, mask != "padding", window)

    name = f"packed {mask}" + (f" & window({window})" if window is not None else "")
    return Mask(name, bind, spans, (ids_q.size, ids_kv.size))


def may_attend(id_q: Any, id_kv: Any, pos_q: Any, pos_kv: Any, unseen: Any = None, *, mask: MaskKind) -> Any:
    """Say of pairs of tokens, by id and `aligned_positions`, whether the query may attend to the key.

    Elementwise on the arrays of any library that broadcast together. `unseen` is the last position behind the
    query's window, if there is one.
    """
    seen = (id_q == id_kv) & (id_q != 0)
    if mask != "padding":
        seen = seen & (pos_q >= pos_kv)
    return seen if unseen is None else seen & (pos_kv > unseen)


def aligned_positions(
    segment_ids: Int32[np.ndarray, "tokens"], segment_pos: Int32[np.ndarray, "tokens"], mask: MaskKind
) -> Int64[np.ndarray, "tokens"]:
    """Positions in which the mask is causal; for bottom right causal, counted from the ends of the runs."""
    positions = segment_pos.astype(np.int64)
    if mask == "bottom_right_causal":
        lengths = np.diff(_run_edges(segment_ids))
        positions -= np.repeat(lengths, lengths)
    return positions


def _run_edges(ids: Int32[np.ndarray, "tokens"]) -> Int64[np.ndarray, "runs_plus_1"]:
    return (
        np.concatenate([[0], np.flatnonzero(np.diff(ids)) + 1, [ids.size]])
        if ids.size
        else np.zeros(1, np.int64)
    )


def _spans(ids_q, ids_kv, pos_q, pos_kv, causal, window):
    """One interval of keys per query, or None where segments are not single runs with increasing positions.

    (run, position) as one number increases along the runs sorted by id, so that one bisection finds all
    bounds.
    """
    edges = _run_edges(ids_kv)
    starts = edges[:-1][ids_kv[edges[:-1]] != 0]
    order = np.argsort(ids_kv[starts], kind="stable")
    starts, lengths = starts[order], np.diff(edges)[ids_kv[edges[:-1]] != 0][order]
    key_ids = ids_kv[starts]
    if (np.diff(key_ids) <= 0).any():
        return None
    before = np.cumsum(lengths) - lengths
    tokens = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)  # real keys, by id
    key = np.repeat(np.arange(len(starts)), lengths) * _LIMIT + pos_kv[tokens]
    if (np.diff(key) <= 0).any():
        return None
    run = np.searchsorted(key_ids, ids_q).clip(max=max(len(key_ids) - 1, 0))
    known = (key_ids[run] == ids_q) & (ids_q != 0) if len(key_ids) else np.zeros(ids_q.size, bool)
    lo = np.zeros(ids_q.size, np.int64)
    hi = np.zeros(ids_q.size, np.int64)
    base, shift, stop = before[run[known]], starts[run[known]], (starts + lengths)[run[known]]
    here = run[known] * _LIMIT + pos_q[known]
    lo[known] = shift if window is None else shift + np.searchsorted(key, here - window, side="right") - base
    hi[known] = stop if not causal else shift + np.searchsorted(key, here, side="right") - base
    return intervals.single(np.maximum(lo, 0), hi, ids_q.size, ids_kv.size)
