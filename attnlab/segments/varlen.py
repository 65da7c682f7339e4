"""From a layout to varlen attention: cu_seqlens, and the tokens gathered back to back (torch).

Varlen kernels (FlashAttention's ``flash_attn_varlen_func``, ``torch.nn.attention.varlen.varlen_attn``) take
all sequences of a batch in one row without gaps, and the running totals of their lengths. A packed row has
gaps, where padding stands or where trimming took tokens out, so the visible tokens are gathered first.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int32, Int64
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .checks import MaskKind, check_mask
from .layout import SegmentLayout


class VarlenArguments(NamedTuple):
    """What a varlen kernel needs, under the names FlashAttention gives it.

    Attributes
    ----------
    cu_seqlens_q, cu_seqlens_k : int32 [N + 1]
        Running totals of the lengths of the N segments that kept a token, all rows of the batch in turn.
    max_seqlen_q, max_seqlen_k : int
    indices_q, indices_k : int64 [cu_seqlens_q[-1]], [cu_seqlens_k[-1]]
        Which token of the flattened batch stands at each place of the gathered row.
    causal : bool
        What to give the kernel as ``causal``, in its usual meaning: the last query lines up with the last
        key.
    """

    cu_seqlens_q: Int32[Tensor, "segments_plus_1"]
    cu_seqlens_k: Int32[Tensor, "segments_plus_1"]
    max_seqlen_q: int
    max_seqlen_k: int
    indices_q: Int64[Tensor, "q_visible"]
    indices_k: Int64[Tensor, "kv_visible"]
    causal: bool


def varlen_arguments(
    layout: SegmentLayout, *, q_tokens: int, kv_tokens: int, mask: MaskKind
) -> VarlenArguments:
    """Turn a layout into the arguments of a varlen kernel. Synchronises with the device once.

    Positions are taken to count 0, 1, 2, ... inside each segment, since a varlen kernel knows no others.

    Parameters
    ----------
    layout : SegmentLayout
        From `attnlab.segments.torch`.
    q_tokens, kv_tokens : int
        Tq and Tkv, the row lengths the layout was made from.
    mask : "padding", "causal" or "bottom_right_causal"
        The mask the layout was made with.

    Returns
    -------
    VarlenArguments

    Raises
    ------
    ValueError
        If a row is not valid, or if the mask is ``"causal"`` and some segment has fewer keys than queries:
        the kernel would line up the last query with the last key, which is another mask. FlexAttention can
        do it (`attnlab.segments.flex`).
    """
    check_mask(mask)
    if not bool(layout.valid.all()):
        rows = (~layout.valid).nonzero().flatten().tolist()
        raise ValueError(
            f"layout must be valid in every row; rows {rows} are not, so their numbers mean nothing"
        )
    kept = layout.q_seqlens > 0
    q_lengths, k_lengths = layout.q_seqlens[kept], layout.kv_seqlens[kept]
    if mask == "causal" and not torch.equal(q_lengths, k_lengths):
        worst = int((q_lengths - k_lengths).argmax())
        raise ValueError(
            f"mask 'causal' needs as many keys as queries in every segment for a varlen kernel; one has "
            f"{int(q_lengths[worst])} queries and {int(k_lengths[worst])} keys"
        )
    sides = []
    for lengths, offsets, tokens in (
        (q_lengths, layout.q_offsets, q_tokens),
        (k_lengths, layout.kv_offsets, kv_tokens),
    ):
        row, column = (offsets >= 0).nonzero(as_tuple=True)
        first = row * tokens + offsets[row, column]
        cu_seqlens = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        shift = first - cu_seqlens[:-1]
        indices = torch.arange(int(cu_seqlens[-1]), device=offsets.device) + shift.repeat_interleave(lengths)
        sides.append((cu_seqlens, int(lengths.max()) if len(lengths) else 0, indices))
    (cu_q, max_q, indices_q), (cu_k, max_k, indices_k) = sides
    return VarlenArguments(cu_q, cu_k, max_q, max_k, indices_q, indices_k, mask != "padding")


def varlen_attention(
    q: Float[Tensor, "batch q_tokens heads head_dim"],
    k: Float[Tensor, "batch kv_tokens heads head_dim"],
    v: Float[Tensor, "batch kv_tokens heads head_dim"],
    arguments: VarlenArguments,
) -> Float[Tensor, "batch q_tokens heads head_dim"]:
    """Attend segment by segment, as a varlen kernel does, on any device; tokens that see nothing get 0.

    A loop over segments with torch's own attention inside: the meaning of `arguments` spelt out, and what
    runs where no varlen kernel does. Differentiable.

    Parameters
    ----------
    q, k, v : float [B, T, heads, head_dim]
    arguments : VarlenArguments

    Returns
    -------
    float [B, Tq, heads, head_dim]

    Raises
    ------
    ValueError
        If q, k and v do not have four dimensions, or k and v differ in shape.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.ndim != 4:
            raise ValueError(
                f"{name} must have shape [batch, tokens, heads, head_dim]; got {list(tensor.shape)}"
            )
    if k.shape != v.shape:
        raise ValueError(f"v must have the shape of k, {list(k.shape)}; got {list(v.shape)}")
    packed_q, packed_k, packed_v = (
        x.flatten(0, 1)[i]
        for x, i in ((q, arguments.indices_q), (k, arguments.indices_k), (v, arguments.indices_k))
    )
    edges = zip(arguments.cu_seqlens_q.tolist(), arguments.cu_seqlens_k.tolist(), strict=True)
    pieces = []
    previous = next(edges)
    for current in edges:
        rows, columns = slice(previous[0], current[0]), slice(previous[1], current[1])
        n_q, n_k = rows.stop - rows.start, columns.stop - columns.start
        seen = None
        if arguments.causal:
            seen = torch.ones(n_q, n_k, dtype=torch.bool, device=q.device).tril(n_k - n_q)
        seg_q, seg_k, seg_v = (
            x.transpose(0, 1) for x in (packed_q[rows], packed_k[columns], packed_v[columns])
        )
        pieces.append(scaled_dot_product_attention(seg_q, seg_k, seg_v, attn_mask=seen).transpose(0, 1))
        previous = current
    out = torch.zeros_like(q.flatten(0, 1))
    if pieces:
        out = out.index_copy(0, arguments.indices_q, torch.cat(pieces))
    return out.view(q.shape)
