"""Sliding-window attention over a two-level tile map: whole blocks without a mask, small tiles on the edges.

A dense block is one product with no mask. An edge block is computed tile by tile, and only its edge tiles
compare positions: on the diagonal, and on the far edge of the window. What is skipped is never read. The
partial results merge in any order, so each tile row keeps its own (m, l, O) and a block gives each of its
tile rows a share; `attnlab.attention` has the equation.

The query heads of one K/V head are taken `head_tile_size` at a time, and those share each load of K and V.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.intervals import check_whole
from attnlab.ring.checks import check_tensor
from attnlab.ring.levels import TwoLevelMap, Visit, two_level_map
from attnlab.ring.order import TileOrder
from attnlab.ring.rows import WORK_DTYPE
from attnlab.ring.tiled import window_mask
from attnlab.tiles import EDGE

__all__ = ["Counters", "TwoLevelMap", "Visit", "two_level_attention", "two_level_map"]

Triple = tuple[Tensor, Tensor, Tensor]


@dataclass
class Counters:
    """What `two_level_attention` did, for one K/V head of one sequence and all its query heads.

    Attributes
    ----------
    dense_blocks, dense_tiles : int
        Computed without a mask, once for each tile of query heads.
    masked_tiles : int
        Computed with the mask.
    kv_loads : int
        How often a piece of K, with the same piece of V, was loaded. One that the next visit reads too stays.
    kv_rows : int
        Rows of K in those loads.
    """

    dense_blocks: int = 0
    dense_tiles: int = 0
    masked_tiles: int = 0
    kv_loads: int = 0
    kv_rows: int = 0


def two_level_attention(
    q: Float[Tensor, "batch q_heads tokens head_dim"],
    k: Float[Tensor, "batch kv_heads tokens head_dim"],
    v: Float[Tensor, "batch kv_heads tokens head_dim"],
    *,
    window: int,
    causal: bool = True,
    order: TileOrder = TileOrder.Q_MAJOR,
    block_size: int = 128,
    tile_size: int = 32,
    head_tile_size: int | None = None,
    return_lse: bool = False,
    counters: Counters | None = None,
) -> (
    Float[Tensor, "batch q_heads tokens head_dim"]
    | tuple[Float[Tensor, "batch q_heads tokens head_dim"], Float[Tensor, "batch q_heads tokens"]]
):
    """softmax(q k^T / sqrt(D)) v over the window, as `TwoLevelMap.visits` says; differentiable.

    Parameters
    ----------
    q : float64, float32, bfloat16 or float16 [B, Hq, S, D]
    k, v : as q, [B, Hkv, S, D]
        Hq is a multiple of Hkv; query head h reads key head ``h // (Hq // Hkv)``.
    window : int
        W. With ``causal``, query p sees the W keys ``p - W < k <= p``, its own included. Without, it sees
        ``|p - k| < W``.
    causal : bool
    order : TileOrder
        The outer loop. This path follows it.
    block_size, tile_size : int
        Sides in tokens; `block_size` is a multiple of `tile_size`.
    head_tile_size : int, optional
        Query heads that share each load of K and V. It need not divide the Hq / Hkv that read one K/V head;
        all of them share if it is not given.
    return_lse : bool
        Also return the log-sum-exp of the scaled scores.
    counters : Counters, optional
        Has what was done added to it.

    Returns
    -------
    out : as q
    lse : float32, or float64 for float64 inputs, [B, Hq, S]
        Only with ``return_lse``.

    Raises
    ------
    TypeError
        If q, k or v is not a tensor of one of those dtypes, k or v has another dtype than q, or a number is
        no int.
    ValueError
        If shapes or devices do not belong together, a number is below 1, or `block_size` is no multiple of
        `tile_size`.
    """
    window = check_whole("window", window, least=1)
    for name, flag in (("causal", causal), ("return_lse", return_lse)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be a bool, got {type(flag).__name__}")
    group = _check(q, k, v)
    heads = check_whole("head_tile_size", group if head_tile_size is None else head_tile_size, least=1)
    tokens = q.shape[2]
    counters = Counters() if counters is None else counters
    mask = window_mask(window, causal)
    plan = two_level_map(mask, tokens, tokens, block_size, tile_size)
    exact = WORK_DTYPE[q.dtype]
    grouped = q.unflatten(1, (k.shape[1], group))

    if tokens == 0:  # nothing is visited, and what comes out is as empty as the inputs
        scores = grouped @ k.unsqueeze(2).mT
        out, lse = (scores @ v.unsqueeze(2)).flatten(1, 2), scores.sum(dim=-1, dtype=exact).flatten(1, 2)
        return (out, lse) if return_lse else out

    outs, lses = [], []
    for queries in grouped.split(heads, dim=2):
        held, keys, values = None, k, v
        none_yet = queries.new_zeros((*queries.shape[:-1], 1), dtype=exact)
        start = none_yet - torch.inf, none_yet, none_yet.expand_as(queries)
        rows: list[Triple] = list(zip(*(x.split(tile_size, dim=-2) for x in start), strict=True))
        for visit in plan.visits(order):
            if held != (visit.k_start, visit.k_stop):
                held = visit.k_start, visit.k_stop
                keys, values = (x[:, :, None, slice(*held)].to(exact) for x in (k, v))
                counters.kv_loads += 1
                counters.kv_rows += visit.k_stop - visit.k_start
            scores = queries[:, :, :, visit.q_start : visit.q_stop].to(exact) @ keys.mT * q.shape[-1] ** -0.5
            if visit.kind == EDGE:
                p, n = (torch.arange(*ends, device=q.device) for ends in (visit[:2], visit[2:4]))
                scores = torch.where(mask(0, 0, p[:, None], n), scores, -torch.inf)
                counters.masked_tiles += 1
            elif visit.q_stop - visit.q_start == block_size:
                counters.dense_blocks += 1
            else:
                counters.dense_tiles += 1
            shares = [x.split(tile_size, dim=-2) for x in _partial(scores, values)]
            for row, share in enumerate(zip(*shares, strict=True), visit.q_start // tile_size):
                rows[row] = _merge(rows[row], share)
        m, l, o = (torch.cat(x, dim=-2) for x in zip(*rows, strict=True))  # noqa: E741
        outs.append((o / l).to(q.dtype))
        lses.append((m + l.log()).squeeze(-1))
    out, lse = (torch.cat(x, dim=2).flatten(1, 2) for x in (outs, lses))
    return (out, lse) if return_lse else out


def _partial(scores: Tensor, values: Tensor) -> Triple:
    """(m, l, O) of one piece alone; m and l are columns, [..., rows, 1]."""
    m = scores.detach().amax(dim=-1, keepdim=True)  # the result does not depend on m: it needs no gradient
    weights = (scores - _finite(m)).exp()
    return m, weights.sum(dim=-1, keepdim=True), weights @ values


def _merge(state: Triple, share: Triple) -> Triple:
    """Bring two parts to a common maximum and add them."""
    m = torch.maximum(state[0], share[0])
    a, b = ((part[0] - _finite(m)).exp() for part in (state, share))
    return m, a * state[1] + b * share[1], a * state[2] + b * share[2]


def _finite(m: Tensor) -> Tensor:
    """0 in place of -inf: a row that has seen nothing yet would meet -inf - -inf, which is NaN."""
    return m.masked_fill(m == -torch.inf, 0)


def _check(q: Tensor, k: Tensor, v: Tensor) -> int:
    """Return how many query heads read one K/V head, or raise."""
    check_tensor("q", q, (None, None, None, None), q)
    if q.dtype not in WORK_DTYPE:
        raise TypeError(f"q must be float64, float32, bfloat16 or float16; got {q.dtype}")
    check_tensor("k", k, (q.shape[0], None, q.shape[2], q.shape[3]), q)
    check_tensor("v", v, tuple(k.shape), q)
    if k.shape[1] == 0 or q.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"k must have heads that divide the {q.shape[1]} of q; got {k.shape[1]}")
    return q.shape[1] // k.shape[1]
