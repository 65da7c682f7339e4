"""From a packed batch to FlexAttention: the BlockMask, made without a T x T table (torch)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Int32
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from attnlab.tiles import tile_map

from .checks import MaskKind, check_sides
from .mask import aligned_positions, may_attend, packed_mask


def block_mask(
    segment_ids_q: Int32[Tensor, "batch q_tokens"],
    segment_ids_kv: Int32[Tensor, "batch kv_tokens"],
    segment_pos_q: Int32[Tensor, "batch q_tokens"],
    segment_pos_kv: Int32[Tensor, "batch kv_tokens"],
    *,
    mask: MaskKind,
    window: int | None = None,
    block_size: int = 128,
) -> BlockMask:
    """Make the BlockMask of a packed batch in O(B (T log T + tiles)); ``create_block_mask`` takes O(B T^2).

    Any positions will do, which varlen kernels cannot say. The ids are read on the host: one synchronisation.

    Parameters
    ----------
    segment_ids_q, segment_ids_kv, segment_pos_q, segment_pos_kv : int32 [B, Tq] or [B, Tkv]
        As for `attnlab.segments.torch.seqlens_and_offsets`; at least one row.
    mask : "padding", "causal" or "bottom_right_causal"
    window : int, optional
        Positions of the past that a query sees, its own included.
    block_size : int
        Tile side, in tokens.

    Returns
    -------
    BlockMask
        On the device of the ids; equal to what ``create_block_mask`` gives for the same mask.

    Raises
    ------
    TypeError, ValueError
        As `attnlab.segments.torch.seqlens_and_offsets`; also for an empty batch, or a window or block size
        below 1.
    """
    inputs = (segment_ids_q, segment_ids_kv, segment_pos_q, segment_pos_kv)
    check_sides(*inputs, mask=mask, max_segments=1, kind=Tensor)
    if segment_ids_q.shape[0] == 0:
        raise ValueError("segment_ids_q must have at least one row; got a batch of 0")
    device, shape = segment_ids_q.device, (segment_ids_q.shape[1], segment_ids_kv.shape[1])
    hosted = [x.cpu().numpy() for x in inputs]
    masks = [packed_mask(*row, mask=mask, window=window) for row in zip(*hosted, strict=True)]
    rows = [tile_map(m, *shape, block_size).block_mask(device) for m in masks]
    pos_q, pos_kv = (
        torch.tensor(
            np.stack([aligned_positions(*row, mask) for row in zip(ids, pos, strict=True)]), device=device
        )
        for ids, pos in (hosted[0::2], hosted[1::2])
    )

    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        tokens = segment_ids_q[b, q_idx], segment_ids_kv[b, kv_idx], pos_q[b, q_idx], pos_kv[b, kv_idx]
        return may_attend(*tokens, None if window is None else pos_q[b, q_idx] - window, mask=mask)

    return BlockMask.from_kv_blocks(
        torch.cat([row.kv_num_blocks for row in rows]),
        torch.cat([row.kv_indices for row in rows]),
        torch.cat([row.full_kv_num_blocks for row in rows]),
        torch.cat([row.full_kv_indices for row in rows]),
        BLOCK_SIZE=(block_size, block_size),
        mask_mod=mask_mod,
        seq_lengths=shape,
    )
