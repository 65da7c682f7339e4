"""A picture: SVG text and the one sentence that says the same in words."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.show.card import MARGIN, open_card
from attnlab.show.grid import Axes, Grid
from attnlab.show.numeric import Number
from attnlab.show.svg import body_of, number

__all__ = ["Picture", "beside", "stack"]

_SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)"')


@dataclass(frozen=True, repr=False)
class Picture:
    """A finished picture.

    Attributes
    ----------
    svg : str
        A complete SVG document on its own paper.
    sentence : str
        What the picture says, in one or two sentences. It is the text that a notebook stores and compares,
        and what a screen reader reads.
    plots : tuple of Grid or Axes
        Where the plots lie, so that more can be drawn over them.
    """

    svg: str
    sentence: str
    plots: tuple[Grid | Axes, ...] = ()

    def __repr__(self) -> str:
        return f"Picture({self.sentence!r})"

    @property
    def size(self) -> tuple[Number, Number]:
        """Natural width and height in pixels."""
        found = _SIZE.match(self.svg)
        if found is None:
            raise ValueError("svg must begin with an <svg> element that has a width and a height")
        return float(found[1]), float(found[2])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"image/svg+xml": self.svg, "text/plain": self.sentence}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to an ``.svg`` file."""
        path = Path(path)
        if path.suffix != ".svg":
            raise ValueError(f"path must end in .svg, got {str(path)!r}")
        path.write_text(self.svg, encoding="utf-8")


def beside(
    *pictures: Picture, title: str | None = None, sentence: str | None = None, gap: Number = 8
) -> Picture:
    """Lay pictures next to each other on one paper, tops aligned.

    Parameters
    ----------
    pictures
        At least one. Make them with ``panel=True`` if the whole has a title of its own.
    title
        A title over all of them.
    sentence
        What the whole says; by default the sentences of the parts, one after another. Drawn when there is a
        title.
    gap
        Pixels between neighbours.
    """
    return _lay(pictures, title, sentence, gap, across=True)


def stack(
    *pictures: Picture, title: str | None = None, sentence: str | None = None, gap: Number = 0
) -> Picture:
    """Lay pictures under each other on one paper, left sides aligned. Parameters as for `beside`."""
    return _lay(pictures, title, sentence, gap, across=False)


def _lay(
    pictures: Sequence[Picture], title: str | None, sentence: str | None, gap: Number, *, across: bool
) -> Picture:
    if not pictures:
        raise ValueError("pictures must hold at least one picture, got none")
    sizes = [picture.size for picture in pictures]
    gaps = gap * (len(pictures) - 1)
    # Neighbours share the margin between them.
    shared = MARGIN * (len(pictures) - 1)
    widths, heights = zip(*sizes, strict=True)
    width = sum(widths) + gaps - shared if across else max(widths)
    height = max(heights) if across else sum(heights) + gaps - shared
    sentence = " ".join(picture.sentence for picture in pictures) if sentence is None else sentence
    canvas, top = open_card(width, height - 2 * MARGIN, title=title, sentence=sentence)
    x, y = 0.0, top - MARGIN
    plots: list[Grid | Axes] = []
    for picture, (w, h) in zip(pictures, sizes, strict=True):
        canvas.raw(f'<g transform="translate({number(x)} {number(y)})">{body_of(picture.svg)}</g>')
        plots.extend(plot.moved(x, y) for plot in picture.plots)
        x, y = (x + w + gap - MARGIN, y) if across else (x, y + h + gap - MARGIN)
    return Picture(canvas.render(title=title or "", sentence=sentence), sentence, tuple(plots))
