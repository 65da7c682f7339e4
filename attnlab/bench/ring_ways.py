"""What the ring benchmark shares: the device it runs on, its inputs, and the ways that it compares.

On a CPU everything is float32 and small enough for a laptop; where torch finds a CUDA device the same cases
run there in bfloat16 at larger sizes. A window of W always means W visible keys, the query's own included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from attnlab.bench.case import Report
from attnlab.bench.rows import Param

OURS = "attnlab"
MASKED, CAUSAL, FLEX = "SDPA, boolean mask", "SDPA, causal full", "FlexAttention, compiled"
COMPILE, SKIPPED = "compile seconds", "skipped"

HEAD_DIM = 64
FLEX_BLOCK = 128
MOST_MASKED = 8192  # the boolean mask has S x S entries, and SDPA makes it S x S numbers of the input's type


@dataclass(frozen=True)
class Setting:
    """Where the benchmark runs and how large it is there: `heads` query and key heads, `impl` as our path."""

    device: str
    dtype: str
    heads: int
    impl: str


def setting() -> Setting:
    """The CUDA device where torch finds one, otherwise the CPU."""
    import torch

    if torch.cuda.is_available():
        return Setting("cuda", "bfloat16", 16, "triton")
    return Setting("cpu", "float32", 4, "strided")


def skip(report: Report, variant: str, why: str, **params: Param) -> None:
    """Say in the table and in the record that a way was not measured, and why."""
    report.add(variant, SKIPPED, 1, "", params={**params, "why": why})


def inputs(place: Setting, tokens: int, *, grad: bool = False) -> tuple[Any, Any, Any]:
    """Make q, k and v, each [1, heads, tokens, 64], the same on every run."""
    import torch

    generator = torch.Generator().manual_seed(0)
    shape = (1, place.heads, tokens, HEAD_DIM)
    q, k, v = (
        torch.randn(shape, generator=generator)
        .to(place.device, getattr(torch, place.dtype))
        .requires_grad_(grad)
        for _ in range(3)
    )
    return q, k, v


def eager_ways(
    place: Setting, tokens: int, window: int, ways: Sequence[str]
) -> dict[str, Callable[[Any, Any, Any], Any]]:
    """Of the ways that need no compiler, those named in `ways`: functions of q, k and v."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from attnlab.ring import sliding_window_attention

    found: dict[str, Callable[[Any, Any, Any], Any]] = {}
    if OURS in ways:
        found[OURS] = partial(sliding_window_attention, window=window, impl=place.impl)
    if CAUSAL in ways:
        found[CAUSAL] = partial(scaled_dot_product_attention, is_causal=True)
    if MASKED in ways:
        position = torch.arange(tokens, device=place.device)
        ago = position[:, None] - position
        found[MASKED] = partial(scaled_dot_product_attention, attn_mask=(ago >= 0) & (ago < window))
    return found


def compiled_flex(
    report: Report, place: Setting, tokens: int, window: int, q: Any, k: Any, v: Any, **params: Param
) -> Callable[[Any, Any, Any], Any] | None:
    """Compile FlexAttention with the block mask of our tile map, and report how long that took.

    The compiler starts with empty caches and no earlier graph, as it would on the first call in a new place.
    Where it fails, for want of a C++ compiler for instance, that is reported and None is returned.
    """
    import torch
    from torch._inductor.utils import fresh_cache
    from torch.nn.attention.flex_attention import flex_attention

    from attnlab.masks import causal, sliding_window
    from attnlab.tiles import tile_map

    tiles = tile_map(causal() & sliding_window(window), tokens, tokens, FLEX_BLOCK)
    blocks = tiles.block_mask(device=place.device)
    torch._dynamo.reset()
    call = partial(torch.compile(flex_attention, dynamic=False), block_mask=blocks)
    start = time.perf_counter()
    try:
        with fresh_cache():
            call(q, k, v)
    except Exception as error:
        lines = str(error).strip().splitlines()
        why = f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
        skip(report, FLEX, why[:100], **params)
        return None
    report.add(FLEX, COMPILE, time.perf_counter() - start, "s", params=params)
    return call
