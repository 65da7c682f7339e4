"""What launches the Triton kernels: grids, strides and constants, and the question whether they can run.

Triton is imported when something is launched, not before.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

from attnlab.ring.triton_blocks import DTYPES, Blocks, choose, padded_head_dim

_LOG2_E = 1.4426950408889634


def obstacle(dtype: torch.dtype, device: torch.device) -> str | None:
    """What keeps the kernels from running on such tensors, or None.

    Returns
    -------
    str or None
        A phrase that follows "the Triton kernels ...".
    """
    if dtype not in DTYPES:
        return f"need float32, bfloat16 or float16, got {dtype}"
    if find_spec("triton") is None:
        return "need the package triton, and it is not installed"
    if device.type == "cuda" or (device.type == "cpu" and _interpreted()):
        return None
    return (
        f"need tensors on a CUDA device (or on the CPU, with TRITON_INTERPRET=1 set from the start), "
        f"got {device}"
    )


def _interpreted() -> bool:
    import triton

    from attnlab.ring.triton_forward import attend

    return not isinstance(attend, triton.runtime.JITFunction)


def check_runs(q: Tensor) -> None:
    """Raise a ValueError if the kernels cannot run on tensors like `q`."""
    if (problem := obstacle(q.dtype, q.device)) is not None:
        raise ValueError(f"the Triton kernels {problem}")


def launch_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    window: int,
    causal: bool,
    position: int,
    keys: int,
    blocks: Blocks,
    padding: Tensor | None = None,
    ring: bool = False,
) -> None:
    """Fill `out` [splits, B, Hq, L, D] and `lse` [splits, B, Hq, L]; the queries start at `position`."""
    from attnlab.ring.triton_forward import attend

    (batch, q_heads, queries, head_dim), kv_heads = q.shape, k.shape[1]
    group = q_heads // kv_heads
    # A bool is a byte of 0 or 1. Without padding the pointer is not read, so any tensor will do.
    bits = lse if padding is None else padding.view(torch.uint8)
    grid = (-(-queries * group // blocks.queries) * batch * kv_heads, out.shape[0])
    with torch.cuda.device_of(q):
        attend[grid](
            q,
            k,
            v,
            bits,
            out,
            lse,
            q.stride(),
            k.stride(),
            v.stride(),
            bits.stride(),
            out.stride(),
            lse.stride(),
            _LOG2_E * head_dim**-0.5,
            kv_heads,
            queries,
            position,
            keys,
            window,
            k.shape[2],
            GROUP=group,
            CAUSAL=causal,
            RING=ring,
            PADDED=padding is not None,
            HEAD_DIM=head_dim,
            BLOCK_Q=blocks.queries,
            BLOCK_K=blocks.keys,
            BLOCK_D=padded_head_dim(head_dim),
            num_warps=blocks.warps,
            num_stages=blocks.stages,
        )


def launch_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    dout: Tensor,
    dlse: Tensor | None,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    window: int,
    causal: bool,
    tiles: tuple[int, int] | None,
) -> None:
    """Fill dq, dk and dv, given the gradients of the output and, perhaps, of the log-sum-exp."""
    from attnlab.ring import triton_backward

    (batch, q_heads, tokens, head_dim), kv_heads = q.shape, k.shape[1]
    group = q_heads // kv_heads
    delta = torch.empty_like(lse)
    upstream = lse if dlse is None else dlse.to(torch.float32).contiguous()
    numbers = (_LOG2_E * head_dim**-0.5, kv_heads, tokens, window)
    fixed = dict(GROUP=group, CAUSAL=causal, HEAD_DIM=head_dim, BLOCK_D=padded_head_dim(head_dim))
    with torch.cuda.device_of(q):
        blocks = choose("query_gradients", q.dtype, head_dim, tiles)
        triton_backward.query_gradients[(-(-tokens * group // blocks.queries) * batch * kv_heads,)](
            *(q, k, v, out, dout, lse, upstream, delta, dq),
            *(x.stride() for x in (q, k, v, out, dout, dq)),
            *numbers,
            **fixed,
            DLSE=dlse is not None,
            **_launch(blocks),
        )
        blocks = choose("key_gradients", q.dtype, head_dim, tiles)
        triton_backward.key_gradients[(-(-tokens // blocks.keys) * batch * kv_heads,)](
            *(q, k, v, dout, lse, delta, dk, dv),
            *(x.stride() for x in (q, k, v, dout, dk, dv)),
            *numbers,
            **fixed,
            **_launch(blocks),
        )


def _launch(blocks: Blocks) -> dict[str, int]:
    return dict(BLOCK_Q=blocks.queries, BLOCK_K=blocks.keys, num_warps=blocks.warps, num_stages=blocks.stages)
