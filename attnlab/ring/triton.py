"""Sliding-window attention and attention over a ring by Triton kernels, for a GPU.

The kernels are in modules of their own, to be read beside `attnlab.ring.tiled`:

- `attnlab.ring.triton_tiles`: which tiles a program visits, and which of those need a mask;
- `attnlab.ring.triton_forward`: the walk over keys that lie in order or in a ring;
- `attnlab.ring.triton_backward`: gradients, dQ in one kernel and dK and dV in another;
- `attnlab.ring.triton_decode`: the merge of what several programs found about the same query.

`ring_attention` (`attnlab.ring.triton_ring`) is for a ring, and `attnlab.ring.triton_launch` launches the
kernels. Triton is imported when one is first run, so this module can be imported without it. On the CPU the
kernels run under Triton's interpreter, if the environment variable ``TRITON_INTERPRET`` is 1 before anything
imports Triton: slowly, one program after the other, in NumPy. Triton 3.6 needs a NumPy before 2.4 for that
(https://github.com/triton-lang/triton/issues/9171).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnlab.ring.order import TileOrder
from attnlab.ring.triton_blocks import choose
from attnlab.ring.triton_launch import check_runs, launch_backward, launch_forward, obstacle
from attnlab.ring.triton_ring import ring_attention

__all__ = ["obstacle", "ring_attention", "sliding_window_attention"]


def sliding_window_attention(
    q: Float[Tensor, "batch q_heads tokens head_dim"],
    k: Float[Tensor, "batch kv_heads tokens head_dim"],
    v: Float[Tensor, "batch kv_heads tokens head_dim"],
    *,
    window: int,
    causal: bool = True,
    order: TileOrder = TileOrder.Q_MAJOR,
    return_lse: bool = False,
    tiles: tuple[int, int] | None = None,
) -> (
    Float[Tensor, "batch q_heads tokens head_dim"]
    | tuple[Float[Tensor, "batch q_heads tokens head_dim"], Float[Tensor, "batch q_heads tokens"]]
):
    """Attention over a sliding window by fused kernels; differentiable once.

    Memory is O(S * D), with no table of weights in either pass.

    Parameters
    ----------
    q : float32, bfloat16 or float16 [B, Hq, S, D]
    k, v : as q, [B, Hkv, S, D]
        Hq is a multiple of Hkv. Strides are free; rows that are contiguous are read fastest.
    window : int
        W. With ``causal``, query p sees the W keys ``p - W < k <= p``, its own included. Without, it sees
        ``|p - k| < W``.
    causal : bool
    order : TileOrder
        Has no effect here, because the loops are fixed: the forward pass and dQ are Q-major, dK and dV are
        K-major. These are the orders that move the fewest bytes.
    return_lse : bool
        Also return the log-sum-exp of the scaled scores; it is differentiable too.
    tiles : (int, int), optional
        Rows of packed queries and of keys in a tile, powers of two from 16; chosen from a table if not given.
        They change speed alone.

    Returns
    -------
    out : as q
    lse : float32 [B, Hq, S]
        Only with ``return_lse``.

    Raises
    ------
    ValueError
        If the kernels cannot run on these tensors, or for other tile sizes.
    """
    check_runs(q)
    out, lse = _Attention.apply(q, k, v, min(window, max(q.shape[2], 1)), causal, tiles)
    return (out, lse) if return_lse else out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        window: int,
        causal: bool,
        tiles: tuple[int, int] | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.settings = window, causal, tiles
        tokens, head_dim = q.shape[2:]
        blocks = choose("forward", q.dtype, head_dim, tiles)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
        if out.numel():
            launch_forward(
                q,
                k,
                v,
                out.unsqueeze(0),
                lse.unsqueeze(0),
                window=window,
                causal=causal,
                position=0,
                keys=tokens,
                blocks=blocks,
            )
        ctx.save_for_backward(q, k, v, out, lse)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        dq, dk, dv = (torch.zeros(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
        if out.numel() and not (dout is None and dlse is None):
            if dout is None:
                dout = out.new_zeros(()).expand(out.shape)
            launch_backward(q, k, v, out, lse, dout, dlse, dq, dk, dv, *ctx.settings)
        return dq, dk, dv, None, None, None
