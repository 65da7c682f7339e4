"""Split-K decoding: several programs share one query's keys, and a second kernel merges what they found.

A decode step has a single query for each head. One program for each key head would walk the whole window
alone while most of the chip waits, so the visited tiles are dealt out, and each program leaves its own output
and log-sum-exp. Two such parts merge as two tiles do: weights exp(LSE_i - LSE), where LSE is the log-sum-exp
of the LSE_i. That is flash-decoding (Dao, Haziza, Massa and Sizov 2023,
https://pytorch.org/blog/flash-decoding/).
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_SPLITS = 128  # a row of the merge holds this many parts at once


def choose_splits(programs: int, tiles: int, device: torch.device) -> int:
    """How many ways to deal out the tiles: enough to give each processor of the chip two programs.

    Parameters
    ----------
    programs : int
        Programs without a split.
    tiles : int
        Tiles of keys that each visits at most.
    device : torch.device
        Not a CUDA device in Triton's interpreter, where the programs run one by one.

    Returns
    -------
    int
        1 to `tiles`.
    """
    if device.type != "cuda":
        return 1
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return max(1, min(-(-2 * processors // programs), tiles, MOST_SPLITS))


def merge(parts: Tensor, lses: Tensor, out: Tensor, lse: Tensor) -> None:
    """Merge the outputs of the splits into one.

    Parameters
    ----------
    parts : float32 [splits, ..., D], contiguous
    lses : float32 [splits, ...], contiguous
        -inf for a part that saw nothing.
    out : [..., D], contiguous
        Written, in its own dtype.
    lse : float32 [...], contiguous
        Written.
    """
    splits, rows, head_dim = parts.shape[0], lse.numel(), parts.shape[-1]
    _merge[(rows,)](
        parts,
        lses,
        out,
        lse,
        rows,
        splits,
        HEAD_DIM=head_dim,
        BLOCK_S=triton.next_power_of_2(splits),
        BLOCK_D=triton.next_power_of_2(head_dim),
        num_warps=4,
    )


@triton.jit
@no_type_check
def _merge(
    parts,
    lses,
    out,
    lse,
    rows,
    splits,
    HEAD_DIM: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Grid: (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, BLOCK_S)
    columns = tl.arange(0, BLOCK_D)
    here = split < splits
    found = tl.load(lses + split * rows + row, mask=here, other=float("-inf"))
    highest = tl.max(found, 0)
    shift = tl.where(highest == float("-inf"), 0.0, highest)  # no part saw anything
    weights = tl.exp2((found - shift) * 1.4426950408889634)
    total = tl.sum(weights, 0)
    divisor = tl.where(total == 0.0, 1.0, total)
    at = parts + (split[:, None] * rows + row) * HEAD_DIM + columns[None, :]
    part = tl.load(at, mask=here[:, None] & (columns < HEAD_DIM)[None, :], other=0.0)
    merged = tl.sum(part * weights[:, None], 0) / divisor
    tl.store(out + row * HEAD_DIM + columns, merged.to(out.dtype.element_ty), mask=columns < HEAD_DIM)
    tl.store(lse + row, highest + tl.log2(divisor) * 0.6931471805599453)
