"""The few CSS rules that turn a picture dark.

Every mark carries its light colour as an attribute, so a picture is right even where CSS is stripped. It also
carries a
class, and a small ``<style>`` inside the picture gives each class its dark value where the page around it is
dark:

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

__all__ = ["classes_in", "dark_rules", "restyle", "style", "variable"]

_CLASS = re.compile(r'class="([^"]*)"')
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)


def classes_in(svg: str) -> set[str]:
    """Return the colour classes that a piece of SVG uses: ``f-ROLE`` for fills, ``s-ROLE`` for strokes."""
    names = {name for found in _CLASS.findall(svg) for name in found.split()}
    return {name for name in names if name.startswith(("f-", "s-"))}


def variable(role: str) -> str:
    """Return the CSS value of a role: its variable where the page is dark, else its light colour."""
    return f"var(--al-{role},{colour(role).light})"


def dark_rules(roles: Iterable[str]) -> str:
    """Return the CSS that gives some roles their dark values, inside ``.al`` on dark pages."""
    dark = "".join(f"--al-{role}:{colour(role).dark};" for role in sorted(set(roles)))
    return (
        f'body[data-jp-theme-light="false"] .al,[data-theme="dark"] .al{{{dark}}}'
        f'@media (prefers-color-scheme:dark){{[data-theme="auto"] .al,svg.al:root{{{dark}}}}}'
    )


def style(classes: Iterable[str], *, roles: Iterable[str] = ()) -> str:
    """Return the ``<style>`` element for some colour classes.

    Parameters
    ----------
    classes
        Names such as ``f-dense`` (fill) and ``s-now`` (stroke).
    roles
        Further roles whose variables HTML around the picture needs, for example ``rule`` for a border.

    Raises
    ------
    ValueError
        If a class names no role of the palette.
    """
    classes = sorted(set(classes))
    properties = {"f-": "fill", "s-": "stroke"}
    rules = "".join(f".al .{name}{{{properties[name[:2]]}:{variable(name[2:])}}}" for name in classes)
    return f"<style>{dark_rules({name[2:] for name in classes} | set(roles))}{rules}</style>"


def restyle(svg: str, *, extra: str = "", roles: Iterable[str] = ()) -> str:
    """Replace the style of a picture, so that it also covers ``extra`` SVG that will be put inside it."""
    return _STYLE.sub(lambda _: style(classes_in(svg) | classes_in(extra), roles=roles), svg, count=1)
