"""Finds places for labels: beside their curves, and none closer to the next than a gap."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.show.numeric import Number

__all__ = ["LINE_STEP", "aside", "spread"]

LINE_STEP = 19.0  # from one line of labels to the next, in pixels


def spread(wishes: Sequence[Number], gap: Number, low: Number, high: Number) -> list[Number]:
    """Return positions ``gap`` or more apart, inside ``[low, high]`` if they fit, in the order of ``wishes``.

    The positions minimise the sum of squared moves: an isotonic regression of ``wish - rank * gap``, found by
    pooling neighbours that violate the order.
    """
    order = sorted(range(len(wishes)), key=lambda i: wishes[i])
    # Each pool: the sum and the number of the values that must share one place.
    pools: list[tuple[Number, int]] = []
    for rank, i in enumerate(order):
        pools.append((wishes[i] - rank * gap, 1))
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] >= pools[-1][0] / pools[-1][1]:
            total, count = pools.pop()
            pools[-1] = (pools[-1][0] + total, pools[-1][1] + count)
    places = [total / count for total, count in pools for _ in range(count)]
    top = high - (len(wishes) - 1) * gap
    out = [0.0] * len(wishes)
    for rank, i in enumerate(order):
        out[i] = max(min(places[rank], top), low) + rank * gap
    return out


def aside(wish: Number, others: Sequence[Number], to_left: bool) -> Number:
    """Return how far beside its curve a word stands, in pixels down.

    Curves rise more often than not: below one on its right and above it on its left is free paper. Of curves
    that meet the cursor close together, on its right the upper ones are named above and the lower ones below.
    """
    if to_left:
        return -10
    near = [other for other in others if abs(other - wish) < 2 * LINE_STEP]
    if len(near) == 1:
        return 14
    return -12 if wish <= sum(near) / len(near) else 16
