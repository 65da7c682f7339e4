"""Key intervals: what each query may see, as a few runs of keys instead of a row of a matrix.

The masks used in practice let a query see one run of keys, or a handful of them. A row of T booleans is then
only a few pairs ``[lo, hi)``, and a whole mask is an int64 array ``[q_len, K, 2]``. The intersection, the
complement and the union of such arrays are again such arrays, so masks can be combined, and cut into tiles,
without a T x T table.

Every array here is in one canonical form. In a row the intervals are sorted, disjoint and do not touch one
another; unused places hold the empty interval ``(kv_len, kv_len)`` and stand at the end; K is the largest
number of intervals found in any row, so it is 0 for a mask that shows nothing. Equal masks therefore have
equal arrays.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from jaxtyping import Int32, Int64, Integer

# Positions and ids are int32 in JAX and in FlexAttention's kernels, so nothing larger can be meant.
LARGEST = 2**31 - 1


def check_whole(name: str, value: int, least: int = 0) -> int:
    """Return ``value`` as an int if it is one, from ``least`` to 2**31 - 1; else say what ``name`` was."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}: {value!r}")
    if not least <= value <= LARGEST:
        raise ValueError(f"{name} must be between {least} and {LARGEST}, got {value}")
    return int(value)


def check_ids(name: str, ids: np.ndarray) -> Int32[np.ndarray, " tokens"]:
    """Return an int32 copy of segment ids if they are a row of whole numbers from 0 to 2**31 - 1."""
    if not isinstance(ids, np.ndarray) or not np.issubdtype(ids.dtype, np.integer):
        came = f"dtype {ids.dtype}" if isinstance(ids, np.ndarray) else type(ids).__name__
        raise TypeError(f"{name} must be a NumPy array of integers, got {came}")
    if ids.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got shape {ids.shape}")
    if ids.size and not 0 <= ids.min() <= ids.max() <= LARGEST:
        raise ValueError(f"{name} must lie between 0 and {LARGEST}, got {ids.min()} to {ids.max()}")
    return ids.astype(np.int32)


def _canonical(
    lo: Int64[np.ndarray, "q_len m"], hi: Int64[np.ndarray, "q_len m"], kv_len: int
) -> Int64[np.ndarray, "q_len k 2"]:
    """Sort disjoint intervals, move empty ones to the end and drop columns that are empty in every row."""
    empty = lo >= hi
    # Disjoint intervals end in the order in which they start, so the two sorts keep each pair together.
    lo = np.sort(np.where(empty, kv_len, lo), axis=1)
    hi = np.sort(np.where(empty, kv_len, hi), axis=1)
    used = int(np.count_nonzero((lo < hi).any(axis=0)))
    return np.stack([lo[:, :used], hi[:, :used]], axis=-1)


def single(
    lo: Int64[np.ndarray, " q_len"] | int, hi: Int64[np.ndarray, " q_len"] | int, q_len: int, kv_len: int
) -> Int64[np.ndarray, "q_len k 2"]:
    """One interval ``[lo, hi)`` per row, clipped to ``[0, kv_len)``; a bound is one number or one per row."""
    lo, hi = (np.broadcast_to(np.clip(bound, 0, kv_len), q_len).astype(np.int64) for bound in (lo, hi))
    return _canonical(lo[:, None], hi[:, None], kv_len)


def intersection(
    a: Int64[np.ndarray, "q_len ka 2"], b: Int64[np.ndarray, "q_len kb 2"], kv_len: int
) -> Int64[np.ndarray, "q_len k 2"]:
    """Keys that lie in both: every interval of ``a`` is cut with every interval of ``b``."""
    pieces = []
    for i, j in product(range(a.shape[1]), range(b.shape[1])):
        lo, hi = np.maximum(a[:, i, 0], b[:, j, 0]), np.minimum(a[:, i, 1], b[:, j, 1])
        if (lo < hi).any():  # most pairs never meet; dropping them here keeps the peak memory low
            pieces.append((lo, hi))
    if not pieces:
        return np.empty((a.shape[0], 0, 2), np.int64)
    los, his = zip(*pieces, strict=True)
    return _canonical(np.stack(los, axis=1), np.stack(his, axis=1), kv_len)


def complement(a: Int64[np.ndarray, "q_len ka 2"], kv_len: int) -> Int64[np.ndarray, "q_len k 2"]:
    """Keys that lie in none: the gaps before, between and after the intervals."""
    lo = np.pad(a[:, :, 1], ((0, 0), (1, 0)), constant_values=0)
    hi = np.pad(a[:, :, 0], ((0, 0), (0, 1)), constant_values=kv_len)
    return _canonical(lo, hi, kv_len)


def union(
    a: Int64[np.ndarray, "q_len ka 2"], b: Int64[np.ndarray, "q_len kb 2"], kv_len: int
) -> Int64[np.ndarray, "q_len k 2"]:
    """Keys that lie in either, by De Morgan's law."""
    return complement(intersection(complement(a, kv_len), complement(b, kv_len), kv_len), kv_len)


def same_id(
    ids_q: Integer[np.ndarray, " q_len"], ids_kv: Integer[np.ndarray, " kv_len"], most: int
) -> Int64[np.ndarray, "q_len k 2"] | None:
    """Keys that carry the query's own id, which is not 0.

    An id that forms one run among the keys gives one interval; an id that returns (``1 2 1``) gives one for
    each of its runs.

    Parameters
    ----------
    ids_q, ids_kv : integer array [q_len], [kv_len]
        Ids, 0 or more. Id 0 is padding.
    most : int
        The most runs one id may have. Beyond it the form stops being small, and the answer is None.

    Returns
    -------
    int64 array [q_len, K, 2], or None
    """
    kv_len = ids_kv.size
    change = np.flatnonzero(ids_kv[1:] != ids_kv[:-1]) + 1
    start = np.concatenate([np.zeros(min(kv_len, 1), np.int64), change])
    stop = np.append(start[1:], kv_len)[: start.size]
    real = ids_kv[start] != 0
    start, stop = start[real], stop[real]

    # Bring the runs of one id together, still in ascending order of their starts, and number them from 0
    # within the id.
    by_id = np.argsort(ids_kv[start], kind="stable")
    names, first, runs = np.unique(ids_kv[start[by_id]], return_index=True, return_counts=True)
    if runs.max(initial=0) > most:
        return None
    which = np.repeat(np.arange(names.size), runs)
    nth = np.arange(start.size) - np.repeat(first, runs)

    # One row for each id, and a last row, all empty, for padding and for ids that no key carries.
    table = np.full((names.size + 1, runs.max(initial=0), 2), kv_len, np.int64)
    table[which, nth] = np.stack([start, stop], axis=-1)[by_id]
    row = np.searchsorted(names, ids_q)
    known = np.isin(ids_q, names)
    found = table[np.where(known, row, names.size)]
    return _canonical(found[..., 0], found[..., 1], kv_len)
