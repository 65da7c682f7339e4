"""What the caller can promise decides what must be read: all T tokens, a few per segment, or none.

Nothing promised, `attnlab.segments.numpy` and `.jax` read every token once. Here stand the two steps above.
They are written against the array API standard, so one definition serves NumPy and JAX (under ``jit`` with
`mask` and `max_segments` static).
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Int32

from .checks import MaskKind, check_mask, check_max_segments
from .layout import SegmentLayout


def from_sorted_ids(
    segment_ids_q: Int32[Any, "batch q_tokens"],
    segment_ids_kv: Int32[Any, "batch kv_tokens"],
    *,
    mask: MaskKind,
    max_segments: int,
) -> SegmentLayout:
    """Segment lengths and starts in O(S log T): bisect for where each id begins and ends.

    The promise: ids increase along a row, padding stands only at its tail, and positions count 0, 1, 2, ...
    inside each segment. A broken promise is not noticed.

    Parameters
    ----------
    segment_ids_q, segment_ids_kv : int32 [B, Tq], int32 [B, Tkv]
        NumPy or JAX arrays, both of one library.
    mask : "padding", "causal" or "bottom_right_causal"
    max_segments : int
        S, the most segments a row can hold.

    Returns
    -------
    SegmentLayout
        ``valid`` only says that no id is above S; the rest was promised.

    Raises
    ------
    TypeError, ValueError
        As `attnlab.segments.numpy.seqlens_and_offsets`, for what can be seen without reading the values.
    """
    check_mask(mask)
    check_max_segments(max_segments)
    xp = _library(segment_ids_q=segment_ids_q, segment_ids_kv=segment_ids_kv)
    sides = []
    for ids in (segment_ids_q, segment_ids_kv):
        edges = _first_at_least(xp, ids, max_segments + 2)
        sides.append((edges[:, :-1], edges[:, 1:] - edges[:, :-1], _padding_from(xp, ids, edges[:, -1:])))
    (q_start, q_length, q_fits), (kv_start, kv_length, kv_fits) = sides
    return _layout(xp, q_start, q_length, kv_start, kv_length, q_fits & kv_fits, mask)


def from_lengths(
    q_lengths: Int32[Any, "batch segments"], kv_lengths: Int32[Any, "batch segments"], *, mask: MaskKind
) -> SegmentLayout:
    """Segment lengths and starts in O(S), from the lengths a packer has just used.

    The promise: segment s of every row has ``lengths[:, s - 1]`` tokens, segments stand back to back from
    token 0, and positions count from 0. Length 0 is an id that was not used.

    Parameters
    ----------
    q_lengths, kv_lengths : int32 [B, S]
        NumPy or JAX arrays, both of one library.
    mask : "padding", "causal" or "bottom_right_causal"

    Returns
    -------
    SegmentLayout
        ``valid`` is False where a length is negative.

    Raises
    ------
    TypeError, ValueError
        For another dtype or shape, S = 0, or an unknown mask.
    """
    check_mask(mask)
    xp = _library(q_lengths=q_lengths, kv_lengths=kv_lengths)
    if q_lengths.shape != kv_lengths.shape or q_lengths.shape[1] < 1:
        raise ValueError(
            f"kv_lengths must have the shape of q_lengths, [batch, segments] with at least one segment; "
            f"got {list(q_lengths.shape)} and {list(kv_lengths.shape)}"
        )
    valid = xp.all((q_lengths >= 0) & (kv_lengths >= 0), axis=1)
    q_start, kv_start = (xp.cumulative_sum(n, axis=1) - n for n in (q_lengths, kv_lengths))
    return _layout(xp, q_start, q_lengths, kv_start, kv_lengths, valid, mask)


def _library(**arrays):
    """Return the array API namespace of the arguments, after checking them."""
    (first, a), (second, b) = arrays.items()
    for name, array in arrays.items():
        if not hasattr(array, "__array_namespace__"):
            raise TypeError(f"{name} must be a NumPy or JAX array; got {type(array).__name__}")
        if str(array.dtype) != "int32":
            raise TypeError(f"{name} must have dtype int32; got {array.dtype}")
        if array.ndim != 2:
            raise ValueError(f"{name} must have two dimensions; got shape {list(array.shape)}")
    if a.__array_namespace__() is not b.__array_namespace__():
        raise TypeError(
            f"{second} must be of the library of {first}; got {type(b).__name__} and {type(a).__name__}"
        )
    if a.shape[0] != b.shape[0]:
        raise ValueError(f"{second} must have the batch size of {first}, {a.shape[0]}; got {b.shape[0]}")
    return a.__array_namespace__()


def _padding_from(xp, ids, place):
    """Say of each row whether padding, or its end, stands at `place`: no id is larger than those before."""
    batch, tokens = ids.shape
    if tokens == 0:
        return xp.full(batch, True)
    found = xp.take_along_axis(ids, xp.minimum(place, xp.asarray(tokens - 1)), axis=1)
    return ((place == tokens) | (found == 0))[:, 0]


def _first_at_least(xp, ids, stop):
    """Bisect each row for the first id of at least 1, 2, .. stop - 1, or the tail padding."""
    batch, tokens = ids.shape
    wanted = xp.arange(1, stop, dtype=xp.int32)
    low = xp.zeros((batch, wanted.shape[0]), dtype=xp.int32)
    high = xp.full(low.shape, tokens, dtype=xp.int32)
    for _ in range(tokens.bit_length()):
        middle = (low + high) // 2
        found = xp.take_along_axis(ids, xp.minimum(middle, xp.asarray(tokens - 1)), axis=1)
        before = (found < wanted) & (found != 0) & (low < high)
        low, high = xp.where(before, middle + 1, low), xp.where(before, high, middle)
    return low


def _layout(xp, q_start, q_length, kv_start, kv_length, valid, mask):
    """Trim both sides by arithmetic, since positions are known, and list the starts in order."""
    both = (q_length > 0) & (kv_length > 0)
    hidden = xp.zeros_like(q_length)
    shown = kv_length
    if mask == "causal":  # a key is seen if some query stands at or after it
        shown = xp.minimum(q_length, kv_length)
    if mask == "bottom_right_causal":  # a query sees a key unless it stands before the first one
        hidden = xp.maximum(q_length - kv_length, xp.zeros_like(hidden))
    q_length = xp.where(both, q_length - hidden, 0)
    kv_length = xp.where(both, shown, 0)
    q_offsets = _in_order(xp, q_start + hidden, q_length)
    return SegmentLayout(q_length, kv_length, q_offsets, _in_order(xp, kv_start, kv_length), valid)


def _in_order(xp, start, length):
    """List the starts of the segments with a token, then -1."""
    # Starts of kept segments increase, so sorting brings them to the front in order.
    unused = xp.asarray(2**31 - 1, dtype=xp.int32)
    key = xp.sort(xp.where(length > 0, start, unused), axis=1)
    key = xp.concat([key, xp.full((key.shape[0], 1), 2**31 - 1, dtype=xp.int32)], axis=1)
    return xp.astype(xp.where(key == unused, -1, key), xp.int32)
