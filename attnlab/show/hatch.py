"""A texture of slanted lines, so that colour is never the only channel."""

from __future__ import annotations

import math

from attnlab.show.numeric import Number
from attnlab.show.svg import number

__all__ = ["hatch"]


def hatch(x: Number, y: Number, width: Number, height: Number, gap: Number) -> str:
    """Return the path of 45 degree lines that fill a rectangle, ``gap`` pixels apart along its lower side.

    The lines are drawn rather than made a pattern: a pattern needs an id, and a browser drops a pattern whose
    first owner is hidden.
    """
    parts = []
    # Lines are fixed to the page, so that neighbouring rectangles share one texture.
    first = math.floor((x + y) / gap) + 1
    last = math.ceil((x + width + y + height) / gap)
    for k in range(first, last):
        total = k * gap  # along the line x + y = total
        x0 = max(x, total - (y + height))
        x1 = min(x + width, total - y)
        if x1 - x0 > 0.01:
            parts.append(f"M{number(x0)} {number(total - x0)}l{number(x1 - x0)} {number(x0 - x1)}")
    return "".join(parts)
