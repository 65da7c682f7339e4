"""Sliding-window attention tile by tile: a walk that says what happens, and attention that obeys it.

`walk` turns a tile map and an order into a list of events: load this tile, compute, merge, store, skip that
one. `sliding_window_attention` does exactly what the events say and holds nothing else, so a picture that
replays the events shows what ran, and a tile without a load event has not been read.

Between tiles a query tile carries m (the largest score so far), l (the sum of exp(score - m)) and O (the same
sum over values); `attnlab.attention` has the equation. Scores are compared with positions in edge tiles only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnlab import intervals, masks
from attnlab.ring.order import TileOrder
from attnlab.tiles import EDGE, PARTIAL_BYTES, SKIP, TileMap, tile_map

__all__ = ["Event", "sliding_window_attention", "walk", "window_mask"]


@dataclass(frozen=True)
class Event:
    """One step of the walk.

    Attributes
    ----------
    kind : "load", "compute", "merge", "skip" or "store"
    tensor : "q", "k", "v", "o", "partial" or ""
        What a load or a store moves. ``partial`` is the unfinished (m, l, O) of a query tile.
    q_tile, k_tile : int
        The tile being visited; for a store, the query tile that leaves and the key tile last merged into it.
    bytes : int
        Moved for one head of one sequence; 0 unless the event is a load or a store.
    """

    kind: Literal["load", "compute", "merge", "skip", "store"]
    tensor: Literal["q", "k", "v", "o", "partial", ""]
    q_tile: int
    k_tile: int
    bytes: int = 0


def window_mask(window: int, causal: bool) -> masks.Mask:
    """The window as a mask: ``p - W < k <= p``, W keys, if `causal`, and ``|p - k| < W`` otherwise."""
    if causal:
        return masks.causal() & masks.sliding_window(window)
    return masks.Mask(
        f"two-sided window({window})",
        lambda place: lambda b, h, q_idx, kv_idx: (kv_idx > q_idx - window) & (kv_idx < q_idx + window),
        lambda q_len, kv_len: intervals.single(
            np.arange(q_len) - window + 1, np.arange(q_len) + window, q_len, kv_len
        ),
        (None, None),
    )


def walk(
    tiles: TileMap,
    order: TileOrder = TileOrder.Q_MAJOR,
    *,
    head_dim: int,
    bytes_per_element: int,
    visits: Sequence[tuple[int, int]] | None = None,
) -> Iterator[Event]:
    """Say what a loop over the tiles loads, computes, merges, skips and stores, in order.

    The chip holds one tile of each tensor. The outer tile stays while it is the same; what belongs to the
    inner loop is loaded at every visit. Summed by tensor, the bytes are those of `TileMap.traffic`.

    Parameters
    ----------
    tiles : TileMap
    order : TileOrder
        The outer loop.
    head_dim : int
    bytes_per_element : int
        Of q, k, v and o; the partial state is counted in float32.
    visits : sequence of (query tile, key tile), optional
        Visit these in this order, every visited tile once, in place of the loop nest; no skips are told.

    Yields
    ------
    Event
    """
    if visits is None:
        nq, nk = tiles.kinds.shape
        if order is TileOrder.Q_MAJOR:
            visits = [(i, j) for i in range(nq) for j in range(nk)]
        else:
            visits = [(i, j) for j in range(nk) for i in range(nq)]
    q_major = order is TileOrder.Q_MAJOR
    left = np.count_nonzero(tiles.kinds, axis=1)  # key tiles that each query tile still waits for
    begun = np.zeros(len(left), np.bool_)
    row_bytes = head_dim * bytes_per_element
    held: tuple[int, int] | None = None  # the tile whose query side, or key side, is still on chip

    def height(i: int) -> int:
        return min(tiles.block_q, tiles.q_len - i * tiles.block_q)

    def width(j: int) -> int:
        return min(tiles.block_kv, tiles.kv_len - j * tiles.block_kv)

    def evict(i: int, j: int) -> Event:
        if left[i]:
            return Event("store", "partial", i, j, height(i) * (head_dim + 2) * PARTIAL_BYTES)
        return Event("store", "o", i, j, height(i) * row_bytes)

    for i, j in visits:
        if tiles.kinds[i, j] == SKIP:
            yield Event("skip", "", i, j)
            continue
        if q_major and held is not None and held[0] != i:
            yield evict(*held)
        if not q_major or held is None or held[0] != i:
            yield Event("load", "q", i, j, height(i) * row_bytes)
            if begun[i]:
                yield Event("load", "partial", i, j, height(i) * (head_dim + 2) * PARTIAL_BYTES)
        if q_major or held is None or held[1] != j:
            yield Event("load", "k", i, j, width(j) * row_bytes)
            yield Event("load", "v", i, j, width(j) * row_bytes)
        yield Event("compute", "", i, j)
        yield Event("merge", "", i, j)
        begun[i] = True
        left[i] -= 1
        held = (i, j)
        if not q_major:
            yield evict(i, j)
    if q_major and held is not None:
        yield evict(*held)


def sliding_window_attention(
    q: Float[Tensor, "batch q_heads tokens head_dim"],
    k: Float[Tensor, "batch kv_heads tokens head_dim"],
    v: Float[Tensor, "batch kv_heads tokens head_dim"],
    *,
    window: int,
    causal: bool = True,
    order: TileOrder = TileOrder.Q_MAJOR,
    return_lse: bool = False,
    tile_size: int = 64,
    visits: Sequence[tuple[int, int]] | None = None,
    events: list[Event] | None = None,
) -> (
    Float[Tensor, "batch q_heads tokens head_dim"]
    | tuple[Float[Tensor, "batch q_heads tokens head_dim"], Float[Tensor, "batch q_heads tokens"]]
):
    """Attention over a sliding window with online softmax, by obeying `walk`; differentiable by autograd.

    Parameters
    ----------
    q : floating [B, Hq, S, D]
    k, v : floating [B, Hkv, S, D]
        Hq is a multiple of Hkv; the query heads of one key head share each load.
    window : int
        W. With ``causal``, query p sees the W keys ``p - W < k <= p``, its own included. Without, it sees
        ``|p - k| < W``.
    causal : bool
    order : TileOrder
        The outer loop. This path follows it.
    return_lse : bool
        Also return the log-sum-exp of the scaled scores.
    tile_size : int
        Side of a tile in tokens, 1 or more.
    visits : sequence of (query tile, key tile), optional
        As in `walk`: another order of the same tiles.
    events : list, optional
        Receives every event of the walk, in order. The bytes are those of one head of one sequence.

    Returns
    -------
    out : as q
    lse : float32, or float64 for float64 inputs, [B, Hq, S]
        Only with ``return_lse``.
    """
    _, q_heads, tokens, head_dim = q.shape
    exact = torch.promote_types(q.dtype, torch.float32)  # of scores, m, l and O
    # Query heads in groups that share a key head: [B, Hkv, G, S, D] against [B, Hkv, 1, S, D].
    group = q_heads // max(k.shape[1], 1)
    sides = {"q": q.unflatten(1, (k.shape[1], group)), "k": k.unsqueeze(2), "v": v.unsqueeze(2)}
    mask = window_mask(window, causal)
    tiles = tile_map(mask, tokens, tokens, tile_size)
    chip: dict[str, Tensor] = {}
    on_chip: tuple[Tensor, Tensor, Tensor] | None = None  # (m, l, O)
    memory: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # unfinished (m, l, O) by query tile
    finished: dict[int, tuple[Tensor, Tensor]] = {}
    scores = q.new_empty(0)

    for event in walk(tiles, order, head_dim=head_dim, bytes_per_element=q.element_size(), visits=visits):
        if events is not None:
            events.append(event)
        i, j = event.q_tile, event.k_tile
        if event.kind == "load" and event.tensor == "partial":
            on_chip = memory.pop(i)
        elif event.kind == "load":
            first = (i if event.tensor == "q" else j) * tile_size
            chip[event.tensor] = sides[event.tensor][..., first : first + tile_size, :].to(exact)
        elif event.kind == "compute":
            scores = chip["q"] @ chip["k"].mT * head_dim**-0.5
            if tiles.kinds[i, j] == EDGE:
                rows = torch.arange(scores.shape[-2], device=q.device) + i * tile_size
                columns = torch.arange(scores.shape[-1], device=q.device) + j * tile_size
                scores = torch.where(mask(0, 0, rows[:, None], columns), scores, -torch.inf)
        elif event.kind == "merge":
            on_chip = _merge(on_chip, scores, chip["v"])
        elif event.kind == "store":
            assert on_chip is not None
            if event.tensor == "partial":
                memory[i] = on_chip
            else:
                m, l, o = on_chip  # noqa: E741 (the papers' letter)
                finished[i] = (o / l).to(q.dtype), (m + l.log()).squeeze(-1)
            on_chip = None
    if tokens == 0:  # there is no tile, and what comes out is as empty as the inputs
        scores = sides["q"] @ sides["k"].mT
        finished[0] = scores @ sides["v"], scores.sum(dim=-1, dtype=exact)
    # Every query sees its own key, so every query tile has been finished.
    outs, lses = zip(*(finished[i] for i in range(len(finished))), strict=True)
    out, lse = torch.cat(outs, dim=-2).flatten(1, 2), torch.cat(lses, dim=-1).flatten(1, 2)
    return (out, lse) if return_lse else out


def _merge(
    state: tuple[Tensor, Tensor, Tensor] | None, scores: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Merge one tile of scores and its values into (m, l, O); m and l are columns, [..., rows, 1]."""
    # The result does not depend on m, so m needs no gradient.
    m = scores.detach().amax(dim=-1, keepdim=True)
    if state is not None:
        m = torch.maximum(m, state[0].detach())
    finite = m.masked_fill(m == -torch.inf, 0)  # a row that has seen nothing yet would give -inf - -inf
    weights = (scores - finite).exp()
    l, o = weights.sum(dim=-1, keepdim=True), weights @ v  # noqa: E741
    if state is not None:
        shrink = (state[0] - finite).exp()
        l, o = l + shrink * state[1], o + shrink * state[2]  # noqa: E741
    return m, l, o
