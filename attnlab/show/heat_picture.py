"""Where truncation loses gradient: which pairs of query and key, and how much each key misses."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float

from attnlab.show.card import MARGIN, open_card
from attnlab.show.grid import Grid
from attnlab.show.numeric import Number
from attnlab.show.outline import outline
from attnlab.show.picture import Picture
from attnlab.show.svg import Svg, box_path, number
from attnlab.show.token_axes import TICK, TokenAxes

__all__ = ["heat_picture"]

_SIDE, _BARS, _PANEL = 400.0, 120.0, 330.0
_BETWEEN = 72.0  # from the map to the bars: tick labels and the name of the axis
_SHADES = (0.4, 0.6, 0.8, 1.0)
_TITLE = "Where truncation loses gradient"


def heat_picture(
    pair: Float[np.ndarray, "queries keys"],
    pair_lost: Float[np.ndarray, "queries keys"],
    lost: Bool[np.ndarray, "queries keys"],
    dq: Float[np.ndarray, " queries"],
    dk: Float[np.ndarray, " keys"],
    dv: Float[np.ndarray, " keys"],
    *,
    segment_size: int,
    sentence: str,
    title: str | None = _TITLE,
) -> Picture:
    """Draw what `attnlab.ring.truncation.truncation_loss_map` found.

    Above, one cell for each pair through which gradient flows from a query to a key: blue where the cut graph
    gives it, red and crossed out where it is lost, the darker the more. Below, on the same axis, the relative
    error of dK and of dV at each key.

    Parameters
    ----------
    pair, pair_lost, lost : [S, S]
        Norm of what each query (row) gives to each key (column), of the part that the cut graph loses, and
        whether that counts as lost.
    dq, dk, dv : [S]
        Relative errors by position.
    segment_size : int
        Tokens of a segment.
    sentence
        What the map says; `TruncationLoss.sentence`.
    title
        Title of the picture; None leaves the header out.

    Raises
    ------
    ValueError
        If there is no token, shapes do not fit together, or the segment size is below 1.
    """
    tokens = len(dk)
    shapes = {np.shape(x) for x in (pair, pair_lost, lost)}, {np.shape(x) for x in (dq, dk, dv)}
    if tokens == 0 or shapes != ({(tokens, tokens)}, {(tokens,)}):
        raise ValueError(f"pair, pair_lost, lost and dq, dk, dv must be [S, S] and [S], S > 0; got {shapes}")
    if segment_size < 1:
        raise ValueError(f"segment_size must be at least 1, got {segment_size}")
    axes = TokenAxes(
        tokens, tokens, width=_SIDE, height=_SIDE, above=20, x_label="key position", y_label="query position"
    )
    x = axes.left + _SIDE + 40
    canvas, top = open_card(
        x + _PANEL + MARGIN, axes.top + _SIDE + _BETWEEN + _BARS + 44, title=title, sentence=sentence
    )
    cell = _SIDE / tokens
    grid = Grid(axes.left, top + axes.top, _SIDE, _SIDE, cell, cell)
    _draw_pairs(canvas, grid, pair, pair_lost, lost)
    _draw_cuts(canvas, grid, tokens, segment_size)
    axes.draw(canvas, top)
    _draw_errors(canvas, grid, dk, dv)
    _draw_words(canvas, x, grid, dq, pair_lost, lost)
    return Picture(canvas.render(title=title or "", sentence=sentence), sentence, (grid,))


def _draw_pairs(canvas: Svg, grid: Grid, pair: np.ndarray, pair_lost: np.ndarray, lost: np.ndarray) -> None:
    canvas.rect(grid.x, grid.y, grid.width, grid.height, fill="skip")
    most = float(pair_lost[lost].max()) if lost.any() else 1.0
    shade = np.clip((pair_lost / most * len(_SHADES)).astype(int), 0, len(_SHADES) - 1)
    layers = [("dense", (pair > 0) & ~lost, 0.55)]
    layers += [("now", lost & (shade == i), opacity) for i, opacity in enumerate(_SHADES)]
    canvas.raw(f'<g transform="translate({number(grid.x)} {number(grid.y)}) scale({grid.cell_width:.6g})">')
    for role, cells, opacity in layers:
        if cells.any():
            canvas.path(outline(cells), fill=role, opacity=opacity)
    canvas.raw("</g>")
    size = grid.cell_width
    if size >= 5:
        arm = round(size * 0.25, 1)
        d = ""
        for r, c in np.argwhere(lost):
            x, y = grid.centre(int(r), int(c))
            slash = f"l{number(2 * arm)} {number(2 * arm)}"
            d += f"M{number(round(x - arm, 1))} {number(round(y - arm, 1))}{slash}"
        if d:
            canvas.path(d, stroke="paper", stroke_width=1)


def _draw_cuts(canvas: Svg, grid: Grid, tokens: int, segment_size: int) -> None:
    cuts = [grid.cell_width * at for at in range(segment_size, tokens, segment_size)]
    # The lines leave the numbers between the two plots free.
    d = "".join(
        f"M{number(grid.x + c)} {number(grid.y)}v{number(grid.height)}m0 {_BETWEEN - 6:g}v{_BARS + 6:g}"
        for c in cuts
    )
    d += "".join(f"M{number(grid.x)} {number(grid.y + c)}h{number(grid.width)}" for c in cuts)
    if d:
        canvas.path(d, stroke="muted", stroke_width=1.2, dash="5 4")
    spans = [*[0.0, *cuts], grid.width]
    names = [
        ((a + b) / 2 + grid.x, grid.y - 7, f"segment {i}" if b - a > 90 else str(i))
        for i, (a, b) in enumerate(pairwise(spans))
        if b - a > 22
    ]
    canvas.texts(names, size=TICK, fill="quiet", anchor="middle")


def _draw_errors(canvas: Svg, grid: Grid, dk: np.ndarray, dv: np.ndarray) -> None:
    top = grid.y + grid.height + _BETWEEN
    base = top + _BARS
    halves = max(2, math.ceil(2 * float(np.max([dk, dv])) - 1e-9))
    most = halves / 2
    for i in range(0, halves + 1, -(-halves // 4)):
        y = base - _BARS * i / halves
        canvas.line(grid.x, y, grid.x + grid.width, y, stroke="rule" if i else "muted")
        canvas.text(grid.x - 8, y + 4.5, f"{i / 2:.0%}", size=TICK, fill="quiet", anchor="end")
    half = grid.cell_width * 0.4
    for role, values, shift in (("now", dk, 0.1), ("edge", dv, 0.5)):
        d = ""
        for at in map(int, np.flatnonzero(values > 0)):
            high = round(_BARS * float(values[at]) / most, 1)
            left = grid.x + (at + shift) * grid.cell_width
            d += box_path(round(left, 1), base - high, half, high)
        if d:
            canvas.path(d, fill=role)
    canvas.text(grid.x + grid.width / 2, base + 26, "key position", anchor="middle")


def _draw_words(
    canvas: Svg, x: Number, grid: Grid, dq: np.ndarray, pair_lost: np.ndarray, lost: np.ndarray
) -> None:
    y = grid.y
    canvas.text(x, y + 14, "From query to key", size=16, bold=True)
    canvas.rect(x, y + 34, 22, 22, fill="dense", opacity=0.55)
    canvas.text(x + 34, y + 50, "gradient arrives", fill="quiet")
    for i, opacity in enumerate(_SHADES):
        canvas.rect(x + i * 22, y + 68, 22, 22, fill="now", opacity=opacity)
        canvas.path(f"M{number(x + i * 22 + 6)} {number(y + 74)}l10 10", stroke="paper", stroke_width=1.4)
    canvas.text(x + 100, y + 84, "gradient is lost, little to much", fill="quiet")
    canvas.rect(x, y + 102, 22, 22, fill="skip", stroke="hatch")
    canvas.text(x + 34, y + 118, "nothing to lose", fill="quiet")
    canvas.path(f"M{number(x)} {number(y + 147)}h22", stroke="muted", stroke_width=1.5, dash="5 4")
    canvas.text(x + 34, y + 152, "the graph is cut", fill="quiet")
    y = grid.y + grid.height + _BETWEEN
    canvas.text(x, y + 4, "Relative error at each key", size=16, bold=True)
    for i, (role, name) in enumerate((("now", "dK, left bar"), ("edge", "dV, right bar"))):
        canvas.rect(x, y + 20 + i * 28, 20, 20, fill=role)
        canvas.text(x + 34, y + 35 + i * 28, name, fill="quiet")
    worst = float(np.max(dq))
    said = "dQ is exact" if worst < 1e-12 else f"dQ, at worst {worst:.0%}"
    canvas.text(x, y + 96, said, fill="better-text", bold=True)
