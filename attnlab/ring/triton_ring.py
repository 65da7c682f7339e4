"""Attention over a ring by the Triton forward kernel: a chunk of a prefill, or one decode step."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlab.ring import laws
from attnlab.ring.checks import check_tensor
from attnlab.ring.triton_blocks import SMALLEST_TILE, Blocks, choose
from attnlab.ring.triton_launch import check_runs, launch_forward


@torch.no_grad()
def ring_attention(
    q: Float[Tensor, "batch q_heads rows head_dim"],
    k: Float[Tensor, "batch kv_heads capacity head_dim"],
    v: Float[Tensor, "batch kv_heads capacity head_dim"],
    *,
    window: int,
    written: int,
    highest: int | None = None,
    padding: Bool[Tensor, "batch capacity"] | None = None,
    return_lse: bool = False,
    tiles: tuple[int, int] | None = None,
    splits: int | None = None,
) -> (
    Float[Tensor, "batch q_heads rows head_dim"]
    | tuple[Float[Tensor, "batch q_heads rows head_dim"], Float[Tensor, "batch q_heads rows"]]
):
    """Causal attention of the newest tokens over a ring, read where it lies: a chunk or a decode step.

    What `attnlab.ring.cache.RingCache.attend` returns for ``k=cache.k, v=cache.v, padding=cache.padding,
    written=cache.position, highest=cache.highest``. The result carries no gradient. A slot that no query
    sees is not read.

    Parameters
    ----------
    q : float32, bfloat16 or float16 [B, Hq, L, D]
        Row i is the token at position ``written - L + i``. Hq is a multiple of Hkv.
    k, v : as q, [B, Hkv, C, D]
        The ring in slot order, the L tokens among the rest; a view with padded rows is read as it is.
    window : int
        W: a query at p sees ``p - W < k <= p``, W keys with its own.
    written : int
        n, the tokens written.
    highest : int, optional
        The largest n there has been, if tokens were rolled back.
    padding : bool [B, C], optional
        True in the slots of keys to leave out. Without it no bits are read.
    return_lse : bool
        Also return the log-sum-exp of the scaled scores.
    tiles : (int, int), optional
        As in `sliding_window_attention`. By default the keys of a tile are the most, of the table's number
        and its halves, with which the tile laws hold.
    splits : int, optional
        Programs, 1 to 128, that share the keys of one tile of queries; chosen to fill the GPU if not given.

    Returns
    -------
    out : as q
        0 where a query sees only padding.
    lse : float32 [B, Hq, L]
        Only with ``return_lse``; -inf where a query sees only padding.

    Raises
    ------
    TypeError
        For something that is no tensor, another dtype, or a number that is no int.
    ValueError
        If the kernels cannot run on these tensors, for shapes or devices that do not belong together, more
        rows than tokens, or if the attend law or a tile law of `attnlab.ring.laws` is broken.
    """
    check_tensor("q", q, (None, None, None, None), q)
    check_tensor("k", k, (q.shape[0], None, None, q.shape[3]), q)
    check_tensor("v", v, tuple(k.shape), q)
    check_runs(q)
    batch, q_heads, rows, head_dim = q.shape
    kv_heads, capacity = k.shape[1:3]
    if kv_heads == 0 or q_heads % kv_heads:
        raise ValueError(f"q must have a multiple of the {kv_heads} heads of k, got {q_heads}")
    if padding is not None:
        if not isinstance(padding, Tensor) or padding.dtype != torch.bool:
            raise TypeError(f"padding must be a bool Tensor, got {getattr(padding, 'dtype', type(padding))}")
        check_tensor("padding", padding, (batch, capacity), padding)
        if padding.device != q.device:
            raise ValueError(f"padding must be on {q.device}, got {padding.device}")
    window = laws.whole("window", window, least=1)
    written = laws.whole("written", written)
    highest = written if highest is None else laws.whole("highest", highest, least=written)
    if rows > written:
        raise ValueError(f"q must have at most one row per token written, {written}, got {rows}")
    laws.check_attend(written, rows, highest, window, capacity)
    group = q_heads // kv_heads
    blocks = choose("forward", q.dtype, head_dim, tiles)
    blocks = _ring_blocks(blocks, tiles is not None, capacity, window, rows, group)

    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if out.numel():
        from attnlab.ring import triton_decode

        programs = -(-rows * group // blocks.queries) * batch * kv_heads
        visited = (window - 1 + rows) // blocks.keys + 2
        if splits is None:
            splits = triton_decode.choose_splits(programs, visited, q.device)
        elif laws.whole("splits", splits, least=1) > triton_decode.MOST_SPLITS:
            raise ValueError(f"splits must be 1 to {triton_decode.MOST_SPLITS}, got {splits}")
        options = dict(window=window, causal=True, position=written - rows, keys=written, blocks=blocks)
        options |= dict(padding=padding, ring=True)
        if splits == 1:
            launch_forward(q, k, v, out.unsqueeze(0), lse.unsqueeze(0), **options)
        else:
            parts = torch.empty((splits, *q.shape), dtype=torch.float32, device=q.device)
            lses = torch.empty((splits, *lse.shape), dtype=torch.float32, device=q.device)
            launch_forward(q, k, v, parts, lses, **options)
            with torch.cuda.device_of(q):
                triton_decode.merge(parts, lses, out, lse)
    return (out, lse) if return_lse else out


def _ring_blocks(blocks: Blocks, chosen: bool, capacity: int, window: int, rows: int, group: int) -> Blocks:
    """Unless the caller has chosen: keys with which the tile laws hold, and no more rows than there are."""
    if not chosen:
        keys = blocks.keys
        while keys > SMALLEST_TILE and (
            capacity % keys or capacity < laws.round_up(window - 1 + rows, keys) + keys
        ):
            keys //= 2
        packed = max(SMALLEST_TILE, 1 << (rows * group - 1).bit_length())
        if packed < blocks.queries:  # a decode step: little to multiply, so more tiles under way
            blocks = Blocks(packed, keys, 4, blocks.stages + 1)
        blocks = blocks._replace(keys=keys)
    laws.check_tiles(capacity, window, rows, blocks.keys)
    return blocks
