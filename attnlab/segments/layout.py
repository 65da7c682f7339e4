"""What every path returns: the lengths and starts of the segments in a packed row."""

from __future__ import annotations

from typing import Any, NamedTuple


class SegmentLayout(NamedTuple):
    """Lengths and starts of the visible part of each segment, for queries and keys.

    A tuple, so that JAX carries it through ``jit`` and ``vmap`` and torch through ``torch.compile``. The
    arrays are of the kind that came in (NumPy, torch or JAX). ``B`` rows, at most ``S`` segments in each.

    Attributes
    ----------
    q_seqlens, kv_seqlens : int32 [B, S]
        Bucket ``s - 1`` holds the number of visible tokens of segment id ``s``; unused buckets hold 0.
    q_offsets, kv_offsets : int32 [B, S + 1]
        Index in the row of the first visible token of each segment that has one, in order of appearance;
        unused entries hold -1. The k-th start belongs to the k-th non-zero length.
    valid : bool [B]
        False where the numbers cannot be trusted: more than S segments, an id above S, ids that do not
        increase in order of appearance, a segment that is not one run, or positions that do not increase
        inside a run.
    """

    q_seqlens: Any
    kv_seqlens: Any
    q_offsets: Any
    kv_offsets: Any
    valid: Any
