"""Two functions with a bug, for the exercises on packed sequences. Nothing else uses them.

Both are short versions of mistakes that shipped. In the first, starts were read from the ids as they came
in, and lengths from the tokens that are visible. The second is what let data loaders pack more segments into
a row than the attention kernel had been compiled for (google/grain issue 1000, AI-Hypercomputer/maxtext pull
request 2774): no error was raised, and training went on with corrupt data.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int32

__all__ = ["lengths_trust_order", "offsets_keep_trimmed"]


def offsets_keep_trimmed(
    segment_ids: Int32[np.ndarray, "tokens"], visible: Bool[np.ndarray, "tokens"], max_segments: int
) -> Int32[np.ndarray, "starts"]:
    """List where the visible part of each segment starts, in order of appearance, then -1. It has a bug.

    Parameters
    ----------
    segment_ids : int32 [T]
        Segment of each token, 1..S in increasing order; 0 is padding.
    visible : bool [T]
        Whether the token attends to some token of the other side, or is attended by one.
    max_segments : int
        S, the most segments a row can hold.

    Returns
    -------
    int32 [S + 1]
    """
    begins = (np.diff(segment_ids, prepend=0) != 0) & (segment_ids != 0)
    starts = np.flatnonzero(begins)
    offsets = np.full(max_segments + 1, -1, np.int32)
    offsets[: starts.size] = starts
    return offsets


def lengths_trust_order(
    segment_ids: Int32[np.ndarray, "tokens"], max_segments: int
) -> tuple[Int32[np.ndarray, "segments"], Int32[np.ndarray, "starts"]]:
    """Count the tokens of each id, and list where segments start. It believes whatever the row says.

    Parameters
    ----------
    segment_ids : int32 [T]
        Segment of each token; 0 is padding.
    max_segments : int
        S, the most segments a row can hold.

    Returns
    -------
    lengths : int32 [S]
        By id.
    offsets : int32 [S + 1]
        By order of appearance, then -1.
    """
    lengths = np.bincount(segment_ids, minlength=max_segments + 1)[1 : max_segments + 1]
    begins = (np.diff(segment_ids, prepend=0) != 0) & (segment_ids != 0)
    starts = np.flatnonzero(begins)[: max_segments + 1]
    offsets = np.full(max_segments + 1, -1, np.int32)
    offsets[: starts.size] = starts
    return lengths.astype(np.int32), offsets
