"""Tiles of keys merged in any order, with the running (m, l, O) of one query."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from attnlab.attention import Triple, dense_attention, merge_mlo, normalise, partial_attention
from attnlab.show.card import MARGIN, open_card
from attnlab.show.picture import Picture
from attnlab.show.svg import box_path
from attnlab.show.token_axes import TICK

__all__ = ["TILES", "merge_picture"]

TILES = 5
"""Tiles of keys, so that there are 120 orders."""

_KEYS, _DIM = 4, 3
_CELL, _ROW = 15.5, 46.0
_TITLE = "One query, five tiles of keys"


def merge_picture(permutation: int = 0, *, seed: int = 7) -> Picture:
    """Draw the merge of five tiles, one after the other, in one of the 120 orders.

    Each row merges one tile with `attnlab.attention.merge_mlo`. On the left the keys merged so far; on the
    right the running (m, l, O) of the query. Underneath the result, O / l, to as many digits as a float64
    holds for certain after so few sums.

    Parameters
    ----------
    permutation : int
        Which order, from 0 (1, 2, 3, 4, 5) to 119 (5, 4, 3, 2, 1).
    seed : int
        Of the data.

    Raises
    ------
    ValueError
        If there is no such order.
    """
    orders = math.factorial(TILES)
    if not 0 <= permutation < orders:
        raise ValueError(f"permutation must be from 0 to {orders - 1}, got {permutation}")
    order = next(itertools.islice(itertools.permutations(range(TILES)), permutation, None))
    q, k, v = _data(seed)
    states = list(itertools.accumulate((_parts(seed)[t] for t in order), merge_mlo))
    (out,), _ = normalise(*states[-1])
    (exact,), _ = dense_attention(q, k, v)
    named = ", ".join(str(t + 1) for t in order)
    away = _furthest(seed)
    # Rounding differs from machine to machine, so the difference is said as a bound.
    bound = 10.0 ** math.ceil(math.log10(max(away, 1e-14)))
    sentence = (
        f"Merged in the order {named}. In all {orders} orders the result differs from full attention by "
        f"{'less than' if away < bound else 'at most'} {bound:.0e}."
    )
    canvas, top = open_card(900, 70 + TILES * _ROW + 84, title=_TITLE, sentence=sentence)

    left = MARGIN + 96
    wide = TILES * _KEYS * _CELL + (TILES - 1) * 6
    columns = [left + wide + 74 + shift for shift in (0, 84)] + [
        left + wide + 242 + i * 72 for i in range(_DIM)
    ]
    head = [(left + t * (_KEYS * _CELL + 6) + 2 * _CELL, top + 44, f"tile {t + 1}") for t in range(TILES)]
    canvas.texts(head, size=TICK, fill="quiet", anchor="middle")
    for at, name in zip(
        (left, columns[0] - 44), ("The keys merged so far", "The running state of the query"), strict=True
    ):
        canvas.text(at, top + 16, name, size=16, bold=True)
    canvas.texts(
        zip(columns, [top + 44.0] * 5, ("m", "l", "", "O", ""), strict=True),
        size=TICK,
        fill="quiet",
        anchor="end",
    )
    for row, (tile, (m, l, o)) in enumerate(zip(order, states, strict=True)):  # noqa: E741
        y = top + 58 + row * _ROW
        canvas.text(left - 14, y + 21, f"+ tile {tile + 1}", anchor="end", bold=True, fill="now-text")
        for role, chosen in (("now", [tile]), ("dense", order[:row]), ("skip", order[row + 1 :])):
            d = ""
            for t in chosen:
                for key in range(_KEYS):
                    x = left + t * (_KEYS * _CELL + 6) + key * _CELL
                    d += box_path(x, y, _CELL - 1.5, 32)
            if d:
                canvas.path(d, fill=role)
        ends = left + tile * (_KEYS * _CELL + 6)
        canvas.rect(ends - 2.5, y - 2.5, _KEYS * _CELL + 3.5, 37, stroke="now", stroke_width=1.5)
        values = [float(m[0]), float(l[0]), *(float(x) for x in o[0])]
        words = [(x, y + 21, _write(value)) for x, value in zip(columns, values, strict=True)]
        canvas.texts(words, anchor="end")
    y = top + 58 + TILES * _ROW
    canvas.line(MARGIN, y + 4, 900 - MARGIN, y + 4, stroke="rule")
    canvas.text(left - 14, y + 34, "O / l", anchor="end", bold=True)
    words = [(left + i * 190, y + 34, _write(float(x), 12)) for i, x in enumerate(out)]
    canvas.texts(words, size=16, fill="better-text", bold=True)
    canvas.text(left - 14, y + 62, "all at once", anchor="end", fill="quiet")
    canvas.texts(
        [(left + i * 190, y + 62, _write(float(x), 12)) for i, x in enumerate(exact)], size=16, fill="quiet"
    )
    return Picture(canvas.render(title=_TITLE, sentence=sentence), sentence)


def _data(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One query, the keys and the values of all tiles."""
    rng = np.random.default_rng(seed)
    k, v = rng.standard_normal((2, TILES * _KEYS, _DIM))
    return 2 * rng.standard_normal((1, _DIM)), k, v


@functools.lru_cache(maxsize=4)
def _parts(seed: int) -> list[Triple]:
    """The (m, l, O) of each tile by itself."""
    q, k, v = _data(seed)
    return [partial_attention(q, k[t : t + _KEYS], v[t : t + _KEYS]) for t in range(0, len(k), _KEYS)]


@functools.lru_cache(maxsize=4)
def _furthest(seed: int) -> float:
    """The largest difference from dense attention, over every order."""
    exact, _ = dense_attention(*_data(seed))
    results = (
        normalise(*functools.reduce(merge_mlo, order))[0] for order in itertools.permutations(_parts(seed))
    )
    return max(float(np.abs(result - exact).max()) for result in results)


def _write(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}f}".replace("-", "−")
