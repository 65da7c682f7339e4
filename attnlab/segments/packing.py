"""Put sequences of many lengths into rows of one length, and remember what was put where (NumPy)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Integer


class PackedRows(NamedTuple):
    """Rows of packed sequences; ``B`` rows, at most ``S`` segments in each.

    Attributes
    ----------
    segment_ids : int32 [B, T]
        1..S in order of appearance; 0 is the padding at the tail.
    lengths : int32 [B, S]
        Tokens of each segment, 0 where a row has fewer: what `attnlab.segments.promises.from_lengths` takes.
    sequence : int32 [B, S]
        Which of the given sequences each segment is, -1 where a row has fewer.
    """

    segment_ids: Int32[np.ndarray, "batch tokens"]
    lengths: Int32[np.ndarray, "batch segments"]
    sequence: Int32[np.ndarray, "batch segments"]


def pack(lengths: Integer[np.ndarray, "sequences"], tokens: int) -> PackedRows:
    """Pack sequences into as few rows as first fit decreasing finds; none is cut, none is lost.

    Parameters
    ----------
    lengths : int [N]
        Tokens of each sequence, at least 1.
    tokens : int
        T, the length of a row.

    Returns
    -------
    PackedRows

    Raises
    ------
    TypeError
        If `lengths` is not an array of integers or `tokens` no int.
    ValueError
        If `lengths` is not one-dimensional, or a length is below 1 or above `tokens`.

    Notes
    -----
    First fit decreasing uses at most 11/9 of the fewest possible rows, and one more (Johnson, 1973). Each
    sequence is compared with every open row: O(N B).
    """
    if not isinstance(lengths, np.ndarray) or not np.issubdtype(lengths.dtype, np.integer):
        raise TypeError(
            f"lengths must be a NumPy array of integers; got {getattr(lengths, 'dtype', type(lengths))}"
        )
    if isinstance(tokens, bool) or not isinstance(tokens, int):
        raise TypeError(f"tokens must be an int; got {type(tokens).__name__}")
    if lengths.ndim != 1:
        raise ValueError(f"lengths must have one dimension; got shape {list(lengths.shape)}")
    if lengths.size and not 1 <= lengths.min() <= lengths.max() <= tokens:
        raise ValueError(
            f"lengths must lie between 1 and tokens, {tokens}; got {lengths.min()} to {lengths.max()}"
        )
    rows: list[list[int]] = []
    room: list[int] = []
    for i in np.argsort(-lengths.astype(np.int64), kind="stable"):
        row = next((r for r, free in enumerate(room) if free >= lengths[i]), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(tokens)
        rows[row].append(int(i))
        room[row] -= int(lengths[i])
    most = max(map(len, rows), default=1)
    out = PackedRows(
        np.zeros((len(rows), tokens), np.int32),
        np.zeros((len(rows), most), np.int32),
        np.full((len(rows), most), -1, np.int32),
    )
    for row, members in enumerate(rows):
        sizes = lengths[members]
        out.segment_ids[row, : sizes.sum()] = np.repeat(np.arange(1, len(members) + 1), sizes)
        out.lengths[row, : len(members)] = sizes
        out.sequence[row, : len(members)] = members
    return out


def skewed_lengths(
    segments: int, total: int, *, seed: int, spread: float = 1.0
) -> Int32[np.ndarray, "segments"]:
    """Draw lengths that add up to `total`, a few long and many short, as documents are.

    Parameters
    ----------
    segments : int
        How many, at least 1.
    total : int
        Tokens in all, at least one for each segment.
    seed : int
        For ``numpy.random.default_rng``; the same seed gives the same lengths.
    spread : float
        Standard deviation of the logarithm of the lengths; 0 makes them equal.

    Returns
    -------
    int32 [segments]

    Raises
    ------
    ValueError
        If `segments` is below 1, `total` below `segments`, or `spread` negative.
    """
    if segments < 1:
        raise ValueError(f"segments must be at least 1; got {segments}")
    if total < segments:
        raise ValueError(f"total must be at least segments, {segments}; got {total}")
    if not spread >= 0:
        raise ValueError(f"spread must not be negative; got {spread}")
    weights = np.random.default_rng(seed).lognormal(sigma=spread, size=segments)
    # One token each, the rest in proportion; rounding the running total loses none.
    edges = np.round(np.cumsum(weights) / weights.sum() * (total - segments)).astype(np.int64)
    return (np.diff(edges, prepend=0) + 1).astype(np.int32)
