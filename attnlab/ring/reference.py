"""Sliding-window attention by its definition, densely and in float64: what every other path must equal."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from attnlab.ring.order import TileOrder

__all__ = ["sliding_window_attention"]


def sliding_window_attention(
    q: Float[Tensor, "batch q_heads tokens head_dim"],
    k: Float[Tensor, "batch kv_heads tokens head_dim"],
    v: Float[Tensor, "batch kv_heads tokens head_dim"],
    *,
    window: int,
    causal: bool = True,
    order: TileOrder = TileOrder.Q_MAJOR,
    return_lse: bool = False,
) -> (
    Float64[Tensor, "batch q_heads tokens head_dim"]
    | tuple[Float64[Tensor, "batch q_heads tokens head_dim"], Float64[Tensor, "batch q_heads tokens"]]
):
    """softmax(q k^T / sqrt(head_dim)) v over the window, with the whole table of scores in memory.

    Parameters
    ----------
    q : floating [B, Hq, S, D]
    k, v : floating [B, Hkv, S, D]
        Hq is a multiple of Hkv; query head h reads key head ``h // (Hq // Hkv)``.
    window : int
        W. With ``causal``, query p sees the W keys ``p - W < k <= p``, its own included. Without, it sees
        ``|p - k| < W``: its own and W - 1 on either side.
    causal : bool
    order : TileOrder
        Has no effect here: there are no tiles.
    return_lse : bool
        Also return the log-sum-exp of the scaled scores.

    Returns
    -------
    out : float64 [B, Hq, S, D]
    lse : float64 [B, Hq, S]
        Only with ``return_lse``. Both are differentiable by autograd.
    """
    group = q.shape[1] // max(k.shape[1], 1)
    q, k, v = q.double(), k.double(), v.double()
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    position = torch.arange(q.shape[2], device=q.device)
    distance = position[:, None] - position
    seen = distance < window
    seen &= (distance >= 0) if causal else (distance > -window)
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~seen, -torch.inf)
    out = scores.softmax(dim=-1) @ v
    return (out, scores.logsumexp(dim=-1)) if return_lse else out
