"""Where things lie in a picture: from rows and columns, or from data, to pixels.

A picture carries its plots, so that a cursor, a path or a replay can be drawn over it at the right place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from attnlab.show.numeric import Number

__all__ = ["Axes", "Grid"]


@dataclass(frozen=True)
class Grid:
    """A matrix of equal cells; the last row and column may be cut short by the end of the data.

    Attributes
    ----------
    x, y : float
        Top left corner, in pixels.
    width, height : float
        Size of the drawn area, in pixels.
    cell_width, cell_height : float
        Size of one cell, in pixels.
    """

    x: Number
    y: Number
    width: Number
    height: Number
    cell_width: Number
    cell_height: Number

    def box(self, row: int, column: int) -> tuple[Number, Number, Number, Number]:
        """Return ``(x, y, width, height)`` of a cell."""
        left, top = column * self.cell_width, row * self.cell_height
        if not (0 <= left < self.width and 0 <= top < self.height):
            raise ValueError(f"row, column = {row}, {column} lie outside the grid")
        return (
            self.x + left,
            self.y + top,
            min(self.cell_width, self.width - left),
            min(self.cell_height, self.height - top),
        )

    def centre(self, row: int, column: int) -> tuple[Number, Number]:
        """Return the middle of a cell."""
        x, y, width, height = self.box(row, column)
        return x + width / 2, y + height / 2

    def moved(self, dx: Number, dy: Number, scale: Number = 1) -> Grid:
        """Return the grid after its picture was scaled and then shifted by ``(dx, dy)`` pixels."""
        return Grid(
            self.x * scale + dx,
            self.y * scale + dy,
            self.width * scale,
            self.height * scale,
            self.cell_width * scale,
            self.cell_height * scale,
        )


@dataclass(frozen=True)
class Axes:
    """A pair of axes: its place in pixels and the data range that it spans, linear or logarithmic.

    Attributes
    ----------
    x, y, width, height : float
        Place of the plot area, in pixels.
    x_range, y_range : tuple of float
        Data values at the left and right, and at the bottom and top.
    log_x, log_y : bool
        Whether the axis is logarithmic.
    """

    x: Number
    y: Number
    width: Number
    height: Number
    x_range: tuple[Number, Number]
    y_range: tuple[Number, Number]
    log_x: bool = False
    log_y: bool = False

    def to_x(self, value: Number) -> Number:
        """Return the pixel of a value on the x axis."""
        return self.x + self.width * _share(value, self.x_range, self.log_x, "x")

    def to_y(self, value: Number) -> Number:
        """Return the pixel of a value on the y axis."""
        return self.y + self.height * (1 - _share(value, self.y_range, self.log_y, "y"))

    def moved(self, dx: Number, dy: Number, scale: Number = 1) -> Axes:
        """Return the axes after their picture was scaled and then shifted by ``(dx, dy)`` pixels."""
        return replace(
            self,
            x=self.x * scale + dx,
            y=self.y * scale + dy,
            width=self.width * scale,
            height=self.height * scale,
        )


def _share(value: Number, ends: tuple[Number, Number], log: bool, name: str) -> Number:
    low, high = ends
    if log:
        if value <= 0:
            raise ValueError(f"{name} must be positive on a logarithmic axis, got {value}")
        value, low, high = math.log(value), math.log(low), math.log(high)
    return (value - low) / (high - low)
