"""Attention over a sliding window: one signature, several paths to the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.intervals import check_whole
from attnlab.ring import reference, strided, tiled, triton
from attnlab.ring.order import TileOrder

__all__ = ["IMPLS", "sliding_window_attention"]

_PATHS: dict[str, Callable[..., Any]] = {
    "reference": reference.sliding_window_attention,
    "tiled": tiled.sliding_window_attention,
    "strided": strided.sliding_window_attention,
    "triton": triton.sliding_window_attention,
}
_FASTEST = {"cpu": "strided", "cuda": "triton"}  # by type of device
IMPLS: tuple[str, ...] = ("auto", *_PATHS)
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def sliding_window_attention(
    q: Float[Tensor, "batch q_heads tokens head_dim"],
    k: Float[Tensor, "batch kv_heads tokens head_dim"],
    v: Float[Tensor, "batch kv_heads tokens head_dim"],
    *,
    window: int,
    causal: bool = True,
    order: TileOrder = TileOrder.Q_MAJOR,
    impl: str = "auto",
    return_lse: bool = False,
) -> (
    Float[Tensor, "batch q_heads tokens head_dim"]
    | tuple[Float[Tensor, "batch q_heads tokens head_dim"], Float[Tensor, "batch q_heads tokens"]]
):
    """softmax(q k^T / sqrt(D)) v, each query over the keys in its window; differentiable by every path.

    The window counts W keys, the query's own included: with ``causal``, query p sees ``p - W < k <= p``, and
    without, ``|p - k| < W``. transformers' ``sliding_window=W`` means the same W keys; FlashAttention's
    ``window_size=(left, 0)``, JAX's ``LocalMask`` and ``local_window_size=(left, 0)`` and attention-gym see
    ``left + 1``, so their ``left`` is W - 1.

    Parameters
    ----------
    q : float64, float32, bfloat16 or float16 [B, Hq, S, D]
    k, v : as q, [B, Hkv, S, D]
        Hq is a multiple of Hkv (grouped queries); query head h reads key head ``h // (Hq // Hkv)``.
    window : int
        W, 1 or more; it may exceed S.
    causal : bool
    order : TileOrder
        The outer loop over tiles. ``"tiled"`` follows it. ``"reference"`` has no tiles, ``"strided"`` leaves
        loops to its kernel, and those of ``"triton"`` are fixed: these accept the order and ignore it.
    impl : {"auto", "reference", "tiled", "strided", "triton"}
        ``"reference"`` is dense and in float64 inside, ``"tiled"`` walks tiles in eager torch and runs on any
        device, ``"strided"`` is fast and runs on the CPU, ``"triton"`` is fast and runs on a CUDA device, for
        all dtypes but float64. ``"auto"`` means ``"strided"`` on the CPU and ``"triton"`` on CUDA.
    return_lse : bool
        Also return the log-sum-exp of the scaled scores.

    Returns
    -------
    out : as q
    lse : float32, or float64 for float64 inputs, [B, Hq, S]
        Only with ``return_lse``.

    Raises
    ------
    TypeError
        If q, k or v is not a tensor of one of those dtypes, k or v has another dtype than q, or another
        argument is of the wrong type.
    ValueError
        If shapes or devices do not belong together, W < 1, or the path is unknown or cannot run there.
    """
    _check_tensors(q, k, v)
    window = check_whole("window", window, least=1)
    for name, flag in (("causal", causal), ("return_lse", return_lse)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be a bool, got {type(flag).__name__}")
    if not isinstance(order, TileOrder):
        raise TypeError(f"order must be a TileOrder, got {type(order).__name__}")
    path = _path(impl, q)
    out, lse = _PATHS[path](q, k, v, window=window, causal=causal, order=order, return_lse=True)
    out, lse = out.to(q.dtype), lse.to(torch.promote_types(q.dtype, torch.float32))
    return (out, lse) if return_lse else out


def _path(impl: str, q: Tensor) -> str:
    """The path that `impl` names, or an error that says which would run."""
    choices = ", ".join(map(repr, IMPLS))
    if not isinstance(impl, str):
        raise TypeError(f"impl must be one of {choices}, got {type(impl).__name__}")
    if impl not in IMPLS:
        raise ValueError(f"impl must be one of {choices}, got {impl!r}")
    path = _FASTEST.get(q.device.type, "strided") if impl == "auto" else impl
    others = "'reference', 'tiled' and 'strided'" if q.device.type == "cpu" else "'reference' and 'tiled'"
    if path == "strided" and q.device.type != "cpu":
        raise ValueError(
            f"impl {impl!r} needs tensors on the CPU, got q on {q.device}; {others} would run there"
        )
    if path == "triton" and (problem := triton.obstacle(q.dtype, q.device)) is not None:
        raise ValueError(
            f"impl {impl!r} does not run: the Triton kernels {problem}; {others} would run there"
        )
    return path


def _check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a torch Tensor, got {type(x).__name__}")
        if x.dtype not in _DTYPES:
            raise TypeError(f"{name} must be float64, float32, bfloat16 or float16, got {x.dtype}")
        if x.ndim != 4 or x.shape[-1] == 0:
            raise ValueError(
                f"{name} must have shape [batch, heads, length, head_dim] with head_dim > 0, "
                f"got {list(x.shape)}"
            )
    batch, q_heads, tokens, head_dim = q.shape
    for name, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            raise TypeError(f"{name} must have the dtype of q, {q.dtype}, got {x.dtype}")
        if x.device != q.device:
            raise ValueError(f"{name} must be on the device of q, {q.device}, got {x.device}")
        if (x.shape[0], *x.shape[2:]) != (batch, tokens, head_dim):
            raise ValueError(
                f"{name} must have shape [{batch}, heads, {tokens}, {head_dim}] to fit q, got {list(x.shape)}"
            )
    kv_heads = k.shape[1]
    if kv_heads == 0 or q_heads % kv_heads:
        raise ValueError(f"k must have heads that divide the {q_heads} of q, got {kv_heads}")
    if v.shape[1] != kv_heads:
        raise ValueError(f"v must have the {kv_heads} heads of k, got {v.shape[1]}")
