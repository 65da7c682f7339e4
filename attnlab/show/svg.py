"""A small SVG builder: shapes by role, text escaped, one paper underneath.

Coordinates are pixels at natural size, y downwards. Colours are roles of `attnlab.show.palette`. The text
that comes out depends only on what went in: there are no ids, no clocks and no random numbers, so equal
pictures are equal strings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from attnlab.show.numeric import Number
from attnlab.show.palette import colour
from attnlab.show.theme import classes_in, style

__all__ = ["FONT", "TEXT_SIZE", "Svg", "body_of", "box_path", "escape", "number"]

FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"
TEXT_SIZE = 14.0
_BODY = '<g class="al-body">'
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape(text: str) -> str:
    """Make text safe inside an element or an attribute; characters that XML forbids become U+FFFD."""
    text = _NOT_XML.sub("\ufffd", text)
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(character, entity)
    return text


def number(value: Number) -> str:
    """Write a coordinate with at most two decimals and no more characters than it needs."""
    if not math.isfinite(value):
        raise ValueError(f"value must be finite to be drawn, got {value}")
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    if text in ("-0", ""):
        return "0"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


class Svg:
    """A drawing of a fixed size, built shape by shape.

    Parameters
    ----------
    width, height
        Natural size in pixels. The picture shrinks with its column but never grows beyond this.
    """

    def __init__(self, width: Number, height: Number) -> None:
        if not (width > 0 and height > 0):
            raise ValueError(f"width and height must be positive, got {width} and {height}")
        self.width = width
        self.height = height
        self._parts: list[str] = []

    def rect(
        self,
        x: Number,
        y: Number,
        width: Number,
        height: Number,
        *,
        fill: str | None = None,
        stroke: str | None = None,
        stroke_width: Number = 1,
        radius: Number = 0,
        opacity: Number = 1,
    ) -> None:
        """Draw a rectangle."""
        shape = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        if radius:
            shape += f' rx="{number(radius)}"'
        self._parts.append(f"<rect {shape}{_paint(fill, stroke, stroke_width, opacity=opacity)}/>")

    def line(
        self,
        x1: Number,
        y1: Number,
        x2: Number,
        y2: Number,
        *,
        stroke: str,
        width: Number = 1,
        dash: str = "",
    ) -> None:
        """Draw a straight line."""
        shape = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
        self._parts.append(f"<line {shape}{_paint(None, stroke, width, dash=dash)}/>")

    def path(
        self,
        d: str,
        *,
        fill: str | None = None,
        stroke: str | None = None,
        stroke_width: Number = 1,
        opacity: Number = 1,
        dash: str = "",
        round_ends: bool = False,
    ) -> None:
        """Draw a path; ``d`` is in SVG's path language."""
        paint = _paint(fill, stroke, stroke_width, opacity=opacity, dash=dash)
        if round_ends:
            paint += ' stroke-linecap="round" stroke-linejoin="round"'
        self._parts.append(f'<path d="{escape(d)}"{paint}/>')

    def text(
        self,
        x: Number,
        y: Number,
        text: str,
        *,
        size: Number = TEXT_SIZE,
        fill: str = "ink",
        anchor: str = "start",
        bold: bool = False,
        rotate: Number = 0,
        halo: str = "",
    ) -> None:
        """Write one line of text with its baseline at ``y``; ``anchor`` is start, middle or end.

        A ``halo`` is a rim around the letters in the colour of what is behind them, for text that lies over
        lines.
        """
        turn = f' transform="rotate({number(rotate)} {number(x)} {number(y)})"' if rotate else ""
        font = _font(size, fill, anchor, bold, halo)
        self._parts.append(f'<text x="{number(x)}" y="{number(y)}"{turn}{font}>{escape(text)}</text>')

    def texts(
        self,
        items: Iterable[tuple[Number, Number, str]],
        *,
        size: Number = TEXT_SIZE,
        fill: str = "ink",
        anchor: str = "start",
        bold: bool = False,
        halo: str = "",
    ) -> None:
        """Write many short texts ``(x, y, text)`` in one style, which is then stored once."""
        inner = "".join(
            f'<text x="{number(x)}" y="{number(y)}">{escape(text)}</text>' for x, y, text in items
        )
        if inner:
            self._parts.append(f"<g{_font(size, fill, anchor, bold, halo)}>{inner}</g>")

    @contextmanager
    def group(self, x: Number = 0, y: Number = 0, *, name: str = "") -> Iterator[None]:
        """Shift what is drawn inside the block by ``(x, y)``; ``name`` becomes the group's class."""
        move = f' transform="translate({number(x)} {number(y)})"' if x or y else ""
        self._parts.append(f'<g class="{escape(name)}"{move}>' if name else f"<g{move}>")
        yield
        self._parts.append("</g>")

    def raw(self, svg: str) -> None:
        """Add a piece of SVG that is already well formed."""
        self._parts.append(svg)

    def inner(self) -> str:
        """Return what was drawn, without the paper: an overlay for another picture, or a part of one."""
        return "".join(self._parts)

    def render(self, *, title: str, sentence: str) -> str:
        """Return the whole picture on its paper.

        ``sentence`` is what the picture says in words, also to a screen reader.
        """
        width, height = number(self.width), number(self.height)
        paper = Svg(self.width, self.height)
        paper.rect(0.5, 0.5, self.width - 1, self.height - 1, fill="paper", stroke="rule", radius=10)
        card = paper.inner().replace('class="', 'class="al-card ', 1)
        body = (
            f'<g class="f-ink" fill="{colour("ink").light}" font-family="{FONT}" '
            f'font-size="{number(TEXT_SIZE)}">{card}{_BODY}{self.inner()}</g></g>'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="al" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" style="max-width:100%;height:auto" role="img" '
            f'aria-label="{escape(sentence)}"><title>{escape(title or sentence)}</title>'
            f"<desc>{escape(sentence)}</desc>{style(classes_in(body))}{body}</svg>"
        )


