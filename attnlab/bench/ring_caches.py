"""Caches that decode a token at a time behind a sliding window, as functions that take a number of steps.

Each function makes a cache in the state it has after `position` tokens, without writing them one by one, and
returns a `Stepper`. A step appends one token's key and value and attends with its query to the last W keys;
all caches give the same result on the same tokens. The window counts W visible keys, the query's own
included, as ``sliding_window=W`` does in transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

RING, DYNAMIC, STATIC = "RingCache", "transformers, dynamic sliding", "transformers, static sliding"
GROWING, AHEAD = "growing, concatenated", "growing, allocated ahead"
FROM_TRANSFORMERS = (DYNAMIC, STATIC, GROWING)

PREFILL, TILE = 512, 32  # of RingBufferConfig, whose capacity the ring has
ROOM = 4096  # tokens for which a cache that is allocated ahead has room beyond its position


@dataclass(frozen=True)
class Shape:
    """What is decoded: `batch` sequences, with `heads` key heads and `group` times as many query heads."""

    batch: int
    heads: int
    head_dim: int
    window: int
    dtype: str
    device: str
    group: int = 1

    @property
    def capacity(self) -> int:
        """Slots of the ring: the fewest that also hold prefill in chunks of 512."""
        from attnlab.ring.laws import default_capacity

        return default_capacity(self.window, PREFILL, TILE)

    @property
    def row_bytes(self) -> int:
        """Bytes of one token's keys and values, all heads and sequences."""
        import torch

        return 2 * self.batch * self.heads * self.head_dim * getattr(torch, self.dtype).itemsize

    def without_data(self) -> Shape:
        """The same on torch's device "meta", whose tensors have sizes and no content."""
        return replace(self, device="meta")

    def past(self, tokens: int, *, group: int = 1) -> Any:
        """Numbers for keys or values of `tokens` tokens, [batch, heads * group, tokens, head_dim]."""
        import torch

        shape = (self.batch, self.heads * group, tokens, self.head_dim)
        generator = None if self.device == "meta" else torch.Generator(self.device).manual_seed(tokens)
        return torch.randn(shape, generator=generator, dtype=getattr(torch, self.dtype), device=self.device)


Stepper = Callable[[Any, Any, Any], Any]
"""One step: q, k and v of the next token, [batch, heads, 1, head_dim] each, to the attention output."""


def ring(shape: Shape, position: int) -> Stepper:
    """`RingCache`: the pointers are set to `position` and every slot is filled."""
    cache = ring_cache(shape, position)

    def step(q: Any, k: Any, v: Any) -> Any:
        cache.append(k, v)
        return cache.attend(q)

    return step


def ring_cache(shape: Shape, position: int) -> Any:
    """The ring itself, in the state that it has after `position` tokens."""
    import torch

    from attnlab.ring import RingCache

    cache = RingCache(
        shape.batch,
        shape.heads,
        shape.head_dim,
        shape.capacity,
        window=shape.window,
        dtype=getattr(torch, shape.dtype),
        device=shape.device,
    )
    past = shape.past(shape.capacity)
    state = {**cache.state_dict(), "k": past, "v": past, "position": position, "highest": position}
    cache.load_state_dict(state)
    return cache


def layer_of(name: str, shape: Shape) -> Any:
    """An empty cache layer of transformers.

    `DYNAMIC` is the sliding layer of its ``DynamicCache``: it concatenates, and keeps the last W - 1 keys.
    `STATIC` is that of its ``StaticCache``: once full, it moves every key one slot to the left. `GROWING` is
    the layer of its ``DynamicCache`` for full attention, which concatenates and keeps everything.
    """
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, StaticSlidingWindowLayer

    if name == DYNAMIC:
        return DynamicSlidingWindowLayer(shape.window)
    if name == STATIC:
        return StaticSlidingWindowLayer(max_cache_len=shape.window, sliding_window=shape.window)
    return DynamicLayer()


def updating(shape: Shape, position: int, *, name: str) -> Stepper:
    """A cache layer of transformers, and PyTorch's attention to the last W of the keys that it returns.

    `position` is at least W: the static layer returns all its slots, filled or not.
    """
    from torch.nn.functional import scaled_dot_product_attention

    layer, window, grouped = layer_of(name, shape), shape.window, shape.group > 1
    past = shape.past(position if name == GROWING else window)
    layer.update(past, past)
    if name == DYNAMIC:
        layer.cumulative_length = position
    elif name == STATIC:
        layer.cumulative_length_int = position

    def step(q: Any, k: Any, v: Any) -> Any:
        keys, values = layer.update(k, v)
        if name == GROWING:
            keys, values = keys[:, :, -window:], values[:, :, -window:]
        return scaled_dot_product_attention(q, keys, values, enable_gqa=grouped)

    return step


def allocated_ahead(shape: Shape, position: int) -> Stepper:
    """All keys of the sequence in one tensor that was made for them; attention is to the last W keys."""
    from torch.nn.functional import scaled_dot_product_attention

    keys = shape.past(position + ROOM)
    values, written = keys.clone(), position
    grouped = shape.group > 1

    def step(q: Any, k: Any, v: Any) -> Any:
        nonlocal written
        if written == position + ROOM:
            written = position
        keys[:, :, written : written + 1] = k
        values[:, :, written : written + 1] = v
        written += 1
        seen = slice(max(0, written - shape.window), written)
        return scaled_dot_product_attention(q, keys[:, :, seen], values[:, :, seen], enable_gqa=grouped)

    return step


WAYS: dict[str, Callable[[Shape, int], Stepper]] = {
    RING: ring,
    **{name: partial(updating, name=name) for name in FROM_TRANSFORMERS},
    AHEAD: allocated_ahead,
}
