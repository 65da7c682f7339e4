"""Cross-attention: a decoder's queries over every key that an encoder wrote, without causal order."""

from __future__ import annotations

import torch
from torch import Tensor

from .call import Call
from .masked import masked_attention

__all__ = ["cross_attention"]


def cross_attention(call: Call) -> tuple[Tensor, Tensor | None]:
    """Attend to all n keys of an encoder's state, which is read and not changed.

    PyTorch's fused kernel computes where nothing but the keys decides; `masked_attention` where there is a
    mask, padding, dropout, or weights are wanted. `Call.padding` adds to the bits that the encoder stored.

    Returns
    -------
    out : [B, Hq, L, D]
        0 where a query sees nothing; part of the graph if the queries or the encoder's rows are.
    weights : [B, L, n], [B, Hq, L, n] or None
    """
    state = call.state
    k, v, padding = state.rows(0, state.position)
    if call.padding is not None:
        padding = padding | call.padding
    if call.plain and not padding.any():
        # Repeated heads would be copies; the kernel shares them.
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(call.q, k, v, enable_gqa=k.shape[1] != call.q.shape[1]), None
    # Another key than that of the encoder's own dropout: its weights and these share their coordinates.
    out, _, weights = masked_attention(
        call.q, k, v, window=None, causal=False, q_position=call.position, padding=padding,
        att_mask=call.att_mask, **call.settings(state.seed ^ 1),
    )  # fmt: skip
    return out, weights
