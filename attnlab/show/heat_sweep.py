"""The reverse sweep of a gradient ring, from the last segment to the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnlab.ring import laws
from attnlab.show.card import MARGIN, open_card
from attnlab.show.hatch import hatch
from attnlab.show.numeric import Number
from attnlab.show.picture import Picture
from attnlab.show.replay import Frame, Replay, replay
from attnlab.show.svg import Svg, box_path, number
from attnlab.show.text_width import text_width
from attnlab.show.token_axes import TICK, tick_positions
from attnlab.show.units import UNITS

if TYPE_CHECKING:
    from attnlab.ring.gradient_ring import Sweep

__all__ = ["sweep_replay"]

_WIDTH, _LABELS = 900.0, 178.0
_ROWS = ("segments", "K and V, read again", "dK, dV in the ring", "dQ, dK, dV finished")
_BAR, _STEP = 30.0, 48.0
_MOST_SLOTS = 48


def sweep_replay(
    events: Sequence[Sweep], window: int, *, title: str = "The reverse sweep of a gradient ring"
) -> Replay:
    """Replay a sweep, one step for each segment; the first step is the state before it.

    On one axis of positions: the segment that is swept, the keys and values that it reads, the unfinished
    rows of dK and dV that are carried, and what is finished. Underneath, the slots of the ring with the
    positions whose rows they hold.

    Parameters
    ----------
    events : sequence of Sweep
        As `attnlab.ring.gradient_ring.GradientRing.sweep` gives them, the last segment first.
    window : int
        W, keys visible to a query, its own included; the ring has W - 1 rows.
    title
        Title of the whole.

    Raises
    ------
    ValueError
        If there is no event, or there are more than 48 rows to be drawn.
    """
    if not events:
        raise ValueError("events must hold at least one segment, got none")
    if not 1 <= window <= _MOST_SLOTS + 1:
        raise ValueError(f"window must be from 1 to {_MOST_SLOTS + 1} to be drawn, got {window}")
    tokens = events[0].stop
    height = 20 + len(_ROWS) * _STEP + 50 + 110
    canvas, top = open_card(_WIDTH, height, title=None, sentence="")
    scene = _Scene(top + 20, tokens, window - 1)
    scene.draw_base(canvas, [(event.start, event.stop) for event in events])
    said = f"{tokens} positions in {len(events)} segments."
    base = Picture(canvas.render(title="", sentence=said), said)
    held = f"The ring holds {UNITS['bytes'].write(events[0].held_bytes)} all the time."
    overlay = Svg(*base.size)
    scene.draw_event(overlay, None)
    frames = [Frame(overlay.inner(), f"Before the sweep no gradient is known. {held}")]
    for i, event in enumerate(events, 1):
        overlay = Svg(*base.size)
        scene.draw_event(overlay, event)
        frames.append(Frame(overlay.inner(), f"{_say(event, i, len(events))} {held}"))
    # In the middle of the sweep a still picture shows rows that wait; at its end none are left.
    return replay(base, frames, title, still=len(frames) // 2)


def _say(event: Sweep, step: int, steps: int) -> str:
    first, stop = event.carried_out
    said = (
        f"Step {step} of {steps}: {_positions(event.start, event.stop)} finished; keys and values were "
        f"read from {event.first_key} on."
    )
    if stop <= first:
        return f"{said} Nothing is left to carry."
    if stop - first == 1:
        return f"{said} The row of dK and dV at {first} waits for earlier queries."
    return f"{said} {stop - first} rows of dK and dV, {first} to {stop - 1}, wait for earlier queries."


def _positions(start: int, stop: int) -> str:
    return f"position {start} is" if stop - start == 1 else f"positions {start} to {stop - 1} are"


@dataclass(frozen=True)
class _Scene:
    y: Number
    tokens: int
    slots: int

    @property
    def _left(self) -> Number:
        return MARGIN + _LABELS

    def _to_x(self, position: Number) -> Number:
        return self._left + (_WIDTH - MARGIN - 12 - self._left) * position / self.tokens

    def _row(self, i: int) -> Number:
        return self.y + i * _STEP

    @property
    def _ring(self) -> tuple[Number, Number, Number]:
        """Left end, top and width of a slot."""
        wide = min(40.0, (_WIDTH - MARGIN - self._left) / max(self.slots, 1))
        return self._left, self._row(len(_ROWS)) + 92, wide

    def draw_base(self, canvas: Svg, segments: list[tuple[int, int]]) -> None:
        names = [(self._left - 14, self._row(i) + 20, name) for i, name in enumerate(_ROWS)]
        canvas.texts(names, fill="quiet", anchor="end")
        for i in range(len(_ROWS)):
            x, wide = self._to_x(0), self._to_x(self.tokens) - self._to_x(0)
            canvas.rect(x, self._row(i), wide, _BAR, fill="skip")
        base = self._row(len(_ROWS)) - 8
        cuts = "".join(
            f"M{number(self._to_x(start))} {number(self.y - 8)}V{number(base)}" for start, _ in segments
        )
        canvas.path(cuts, stroke="muted", dash="4 4")
        words = [
            (
                (self._to_x(a) + self._to_x(b)) / 2,
                self._row(0) + 20,
                f"{a} to {b - 1}" if b - a > 1 else str(a),
            )
            for a, b in segments
            if text_width(f"{a} to {b - 1}", TICK) + 6 < self._to_x(b) - self._to_x(a)
        ]
        canvas.texts(words, size=TICK, fill="quiet", anchor="middle")
        spacing = text_width(f"{self.tokens:,}", TICK) + 18
        ticks = tick_positions(self.tokens, self._to_x(self.tokens) - self._to_x(0), spacing)
        canvas.line(self._to_x(0), base, self._to_x(self.tokens), base, stroke="muted")
        canvas.texts(
            [(self._to_x(t), base + 19, f"{t:,}") for t in ticks], size=TICK, fill="quiet", anchor="middle"
        )
        canvas.text((self._to_x(0) + self._to_x(self.tokens)) / 2, base + 40, "position", anchor="middle")
        x, y, wide = self._ring
        canvas.text(self._left - 14, y + 20, f"the ring, {self.slots} rows", fill="quiet", anchor="end")
        if self.slots:
            cells = "".join(box_path(x + s * wide, y, wide - 1.5, _BAR) for s in range(self.slots))
            canvas.path(cells, fill="skip", stroke="hatch", stroke_width=0.8)
            step = max(1, -(-(text_width(str(self.slots), TICK) + 5) // wide))
            marks = [(x + (s + 0.5) * wide, y - 7, str(s)) for s in range(0, self.slots, int(step))]
            canvas.texts(marks, size=TICK, fill="quiet", anchor="middle")
            canvas.text(self._left - 14, y - 7, "slot", size=TICK, fill="quiet", anchor="end")

    def draw_event(self, canvas: Svg, event: Sweep | None) -> None:
        if event is None:
            return
        bars = (
            (0, "now", (event.start, event.stop)),
            (1, "dense", (event.first_key, event.stop)),
            (2, "edge", event.carried_out),
            (3, "better", (event.start, self.tokens)),
        )
        for i, role, (start, stop) in bars:
            if stop > start:
                left, wide = self._to_x(start), self._to_x(stop) - self._to_x(start)
                if i == 0:
                    canvas.rect(left, self._row(i), wide, _BAR, stroke=role, stroke_width=3)
                    continue
                canvas.rect(left, self._row(i), wide, _BAR, fill=role)
                if role == "edge":
                    canvas.path(hatch(left, self._row(i), wide, _BAR, 12), stroke="paper", opacity=0.75)
        at = self._to_x(event.start)
        canvas.line(at, self.y - 14, at, self._row(len(_ROWS)) - 8, stroke="now", width=1.8)
        held = np.arange(*event.carried_out)
        if held.size == 0:
            return
        x, y, wide = self._ring
        slots = laws.slot(held, self.slots)
        cells = "".join(box_path(round(x + int(s) * wide, 1), y, wide - 1.5, _BAR) for s in slots)
        canvas.path(cells, fill="edge")
        words = [str(p) for p in held]
        middles = [round(x + (int(s) + 0.5) * wide, 1) for s in slots]
        if max(text_width(word, TICK, bold=True) for word in words) + 3 <= wide:
            items = [(middle, y + 20, word) for middle, word in zip(middles, words, strict=True)]
            canvas.texts(items, size=TICK, fill="on-edge", anchor="middle", bold=True)
            return
        for middle, word in zip(middles, words, strict=True):
            where = (middle + 4, y + _BAR / 2, word)
            canvas.text(*where, size=TICK, fill="on-edge", anchor="middle", rotate=-90)
