"""Ring buffers and tiles: sliding-window attention in memory that does not grow with the sequence.

A window of W always means W visible keys, the query's own included: a query at p sees p - W < k <= p.
What the room holds:

- The ring. `attnlab.ring.laws` says which slot holds which position and what must hold for a ring to be
  safe; integers only. `RingCache` keeps keys and values and is written in place. `attnlab.ring.jax` is
  the same as pure functions of a state.
- Attention over a whole sequence, `sliding_window_attention`: the float64 reference, a walk over tiles
  that can be replayed, overlapping blocks without a copy (CPU), and Triton kernels (GPU). In JAX,
  `attnlab.ring.jax` and the Pallas kernel of `attnlab.ring.pallas`. `masked_attention` is the slower path
  that also knows padding, masks, dropout and weights.
- Tiles. `TileOrder` names the outer loop, `two_level_map` and `two_level_attention` schedule large blocks
  and refine those that a mask cuts, and `advise` says which order moves fewer bytes.
- The module. `RingBufferConfig`, `RingBufferAttention` and its `BufferState`; `FeedbackBuffer` and
  `right_shift` for a decoder's own output; `register_attention` and `build_attention` to choose attention
  by name. `attnlab.ring.transformers` puts the ring into Hugging Face models.
- Training in bounded memory. `GradientRing` is the reverse sweep, and `truncation_loss_map` shows what is
  lost without it.
- This machine. `attnlab.ring.tuned` looks up the block sizes that ``attnlab tune ring`` found,
  `attnlab.ring.phases` times one call by phase, and `attnlab.ring.trace` lists the addresses that a step
  reads.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cache import RingCache
    from .config import RingBufferConfig
    from .feedback import FeedbackBuffer, right_shift
    from .gradient_ring import GradientRing
    from .levels import two_level_map
    from .masked import masked_attention
    from .module import RingBufferAttention
    from .order import TileOrder
    from .registry import build_attention, register_attention
    from .state import BufferState
    from .traffic import advise
    from .truncation import truncation_loss_map
    from .two_level import two_level_attention
    from .window import sliding_window_attention

__all__ = [
    "BufferState",
    "FeedbackBuffer",
    "GradientRing",
    "RingBufferAttention",
    "RingBufferConfig",
    "RingCache",
    "TileOrder",
    "advise",
    "build_attention",
    "masked_attention",
    "register_attention",
    "right_shift",
    "sliding_window_attention",
    "truncation_loss_map",
    "two_level_attention",
    "two_level_map",
]

# Most of these need torch, so each is imported when it is first asked for.
_MODULES = {
    "BufferState": "state",
    "FeedbackBuffer": "feedback",
    "GradientRing": "gradient_ring",
    "RingBufferAttention": "module",
    "RingBufferConfig": "config",
    "RingCache": "cache",
    "TileOrder": "order",
    "advise": "traffic",
    "build_attention": "registry",
    "masked_attention": "masked",
    "register_attention": "registry",
    "right_shift": "feedback",
    "sliding_window_attention": "window",
    "truncation_loss_map": "truncation",
    "two_level_attention": "two_level",
    "two_level_map": "levels",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
