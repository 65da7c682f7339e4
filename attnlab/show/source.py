"""Shows the package's own source, so that a notebook never holds a copy that grows old."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from attnlab.show.palette import colour
from attnlab.show.svg import escape
from attnlab.show.theme import dark_rules

__all__ = ["Source", "show_source"]

# Which words of the language are coloured, by the pygments token that begins so.
_ROLES = (
    ("Token.Comment", "quiet"),
    ("Token.Literal.String", "better-text"),
    ("Token.Literal.Number", "seg4-text"),
    ("Token.Keyword", "dense-text"),
    ("Token.Operator.Word", "dense-text"),
    ("Token.Name.Decorator", "edge-text"),
    ("Token.Name.Function", "ink"),
    ("Token.Name.Class", "ink"),
)


@dataclass(frozen=True, repr=False)
class Source:
    """A piece of source with its place.

    Attributes
    ----------
    text : str
        The source as shown.
    path : str
        The file, from the package's folder on: ``attnlab/segments/numpy.py``.
    first, last : int
        Lines of the file that it comes from.
    """

    text: str
    path: str
    first: int
    last: int

    @property
    def line_count(self) -> int:
        """Lines shown."""
        return len(self.text.splitlines())

    def __repr__(self) -> str:
        return self.text

    @property
    def _place(self) -> str:
        lines = "1 line" if self.line_count == 1 else f"{self.line_count} lines"
        return f"{self.path} · from line {self.first} · {lines}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        # The HTML already carries the text; storing it twice would swell the notebook.
        return {"text/plain": self._place, "text/html": self._html()}

    def _html(self) -> str:
        from pygments.lexers import PythonLexer  # type: ignore[import-untyped]

        parts, used = [], set()
        for token, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(self.text):
            role = next((role for prefix, role in _ROLES if str(token).startswith(prefix)), "")
            if role and text.strip():
                used.add(role)
                bold = " al-b" if str(token).startswith(("Token.Name.Function", "Token.Name.Class")) else ""
                parts.append(f'<span class="c-{role}{bold}">{escape(text)}</span>')
            else:
                parts.append(escape(text))
        return (
            f'<div class="al al-source">{_style(used | {"quiet"})}'
            f'<div class="c-quiet">{escape(self._place)}</div><pre>{"".join(parts)}</pre></div>'
        )


def show_source(
    thing: Callable[..., Any] | type | ModuleType,
    *,
    lines: tuple[int, int] | None = None,
    drop_docstring: bool = True,
) -> Source:
    """Return the source of a function, class or module, to be shown in a notebook.

    Parameters
    ----------
    thing
        A function (decorated, jitted or not), a class or a module.
    lines
        First and last line to show, counted from 1 at the thing's own first line as it stands in the file.
    drop_docstring
        Leave docstrings out, where the notebook tells the story.

    Raises
    ------
    TypeError
        If ``thing`` has no source file.
    ValueError
        If ``lines`` lies outside the source.
    """
    inner = inspect.unwrap(thing) if callable(thing) else thing
    # A Triton kernel holds its Python function in ``fn``.
    inner = inner if isinstance(inner, type | ModuleType) else getattr(inner, "fn", inner)
    try:
        raw, start = inspect.getsourcelines(inner)
        file = inspect.getsourcefile(inner)
    except TypeError:
        raise TypeError(
            f"thing must be a function, a class or a module, got {type(thing).__name__}"
        ) from None
    numbered = list(enumerate(textwrap.dedent("".join(raw)).splitlines(), start=max(start, 1)))
    first, last = lines or (1, len(numbered))
    if not 1 <= first <= last <= len(numbered):
        raise ValueError(f"lines must lie in 1 to {len(numbered)}, got {lines}")
    dropped = _docstring_lines("\n".join(text for _, text in numbered)) if drop_docstring else set()
    kept = [(n, text) for i, (n, text) in enumerate(numbered, 1) if first <= i <= last and i not in dropped]
    kept = _trim(kept)
    if not kept:
        raise ValueError(f"lines must hold more than a docstring, got {lines}")
    text = textwrap.dedent("\n".join(text for _, text in kept))
    return Source(text, _relative(file or "", inner), kept[0][0], kept[-1][0])


def _docstring_lines(text: str) -> set[int]:
    """Return the lines, from 1, that docstrings take, with the blank lines after them."""
    rows = text.splitlines()
    out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        if ast.get_docstring(node, clean=False) is None or len(node.body) == 1:
            continue
        string = node.body[0]
        end = string.end_lineno or string.lineno
        while end < len(rows) and not rows[end].strip():
            end += 1
        out.update(range(string.lineno, end + 1))
    return out


def _trim(kept: list[tuple[int, str]]) -> list[tuple[int, str]]:
    while kept and not kept[0][1].strip():
        kept = kept[1:]
    while kept and not kept[-1][1].strip():
        kept = kept[:-1]
    return kept


def _relative(file: str, thing: Any) -> str:
    """Return the path from the package's folder on: nobody's home folder belongs in a notebook."""
    module = getattr(thing, "__name__" if isinstance(thing, ModuleType) else "__module__", "") or ""
    path = Path(file)
    depth = module.count(".") + (1 if path.name == "__init__.py" else 0)
    return "/".join(path.parts[-depth - 1 :])


def _style(roles: set[str]) -> str:
    def rules(tone: str) -> str:
        paper, ink, rule = (getattr(colour(role), tone) for role in ("paper", "ink", "rule"))
        words = "".join(f".c-{role}{{color:{getattr(colour(role), tone)}}}" for role in sorted(roles))
        return f"background:{paper};color:{ink};border-color:{rule};{words}"

    return (
        f"<style>.al-source{{{rules('light')}}}{dark_rules('&.al-source{' + rules('dark') + '}')}"
        ".al-source{overflow-x:auto;border:1px solid;border-radius:10px;padding:12px 18px}"
        ".al-source div{font-size:13px;margin-bottom:8px}"
        ".al-source pre{margin:0;padding:0;background:none!important;color:inherit;font-size:14px;"
        "line-height:1.5;white-space:pre!important;word-break:normal;overflow-wrap:normal}"
        ".al-source .al-b{font-weight:700}</style>"
    )
