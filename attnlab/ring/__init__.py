"""Ring buffers and tiles: sliding-window attention in memory that does not grow with the sequence.

What the room holds so far:

- `attnlab.ring.laws`: which slot holds which position, and what must hold for a ring to be safe. Integers
  only, and it loads no framework.
- `RingCache` (`attnlab.ring.cache`): keys and values in a ring that is written in place; append, attend, roll
  back, save and load.
- `sliding_window_attention` (`attnlab.ring.window`): attention over a whole sequence at once, differentiable,
  by the path that `impl` names: dense in float64 (`attnlab.ring.reference`), tile by tile
  (`attnlab.ring.tiled`), or overlapping blocks without a copy (`attnlab.ring.strided`). `TileOrder` says
  which loop over the tiles is the outer one.

A window of W always means W visible keys, the query's own included: a query at p sees p - W < k <= p.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cache import RingCache
    from .order import TileOrder
    from .window import sliding_window_attention

__all__ = ["RingCache", "TileOrder", "sliding_window_attention"]

# Most of these need torch, so each is imported when it is first asked for.
_MODULES = {"RingCache": "cache", "TileOrder": "order", "sliding_window_attention": "window"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
