"""Which loop is the outer one when tiles are visited."""

from __future__ import annotations

from enum import Enum

__all__ = ["TileOrder"]


class TileOrder(Enum):
    """The outer loop of a walk over tiles; the value is what `attnlab.tiles.TileMap.order` takes.

    The order changes what crosses between memory and chip, never the result.
    """

    Q_MAJOR = "q"
    """A row of tiles after the other: the query tile and its (m, l, O) stay, keys and values stream past."""

    K_MAJOR = "k"
    """A column of tiles after the other: keys and values stay, queries and their (m, l, O) stream past."""
