"""Attention of the newest tokens over a ring, whose visible keys are at most two runs of slots.

One token, or a few, reads the runs where they lie; from `CHUNK_ROWS` on, they are first laid in order.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from . import laws
from .decode import attend_token
from .strided import sliding_window_attention

QUERY_ROWS = 128  # queries handled at a time, which bounds the scores to this many rows of W - 1 + this many
CHUNK_ROWS = 32  # from so many queries on, it pays to lay the visible keys in order, for a fused kernel

# float16 and bfloat16 are multiplied and summed in float32.
WORK_DTYPE = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}


def attend_newest(
    q: Float[Tensor, "batch kv_heads group rows head_dim"],
    k: Float[Tensor, "batch kv_heads capacity head_dim"],
    v: Float[Tensor, "batch kv_heads capacity head_dim"],
    padding: Bool[Tensor, "batch capacity"] | None,
    written: int,
    *,
    window: int,
) -> tuple[Float[Tensor, "batch heads rows head_dim"], Float[Tensor, "batch heads rows"]]:
    """Attend with the newest tokens' queries: by a fused kernel where it can do it, else in blocks of rows.

    Parameters
    ----------
    q, k, v, padding
        As in `attend_rows`.
    written : int
        n; the last query is the token at n - 1.
    window : int
        W, keys visible, the query's own included.

    Returns
    -------
    out : [B, H, L, D], of the dtype of q, lse : [B, H, L], float32 or float64
        0 and -inf where nothing is visible.
    """
    length = q.shape[3]
    fused = padding is None and q.device.type == "cpu"
    if fused and length >= CHUNK_ROWS:
        parts = laws.runs(max(0, written - length - window + 1), written, k.shape[2])
        keys, values = (torch.cat([x[:, :, i:j] for i, j in parts], dim=2) for x in (k, v))
        out, lse = sliding_window_attention(q.flatten(1, 2), keys, values, window=window, return_lse=True)
        return out, lse
    if fused and length == 1:
        parts = laws.runs(laws.oldest_visible(written, window), written, k.shape[2])
        out, lse = attend_token(q.squeeze(3).to(WORK_DTYPE[q.dtype]), k, v, parts)
        # A view each: what a call costs matters where a step takes microseconds.
        shape = (q.shape[0], q.shape[1] * q.shape[2], 1)
        return out.reshape(*shape, q.shape[4]).to(q.dtype), lse.reshape(shape)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = q.new_empty(q.shape[:-1], dtype=WORK_DTYPE[q.dtype])
    for start in range(0, length, QUERY_ROWS):
        rows = slice(start, start + QUERY_ROWS)
        out[:, :, :, rows], lse[:, :, :, rows] = attend_rows(
            q[:, :, :, rows], k, v, padding, written - length + start, window=window
        )
    return out.flatten(1, 2), lse.flatten(1, 2)


def attend_rows(
    q: Float[Tensor, "batch kv_heads group rows head_dim"],
    k: Float[Tensor, "batch kv_heads capacity head_dim"],
    v: Float[Tensor, "batch kv_heads capacity head_dim"],
    padding: Bool[Tensor, "batch capacity"] | None,
    position: int,
    *,
    window: int,
) -> tuple[Float[Tensor, "batch kv_heads group rows head_dim"], Float[Tensor, "batch kv_heads group rows"]]:
    """Attend with queries at `position` and after; no slot that none of them sees is read.

    Parameters
    ----------
    q : [B, H_kv, G, L, D]
        G query heads share a key/value head.
    k, v : [B, H_kv, C, D]
        The ring, in slot order.
    padding : bool [B, C] or None
        Slots to leave out; None where no visible token is padding.
    position : int
        Position of the first query; its token and the later ones are in the ring.
    window : int
        W, keys visible, the query's own included.

    Returns
    -------
    out : [B, H_kv, G, L, D], lse : [B, H_kv, G, L]
        In float32, or float64 for float64 queries; 0 and -inf where nothing is visible.
    """
    length, oldest = q.shape[3], laws.oldest_visible(position + 1, window)
    stop = position + length
    parts = laws.runs(oldest, stop, k.shape[2])
    work = WORK_DTYPE[q.dtype]
    rows = (q.to(work) * q.shape[-1] ** -0.5).flatten(2, 3)
    scores = torch.cat([rows @ k[:, :, i:j].to(work).mT for i, j in parts], dim=-1)
    scores = scores.unflatten(2, q.shape[2:4])

    hidden = None
    if length > 1:
        keys, queries = (torch.arange(first, stop, device=q.device) for first in (oldest, position))
        ahead = keys - queries.unsqueeze(1)
        hidden = (ahead > 0) | (ahead <= -window)
    if padding is not None:
        padded = torch.cat([padding[:, i:j] for i, j in parts], dim=-1)[:, None, None, None]
        hidden = padded if hidden is None else hidden | padded
    if hidden is not None:
        scores.masked_fill_(hidden, -torch.inf)

    lse = scores.logsumexp(-1)
    # A row with nothing to see has lse -inf, and -inf - -inf is no number.
    weights = (scores - lse.masked_fill(lse == -torch.inf, 0).unsqueeze(-1)).exp_().flatten(2, 3)
    out = torch.zeros_like(rows)
    for (i, j), share in zip(parts, weights.split([j - i for i, j in parts], dim=-1), strict=True):
        values = v[:, :, i:j].to(work)
        if padding is not None:
            values = values.masked_fill(padding[:, None, i:j, None], 0)  # 0 times NaN would be NaN
        out += share @ values
    return out.unflatten(2, q.shape[2:4]), lse
