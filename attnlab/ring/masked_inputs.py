"""What is given to `attnlab.ring.masked` is checked at its door, and masks get one arrangement of axes."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from . import laws
from .checks import check_tensor
from .dropout import SEEDS, check_probability
from .rows import WORK_DTYPE


def check_tensors(
    q: Float[Tensor, "batch q_heads q_len head_dim"],
    k: Float[Tensor, "batch kv_heads k_len head_dim"],
    v: Float[Tensor, "batch kv_heads k_len head_dim"],
    padding: Bool[Tensor, "batch k_len"] | None,
) -> None:
    """Raise unless queries, keys, values and padding belong together.

    Raises
    ------
    TypeError
        For something that is no tensor, or another dtype.
    ValueError
        For shapes or devices that do not fit.
    """
    if isinstance(q, Tensor) and q.dtype not in WORK_DTYPE:
        raise TypeError(f"q must have one of the dtypes {', '.join(map(str, WORK_DTYPE))}; got {q.dtype}")
    check_tensor("q", q, (None,) * 4, q)
    batch, q_heads, _, head_dim = q.shape
    if head_dim == 0:
        raise ValueError(f"q must have a head_dim of at least 1; got shape {list(q.shape)}")
    check_tensor("k", k, (batch, None, None, head_dim), q)
    check_tensor("v", v, tuple(k.shape), q)
    kv_heads, k_len = k.shape[1:3]
    if kv_heads == 0 or q_heads == 0 or q_heads % kv_heads:
        raise ValueError(f"k must have heads that divide the {q_heads} of q; got {kv_heads}")
    if padding is not None:
        check_tensor("padding", padding, (batch, k_len), torch.empty(0, dtype=torch.bool, device=q.device))


def check_numbers(*, causal: bool, weights: str | None, scale: float | None, **numbers: Any) -> None:
    """Raise unless the settings of `masked_attention` are of their types and in their ranges.

    Raises
    ------
    TypeError, ValueError
        Naming the setting, what it was and what it should be.
    """
    least = {"window": 1, "q_position": 0, "k_position": 0, "seed": 0, "rows": 1, "head_tile_size": 1}
    for name in least:
        if numbers[name] is not None or name not in ("window", "head_tile_size"):
            laws.whole(name, numbers[name], least[name])
    if numbers["seed"] >= SEEDS:
        raise ValueError(f"seed must be below 2**64; got {numbers['seed']}")
    check_probability("dropout", numbers["dropout"])
    if not isinstance(causal, bool):
        raise TypeError(f"causal must be a bool; got {type(causal).__name__}: {causal!r}")
    if weights not in (None, "mean", "heads"):
        raise ValueError(f"weights must be None, 'mean' or 'heads'; got {weights!r}")
    if scale is not None:
        if isinstance(scale, bool) or not isinstance(scale, (int, float)):
            raise TypeError(f"scale must be a float; got {type(scale).__name__}: {scale!r}")
        if not math.isfinite(scale):
            raise ValueError(f"scale must be finite; got {scale}")


def mask_axes(
    att_mask: Shaped[Tensor, "..."], q: Float[Tensor, "batch q_heads q_len head_dim"], k: Float[Tensor, "..."]
) -> Shaped[Tensor, "batch_or_1 kv_heads_or_1 group_or_1 q_len_or_1 k_len_or_1"]:
    """View a mask as [B, Hkv, Hq / Hkv, Lq, Lk], each axis of full size or 1.

    Raises
    ------
    TypeError
        If it is no tensor of booleans or floats.
    ValueError
        If it is on another device, or its shape cannot be read or can be read in two ways.
    """
    if not isinstance(att_mask, Tensor):
        raise TypeError(f"att_mask must be a torch Tensor; got {type(att_mask).__name__}")
    if att_mask.dtype != torch.bool and not att_mask.is_floating_point():
        raise TypeError(f"att_mask must be bool (True = attend) or floating (added); got {att_mask.dtype}")
    if att_mask.device != q.device:
        raise ValueError(f"att_mask must be on {q.device}; got {att_mask.device}")
    (batch, q_heads, q_len, _), (kv_heads, k_len) = q.shape, k.shape[1:3]
    shape = list(att_mask.shape)
    pairs = f"{q_len} or 1, {k_len} or 1"
    wanted = (
        f"[{pairs}], [1 or {q_heads} or {batch * q_heads}, {pairs}] "
        f"or [1 or {batch}, 1 or {q_heads}, {pairs}]"
    )
    mask = att_mask
    if mask.ndim == 2:
        mask = mask[None, None]
    elif mask.ndim == 3:
        leading = mask.shape[0]
        if leading == batch * q_heads and leading > 1:
            mask = mask.unflatten(0, (batch, q_heads))
        elif leading == batch > 1:
            meant = f"per head ([{leading}, ...]) or per sequence" if batch == q_heads else "per sequence"
            raise ValueError(
                f"att_mask of shape {shape} seems meant {meant}: give it four axes, [1 or {batch}, "
                f"1 or {q_heads}, {pairs}]"
            )
        else:
            mask = mask[None]
    if (
        mask.ndim != 4
        or mask.shape[0] not in (1, batch)
        or mask.shape[1] not in (1, q_heads)
        or mask.shape[2] not in (1, q_len)
        or mask.shape[3] not in (1, k_len)
    ):
        raise ValueError(f"att_mask must have shape {wanted}; got {shape}")
    if mask.shape[1] == 1:
        return mask.unsqueeze(2)
    return mask.unflatten(1, (kv_heads, q_heads // kv_heads))
