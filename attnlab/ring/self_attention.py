"""Self-attention over a ring: chunk by chunk without a graph, in one graph, and of an encoder.

Each function takes a `Call`, moves its state on, and returns the output and the weights (None unless asked
for). What computes depends on what is in the way:

===================================  ========================================================================
a fresh state, nothing but a window  `sliding_window_attention` by the path that ``config.impl`` names
earlier tokens, no graph             `RingCache.attend`, which reads the ring where it lies; on CUDA, or with
                                     ``impl="triton"``, the kernel `attnlab.ring.triton.ring_attention`
earlier tokens, in one graph         `sliding_window_attention` over the earlier rows and the new ones, with
                                     zeros as the queries of the earlier ones; for a segment shorter than
                                     what it looks back on, `masked_attention`
a mask, padding, dropout, weights    `masked_attention`, rows in blocks (padding alone, without a graph, is
                                     left to what reads the ring)
===================================  ========================================================================
"""

from __future__ import annotations

import torch
from torch import Tensor

from .call import Call
from .masked import masked_attention
from .triton import obstacle, ring_attention
from .window import sliding_window_attention

__all__ = ["encode", "in_chunks", "in_one_graph"]

Result = tuple[Tensor, Tensor | None]


@torch.no_grad()
def in_chunks(call: Call) -> Result:
    """Causal attention without a graph: write at most `prefill_size` tokens, attend with them, go on.

    Every row is computed once. The workspace is that of one chunk, which depends on the sizes in the config
    and not on the length; the output itself, and the weights if asked for, have the length of the input.
    """
    if call.plain and call.config.impl == "triton" and (problem := obstacle(call.q.dtype, call.q.device)):
        raise ValueError(f"impl 'triton' does not run: the Triton kernels {problem}")
    out = torch.empty_like(call.q, memory_format=torch.contiguous_format)
    weights = None
    if call.weights is not None:
        heads = () if call.weights == "mean" else (call.q.shape[1],)
        weights = call.q.new_zeros(len(call.q), *heads, call.q.shape[2], call.keys)
    for start in range(0, max(1, call.q.shape[2]), call.config.prefill_size):  # no tokens may be a rollback
        rows = slice(start, min(start + call.config.prefill_size, call.q.shape[2]))
        out[:, :, rows], part = _chunk(call, rows)
        if weights is not None and part is not None:
            first = call.state.position - part.shape[-1] - call.first_key
            weights[..., rows, first : first + part.shape[-1]] = part
    return out, weights


def _chunk(call: Call, rows: slice) -> Result:
    assert call.k is not None and call.v is not None
    state, q, k, v = call.state, call.q[:, :, rows], call.k[:, :, rows], call.v[:, :, rows]
    padding = None if call.padding is None else call.padding[:, rows]
    position = call.position + rows.start
    if call.plain and padding is None and position == 0:
        out = _over_the_window(call, q, k, v)
        state.write(k, v, position=position)
        return out, None
    state.write(k, v, padding, position=position)
    if call.plain:
        return _over_the_ring(call, q), None
    first = max(0, position - call.config.visible_keys + 1)
    keys, values, padded = state.rows(first, state.position)
    mask = call.mask_part(rows, first, state.position)
    out, _, weights = masked_attention(
        q, keys, values, window=call.config.visible_keys, q_position=position, k_position=first,
        padding=padded, att_mask=mask, **call.settings(state.seed),
    )  # fmt: skip
    return out, weights


def in_one_graph(call: Call) -> Result:
    """Causal attention of a whole segment inside autograd, through the rows that the state has kept.

    It saves O(L * d) for the backward pass where `sliding_window_attention` computes, and O(L * W) where
    `masked_attention` does.
    """
    assert call.k is not None and call.v is not None
    state, window, length = call.state, call.config.visible_keys, call.q.shape[2]
    first, k, v, padding = call.first_key, call.k, call.v, call.padding
    if before := call.position - first:
        old_k, old_v, old_padding = state.rows(first, call.position)
        # The ring's own rows are copied here, so that autograd keeps nothing which is written over later.
        k, v = torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2)
        if padding is not None or state.padding_from(first) is not None:
            new = old_padding.new_zeros(len(k), length) if padding is None else padding
            padding = torch.cat([old_padding, new], dim=1)

    weights = None
    if call.plain and padding is None and before <= length:
        q = torch.nn.functional.pad(call.q, (0, 0, before, 0))
        out = _over_the_window(call, q, k, v)[:, :, before:]
    else:
        out, _, weights = masked_attention(
            call.q, k, v, window=window, q_position=call.position, k_position=first, padding=padding,
            att_mask=call.att_mask, **call.settings(state.seed),
        )  # fmt: skip
    state.write(call.k, call.v, call.padding, position=call.position, graph=(k, v))
    return out, weights


def encode(call: Call) -> Result:
    """Attention to both sides, ``|p - k| < W``, of a sequence that is written once and kept whole."""
    assert call.k is not None and call.v is not None
    window, weights = call.config.visible_keys, None
    if call.plain and call.padding is None:
        out = _over_the_window(call, call.q, call.k, call.v)
    else:
        out, _, weights = masked_attention(
            call.q, call.k, call.v, window=window, causal=False, padding=call.padding,
            att_mask=call.att_mask, **call.settings(call.state.seed),
        )  # fmt: skip
    graph = (call.k, call.v) if call.graph else None
    call.state.write(call.k, call.v, call.padding, position=0, graph=graph)
    return out, weights


def _over_the_ring(call: Call, q: Tensor) -> Tensor:
    """Attention of the newest tokens, which have just been written."""
    cache, config = call.state.cache, call.config
    by_kernel = config.impl == "triton" or (
        config.impl == "auto"
        and q.is_cuda
        and config.kernel_law is None
        and obstacle(q.dtype, q.device) is None
    )
    if not by_kernel:
        out = cache.attend(q)
    else:
        out = ring_attention(
            q, cache.k, cache.v, window=config.visible_keys, written=cache.position, highest=cache.highest,
            padding=call.state.padding_from(max(0, cache.position - q.shape[2] - config.visible_keys + 1)),
        )  # fmt: skip
    assert isinstance(out, Tensor)
    return out


def _over_the_window(call: Call, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    config = call.config
    out = sliding_window_attention(
        q, k, v, window=config.visible_keys, causal=config.causal, order=call.order, impl=config.impl
    )
    assert isinstance(out, Tensor)
    return out
