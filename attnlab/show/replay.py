"""A replay: one picture, and an overlay that changes from step to step.

For runs of many steps. All steps are drawn beforehand and travel with the page, so a reader scrubs through
them with no kernel and no network, in a notebook as on a static site.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attnlab.show.card import MARGIN, open_card, sentence_lines
from attnlab.show.picture import Picture
from attnlab.show.svg import body_of
from attnlab.show.theme import restyle
from attnlab.show.widget_view import live_bundle

__all__ = ["Frame", "Replay", "replay"]

_ROLES = ("paper", "ink", "quiet", "rule", "dense")  # what the controls around the picture use


@dataclass(frozen=True)
class Frame:
    """One step.

    Attributes
    ----------
    overlay_svg : str
        What lies over the base, in its coordinates; for example `Svg.inner`.
    sentence : str
        What the step shows.
    """

    overlay_svg: str
    sentence: str


def replay(base: Picture, frames: Sequence[Frame], title: str, *, still: int = -1) -> Replay:
    """Make a replay.

    Parameters
    ----------
    base
        What stays. Draw it with ``title=None``: the replay writes the title and the sentence of the step.
    frames
        The steps, at least one.
    title
        Title of the whole.
    still
        The step that is shown where nothing moves; by default the last, which shows what the others led to.

    Raises
    ------
    ValueError
        If there is no frame, the title is empty, the base has a header of its own, or there is no such step.
    """
    if 'class="al-sentence"' in base.svg:
        raise ValueError("base must be drawn with title=None: the replay writes title and sentence itself")
    if not frames:
        raise ValueError("frames must hold at least one frame, got none")
    if not title.strip():
        raise ValueError(f"title must not be empty, got {title!r}")
    if not -len(frames) <= still < len(frames):
        raise ValueError(f"still must name one of {len(frames)} frames, got {still}")
    return Replay(base, tuple(frames), title, still)


class Replay:
    """Steps to scrub through; made by `replay`. ``index`` is the step that is shown."""

    def __init__(self, base: Picture, frames: tuple[Frame, ...], title: str, still: int = -1) -> None:
        self._base = base
        self._frames = frames
        self._title = title
        self._still = still
        self._index = 0
        self._widget: Any = None

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def index(self) -> int:
        """The step that is shown, from 0; in a notebook it follows the reader and the reader follows it."""
        return self._index if self._widget is None else int(self._widget.index)

    @index.setter
    def index(self, index: int) -> None:
        if not 0 <= index < len(self):
            raise ValueError(f"index must be in [0, {len(self)}), got {index}")
        self._index = index
        if self._widget is not None:
            self._widget.index = index

    @property
    def sentence(self) -> str:
        """What the present step says."""
        return self._frames[self.index].sentence

    @property
    def picture(self) -> Picture:
        """The present step as a still picture."""
        return self.frame(self.index)

    def frame(self, index: int) -> Picture:
        """Return one step as a still picture."""
        frame = self._frames[index]
        return self._compose(frame.sentence, frame.overlay_svg)

    @property
    def widget(self) -> Any:
        """The anywidget; made when it is first asked for."""
        if self._widget is None:
            self._widget = _widget_class()(**self._payload(), index=self._index)
        return self._widget

    def html(self) -> str:
        """Return an HTML fragment that replays by itself: no kernel, no network, no other file.

        Without JavaScript it shows the present step.
        """
        data = json.dumps(self._payload() | {"index": self.index}, ensure_ascii=False).replace("<", "\\u003c")
        name = hashlib.sha256(data.encode()).hexdigest()[:12]
        return (
            f'<div data-al-replay="{name}">{self.picture.svg}</div>\n'
            f'<script type="application/json" data-al-data="{name}">{data}</script>\n'
            f'<script type="module">\n{_script()}\n'
            f"const hosts = '[data-al-replay=\"{name}\"]:not([data-al-live])';\n"
            "for (const host of document.querySelectorAll(hosts)) {\n"
            '  host.setAttribute("data-al-live", "");\n'
            f"  mount(host, JSON.parse(document.querySelector('[data-al-data=\"{name}\"]').textContent));\n"
            "}\n</script>\n"
        )

    def _payload(self) -> dict[str, Any]:
        base = self._compose(self._frames[0].sentence, "").svg
        width, _ = self._base.size
        return {
            "base": restyle(base, extra="".join(f.overlay_svg for f in self._frames), roles=_ROLES),
            "frames": [
                {"overlay": f.overlay_svg, "lines": sentence_lines(f.sentence, width)} for f in self._frames
            ],
            "title": self._title,
        }

    def _compose(self, sentence: str, overlay: str) -> Picture:
        width, height = self._base.size
        # Every step leaves room for the longest sentence, so that the picture does not jump.
        room = max(len(sentence_lines(frame.sentence, width)) for frame in self._frames)
        canvas, top = open_card(
            width, height - 2 * MARGIN, title=self._title, sentence=sentence, room_for=room
        )
        shift = top - MARGIN
        with canvas.group(0, shift):
            canvas.raw(body_of(self._base.svg))
            canvas.raw(f'<g class="al-overlay">{overlay}</g>')
        plots = tuple(plot.moved(0, shift) for plot in self._base.plots)
        return Picture(canvas.render(title=self._title, sentence=sentence), sentence, plots)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return live_bundle(self.widget, self.frame(self._still))

    def __repr__(self) -> str:
        return f"Replay({self._title!r}, step {self.index + 1} of {len(self)})"


@functools.cache
def _script() -> str:
    return importlib.resources.files("attnlab.show").joinpath("replay.js").read_text(encoding="utf-8")


@functools.cache
def _widget_class() -> Any:
    import anywidget
    import traitlets

    class ReplayWidget(anywidget.AnyWidget):
        """The steps and the index, shared with the browser."""

        _esm = _script()
        base = traitlets.Unicode().tag(sync=True)
        frames: Any = traitlets.List().tag(sync=True)
        title = traitlets.Unicode().tag(sync=True)
        index = traitlets.Int(0).tag(sync=True)

    return ReplayWidget
