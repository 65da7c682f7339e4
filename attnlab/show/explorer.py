"""An explorer: a pure function from a few values to a picture, and controls that turn the values.

The kernel draws SVG text and puts it into one HTML widget, which takes a few milliseconds, so a slider can be
dragged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from attnlab.show.card import open_card
from attnlab.show.controls import Control, log2, read_control
from attnlab.show.picture import Picture
from attnlab.show.svg import escape
from attnlab.show.text_width import wrap
from attnlab.show.theme import restyle
from attnlab.show.widget_view import live_bundle

__all__ = ["Explorer", "explore", "log2"]

_CSS = """<style>
.al-controls{gap:2px 20px}
.al-controls .widget-readout{min-width:64px}
.al-controls .widget-toggle-buttons{display:flex;flex-flow:row nowrap;align-items:center;width:auto}
.al-controls .widget-toggle-buttons .widget-label{margin-right:10px}
.al-controls .noUi-handle:focus,.al-controls button:focus-visible,.al-controls select:focus-visible,
.al-controls input:focus-visible{outline:3px solid var(--al-dense,#3b6fb6)!important;outline-offset:2px}
.al-unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.al-caption{margin:4px 0 0;font-size:15px}
</style>"""
_ROLES = ("dense",)


def explore(
    draw: Callable[..., Picture], *, labels: Mapping[str, str] | None = None, **controls: Any
) -> Explorer:
    """Make a picture explorable.

    Parameters
    ----------
    draw
        Takes one keyword argument for each control and returns a `Picture`. It should be pure and take less
        than 50 ms. A ValueError is shown to the reader in the place of the picture.
    labels
        What the reader sees beside a control, by name; by default the name itself.
    **controls
        By name: ``(low, high)`` or ``(low, high, step)`` for a slider, over integers if all are integers;
        ``log2(low, high)`` for powers of two; a list of strings or numbers, or a tuple of strings, for a
        choice; a bool for a switch. A control begins at the default that ``draw`` gives the argument, else at
        its low end or its first option.

    Returns
    -------
    Explorer
        To be shown as the last value of a cell.

    Raises
    ------
    TypeError
        If a spec is none of these, or ``draw`` does not take an argument of that name.
    ValueError
        If a range is empty, or ``labels`` names no control.

    Examples
    --------
    >>> import numpy as np
    >>> from attnlab.show import explore, mask_picture
    >>> explore(lambda tokens: mask_picture(np.tri(tokens, dtype=bool)), tokens=(4, 64)).sentence
    '10 of 16 pairs are visible (62.5%).'
    """
    if not controls:
        raise ValueError("controls must name at least one argument of draw, got none")
    labels = dict(labels or {})
    if not set(labels) <= set(controls):
        raise ValueError(f"labels must name controls, got {sorted(set(labels) - set(controls))}")
    taken = inspect.signature(draw).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    read = []
    for name, spec in controls.items():
        if name not in taken and not open_ended:
            raise TypeError(f"{name}: draw takes no such argument; it takes {', '.join(taken) or 'none'}")
        default = taken[name].default if name in taken else inspect.Parameter.empty
        known = None if default is inspect.Parameter.empty else default
        read.append(read_control(name, spec, labels.get(name, name), known))
    return Explorer(draw, tuple(read))


class Explorer:
    """A picture with controls; made by `explore`.

    It holds its state without any widget, so it can be read, set and tested where there is no notebook.
    """

    def __init__(self, draw: Callable[..., Picture], controls: tuple[Control, ...]) -> None:
        self._draw = draw
        self._controls = {control.name: control for control in controls}
        self._state = {control.name: control.initial for control in controls}
        self._picture: Picture | None = None
        self._widget: Any = None
        self._turned: dict[str, Any] = {}
        self._holding = False

    @property
    def state(self) -> dict[str, Any]:
        """The present values, by name."""
        return dict(self._state)

    @property
    def picture(self) -> Picture:
        """The picture of the present values; a card with the message where ``draw`` raises a ValueError."""
        if self._picture is None:
            try:
                self._picture = self._draw(**self._state)
            except ValueError as error:
                self._picture = _message_card(str(error))
        return self._picture

    @property
    def sentence(self) -> str:
        """What the present picture says."""
        return self.picture.sentence

    @property
    def widget(self) -> Any:
        """The ipywidgets box with the controls and the picture; made when it is first asked for."""
        if self._widget is None:
            self._widget = self._build()
        return self._widget

    def draw(self, **state: Any) -> Picture:
        """Return the picture of other values, without any widget; those left out stay as they are now.

        A ValueError of the drawing function is raised here.
        """
        return self._draw(**(self._state | self._check(state)))

    def set(self, **state: Any) -> None:
        """Change some values, and the controls and the picture with them."""
        self._state |= self._check(state)
        self._picture = None
        self._holding = True
        try:
            for name in state:
                if name in self._turned:
                    self._turned[name].value = self._state[name]
        finally:
            self._holding = False
        self._show()

    def _check(self, state: Mapping[str, Any]) -> dict[str, Any]:
        unknown = set(state) - set(self._controls)
        if unknown:
            raise TypeError(
                f"{', '.join(sorted(unknown))}: no such control; there are {', '.join(self._controls)}"
            )
        return {name: self._controls[name].check(value) for name, value in state.items()}

    def _build(self) -> Any:
        import ipywidgets as w

        for name, control in self._controls.items():
            turned = control.widget(self._state[name])
            turned.observe(lambda change, name=name: self._on_turn(name, change["new"]), names="value")
            self._turned[name] = turned
        box = w.Box(list(self._turned.values()), layout=w.Layout(flex_flow="row wrap", width="100%"))
        box.add_class("al-controls")
        self._place, self._caption = w.HTML(), w.HTML()
        self._show()
        whole = w.VBox([box, self._place, self._caption])
        whole.add_class("al-explorer")
        return whole

    def _on_turn(self, name: str, value: Any) -> None:
        if not self._holding:
            self._state[name] = value
            self._picture = None
            self._show()

    def _show(self) -> None:
        if not self._turned:
            return
        svg = restyle(self.picture.svg, roles=_ROLES)
        self._place.value = f'<div class="al">{_CSS}{svg}</div>'
        # A picture with a header has the sentence under its title; the line below is then for screen readers
        # only.
        unseen = ' class="al-unseen"' if 'class="al-sentence"' in svg else ' class="al-caption"'
        self._caption.value = f'<p role="status" aria-live="polite"{unseen}>{escape(self.sentence)}</p>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return live_bundle(self.widget, self.picture)

    def __repr__(self) -> str:
        return f"Explorer({', '.join(f'{name}={value!r}' for name, value in self._state.items())})"


def _message_card(message: str) -> Picture:
    """Say calmly why there is no picture."""
    width = 620.0
    lines = wrap(message, 15, width - 100)
    sentence = f"No picture for these values: {message}"
    canvas, top = open_card(width, 34 + 22 * len(lines), title=None, sentence=sentence)
    canvas.rect(24, top, 4, 34 + 22 * len(lines), fill="edge")
    canvas.text(44, top + 16, "No picture for these values", size=16, bold=True)
    with canvas.group(name="al-sentence"):
        for i, line in enumerate(lines):
            canvas.text(44, top + 43 + 22 * i, line, size=15, fill="quiet")
    return Picture(canvas.render(title="No picture", sentence=sentence), sentence)
