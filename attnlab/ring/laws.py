"""The arithmetic of a ring buffer: which slot holds which position, and what must hold for that to be safe.

A ring has C slots, ``capacity``. Token p of an endless sequence is written to slot p mod C, over the token
that came C tokens before it. With n tokens ``written``, a query at position p sees the keys p - W < k <= p:
W of them, its own included (``window``). Rolling back moves n and leaves what was written in place, so a
second number is needed: ``highest``, the largest n there has been. The slots hold the positions from
``highest - C`` to ``highest - 1``, and the laws say that nobody asks for an older one.

Everything is counted in tokens, and positions are absolute: they never wrap.

>>> slot(2600, capacity=2592)
8
>>> runs(2590, 2594, capacity=2592)
((2590, 2592), (0, 2))
>>> default_capacity(window=2048, prefill_size=512, tile_size=32)
2592
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from jaxtyping import Int, Int64

Positions = TypeVar("Positions", int, np.ndarray)


def whole(name: str, value: int, least: int = 0) -> int:
    """Return `value` as an int if it is one of at least `least`; else say what `name` was.

    Raises
    ------
    TypeError, ValueError
        If it is no whole number, or a smaller one.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int; got {type(value).__name__}: {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}")
    return int(value)


def round_up(tokens: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `tokens`.

    Raises
    ------
    TypeError, ValueError
        If either is no int, or ``tokens < 0`` or ``multiple < 1``.
    """
    return -(-whole("tokens", tokens) // whole("multiple", multiple, least=1)) * multiple


def slot(position: Positions, capacity: int) -> Positions:
    """The slot that a position is written to: ``position mod capacity``.

    Parameters
    ----------
    position : int or integer array
        Absolute positions, 0 or more.
    capacity : int

    Returns
    -------
    int or integer array
        Of the shape of `position`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not whole, or is negative, or ``capacity < 1``.
    """
    capacity = whole("capacity", capacity, least=1)
    if isinstance(position, np.ndarray):
        _check_integers("position", position)
        if position.size and position.min() < 0:
            raise ValueError(f"position must be at least 0; got {position.min()}")
    else:
        whole("position", position)
    return position % capacity


def position_of_slot(
    slots: Int[np.ndarray, "*shape"], written: int, capacity: int
) -> Int64[np.ndarray, "*shape"]:
    """The position that each slot holds: ``n - 1 - ((n - 1 - s) mod C)``, or -1 where nothing was written.

    Parameters
    ----------
    slots : integer array
        Slot numbers, 0 to ``capacity - 1``.
    written : int
        n, the tokens written. After a rollback, pass the largest n there has been.
    capacity : int

    Returns
    -------
    int64 array
        Of the shape of `slots`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not whole or out of range.
    """
    capacity, newest = whole("capacity", capacity, least=1), whole("written", written) - 1
    _check_integers("slots", slots)
    if slots.size and not 0 <= slots.min() <= slots.max() < capacity:
        raise ValueError(f"slots must lie from 0 to {capacity - 1}; got {slots.min()} to {slots.max()}")
    # In a slot that the first round has not reached yet, the formula gives a negative position.
    return np.maximum(newest - (newest - slots.astype(np.int64)) % capacity, -1)


def oldest_visible(written: int, window: int) -> int:
    """The read pointer: the position of the oldest key that the newest token sees, ``max(0, n - W)``.

    Parameters
    ----------
    written : int
        n; the newest token is at ``n - 1``.
    window : int
        W, keys visible to a query, its own included.

    Raises
    ------
    TypeError, ValueError
        If an argument is no int, or ``written < 0`` or ``window < 1``.
    """
    return max(0, whole("written", written) - whole("window", window, least=1))


def runs(start: int, stop: int, capacity: int) -> tuple[tuple[int, int], ...]:
    """The slots of the positions ``start <= p < stop``, as ascending half-open runs, oldest position first.

    A stretch of at most C positions passes the end of the ring at most once, so there are at most two runs.

    Parameters
    ----------
    start, stop : int
        Absolute positions.
    capacity : int

    Returns
    -------
    tuple of (int, int)
        ``(first slot, slot after the last)``: two runs if the positions wrap, one if not, none if there are
        no positions.

    Raises
    ------
    TypeError, ValueError
        If an argument is no int or out of range, or there are more positions than slots.
    """
    capacity = whole("capacity", capacity, least=1)
    length = whole("stop", stop, least=whole("start", start)) - start
    if length > capacity:
        raise ValueError(f"positions {start} to {stop - 1} are {length}, and the capacity is {capacity}")
    first = start % capacity
    end = first + length
    if length == 0:
        return ()
    return ((first, end),) if end <= capacity else ((first, capacity), (0, end - capacity))


def default_capacity(window: int, prefill_size: int, tile_size: int) -> int:
    """The fewest slots that obey every law here: ``roundup(W - 1 + prefill_size, T) + T``.

    Parameters
    ----------
    window : int
        W, keys visible to a query, its own included.
    prefill_size : int
        The largest chunk that is written in one call.
    tile_size : int
        T.

    Raises
    ------
    TypeError, ValueError
        If an argument is no int, or is less than 1.
    """
    rows = whole("window", window, least=1) - 1 + whole("prefill_size", prefill_size, least=1)
    return round_up(rows, whole("tile_size", tile_size, least=1)) + tile_size


def check_cache(capacity: int, window: int, chunk: int) -> None:
    """Cache law, ``C >= W - 1 + chunk``: a chunk is written whole before its first query looks back.

    Parameters
    ----------
    capacity, window : int
        C and W.
    chunk : int
        Tokens written by one call.

    Raises
    ------
    ValueError
        If the law is broken: the newest rows of the chunk would fall on keys its oldest query still needs.
    """
    if capacity < window - 1 + chunk:
        raise ValueError(
            f"cache law: capacity >= window - 1 + chunk; got capacity {capacity}, window {window} and "
            f"chunk {chunk}, and {capacity} < {window - 1 + chunk}"
        )


def check_tiles(capacity: int, window: int, chunk: int, tile_size: int) -> None:
    """Tile laws, ``C % T == 0`` and ``C >= roundup(W - 1 + chunk, T) + T``, for a kernel that reads tiles.

    With the first no tile straddles the end of the ring. With the second the tiles that a chunk touches,
    of which the first and the last may be partly used, are all different.

    Parameters
    ----------
    capacity, window, chunk : int
        As in `check_cache`.
    tile_size : int
        T.

    Raises
    ------
    ValueError
        If a law is broken.
    """
    if capacity % tile_size:
        raise ValueError(
            f"tile law: capacity % tile_size == 0; got capacity {capacity} and tile_size {tile_size}, "
            f"and the remainder is {capacity % tile_size}"
        )
    needed = round_up(window - 1 + chunk, tile_size) + tile_size
    if capacity < needed:
        raise ValueError(
            f"tile law: capacity >= roundup(window - 1 + chunk, tile_size) + tile_size; got capacity "
            f"{capacity}, window {window}, chunk {chunk} and tile_size {tile_size}, and {capacity} < {needed}"
        )


def check_rollback(position: int, highest: int, window: int, capacity: int) -> None:
    """Rollback law, ``p - W + 1 >= h - C``: the next query, at p, must find the W - 1 keys before it.

    So at most C - W + 1 tokens can be taken back, counted from h however many rollbacks there are. The law
    is the same before the ring is first full, although nothing is lost yet.

    Parameters
    ----------
    position : int
        p, the tokens that remain.
    highest : int
        h, the most tokens that were ever written.
    window, capacity : int
        W and C.

    Raises
    ------
    ValueError
        If the law is broken.
    """
    if position - window + 1 < highest - capacity:
        raise ValueError(
            f"rollback law: position - window + 1 >= highest - capacity; got position {position}, window "
            f"{window}, highest {highest} and capacity {capacity}, and "
            f"{position - window + 1} < {highest - capacity}"
        )


def check_attend(written: int, rows: int, highest: int, window: int, capacity: int) -> None:
    """Attend law, ``max(0, n - L - W + 1) >= h - C``: the oldest of L queries must find its oldest key.

    Parameters
    ----------
    written : int
        n, the tokens written; the queries are the last of them.
    rows : int
        L.
    highest : int
        h, the largest n there has been.
    window, capacity : int
        W and C.

    Raises
    ------
    ValueError
        If the law is broken.
    """
    oldest = max(0, written - rows - window + 1)
    if oldest < highest - capacity:
        raise ValueError(
            f"attend law: max(0, written - rows - window + 1) >= highest - capacity; got written {written}, "
            f"rows {rows}, window {window}, highest {highest} and capacity {capacity}, and "
            f"{oldest} < {highest - capacity}"
        )


def _check_integers(name: str, array: np.ndarray) -> None:
    if not isinstance(array, np.ndarray) or not np.issubdtype(array.dtype, np.integer):
        came = f"dtype {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{name} must be a NumPy array of integers; got {came}")
