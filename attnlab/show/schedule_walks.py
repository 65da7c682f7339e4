"""The two walks over one tile map, Q-major and K-major, gathered into steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from attnlab.ring.order import TileOrder
from attnlab.show.schedule_steps import Step, steps_of
from attnlab.show.tile_picture import visited_tiles
from attnlab.tiles import TileMap

__all__ = ["ORDERS", "Schedule", "schedule"]

ORDERS = {"Q-major": TileOrder.Q_MAJOR, "K-major": TileOrder.K_MAJOR}


@dataclass(frozen=True, eq=False)
class Schedule:
    """The walks over one tile map in both orders.

    Attributes
    ----------
    tiles : TileMap
        Of a window mask.
    order : str
        The order that is shown, a key of `ORDERS`.
    head_dim, bytes_per_element : int
        Of Q, K, V and O in the bytes; the data behind (m, l, O) have this D too.
    steps, other : list of Step
        Of this order and of the other one, equally many.
    """

    tiles: TileMap
    order: str
    head_dim: int
    bytes_per_element: int
    steps: list[Step] = field(repr=False)
    other: list[Step] = field(repr=False)

    @property
    def other_order(self) -> str:
        """The order that is not shown."""
        return next(name for name in ORDERS if name != self.order)

    def sentence(self, step: int) -> str:
        """What the step with this number does; the first is 1."""
        at, tiles = self.steps[step - 1], self.tiles
        return (
            f"Step {step} of {len(self.steps)}: query tile {at.q_tile} meets key tile {at.k_tile}. "
            f"{visited_tiles(tiles.n_visited, tiles.n_skip)}"
        )


def schedule(
    tiles: TileMap, order: str = "Q-major", *, head_dim: int = 64, bytes_per_element: int = 2
) -> Schedule:
    """Walk over tiles in both orders, with `attnlab.ring.tiled.walk`.

    Parameters
    ----------
    tiles : TileMap
    order : "Q-major" or "K-major"
        The one to show.
    head_dim, bytes_per_element : int
        Of Q, K, V and O; 2 for bfloat16.

    Raises
    ------
    ValueError
        If the order has another name, or no tile is visited.
    """
    from attnlab.ring.tiled import walk

    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(map(repr, ORDERS))}, got {order!r}")
    steps = {
        name: steps_of(walk(tiles, value, head_dim=head_dim, bytes_per_element=bytes_per_element))
        for name, value in ORDERS.items()
    }
    mine = steps.pop(order)
    return Schedule(tiles, order, head_dim, bytes_per_element, mine, *steps.values())
