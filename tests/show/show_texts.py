"""Where the words of a picture lie, so that a test can say that none is cut off and none covers another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from xml.etree import ElementTree

from attnlab.show import Picture
from attnlab.show.text_width import text_width

SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Word:
    text: str
    left: float
    right: float
    top: float
    bottom: float


def words_of(svg: str) -> list[Word]:
    """All texts that stand upright, with an upper bound of their widths."""
    found: list[Word] = []

    def visit(element: ElementTree.Element, dx: float, dy: float, style: dict[str, str]) -> None:
        move = element.get("transform") or ""
        shift = re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", move)
        if shift:
            dx, dy = dx + float(shift[1]), dy + float(shift[2])
        style = style | {
            k: element.get(k) for k in ("font-size", "text-anchor", "font-weight") if element.get(k)
        }
        if element.tag == f"{SVG}text" and element.text and not move.startswith("rotate"):
            size = float(style.get("font-size", 14))
            wide = text_width(element.text, size, bold="font-weight" in style)
            share = {"start": 0.0, "middle": 0.5, "end": 1.0}[style.get("text-anchor", "start")]
            x, y = float(element.get("x")) + dx - share * wide, float(element.get("y")) + dy
            found.append(Word(element.text, x, x + wide, y - 0.75 * size, y + 0.2 * size))
        for child in element:
            visit(child, dx, dy, style)

    visit(ElementTree.fromstring(svg), 0, 0, {})
    return found


def check_words(picture: Picture, margin: float = 2) -> None:
    """Assert that every word lies on the paper, and that no two lie on each other."""
    width, height = picture.size
    words = words_of(picture.svg)
    for word in words:
        assert margin <= word.left and word.right <= width - margin, f"cut: {word} on {width}"
        assert margin <= word.top and word.bottom <= height - margin, f"cut: {word} on {height}"
    for a, b in combinations(words, 2):
        across = min(a.right, b.right) - max(a.left, b.left)
        down = min(a.bottom, b.bottom) - max(a.top, b.top)
        assert across <= 1 or down <= 2, f"{a} lies on {b}"
