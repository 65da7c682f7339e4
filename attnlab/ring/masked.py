"""Sliding-window attention with everything the fast paths leave out: masks, padding, dropout, weights.

Plain operators of torch, differentiable as often as one likes, on any device. The query rows go in blocks,
and a block looks only at the keys that some row of it can see::

    keys        k_position ........ [ W - 1 ][ rows ] ........
    a block of queries                       [ rows ]

Without a graph the workspace is O(rows * (W + rows)) per head, whatever the lengths. A graph keeps the
weights of every block until the backward pass, O(Lq * (W + rows)) per head: linear in the length for a fixed
window, but more than the O(Lq * D) of the strided path, which recomputes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from .dropout import keep_mask
from .masked_block import Reach, attend_block
from .masked_inputs import check_numbers, check_tensors, mask_axes

__all__ = ["MaskedResult", "masked_attention"]


class MaskedResult(NamedTuple):
    """What `masked_attention` returns.

    Attributes
    ----------
    out : [B, Hq, Lq, D], of q's dtype
    lse : [B, Hq, Lq], float32, or float64 for float64 inputs
        Log-sum-exp of the scaled and biased scores; -inf where a query sees nothing. Dropout does not change
        it.
    weights : of q's dtype, or None
        [B, Lq, Lk] for ``weights="mean"``, [B, Hq, Lq, Lk] for ``weights="heads"``.
    """

    out: Float[Tensor, "batch q_heads q_len head_dim"]
    lse: Float[Tensor, "batch q_heads q_len"]
    weights: Float[Tensor, "..."] | None


def masked_attention(
    q: Float[Tensor, "batch q_heads q_len head_dim"],
    k: Float[Tensor, "batch kv_heads k_len head_dim"],
    v: Float[Tensor, "batch kv_heads k_len head_dim"],
    *,
    window: int | None,
    causal: bool = True,
    q_position: int = 0,
    k_position: int = 0,
    padding: Bool[Tensor, "batch k_len"] | None = None,
    att_mask: Shaped[Tensor, "..."] | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    rows: int = 128,
    head_tile_size: int | None = None,
    weights: Literal["mean", "heads"] | None = None,
    scale: float | None = None,
) -> MaskedResult:
    """softmax(scale * q k^T + bias) v, each query over the keys that window, padding and mask let it see.

    Parameters
    ----------
    q : float64, float32, bfloat16 or float16 [B, Hq, Lq, D]
        Row i is at the absolute position ``q_position + i``.
    k, v : as q, [B, Hkv, Lk, D]
        Row j is at ``k_position + j``, oldest first. Hq is a multiple of Hkv; query head h reads key head
        ``h // (Hq // Hkv)``.
    window : int or None
        W. With ``causal``, a query at p sees ``p - W < k <= p``, W keys with its own; without, it sees
        ``|p - k| < W``. None is no limit: plain causal attention, or without ``causal`` every key, as in
        cross-attention.
    causal : bool
    q_position, k_position : int
        0 or more.
    padding : bool [B, Lk], optional
        True marks padding, as ``key_padding_mask`` of ``nn.MultiheadAttention``. It is never attended to, and
        what its keys and values hold, NaN included, reaches neither a result nor a gradient.
    att_mask : bool or floating tensor, optional
        True means attend, or a number added to the scaled scores, finite or -inf; -inf is the same as False.
        Combined with window and padding: a key must be allowed by all. A floating mask may take a gradient.
        It broadcasts to [B, Hq, Lq, Lk] as in `torch.nn.functional.scaled_dot_product_attention`: [Lq, Lk],
        [1 or B, 1 or Hq, Lq, Lk], where Lq and Lk may be 1 too. Three axes are read as [1, Lq, Lk], as
        [Hq, Lq, Lk] (that function) or as [B * Hq, Lq, Lk] (``nn.MultiheadAttention``); what could also be
        meant as [B, Lq, Lk] is refused.
    dropout : float
        Probability of dropping a normalised weight, 0 <= dropout < 1; those kept are divided by 1 - dropout.
        Which are kept is `attnlab.ring.dropout.keep_mask` of the batch index, the query head and the two
        absolute positions. It applies whenever it is not 0: there is no notion of training here.
    seed : int
        0 to 2**64 - 1, for dropout.
    rows : int
        Query rows in a block. It changes speed and workspace alone.
    head_tile_size : int, optional
        How many of the Hq / Hkv query heads that share a key head are computed per load of its keys and
        values; it need not divide them. None means all. It changes speed and workspace alone.
    weights : {"mean", "heads"}, optional
        Also return the weights, averaged over heads or per head. With dropout they are what multiplied the
        values, dropped and scaled, as ``nn.MultiheadAttention`` and transformers' eager attention show them;
        without, they are exp(S - LSE). Their table is Lq * Lk; when None, nothing of that size is made,
        provided the window is limited.
    scale : float, optional
        Of the scores; 1 / sqrt(D) if not given.

    Returns
    -------
    MaskedResult
        ``out, lse, weights``, all differentiable. A query that sees nothing has out 0, lse -inf and weights
        0, and neither takes nor gives a gradient, whatever it holds.

    Raises
    ------
    TypeError
        If an argument is of the wrong type or dtype.
    ValueError
        If shapes or devices do not belong together, the mask's shape is ambiguous, or a number is out of its
        range.
    """
    check_tensors(q, k, v, padding)
    check_numbers(
        window=window, causal=causal, q_position=q_position, k_position=k_position, dropout=dropout,
        seed=seed, rows=rows, head_tile_size=head_tile_size, weights=weights, scale=scale,
    )  # fmt: skip
    mask = None if att_mask is None else mask_axes(att_mask, q, k)
    kv_heads, k_len = k.shape[1:3]
    group = q.shape[1] // kv_heads
    tile = group if head_tile_size is None else head_tile_size
    head_tiles = [slice(g, min(g + tile, group)) for g in range(0, group, tile)]
    scale = q.shape[3] ** -0.5 if scale is None else scale
    reach = Reach(
        least=0 if causal else None if window is None else 1 - window,
        most=None if window is None else window - 1,
    )
    blocks = q.unflatten(1, (kv_heads, group)).split(rows, dim=3)
    masks = mask.split(rows, dim=3) if mask is not None and mask.shape[3] > 1 else [mask] * len(blocks)
    # Keys and values are cut once, into pieces of which each block takes a few. A slice of the whole would do
    # forwards, but backwards every slice would fill a gradient of the full length.
    piece = rows if len(blocks) > 1 else max(k_len, 1)
    pieces = k.split(piece, dim=2), v.split(piece, dim=2)

    outs, lses, tables = [], [], []
    for i, (block, allowed) in enumerate(zip(blocks, masks, strict=True)):
        first = q_position + i * rows
        queries = range(first, first + block.shape[3])
        lo, hi = reach.rows(queries, k_position, k_len)
        keys = range(k_position + lo, k_position + hi)
        padded = None if padding is None else padding[:, lo:hi]
        if allowed is not None and allowed.shape[4] > 1:
            allowed = allowed[..., lo:hi]
        hidden = _hidden(reach.hidden(queries, keys, q.device), padded, allowed)
        bias = None if allowed is None or allowed.dtype == torch.bool else allowed
        done = [
            attend_block(
                block[:, :, heads],
                *(_between(x, piece, lo, hi) for x in pieces),
                scale=scale,
                hidden=_of_heads(hidden, heads),
                bias=_of_heads(bias, heads),
                keep=_keep(seed, block, heads, queries, keys, dropout) if dropout else None,
                dropout=dropout,
                with_weights=weights is not None,
            )
            for heads in head_tiles
        ]
        outs.append(torch.cat([part.out for part in done], dim=2).to(q.dtype))
        lses.append(torch.cat([part.lse for part in done], dim=2))
        if weights is not None:
            table = torch.cat([part.weights for part in done], dim=2).flatten(1, 2)
            table = table.mean(dim=1) if weights == "mean" else table
            tables.append(torch.nn.functional.pad(table.to(q.dtype), (lo, k_len - hi)))
    out, lse = (torch.cat(parts, dim=3).flatten(1, 2) for parts in (outs, lses))
    return MaskedResult(out, lse, torch.cat(tables, dim=-2) if tables else None)


def _hidden(
    out_of_reach: Bool[Tensor, "q_len k_len"] | None,
    padded: Bool[Tensor, "batch k_len"] | None,
    allowed: Shaped[Tensor, "..."] | None,
) -> Bool[Tensor, "..."] | None:
    """What window, padding and mask hide between them, broadcasting to [B, Hkv, G, L, n]; None if nothing."""
    reasons = []
    if out_of_reach is not None:
        reasons.append(out_of_reach[None, None, None])
    if padded is not None:
        reasons.append(padded[:, None, None, None])
    if allowed is not None:
        reasons.append(~allowed if allowed.dtype == torch.bool else allowed == -torch.inf)
    return reduce(torch.logical_or, reasons) if reasons else None


def _of_heads(table: Shaped[Tensor, "..."] | None, heads: slice) -> Shaped[Tensor, "..."] | None:
    """The part of a table [.., G or 1, L, n] that belongs to some of the heads that share a key head."""
    return table if table is None or table.shape[2] == 1 else table[:, :, heads]


def _between(
    pieces: Sequence[Tensor], size: int, lo: int, hi: int
) -> Float[Tensor, "batch kv_heads n head_dim"]:
    """Rows lo to hi - 1 of what was cut into pieces of `size` rows; a view if they lie in one piece."""
    chosen = range(lo // size, max(hi - 1, lo) // size + 1)
    parts = [pieces[i][:, :, max(lo - i * size, 0) : hi - i * size] for i in chosen]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _keep(
    seed: int,
    block: Float[Tensor, "batch kv_heads group rows head_dim"],
    heads: slice,
    queries: range,
    keys: range,
    dropout: float,
) -> Bool[Tensor, "batch kv_heads tile rows keys"]:
    """`keep_mask` for a tile of the heads of a block."""
    batch, kv_heads, group = block.shape[:3]
    chosen = torch.arange(kv_heads * group).unflatten(0, (kv_heads, group))[:, heads]
    kept = keep_mask(seed, range(batch), chosen.flatten(), queries, keys, dropout, device=block.device)
    return kept.unflatten(1, chosen.shape)
