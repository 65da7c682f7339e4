"""The settings of the walk over tiles that can be changed while a model is in use."""

from __future__ import annotations

from .order import TileOrder

__all__ = ["TilingProcessor"]


class TilingProcessor:
    """What `RingBufferAttention.tiling_processor` is: the order in which tiles are visited.

    In the source this object also cut the tiles and merged them. Here that is the work of the path that
    computes (`attnlab.ring.tiled` shows it step by step), and only the choice of the order is left.
    """

    def __init__(self) -> None:
        self._tile_order = TileOrder.Q_MAJOR

    @property
    def tile_order(self) -> TileOrder:
        """Which loop is the outer one, `TileOrder.Q_MAJOR` at first. It never changes a result.

        Raises
        ------
        TypeError
            When it is set to something that is no TileOrder.
        """
        return self._tile_order

    @tile_order.setter
    def tile_order(self, order: TileOrder) -> None:
        if not isinstance(order, TileOrder):
            raise TypeError(
                f"tile_order must be TileOrder.Q_MAJOR or TileOrder.K_MAJOR; "
                f"got {type(order).__name__}: {order!r}"
            )
        self._tile_order = order

    def __repr__(self) -> str:
        return f"TilingProcessor(tile_order={self._tile_order})"
