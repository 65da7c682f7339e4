"""What a chunk does to a ring of a given size: which laws it breaks, and which keys are gone.

The verdict is that of `attnlab.ring.laws`. The consequence is found by writing: the slots are filled with
positions, as `laws.slot` says, and then asked for every key that a query of the chunk needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from attnlab.ring import laws

__all__ = ["Consequence", "consequence"]


@dataclass(frozen=True, eq=False)
class Consequence:
    """A ring after a chunk was written, and what its queries find.

    Attributes
    ----------
    capacity, window, chunk, tile_size : int
        C, W, ch and T.
    start : int
        Position of the first token of the chunk; the ring was full before.
    held : int64 array [C]
        The position in each slot after the chunk.
    needed, lost : bool array [ch, W - 1 + ch]
        Whether a query needs a key, and whether it needs it and finds another in its slot. Column 0 is the
        oldest key that any query needs.
    broken : dict
        The message of each broken law, by name: "cache law", "tile laws".
    """

    capacity: int
    window: int
    chunk: int
    tile_size: int
    start: int
    held: Int64[np.ndarray, " capacity"]
    needed: Bool[np.ndarray, "chunk keys"]
    lost: Bool[np.ndarray, "chunk keys"]
    broken: dict[str, str]

    @property
    def first_key(self) -> int:
        """The oldest position that a query of the chunk needs."""
        return self.start - self.window + 1

    @property
    def lost_keys(self) -> list[int]:
        """The positions that are needed and gone, oldest first."""
        return [self.first_key + int(i) for i in np.flatnonzero(self.lost.any(axis=0))]

    @property
    def blind_queries(self) -> list[int]:
        """The positions of the queries that miss a key."""
        return [self.start + int(i) for i in np.flatnonzero(self.lost.any(axis=1))]

    @property
    def wrong_slots(self) -> Bool[np.ndarray, " capacity"]:
        """True in the slots of lost keys."""
        wrong = np.zeros(self.capacity, np.bool_)
        wrong[laws.slot(np.array(self.lost_keys, np.int64), self.capacity)] = True
        return wrong

    @property
    def tiles(self) -> list[int]:
        """The key tiles that the queries of the chunk touch; tile t holds T positions from t * T on."""
        return list(
            range(self.first_key // self.tile_size, (self.start + self.chunk - 1) // self.tile_size + 1)
        )

    def tile_runs(self, tile: int) -> tuple[tuple[int, int], ...]:
        """The slots of a key tile; two runs if it straddles the end of the ring, none if it is longer."""
        if self.tile_size > self.capacity:
            return ()
        return laws.runs(tile * self.tile_size, (tile + 1) * self.tile_size, self.capacity)

    @property
    def straddling(self) -> list[int]:
        """The touched tiles that do not lie in one piece."""
        return [tile for tile in self.tiles if len(self.tile_runs(tile)) != 1]

    @property
    def sharing(self) -> list[int]:
        """The touched tiles that have a slot in common with another one."""
        users = np.zeros(self.capacity, np.int64)
        for tile in self.tiles:
            for first, end in self.tile_runs(tile):
                users[first:end] += 1
        return [tile for tile in self.tiles if any((users[a:b] > 1).any() for a, b in self.tile_runs(tile))]


def consequence(capacity: int, window: int, chunk: int, tile_size: int) -> Consequence:
    """Write a chunk into a full ring of any size, lawful or not, and look.

    The chunk begins where its keys touch the most tiles, which is the case that the tile laws provide for.

    Parameters
    ----------
    capacity, window, chunk, tile_size : int
        C, W, ch and T.

    Raises
    ------
    TypeError, ValueError
        If one is no int, or is less than 1.
    """
    for name, value in (
        ("capacity", capacity),
        ("window", window),
        ("chunk", chunk),
        ("tile_size", tile_size),
    ):
        laws.whole(name, value, least=1)
    keys = window - 1 + chunk
    full = max(capacity, window)
    start = max(
        range(full, full + tile_size),
        key=lambda s: ((s + chunk - 1) // tile_size - (s - window + 1) // tile_size, -s),
    )
    held = np.full(capacity, -1)
    for position in range(start):
        held[laws.slot(position, capacity)] = position
    for position in range(start, start + chunk):
        held[laws.slot(position, capacity)] = position
    queries, wanted = start + np.arange(chunk)[:, None], start - window + 1 + np.arange(keys)
    needed = (wanted > queries - window) & (wanted <= queries)
    lost = needed & (held[laws.slot(wanted, capacity)] != wanted)
    checks: dict[str, Callable[[], None]] = {
        "cache law": lambda: laws.check_cache(capacity, window, chunk),
        "tile laws": lambda: laws.check_tiles(capacity, window, chunk, tile_size),
    }
    broken = {}
    for name, check in checks.items():
        try:
            check()
        except ValueError as error:
            broken[name] = str(error)
    return Consequence(capacity, window, chunk, tile_size, start, held, needed, lost, broken)
