"""Attention of one segment of a sequence, forward and backward, from its own rows and the W - 1 before it.

Forward, the segment [a, b) reads the keys and values of the positions a - W + 1 to b - 1. Backward it gives
gradient to the same rows. The weights are recomputed from the log-sum-exp as P = exp(S - LSE), and with
delta = sum(dO * O) of a row::

    dV = P^T dO    dP = dO V^T    dS = P * (dP - delta)    dQ = scale dS K    dK = scale dS^T Q

These are the equations of FlashAttention (Dao et al. 2022, https://arxiv.org/abs/2205.14135). Queries are
taken a few at a time, so that the table of scores has no more than those rows and W - 1 columns besides.
Nothing is recorded for autograd. Arguments are checked by the callers.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from .rows import QUERY_ROWS, WORK_DTYPE

__all__ = ["first_key", "segment_backward", "segment_forward"]


def first_key(start: int, window: int) -> int:
    """The oldest position that a segment from `start` on sees, ``max(0, start - W + 1)``."""
    return max(0, start - window + 1)


@torch.no_grad()
def segment_forward(
    q: Float[Tensor, "batch q_heads tokens head_dim"],
    k: Float[Tensor, "batch kv_heads keys head_dim"],
    v: Float[Tensor, "batch kv_heads keys head_dim"],
    start: int,
    *,
    window: int,
) -> tuple[Float[Tensor, "batch q_heads tokens head_dim"], Float[Tensor, "batch q_heads tokens"]]:
    """Causal sliding-window attention of the positions a = `start` to b - 1.

    Parameters
    ----------
    q : floating [B, Hq, b - a, D]
        Query head h reads key head ``h // (Hq / H_kv)``; scores are scaled by ``1 / sqrt(D)``.
    k, v : as q, [B, H_kv, b - first, D]
        Of the positions ``first = max(0, a - W + 1)`` to b - 1.
    start : int
        a.
    window : int
        W, keys visible to a query, its own included.

    Returns
    -------
    out : as q
    lse : float32, or float64 for float64 inputs, [B, Hq, b - a]
    """
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = q.new_empty(q.shape[:3], dtype=WORK_DTYPE[q.dtype])
    for rows, keys in _blocks(start, q.shape[2], window):
        scores = _scores(q, k, start, rows, keys, window)
        sums = scores.logsumexp(dim=-1)
        weights = (scores - sums.unsqueeze(-1)).exp_()
        values = v[:, :, None, keys].to(scores.dtype)
        out[:, :, rows] = (weights @ values).flatten(1, 2).to(out.dtype)
        lse[:, :, rows] = sums.flatten(1, 2)
    return out, lse


@torch.no_grad()
def segment_backward(
    q: Float[Tensor, "batch q_heads tokens head_dim"],
    k: Float[Tensor, "batch kv_heads keys head_dim"],
    v: Float[Tensor, "batch kv_heads keys head_dim"],
    out: Float[Tensor, "batch q_heads tokens head_dim"],
    lse: Float[Tensor, "batch q_heads tokens"],
    dout: Float[Tensor, "batch q_heads tokens head_dim"],
    start: int,
    *,
    window: int,
) -> tuple[
    Float[Tensor, "batch q_heads tokens head_dim"],
    Float[Tensor, "batch kv_heads keys head_dim"],
    Float[Tensor, "batch kv_heads keys head_dim"],
]:
    """What the queries of a segment give to dQ, dK and dV; arguments as in `segment_forward`.

    Parameters
    ----------
    out, lse
        What `segment_forward` returned, or any other path.
    dout : as q
        The gradient of `out`.

    Returns
    -------
    dq : as q
        Finished.
    dk, dv : float32, or float64 for float64 inputs, [B, H_kv, b - first, D]
        This segment's share, of every key it sees. Later queries have theirs to add.
    """
    work, scale = WORK_DTYPE[q.dtype], q.shape[-1] ** -0.5
    dq = torch.empty_like(q, memory_format=torch.contiguous_format)
    dk, dv = (torch.zeros(x.shape, dtype=work, device=x.device) for x in (k, v))
    for rows, keys in _blocks(start, q.shape[2], window):
        queries, outs, douts = (_grouped(x, rows, k.shape[1]).to(work) for x in (q, out, dout))
        weights = _scores(q, k, start, rows, keys, window)
        weights = weights.sub_(_grouped(lse, rows, k.shape[1]).unsqueeze(-1)).exp_()
        delta = (douts * outs).sum(dim=-1, keepdim=True)
        dscores = douts @ v[:, :, None, keys].to(work).mT
        dscores = dscores.sub_(delta).mul_(weights).mul_(scale)
        dq[:, :, rows] = (dscores @ k[:, :, None, keys].to(work)).flatten(1, 2).to(dq.dtype)
        # Query heads that share a key head are more rows to sum over.
        dk[:, :, keys] += dscores.flatten(2, 3).mT @ queries.flatten(2, 3)
        dv[:, :, keys] += weights.flatten(2, 3).mT @ douts.flatten(2, 3)
    return dq, dk, dv


def _blocks(start: int, tokens: int, window: int) -> Iterator[tuple[slice, slice]]:
    """A few queries at a time and the keys they see, as slices of the segment's rows and of its keys."""
    first = first_key(start, window)
    for row in range(0, tokens, QUERY_ROWS):
        stop = min(row + QUERY_ROWS, tokens)
        yield slice(row, stop), slice(first_key(start + row, window) - first, start + stop - first)


def _grouped(x: Tensor, rows: slice, kv_heads: int) -> Tensor:
    """These rows, with the query heads that share a key head on an axis of their own."""
    return x[:, :, rows].unflatten(1, (kv_heads, -1))


def _scores(q: Tensor, k: Tensor, start: int, rows: slice, keys: slice, window: int) -> Tensor:
    """Scaled scores, [B, H_kv, G, rows, keys], and -inf where a key is not in the window."""
    work, first = WORK_DTYPE[q.dtype], first_key(start, window)
    queries = _grouped(q, rows, k.shape[1]).to(work) * q.shape[-1] ** -0.5
    scores = queries @ k[:, :, None, keys].to(work).mT
    positions = torch.arange(start + rows.start, start + rows.stop, device=q.device)
    ahead = torch.arange(first + keys.start, first + keys.stop, device=q.device) - positions[:, None]
    return scores.masked_fill_((ahead > 0) | (ahead <= -window), -torch.inf)
