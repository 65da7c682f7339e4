"""What a reader sees: the outcome of a check, and folded hints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attnlab.show.card import MARGIN, open_card
from attnlab.show.picture import Picture
from attnlab.show.svg import body_of, escape, number

__all__ = ["Hints", "Result", "framed"]

_WIDTH = 640.0  # a sentence under this width breaks into too many lines


@dataclass(frozen=True, repr=False)
class Result:
    """The outcome of a check. It is true where the check passed.

    Attributes
    ----------
    passed : bool
    sentence : str
        What was found.
    picture : Picture or None
        The input that broke the function, and the sentence.
    """

    passed: bool
    sentence: str
    picture: Picture | None = None

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return self.sentence

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        drawn = {"image/svg+xml": self.picture.svg} if self.picture else {}
        return drawn | {"text/plain": self.sentence}


class Hints(tuple[str, ...]):
    """Hints, from a nudge to nearly everything. A notebook shows them folded, one under another."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        parts = []
        for i, hint in enumerate(self, 1):
            text = re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(hint))
            parts.append(f"<details><summary>Hint {i}</summary><p>{text}</p></details>")
        return "\n".join(parts)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # IPython would print the tuple, and with it every hint.
        printer.text(f"{len(self)} hints, folded; hints[0] is the first.")


def framed(panels: Sequence[Picture], title: str, sentence: str) -> Picture:
    """Lay pictures under each other, under a title and a sentence that have room where these are narrow."""
    sizes = [panel.size for panel in panels]
    width = max([_WIDTH, *(wide for wide, _ in sizes)])
    height = sum(high - MARGIN for _, high in sizes) - MARGIN
    canvas, top = open_card(width, height, title=title, sentence=sentence)
    y = top - MARGIN
    for panel, (_, high) in zip(panels, sizes, strict=True):
        canvas.raw(f'<g transform="translate(0 {number(y)})">{body_of(panel.svg)}</g>')
        y += high - MARGIN
    return Picture(canvas.render(title=title, sentence=sentence), sentence)