def box_path(x: Number, y: Number, width: Number, height: Number) -> str:
    """Return a rectangle as a piece of a path: many of them in one path are shorter than many elements."""
    return f"M{number(x)} {number(y)}h{number(width)}v{number(height)}h{number(-width)}z"


def body_of(svg: str) -> str:
    """Return what a rendered picture draws on its paper, to be placed in another one."""
    start, end = svg.find(_BODY), "</g></g></svg>"
    if start < 0 or not svg.endswith(end):
        raise ValueError("svg must be a picture rendered by attnlab.show.svg.Svg")
    return svg[start + len(_BODY) : -len(end)]


def _font(size: Number, fill: str, anchor: str, bold: bool, halo: str) -> str:
    out = f' font-size="{number(size)}"' if size != TEXT_SIZE else ""
    out += f' text-anchor="{anchor}"' if anchor != "start" else ""
    out += ' font-weight="700"' if bold else ""
    if halo:
        return out + _paint(fill, halo, 4) + ' paint-order="stroke"'
    # The whole drawing is already in ink.
    return out + (_paint(fill, None) if fill != "ink" else "")


def _paint(
    fill: str | None, stroke: str | None, width: Number = 1, *, opacity: Number = 1, dash: str = ""
) -> str:
    names = [f"f-{fill}"] if fill else []
    names += [f"s-{stroke}"] if stroke else []
    out = f' class="{" ".join(names)}"' if names else ""
    out += f' fill="{colour(fill).light}"' if fill else ' fill="none"'
    if stroke:
        out += f' stroke="{colour(stroke).light}"'
        out += f' stroke-width="{number(width)}"' if width != 1 else ""
        out += f' stroke-dasharray="{dash}"' if dash else ""
    return out + (f' opacity="{number(opacity)}"' if opacity != 1 else "")
