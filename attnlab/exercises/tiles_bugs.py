"""Two ways to get attention in tiles wrong, for the exercises on tiles. Nothing else uses them.

The first is what the code that this part grew from did: softmax in each tile, and no merge. The second does
merge, and loses the row when a tile in which the query sees nothing comes first. Rows in which everything is
hidden have given NaN in shipped code (lablup/mlxcel pull request 412).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64

__all__ = ["merge_from_nothing", "softmax_in_each_tile"]


def softmax_in_each_tile(
    scores: Float[np.ndarray, " keys"], values: Float[np.ndarray, "keys head_dim"], tile: int
) -> Float64[np.ndarray, " head_dim"]:
    """Attend with one query, tile by tile. It has a bug.

    Parameters
    ----------
    scores : float64 [n]
        Of the query with each key.
    values : float64 [n, D]
    tile : int
        Keys of a tile.
    """
    out = np.zeros(values.shape[1])
    for start in range(0, len(scores), tile):
        part = scores[start : start + tile]
        weights = np.exp(part - part.max())
        out += weights @ values[start : start + tile] / weights.sum()
    return out


def merge_from_nothing(
    scores: Float[np.ndarray, " keys"], values: Float[np.ndarray, "keys head_dim"], tile: int
) -> Float64[np.ndarray, " head_dim"]:
    """Attend with one query, tile by tile, carrying (m, l, O) along. It has a bug.

    Parameters
    ----------
    scores : float64 [n]
        Of the query with each key; -inf where a key is hidden.
    values : float64 [n, D]
    tile : int
        Keys of a tile.
    """
    m, total, out = -np.inf, 0.0, np.zeros(values.shape[1])
    with np.errstate(invalid="ignore"):
        for start in range(0, len(scores), tile):
            part = scores[start : start + tile]
            larger = np.maximum(m, part.max())
            shrink, weights = np.exp(m - larger), np.exp(part - larger)
            total = shrink * total + weights.sum()
            out = shrink * out + weights @ values[start : start + tile]
            m = larger
        return out / total
