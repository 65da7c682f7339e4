"""Turns what matplotlib draws into the same small, themed SVG as every other picture.

matplotlib writes inline styles, ids, a metadata block and a path of its own for every tick. Here the styles
become
attributes and colour classes, markers are written where they stand, and ids disappear: two figures on one
page cannot then take each other's markers.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from attnlab.show.palette import COLOURS
from attnlab.show.svg import escape, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["figure_svg"]

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_NUMBER = re.compile(r"-?\d*\.?\d+(?:e-?\d+)?")
_PATH_SPACE = re.compile(r"\s*([MLHVCSQTAZmz])\s*")
# The first role of a value wins; the variants for text have values of their own.
_ROLE_OF = {value.light: role for role, value in reversed(COLOURS.items())} | {"#000000": "ink"}
_KEPT = (
    "stroke-width",
    "stroke-linecap",
    "stroke-linejoin",
    "stroke-dasharray",
    "stroke-dashoffset",
    "opacity",
    "fill-opacity",
    "stroke-opacity",
    "fill-rule",
    "text-anchor",
    "font-size",
    "font-weight",
)


def figure_svg(figure: Figure) -> str:
    """Return the SVG of a figure at 72 pixels to the inch, without its background, for `Svg.raw`."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "attnlab"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _Converter(ElementTree.fromstring(buffer.getvalue())).convert()


class _Converter:
    def __init__(self, root: ElementTree.Element) -> None:
        self.root = root
        self.named = {e.get("id"): e for e in root.iter() if e.get("id")}

    def convert(self) -> str:
        inner = "".join(self._element(child) for child in self.root)
        return f'<g stroke-linejoin="round">{inner}</g>'

    def _element(self, element: ElementTree.Element) -> str:
        tag = element.tag.removeprefix(_SVG) if isinstance(element.tag, str) else ""
        if tag in ("g", "a"):
            out = "".join(self._element(child) for child in element)
            attributes = _attributes(element) if out else ""
            return self._clipped(element, f"<g{attributes}>{out}</g>" if attributes else out)
        if tag == "path":
            return self._clipped(element, _path(element, _attributes(element)))
        if tag == "use":
            return self._clipped(element, self._use(element))
        if tag in ("text", "tspan"):
            content = escape(element.text or "") + "".join(
                self._element(child) + escape((child.tail or "").strip()) for child in element
            )
            return f"<{tag}{_attributes(element)}>{content.strip() if tag == 'text' else content}</{tag}>"
        if tag == "image":
            place = "".join(
                f' {k}="{escape(element.get(k) or "")}"' for k in ("x", "y", "width", "height", "transform")
            )
            return self._clipped(element, f'<image{place} href="{element.get(_HREF)}"/>')
        return ""  # metadata, defs and comments

    def _use(self, element: ElementTree.Element) -> str:
        shape = self.named[(element.get(_HREF) or "").removeprefix("#")]
        at = f"translate({number(float(element.get('x', 0)))} {number(float(element.get('y', 0)))})"
        return _path(shape, _attributes(shape, element) + f' transform="{at}"')

    def _clipped(self, element: ElementTree.Element, svg: str) -> str:
        """Clip by a nested viewport, which needs no id; leave out a clip that would cut nothing."""
        clip = element.get("clip-path")
        if not clip or not svg:
            return svg
        box = self.named[clip.removeprefix("url(#").removesuffix(")")].find(f"{_SVG}rect")
        if box is None:
            raise ValueError("figure must clip by rectangles only")
        x, y, width, height = (float(box.get(k, 0)) for k in ("x", "y", "width", "height"))
        numbers = [float(n) for n in _NUMBER.findall(element.get("d") or "")]
        inside = numbers and all(
            low - 0.5 <= value <= low + size + 0.5
            for start, low, size in ((0, x, width), (1, y, height))
            for value in numbers[start::2]
        )
        if inside:
            return svg
        shape = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        view = " ".join(number(v) for v in (x, y, width, height))
        return f'<svg {shape} viewBox="{view}">{svg}</svg>'


def _path(element: ElementTree.Element, attributes: str) -> str:
    if 'fill="none"' in attributes and "stroke=" not in attributes:
        return ""
    d = _NUMBER.sub(lambda found: number(float(found[0])), element.get("d") or "")
    return f'<path d="{_PATH_SPACE.sub(lambda found: found[1], d).strip()}"{attributes}/>'


def _attributes(*elements: ElementTree.Element) -> str:
    """Turn the style of an element (the later one wins) into attributes and colour classes."""
    style: dict[str, str] = {}
    for element in elements:
        for part in (element.get("style") or "").split(";"):
            name, _, value = part.partition(":")
            style[name.strip()] = value.strip()
    classes, out = [], ""
    for name, prefix in (("fill", "f-"), ("stroke", "s-")):
        if name not in style or (name == "stroke" and style[name] == "none"):
            continue
        value = style[name]
        if value in _ROLE_OF:
            classes.append(prefix + _ROLE_OF[value])
        out += f' {name}="{value}"'
    for name in _KEPT:
        if name in style and (name, style[name]) not in (("stroke-linejoin", "round"), ("opacity", "1")):
            value = style[name].removesuffix("px")
            out += f' {name}="{_NUMBER.sub(lambda found: number(float(found[0])), value)}"'
    if elements[-1].tag != f"{_SVG}use":
        out += _placement(elements[-1])
    return (f' class="{" ".join(classes)}"' if classes else "") + out


def _placement(element: ElementTree.Element) -> str:
    out = "".join(
        f' {name}="{number(float(element.get(name, 0)))}"' for name in ("x", "y") if element.get(name)
    )
    transform = re.sub(r"rotate\(-?0(?: [^)]*)?\)", "", element.get("transform") or "").strip()
    if transform:
        out += f' transform="{_NUMBER.sub(lambda found: number(float(found[0])), transform)}"'
    return out
