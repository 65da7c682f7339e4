"""The pointers of a ring, read from a real `attnlab.ring.RingCache` and from nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int64

from attnlab.ring import laws

if TYPE_CHECKING:
    from attnlab.ring.cache import RingCache

__all__ = ["RingState", "read_ring"]


@dataclass(frozen=True, eq=False)
class RingState:
    """What a picture needs of a ring, for one sequence of the batch.

    Attributes
    ----------
    capacity, window : int
        C slots, and W visible keys, the query's own included.
    written, highest : int
        n, the tokens written, and the most there have ever been.
    chunk : int
        How many of them the last call wrote; 0 if it wrote none.
    padding : bool array [C]
        True in the slots of padded tokens.
    """

    capacity: int
    window: int
    written: int
    highest: int
    chunk: int
    padding: Bool[np.ndarray, " capacity"]

    @property
    def positions(self) -> Int64[np.ndarray, " capacity"]:
        """The position that each slot holds, -1 where nothing was written."""
        return laws.position_of_slot(np.arange(self.capacity), self.highest, self.capacity)

    @property
    def oldest(self) -> int:
        """The read pointer as a position: the oldest key that the newest token sees."""
        return laws.oldest_visible(self.written, self.window)

    @property
    def write_slot(self) -> int:
        """Where the newest token of the last chunk went, or, without one, where the next will go."""
        return laws.slot(self.written - 1 if self.chunk else self.written, self.capacity)

    @property
    def read_slot(self) -> int:
        """Where the oldest visible key lies."""
        return laws.slot(self.oldest, self.capacity)

    @property
    def in_window(self) -> Bool[np.ndarray, " capacity"]:
        """True in the slots whose position lies in the window, padded or not."""
        held = self.positions
        return (held >= self.oldest) & (held < self.written)

    @property
    def window_runs(self) -> tuple[tuple[int, int], ...]:
        """The slots of the window, oldest position first, as at most two half-open runs."""
        return laws.runs(self.oldest, self.written, self.capacity)

    @property
    def overwritten(self) -> tuple[int, ...]:
        """The positions that lay in the chunk's slots before it was written."""
        before = self.written - self.chunk
        if self.chunk == 0 or self.highest > self.written:
            return ()
        slots = laws.slot(np.arange(before, self.written), self.capacity)
        held = laws.position_of_slot(slots, before, self.capacity)
        return tuple(int(p) for p in held if p >= 0)

    @property
    def sentence(self) -> str:
        """What was written where, and where the window lies."""
        if self.written == 0 and self.highest == 0:
            return f"The ring is empty; token 0 will be written to slot {self.write_slot}."
        return f"{self._last_call()}{self._window()}"

    def _last_call(self) -> str:
        n, first = self.written, self.written - self.chunk
        if self.highest > n:
            back = f"The highest position was {self.highest - 1}"
            if self.chunk == 0:
                return f"{back}; token {n} will be written again, to slot {self.write_slot}; "
            return f"{back}; {_tokens(first, n).lower()} {_verb('is', self.chunk)} written again; "
        if self.chunk == 0:
            return f"Token {n} will be written to slot {self.write_slot}; "
        verb = _verb("overwrites" if self.overwritten else "takes", self.chunk)
        said = f"{_tokens(first, n)} {verb} {_slots(laws.runs(first, n, self.capacity))}"
        if len(self.overwritten) == self.chunk:
            old = self.overwritten
            return f"{said}, which held {_tokens(old[0], old[-1] + 1).lower()}; "
        if self.overwritten:
            return f"{said}, {len(self.overwritten)} of them not empty; "
        return f"{said}, {'which was' if self.chunk == 1 else 'which were'} empty; "

    def _window(self) -> str:
        if self.oldest == self.written:
            return "no token is visible."
        where = _slots(self.window_runs).removeprefix("slots ").removeprefix("slot ")
        one = self.written - self.oldest == 1
        tokens = _tokens(self.oldest, self.written).lower()
        return f"the window is {tokens}, in slot{'' if one else 's'} {where}."


def read_ring(cache: RingCache, *, chunk: int = 0, row: int = 0) -> RingState:
    """Read the pointers and the padding bits of a cache.

    Parameters
    ----------
    cache : RingCache
    chunk : int
        How many tokens the last call wrote, which the cache itself does not keep.
    row : int
        Which sequence of the batch.

    Raises
    ------
    TypeError, ValueError
        If `chunk` is no int, or is negative, more than the tokens written or more than the slots.
    """
    if laws.whole("chunk", chunk) > min(cache.position, cache.capacity):
        most = min(cache.position, cache.capacity)
        raise ValueError(f"chunk must be at most {most}, which could have been written last; got {chunk}")
    padding = cache.padding[row].cpu().numpy().copy()
    return RingState(cache.capacity, cache.window, cache.position, cache.highest, chunk, padding)


def _verb(verb: str, count: int) -> str:
    if verb == "is":
        return "is" if count == 1 else "are"
    return verb if count == 1 else verb.removesuffix("s")


def _tokens(start: int, stop: int) -> str:
    return f"Token {start}" if stop - start == 1 else f"Tokens {start} to {stop - 1}"


def _slots(runs: tuple[tuple[int, int], ...]) -> str:
    parts = [f"{first}" if end - first == 1 else f"{first}-{end - 1}" for first, end in runs]
    return f"slot{'' if parts == [str(runs[0][0])] else 's'} {' and '.join(parts)}"
