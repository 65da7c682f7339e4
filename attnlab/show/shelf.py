"""The map of the shelf: four ideas side by side, each drawn by the code that it is about."""

from __future__ import annotations

import numpy as np

from attnlab.masks import causal, sliding_window
from attnlab.segments.numpy import positions, seqlens_and_offsets
from attnlab.segments.packing import pack, skewed_lengths
from attnlab.show.card import MARGIN, open_card
from attnlab.show.palette import segment_colour
from attnlab.show.picture import Picture
from attnlab.show.svg import Svg
from attnlab.tiles import DENSE, EDGE, tile_map

__all__ = ["shelf_picture"]

_WIDE, _HIGH, _GAP = 222.0, 214.0, 20.0
_FIELD = 118.0  # height of the little drawing in each panel

IDEAS = (
    ("Packed sequences", "Two short lists instead of", "a table of all pairs."),
    ("Rings and tiles", "Keep the last W keys; skip", "every tile that is empty."),
    ("Relative positions", "A lookup instead of one-hot", "times a matrix."),
    ("A speech encoder", "Pay for the frames there are,", "not for the padding."),
)


def shelf_picture() -> Picture:
    """Draw the four techniques of the package next to one another."""
    sentence = "Four ways in which attention gets cheap, each the subject of its own notebooks."
    width = 2 * MARGIN + 4 * _WIDE + 3 * _GAP
    canvas, top = open_card(width, _HIGH, title="How attention gets cheap", sentence=sentence)
    for i, ((name, first, second), draw) in enumerate(
        zip(IDEAS, (_segments, _tiles, _positions, _speech), strict=True)
    ):
        x = MARGIN + i * (_WIDE + _GAP)
        with canvas.group(x, top):
            draw(canvas)
            canvas.text(0, _FIELD + 34, name, size=17, bold=True)
            canvas.text(0, _FIELD + 58, first, fill="quiet")
            canvas.text(0, _FIELD + 77, second, fill="quiet")
    return Picture(canvas.render(title="How attention gets cheap", sentence=sentence), sentence)


def _segments(canvas: Svg) -> None:
    """A packed row, the brackets that describe it, and the triangles of its mask."""
    lengths = np.array([5, 3, 7, 4])
    ids = np.pad(np.repeat(np.arange(1, 5, dtype=np.int32), lengths), (0, 1))[None]
    pos = positions(ids)
    layout = seqlens_and_offsets(ids, ids, pos, pos, mask="causal", max_segments=4)
    step = _WIDE / ids.shape[1]
    for s, (start, length) in enumerate(zip(layout.q_offsets[0], layout.q_seqlens[0], strict=False), 1):
        role, left, side = segment_colour(s), start * step, length * step
        canvas.rect(left, 0, side - 1.5, 20, fill=role)
        canvas.path(f"M{left} 30v5h{side - 2}v-5", stroke=role, stroke_width=1.6)
        canvas.path(f"M{left} {46}v{side * 0.72}h{side - 2}z", fill=role, opacity=0.85)


def _tiles(canvas: Svg) -> None:
    """A causal window in tiles."""
    tiles = tile_map(causal() & sliding_window(80), 192, 192, 16)
    rows, columns = tiles.kinds.shape
    side = _FIELD / rows
    for kind, role in ((DENSE, "dense"), (EDGE, "edge")):
        cells = "".join(
            f"M{c * side:.1f} {r * side:.1f}h{side - 1:.1f}v{side - 1:.1f}h{1 - side:.1f}z"
            for r, c in np.argwhere(tiles.kinds == kind)
        )
        canvas.path(cells, fill=role)
    canvas.rect(0, 0, columns * side, rows * side, stroke="rule")


def _positions(canvas: Svg) -> None:
    """Clipped distances between residues: equal along diagonals, so a few rows serve all pairs."""
    n, reach, side = 14, 4, _FIELD / 14
    distance = np.clip(np.subtract.outer(np.arange(n), np.arange(n)), -reach, reach)
    for value in range(-reach, reach + 1):
        cells = "".join(
            f"M{c * side:.1f} {r * side:.1f}h{side - 0.8:.1f}v{side - 0.8:.1f}h{0.8 - side:.1f}z"
            for r, c in np.argwhere(distance == value)
        )
        canvas.path(cells, fill="dense", opacity=0.15 + 0.85 * (value + reach) / (2 * reach))


def _speech(canvas: Svg) -> None:
    """Utterances of unequal length: padded to the longest above, packed below."""
    lengths = skewed_lengths(5, 46, seed=8, spread=0.7)
    step, bar = _WIDE / int(lengths.max()), 11.0
    for i, length in enumerate(lengths):
        canvas.rect(0, i * (bar + 3), _WIDE, bar, fill="skip")
        canvas.rect(0, i * (bar + 3), length * step, bar, fill=segment_colour(i + 1))
    packed = pack(lengths, int(lengths.max()))
    for row, (sizes, who) in enumerate(zip(packed.lengths, packed.sequence, strict=True)):
        y, x = 80 + row * (bar + 3), 0.0
        canvas.rect(0, y, _WIDE, bar, fill="skip")
        for size, index in zip(sizes, who, strict=True):
            if size:
                canvas.rect(x, y, size * step - 1.5, bar, fill=segment_colour(int(index) + 1))
                x += size * step
