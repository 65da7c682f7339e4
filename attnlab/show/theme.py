"""The few CSS rules that turn a picture dark.

Every mark carries its light colour as an attribute, so a picture is right even where CSS is stripped, or too
old to know nested rules. It also carries a class, and a small ``<style>`` inside the picture gives each class
its dark value where the page around it is dark:

- JupyterLab and nbconvert say so on ``body[data-jp-theme-light]``;
- a documentation theme says so with ``data-theme`` ("dark", or "auto" to follow the operating system);
- a picture that stands alone (a file, or an ``<img>``) is the root of its own document and follows the
  operating system.

A picture that lies inline in a light JupyterLab stays light when the operating system is dark: it is not a
root.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from attnlab.show.palette import colour

__all__ = ["classes_in", "dark_rules", "restyle", "style"]

_CLASS = re.compile(r'class="([^"]*)"')
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)


def classes_in(svg: str) -> set[str]:
    """Return the colour classes that a piece of SVG uses: ``f-ROLE`` for fills, ``s-ROLE`` for strokes."""
    names = {name for found in _CLASS.findall(svg) for name in found.split()}
    return {name for name in names if name.startswith(("f-", "s-"))}


def dark_rules(rules: str) -> str:
    """Return the CSS that applies some declarations and nested rules to ``.al`` on dark pages."""
    return (
        f'body[data-jp-theme-light="false"] .al,[data-theme="dark"] .al{{{rules}}}'
        f'@media (prefers-color-scheme:dark){{[data-theme="auto"] .al,svg.al:root{{{rules}}}}}'
    )


def style(classes: Iterable[str], *, roles: Iterable[str] = ()) -> str:
    """Return the ``<style>`` element for some colour classes.

    Parameters
    ----------
    classes
        Names such as ``f-dense`` (fill) and ``s-now`` (stroke).
    roles
        Roles that HTML around the picture needs as variables, for example ``rule`` for a border; they are
        set on dark pages only.

    Raises
    ------
    ValueError
        If a class names no role of the palette.
    """
    properties = {"f-": "fill", "s-": "stroke"}
    dark = "".join(f"--al-{role}:{colour(role).dark};" for role in sorted(set(roles)))
    dark += "".join(
        f".{name}{{{properties[name[:2]]}:{colour(name[2:]).dark}}}" for name in sorted(set(classes))
    )
    return f"<style>{dark_rules(dark)}</style>"


def restyle(svg: str, *, extra: str = "", roles: Iterable[str] = ()) -> str:
    """Replace the style of a picture, so that it also covers ``extra`` SVG that will be put inside it."""
    return _STYLE.sub(lambda _: style(classes_in(svg) | classes_in(extra), roles=roles), svg, count=1)
