"""What the tests of the ring module share: small models, inputs, and dense attention in float64 to equal."""

from __future__ import annotations

import torch
from torch import Tensor

from attnlab.ring.config import RingBufferConfig
from attnlab.ring.module import RingBufferAttention


def model(**changes) -> RingBufferAttention:
    """A model with a window of 6 and chunks of 4: (6 - 1 + 4) up to a multiple of 2, and 2: 12 slots."""
    sizes = dict(num_heads=4, num_kv_heads=2, head_dim=5, buffer_size=6, prefill_size=4, tile_size=2)
    return RingBufferAttention(RingBufferConfig(**{**sizes, "block_size": 4, **changes}))


def inputs(length: int, *, batch=2, heads=4, kv_heads=2, dim=5, seed=0, dtype=torch.float64) -> list[Tensor]:
    """Queries, keys and values."""
    rng = torch.Generator().manual_seed(seed)
    shapes = [(batch, n, length, dim) for n in (heads, kv_heads, kv_heads)]
    return [torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype) for shape in shapes]


def dense(
    q: Tensor, k: Tensor, v: Tensor, *, window: int | None = 6, causal=True, position=0, first_key=0,
    padding: Tensor | None = None, mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output and weights by the definition, with every score in memory; 0 where nothing is visible."""
    q, k, v = q.double(), k.double(), v.double()
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    distance = torch.arange(q.shape[2])[:, None] + position - torch.arange(k.shape[2]) - first_key
    seen = torch.ones_like(distance, dtype=torch.bool)
    if window is not None:
        seen &= distance.abs() < window
    if causal:
        seen &= distance >= 0
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None and mask.dtype != torch.bool:
        scores = scores + mask
    elif mask is not None:
        seen = seen & mask
    if padding is not None:
        seen = seen & ~padding[:, None, None]
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num(0.0)
    return weights @ v, weights


def close(got: Tensor, want: Tensor, tolerance: float = 1e-12) -> None:
    """Within a tolerance that is absolute."""
    torch.testing.assert_close(got, want.to(got.dtype), rtol=0, atol=tolerance)


def cut(lengths: list[int]) -> list[slice]:
    """Consecutive slices of these lengths."""
    stops = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    return [slice(stop - length, stop) for stop, length in zip(stops, lengths, strict=True)]


def snapshot(state) -> dict:
    """Everything a state holds, to compare later."""
    return {**state.state_dict(), "graph": state.carries_graph}


def unchanged(state, before: dict) -> None:
    """Raise if the state differs from its snapshot."""
    after = snapshot(state)
    assert after.keys() == before.keys()
    for name, value in after.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(before[name])), name
