"""Sliding-window attention fast on the CPU: overlapping blocks without a copy, and PyTorch's own kernel.

A block of T queries sees at most W - 1 + T keys in a row. ``as_strided`` shows the keys of every block side
by side although neighbours overlap, so many blocks go to one call of the fused kernel without copying a key::

    queries  [ head, the first W ][ T ][ T ][ T ][rest]
    keys     [ causal, no mask   ]
                   [  W - 1  + T    ]
                        [  W - 1  + T    ]

The table of which key is visible, T x (W - 1 + T), is the same for all blocks. The backward pass hands the
kernel the same views with the output and log-sum-exp of the forward pass: the weights are recomputed as
exp(S - LSE) block by block, and the key and value gradients of overlapping blocks are added up. Memory is
O(S * D), and the workspace of the backward pass does not grow with S; time is O(S * (W + T) * D).

The kernel is the one that `torch.nn.functional.scaled_dot_product_attention` runs on the CPU, called by its
own name because that function does not return the log-sum-exp. It follows FlashAttention-2 (Dao 2023,
https://arxiv.org/abs/2307.08691).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnlab.intervals import check_whole
from attnlab.ring.order import TileOrder
from attnlab.ring.tuned import tuned_block

__all__ = ["sliding_window_attention"]

_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_kernel_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

# dK and dV of so many blocks at once fit a processor's cache, where the overlaps are then added up.
_WORKSPACE_BYTES = 4 * 2**20


def sliding_window_attention(
    q: Float[Tensor, "batch q_heads tokens head_dim"],
    k: Float[Tensor, "batch kv_heads kv_tokens head_dim"],
    v: Float[Tensor, "batch kv_heads kv_tokens head_dim"],
    *,
    window: int,
    causal: bool = True,
    order: TileOrder = TileOrder.Q_MAJOR,
    return_lse: bool = False,
    block_size: int | None = None,
) -> (
    Float[Tensor, "batch q_heads tokens head_dim"]
    | tuple[Float[Tensor, "batch q_heads tokens head_dim"], Float[Tensor, "batch q_heads tokens"]]
):
    """Attention over a sliding window through overlapping views; CPU tensors only, differentiable once.

    Parameters
    ----------
    q : floating [B, Hq, L, D]
    k, v : floating [B, Hkv, S, D]
        Hq is a multiple of Hkv. Strides are free; a layout that no view can express is copied once. If L < S,
        the queries are the last L tokens.
    window : int
        W. With ``causal``, query p sees the W keys ``p - W < k <= p``, its own included. Without, it sees
        ``|p - k| < W``.
    causal : bool
    order : TileOrder
        Has no effect here: the kernel chooses its own loops.
    return_lse : bool
        Also return the log-sum-exp of the scaled scores; it is differentiable too.
    block_size : int, optional
        T, 1 or more. If not given, it is what ``attnlab tune ring`` found on this machine, or else follows
        from the window; the two passes may differ in it. It changes speed and workspace alone.

    Returns
    -------
    out : as q
    lse : float32, or float64 for float64 inputs, [B, Hq, S]
        Only with ``return_lse``.
    """
    if block_size is None:
        sizes = _block_sizes(window, q.shape[-1], q.dtype)
    else:
        sizes = (check_whole("block_size", block_size, least=1),) * 2
    out, lse = _Blocks.apply(q, k, v, window, causal, sizes)
    return (out, lse) if return_lse else out


def _block_sizes(window: int, head_dim: int, dtype: torch.dtype) -> tuple[int, int]:
    """T of the forward and of the backward pass, found by measuring: less wastes calls, more wastes keys."""
    forward = tuned_block(window, head_dim, dtype, kind="forward")
    backward = tuned_block(window, head_dim, dtype, kind="backward")
    return forward or 32, backward or (64 if window >= 256 else 32)


class _Group(NamedTuple):
    """Blocks of `rows` queries, side by side from row `start` of q; the first one's keys are at `key_start`.

    The first query stands `ahead` tokens after its first key.
    """

    start: int
    blocks: int
    rows: int
    key_start: int
    keys: int
    ahead: int
    mask: Literal["table", "triangle", "none"] = "table"  # the kernel does a causal triangle without a table


def _plan(q_len: int, kv_len: int, window: int, causal: bool, rows: int, most_keys: int) -> Iterator[_Group]:
    """Cut the queries into groups: either end by itself, between them blocks of `most_keys` keys together."""
    before, after = kv_len - q_len, 0 if causal else window - 1  # keys before row 0, and after a query
    start = 0
    if causal and before == 0 and q_len:
        start = min(window, q_len)
        yield _Group(0, 1, start, 0, start, 0, "triangle")
    elif not causal and window >= kv_len and q_len:
        start = q_len
        yield _Group(0, 1, q_len, 0, kv_len, before, "none")
    keys = window - 1 + rows + after
    while start < q_len:
        position = before + start
        whole = (kv_len - after - position) // rows if position >= window - 1 else 0
        if whole > 0:
            blocks = min(whole, max(1, most_keys // keys))
            yield _Group(start, blocks, rows, position - window + 1, keys, window - 1)
            start += blocks * rows
        else:
            stop = min(start + rows, q_len)
            first, last = max(0, position - window + 1), min(before + stop + after, kv_len)
            yield _Group(start, 1, stop - start, first, last - first, position - first)
            start = stop


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, window: int, causal: bool, sizes: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.settings = window, causal, sizes[1]
        group = q.shape[1] // max(k.shape[1], 1)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        lse_dtype = torch.promote_types(q.dtype, torch.float32)
        lse = torch.empty(q.shape[:-1], dtype=lse_dtype, device=q.device)
        mask_of = _masks(window, causal, q.dtype)
        if out.numel():
            keys, values = _joined(k), _joined(v)
            for head in range(group):
                queries = _joined(_every(q, group, head))
                outs, lses = (_every(x, group, head).flatten(0, 1) for x in (out, lse))
                # A group's keys are views and its output is small, so all blocks may form one group.
                for part in _plan(q.shape[2], k.shape[2], window, causal, sizes[0], sys.maxsize):
                    result, sums = _kernel(
                        _query_blocks(queries, part),
                        _key_blocks(keys, part),
                        _key_blocks(values, part),
                        is_causal=part.mask == "triangle",
                        attn_mask=mask_of(part),
                    )
                    _query_blocks(outs, part).copy_(result)
                    _query_blocks(lses, part).copy_(sums)
                    del result, sums  # or they would live beside those of the next group
        ctx.save_for_backward(q, k, v, out, lse)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        window, causal, rows = ctx.settings
        if not q.numel() or (dout is None and dlse is None):
            return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v), None, None, None
        head_dim, group = q.shape[-1], q.shape[1] // k.shape[1]
        if dout is None:
            dout = torch.zeros_like(out)
        if dlse is not None:
            # dS = P * (dP - sum(dout * out) + dlse). The kernel knows no dlse, so it comes in with the sum:
            # one more column, in which out is -dlse, dout is 1 and everything else is 0.
            q, k, v = (torch.nn.functional.pad(x, (0, 1)) for x in (q, k, v))
            out = torch.cat([out, -dlse.to(out.dtype).unsqueeze(-1)], dim=-1)
            dout = torch.nn.functional.pad(dout, (0, 1), value=1.0)
        total = torch.promote_types(q.dtype, torch.float32)  # many blocks add to one row of dK and dV
        dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        dk, dv = (torch.zeros(x.shape, dtype=total, device=q.device) for x in (k, v))
        keys, values = _joined(k), _joined(v)
        mask_of = _masks(window, causal, q.dtype)
        most_keys = _WORKSPACE_BYTES // (keys.shape[0] * 2 * head_dim * q.element_size())
        for head in range(group):
            queries, outs, douts, lses = (_joined(_every(x, group, head)) for x in (q, out, dout, lse))
            dqs = _every(dq, group, head).flatten(0, 1)
            for part in _plan(q.shape[2], k.shape[2], window, causal, rows, most_keys):
                dq_part, dk_part, dv_part = _kernel_backward(
                    _query_blocks(douts, part),
                    _query_blocks(queries, part),
                    _key_blocks(keys, part),
                    _key_blocks(values, part),
                    _query_blocks(outs, part),
                    _query_blocks(lses, part),
                    0.0,
                    part.mask == "triangle",
                    attn_mask=mask_of(part),
                    scale=head_dim**-0.5,
                )
                _query_blocks(dqs, part).copy_(dq_part)
                _add_overlapping(dk.flatten(0, 1), dk_part, part)
                _add_overlapping(dv.flatten(0, 1), dv_part, part)
                del dq_part, dk_part, dv_part  # or they would live beside those of the next group
        return (
            dq[..., :head_dim],
            dk[..., :head_dim].to(k.dtype),
            dv[..., :head_dim].to(v.dtype),
            None,
            None,
            None,
        )


def _every(x: Tensor, group: int, head: int) -> Tensor:
    """Of every `group` query heads, those that share a key head, the one numbered `head`."""
    return x.unflatten(1, (-1, group))[:, :, head]


def _joined(x: Tensor) -> Tensor:
    """Batch and heads as one axis, with rows that are contiguous, as the kernel wants; a view if possible."""
    return (x if x.stride(-1) == 1 else x.contiguous()).flatten(0, 1)


def _blocks(x: Tensor, start: int, blocks: int, step: int, length: int) -> Tensor:
    """Views of ``x[:, start + i * step:][:, :length]`` for i below `blocks`, stacked without a copy."""
    heads, tokens, *rest = x.stride()
    return x.as_strided(
        (blocks, x.shape[0], length, *x.shape[2:]),
        (step * tokens, heads, tokens, *rest),
        x.storage_offset() + start * tokens,
    )


def _query_blocks(x: Tensor, part: _Group) -> Tensor:
    return _blocks(x, part.start, part.blocks, part.rows, part.rows)


def _key_blocks(x: Tensor, part: _Group) -> Tensor:
    return _blocks(x, part.key_start, part.blocks, part.rows, part.keys)


def _add_overlapping(total: Tensor, parts: Tensor, part: _Group) -> None:
    """Add each block's rows where they came from: every c-th block at once, because those do not overlap."""
    apart = -(-part.keys // part.rows)
    for first in range(min(apart, part.blocks)):
        chosen = parts[first::apart]
        start = part.key_start + first * part.rows
        _blocks(total, start, len(chosen), apart * part.rows, part.keys).add_(chosen)


def _masks(window: int, causal: bool, dtype: torch.dtype) -> Callable[[_Group], Tensor | None]:
    """What the kernel adds to the scores of a group; groups of a pass that look alike share one table."""

    @cache
    def table(rows: int, keys: int, ahead: int) -> Tensor | None:
        distance = torch.arange(rows)[:, None] + ahead - torch.arange(keys)
        seen = distance < window
        seen &= (distance >= 0) if causal else (distance > -window)
        return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)

    return lambda part: table(part.rows, part.keys, part.ahead) if part.mask == "table" else None
