"""A walk over tiles, event by event, gathered into steps: one for each tile that is visited.

Nothing is computed here but sums. The events are those of `attnlab.ring.tiled.walk`, which the tiled
attention obeys; the running (m, l, O) is merged by `attnlab.attention`, as the steps say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from attnlab.attention import merge_mlo, partial_attention
from attnlab.tiles import TileMap

if TYPE_CHECKING:
    from attnlab.ring.tiled import Event

__all__ = ["TENSORS", "RowSoFar", "Step", "row_so_far", "steps_of"]

TENSORS = ("q", "k", "v", "o", "partial")


@dataclass(frozen=True)
class Step:
    """One visit, with what was loaded for it and what has been moved up to its end.

    Attributes
    ----------
    q_tile, k_tile : int
    loaded : tuple of str
        The tensors that were loaded for this visit; the others were on chip already, or begin here.
    stored : tuple of str
        What left the chip after it: "o", "partial" or nothing.
    moved : dict
        Bytes so far by tensor, of one head of one sequence.
    skipped : int
        Tiles that have been passed over so far.
    """

    q_tile: int
    k_tile: int
    loaded: tuple[str, ...]
    stored: tuple[str, ...]
    moved: dict[str, int]
    skipped: int


@dataclass(frozen=True)
class RowSoFar:
    """The running state of one query: (m, l, O) over the keys seen so far.

    Attributes
    ----------
    query : int
        Its position.
    seen, visible : int
        Keys merged so far, and keys that it will have seen in the end.
    m, l : float
        The largest score, and the sum of exp(score - m).
    o : float64 array [D]
        The sum of exp(score - m) times value.
    """

    query: int
    seen: int
    visible: int
    m: float
    l: float  # noqa: E741 (the papers' letter)
    o: Float64[np.ndarray, " head_dim"]


def steps_of(events: Iterable[Event]) -> list[Step]:
    """Gather events into steps; a step ends before the first load that follows its merge.

    Raises
    ------
    ValueError
        If there is no merge among the events.
    """
    groups: list[list[Event]] = [[]]
    for event in events:
        if event.kind == "load" and any(e.kind == "merge" for e in groups[-1]):
            groups.append([])
        groups[-1].append(event)
    moved, skipped, steps = dict.fromkeys(TENSORS, 0), 0, []
    for group in groups:
        for event in group:
            if event.tensor:
                moved[event.tensor] += event.bytes
        skipped += sum(event.kind == "skip" for event in group)
        merge = next((event for event in group if event.kind == "merge"), None)
        if merge is None:
            raise ValueError("events must hold at least one merge, got none")
        loaded, stored = (tuple(e.tensor for e in group if e.kind == kind) for kind in ("load", "store"))
        steps.append(Step(merge.q_tile, merge.k_tile, loaded, stored, dict(moved), skipped))
    return steps


def row_so_far(
    tiles: TileMap, steps: Sequence[Step], offset: int, *, head_dim: int, seed: int = 0
) -> RowSoFar:
    """Merge, for one row of the last step's query tile, all that the steps have visited of it.

    Parameters
    ----------
    tiles : TileMap
    steps : sequence of Step
        The steps so far, at least one.
    offset : int
        Which row of the query tile.
    head_dim : int
        D of the random data.
    seed : int
        Of the data; the query and the keys depend on it and on the lengths alone.

    Raises
    ------
    ValueError
        If the query tile has no such row, or there is no step.
    """
    if not steps:
        raise ValueError("steps must hold at least one step, got none")
    tile = steps[-1].q_tile
    query = tile * tiles.block_q + offset
    if not 0 <= offset < tiles.block_q or query >= tiles.q_len:
        raise ValueError(f"offset must name a row of query tile {tile}, got {offset}")
    rng = np.random.default_rng(seed)
    k, v = rng.standard_normal((2, tiles.kv_len, head_dim))
    q = rng.standard_normal((tiles.q_len, head_dim))[query : query + 1]
    visible = tiles.mask.dense_rows(query, query + 1, tiles.kv_len)
    state = (np.full(1, -np.inf), np.zeros(1), np.zeros((1, head_dim)))
    seen = 0
    for step in steps:
        if step.q_tile == tile:
            keys = slice(step.k_tile * tiles.block_kv, (step.k_tile + 1) * tiles.block_kv)
            state = merge_mlo(state, partial_attention(q, k[keys], v[keys], visible[:, keys]))
            seen += int(visible[:, keys].sum())
    m, l, o = state  # noqa: E741
    return RowSoFar(query, seen, int(visible.sum()), float(m[0]), float(l[0]), o[0])
