"""Rows of labelled cells: what the pictures of the exercises on rings and tiles are made of."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from attnlab.show.card import MARGIN, open_card
from attnlab.show.picture import Picture
from attnlab.show.text_width import text_width

__all__ = ["Strip", "strips"]

_LABEL, _TITLE = 14.0, 16.0
_HEIGHT, _GAP, _LEAST = 30.0, 12.0, 30.0
_MOST_CELLS = 24


@dataclass(frozen=True)
class Strip:
    """One row of cells.

    Attributes
    ----------
    label : str
        Written in front of the row.
    cells : sequence
        What is written in them; only the first 24 are drawn.
    marked : collection of int
        Cells to be filled and bold.
    breaks : collection of int
        Cells before which a gap is left.
    """

    label: str
    cells: Sequence[object]
    marked: Collection[int] = ()
    breaks: Collection[int] = ()


def strips(rows: Sequence[Strip], title: str) -> Picture:
    """Draw rows of cells under each other, on a card with a small title."""
    texts = [[str(cell) for cell in row.cells[:_MOST_CELLS]] for row in rows]
    widest = max((text_width(text, _LABEL, bold=True) for row in texts for text in row), default=0)
    step = max(_LEAST, widest + 10)
    left = MARGIN + max(text_width(row.label, _LABEL) for row in rows) + _GAP
    most = max(len(row) for row in texts) + 1
    gaps = max(len(row.breaks) for row in rows) * _GAP
    width = max(left + most * step + gaps, MARGIN + text_width(title, _TITLE, bold=True)) + MARGIN
    height = len(rows) * (_HEIGHT + _GAP)
    canvas, top = open_card(width, height, title=title, sentence=title, panel=True)
    for i, (row, cells) in enumerate(zip(rows, texts, strict=True)):
        y = top + i * (_HEIGHT + _GAP)
        canvas.text(left - _GAP, y + 20, row.label, size=_LABEL, fill="quiet", anchor="end")
        x = left
        for j, text in enumerate(cells):
            x += _GAP if j in row.breaks else 0
            inside = j in row.marked
            canvas.rect(x, y, step - 2, _HEIGHT, fill="dense" if inside else "skip")
            canvas.text(
                x + step / 2 - 1,
                y + 20,
                text,
                size=_LABEL,
                fill="on-dense" if inside else "ink",
                anchor="middle",
                bold=inside,
            )
            x += step
        if len(row.cells) > _MOST_CELLS:
            canvas.text(x, y + 20, "...", size=_LABEL, fill="quiet")
    return Picture(canvas.render(title=title, sentence=title), title)
