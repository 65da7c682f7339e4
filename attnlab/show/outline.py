"""The outline of a set of cells, as one SVG path.

A causal mask of 512 tokens has 131,328 visible cells and 1,026 corners. Drawing the outline keeps a notebook
small and leaves no hairline between neighbouring cells.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

__all__ = ["corner_count", "outline"]


def _edges(steps: np.ndarray, axis_first: bool) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Cut the border along one direction into straight pieces, the filled side always on the same hand."""
    pieces = []
    padded = np.pad(steps, ((0, 0), (1, 1)))
    lines, ends = np.nonzero(np.diff(padded, axis=1))
    # Along one grid line, the piece from one change to the next has the direction of the value between them.
    for i in range(len(ends) - 1):
        if lines[i] != lines[i + 1] or not steps[lines[i], ends[i]]:
            continue
        line, a, b = int(lines[i]), int(ends[i]), int(ends[i + 1])
        if (steps[line, a] > 0) != axis_first:
            a, b = b, a
        pieces.append(((a, line), (b, line)) if axis_first else ((line, a), (line, b)))
    return pieces


def corner_count(cells: Bool[np.ndarray, "rows columns"]) -> int:
    """Return how many corners the outline has, without building it."""
    padded = np.pad(cells, 1).astype(np.int8)
    around = padded[1:, 1:] + padded[:-1, 1:] + padded[1:, :-1] + padded[:-1, :-1]
    diagonal = (around == 2) & (padded[1:, 1:] == padded[:-1, :-1]) & (padded[1:, :-1] == padded[:-1, 1:])
    return int(np.count_nonzero(around % 2)) + 2 * int(np.count_nonzero(diagonal))


def outline(cells: Bool[np.ndarray, "rows columns"]) -> str:
    """Return the border of the True cells as an SVG path in which a cell is a unit square.

    Row r and column c cover ``[c, c + 1] x [r, r + 1]``. Holes come out right under the default fill rule.
    """
    padded = np.pad(cells, 1).astype(np.int8)
    inner = slice(1, -1)
    across = _edges(np.diff(padded, axis=0)[:, inner], True)
    down = _edges(np.diff(padded, axis=1)[inner, :].T, False)
    follow: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for start, end in down:
        follow.setdefault(start, []).append(end)
    next_across: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for start, end in across:
        next_across.setdefault(start, []).append(end)
    parts: list[str] = []
    for start, _ in across:
        if not next_across.get(start):
            continue
        x, y = start
        parts.append(f"M{x} {y}")
        while True:
            turn = next_across[(x, y)].pop()
            parts.append(f"h{turn[0] - x}")
            end = follow[turn].pop()
            x, y = end
            if (x, y) == start:
                parts.append("z")
                break
            parts.append(f"v{end[1] - turn[1]}")
    return "".join(parts)
