"""One line of a figure, and what it must hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlab.show.palette import colour, segment_colour

__all__ = ["Curve", "check_curves"]


@dataclass(frozen=True, eq=False)
class Curve:
    """One line of a figure.

    Attributes
    ----------
    name : str
        Written at the end of the line.
    x, y : array_like of float
        The data, in increasing order of x.
    role : str
        A colour of the palette; "" takes the next one of the cycle.
    dashed : bool
        For a bound or a formula, as against a measurement.
    points : bool
        Whether to mark the data points.
    low, high : array_like of float, optional
        The spread of a measurement, drawn as a band.
    """

    name: str
    x: Any
    y: Any
    role: str = ""
    dashed: bool = False
    points: bool = False
    low: Any = None
    high: Any = None


def check_curves(curves: Sequence[Curve], log_x: bool, log_y: bool) -> tuple[Curve, ...]:
    """Return the curves with float arrays and a colour each; ValueError if they cannot be drawn."""
    if not curves:
        raise ValueError("curves must hold at least one curve, got none")
    names = [curve.name for curve in curves]
    if len(set(names)) < len(names):
        raise ValueError(f"curves must have names of their own, got {names}")
    return tuple(_check(curve, i, log_x, log_y) for i, curve in enumerate(curves))


def _check(curve: Curve, index: int, log_x: bool, log_y: bool) -> Curve:
    x, y = np.asarray(curve.x, float), np.asarray(curve.y, float)
    if x.ndim != 1 or x.shape != y.shape or len(x) == 0:
        raise ValueError(
            f"curve {curve.name!r}: x and y must be equally long rows, got {x.shape} and {y.shape}"
        )
    if (np.diff(x) <= 0).any():
        raise ValueError(f"curve {curve.name!r}: x must increase")
    if not np.isfinite(x).all() or not np.isfinite(y).any():
        raise ValueError(f"curve {curve.name!r}: x must be finite, and y somewhere")
    for name, values, log in (("x", x, log_x), ("y", y, log_y)):
        if log and (values <= 0).any():
            raise ValueError(
                f"curve {curve.name!r}: {name} must be positive on a logarithmic axis, got {values.min()}"
            )
    band: dict[str, np.ndarray] = {}
    for name, values in (("low", curve.low), ("high", curve.high)):
        if (curve.low is None) != (curve.high is None) or (
            values is not None and np.shape(values) != x.shape
        ):
            raise ValueError(
                f"curve {curve.name!r}: low and high must both have the shape of x, or both be None"
            )
        if values is not None:
            band[name] = np.asarray(values, float)
    role = curve.role or segment_colour(index + 1)
    colour(f"{role}-text")  # raises if the role does not exist or has no word to go with it
    return Curve(curve.name, x, y, role, curve.dashed, curve.points, band.get("low"), band.get("high"))
