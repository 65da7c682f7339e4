"""A row of segment ids drawn as runs of one colour, with padding hatched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from attnlab.show.numeric import Number
from attnlab.show.palette import segment_colour
from attnlab.show.svg import Svg, number
from attnlab.show.text_width import text_width
from attnlab.show.token_axes import TICK

__all__ = ["Run", "SegmentStrip"]


@dataclass(frozen=True)
class Run:
    """Neighbouring tokens with one id: ``[start, stop)``."""

    id: int
    start: int
    stop: int

    @property
    def role(self) -> str:
        """The colour of the run."""
        return segment_colour(self.id) if self.id else "pad"


@dataclass(frozen=True)
class SegmentStrip:
    """Segment ids on a line where one token takes ``step`` pixels."""

    ids: np.ndarray
    step: Number

    @cached_property
    def runs(self) -> list[Run]:
        """The runs, left to right."""
        cuts = [0, *(np.flatnonzero(np.diff(self.ids)) + 1).tolist(), len(self.ids)]
        return [Run(int(self.ids[a]), a, b) for a, b in pairwise(cuts)]

    def draw_bar(
        self, canvas: Svg, x: Number, y: Number, thickness: Number, *, upright: bool = False
    ) -> None:
        """Draw the strip as a bar, to the right of ``(x, y)`` or downwards; one path for each colour."""
        paths: dict[str, str] = {}
        for run in self.runs:
            start, length = run.start * self.step, (run.stop - run.start) * self.step
            # A hairline of paper tells neighbours of one colour apart.
            length = max(length - 1, min(length, 1)) if length > 3 else length
            left, top = (x, y + start) if upright else (x + start, y)
            wide, high = (thickness, length) if upright else (length, thickness)
            d = f"M{number(left)} {number(top)}h{number(wide)}v{number(high)}h{number(-wide)}z"
            paths[run.role] = paths.get(run.role, "") + d
        for role, d in paths.items():
            canvas.path(d, fill="hatch" if role == "pad" else role, opacity=0.5 if role == "pad" else 1)

    def draw_names(self, canvas: Svg, x: Number, baseline: Number) -> None:
        """Write each segment's id over its run, where there is room."""
        edge = -np.inf
        words: dict[str, list[tuple[Number, Number, str]]] = {}
        for run in self.runs:
            half = text_width(str(run.id), TICK, bold=True) / 2
            middle = (run.start + run.stop) / 2 * self.step
            if run.id and middle - half > edge:
                words.setdefault(f"{run.role}-text", []).append((x + middle, baseline, str(run.id)))
                edge = middle + half + 4
        for fill, items in words.items():
            canvas.texts(items, size=TICK, fill=fill, anchor="middle", bold=True)
