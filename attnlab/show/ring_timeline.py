"""The same ring on the absolute timeline: what has been written, what is kept, what is seen."""

from __future__ import annotations

from dataclasses import dataclass

from attnlab.show.numeric import Number
from attnlab.show.ring_dial import STALE, STALE_OPACITY
from attnlab.show.ring_state import RingState
from attnlab.show.svg import Svg, number
from attnlab.show.text_width import text_width
from attnlab.show.token_axes import TICK, tick_positions

__all__ = ["RingTimeline"]

_BAR, _STEP = 18.0, 34.0
_ROWS = ("in the ring", "window", "last chunk")


@dataclass(frozen=True)
class RingTimeline:
    """Place of the timeline of `tokens` positions.

    Attributes
    ----------
    x, y, width : float
        Top left corner and width, names of the bars included, in pixels.
    tokens : int
        Positions on the axis, from 0.
    """

    x: Number
    y: Number
    width: Number
    tokens: int

    HEIGHT = 22 + len(_ROWS) * _STEP + 44

    @property
    def _left(self) -> Number:
        return self.x + max(text_width(name, TICK) for name in _ROWS) + 10

    @property
    def _right(self) -> Number:
        return self.x + self.width - text_width(f"{self.tokens:,}", TICK) / 2

    def _to_x(self, position: Number) -> Number:
        return self._left + (self._right - self._left) * position / max(self.tokens, 1)

    def draw_axis(self, canvas: Svg) -> None:
        """Draw the axis and the names of the bars."""
        base = self.y + 22 + len(_ROWS) * _STEP
        names = [(self._left - 10, self._row(i) + 13.5, name) for i, name in enumerate(_ROWS)]
        canvas.texts(names, size=TICK, fill="quiet", anchor="end")
        canvas.line(self._left, base, self._right, base, stroke="muted")
        spacing = text_width(f"{self.tokens:,}", TICK) + 16
        ticks = tick_positions(max(self.tokens, 1), self._right - self._left, spacing)
        marks = "".join(f"M{number(self._to_x(t))} {number(base)}v4" for t in ticks)
        canvas.path(marks, stroke="muted")
        words = [(self._to_x(t), base + 19, f"{t:,}") for t in ticks]
        canvas.texts(words, size=TICK, fill="quiet", anchor="middle")
        middle = (self._left + self._right) / 2
        canvas.text(middle, base + 40, "position of the token", anchor="middle")

    def draw_state(self, canvas: Svg, state: RingState) -> None:
        """Draw the bars, and the cursor at the newest token."""
        kept = max(0, state.highest - state.capacity)
        bars = (
            (STALE, kept, state.highest),
            ("dense", state.oldest, state.written),
            ("now", state.written - state.chunk, state.written),
        )
        for i, (role, start, stop) in enumerate(bars):
            if stop > start:
                left, wide = self._to_x(start), max(self._to_x(stop) - self._to_x(start), 3)
                canvas.rect(
                    left, self._row(i), wide, _BAR, fill=role, opacity=STALE_OPACITY if role == STALE else 1
                )
        at = self._to_x(state.written)
        bottom = self.y + 22 + len(_ROWS) * _STEP
        canvas.line(at, self.y + 18, at, bottom, stroke="now", width=1.8)
        name = f"n = {state.written:,}"
        half = text_width(name, TICK, bold=True) / 2
        middle = min(max(at, self._left + half), self.x + self.width - half)
        canvas.text(middle, self.y + 12, name, size=TICK, fill="now-text", anchor="middle", bold=True)

    def _row(self, i: int) -> Number:
        return self.y + 24 + i * _STEP
