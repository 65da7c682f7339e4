"""A ring drawn as a ring: slots around a circle, what each holds, and both pointers.

Everything that stays the same while tokens come is drawn by `draw_slots`, everything that moves by
`draw_state`, so that a replay stores the first only once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attnlab.ring import laws
from attnlab.show.numeric import Number
from attnlab.show.ring_state import RingState
from attnlab.show.svg import Svg, number
from attnlab.show.text_width import text_width

__all__ = ["HATCH_OPACITY", "STALE", "STALE_OPACITY", "RingDial"]

STALE, STALE_OPACITY = "muted", 0.6  # how what is still there and no longer seen is filled
HATCH_OPACITY = 0.7  # of the lines on padding, over which a position is written

_OUTER, _INNER = 156.0, 108.0
_MIDDLE, _THICK = (_OUTER + _INNER) / 2, _OUTER - _INNER
_SLOT, _HELD, _POINTER = 13.0, 14.0, 15.0
_SLOT_AT, _ARROW_AT, _ARROW = _OUTER + 14, _OUTER + 26, 22.0
_GAP = 2.0  # between neighbouring slots, in pixels


@dataclass(frozen=True)
class RingDial:
    """Place of a ring of `capacity` slots; slot 0 begins at the top, and slots follow clockwise.

    Attributes
    ----------
    x, y : float
        Centre, in pixels.
    capacity : int
    """

    x: Number
    y: Number
    capacity: int

    # From the centre: what the numbers, the write pointer and its name need on each side.
    HALF_WIDTH = _ARROW_AT + _ARROW + 48
    HALF_HEIGHT = _ARROW_AT + _ARROW + 14

    def draw_slots(self, canvas: Svg) -> None:
        """Draw the empty slots and their numbers."""
        self._ring(canvas, 0, self.capacity, "skip")
        words = []
        for slot in range(self.capacity):
            x, y = self._at(slot + 0.5, _SLOT_AT)
            words.append((round(x, 1), round(y + 4.5, 1), str(slot)))
        canvas.texts(words, size=_SLOT, fill="quiet", anchor="middle")

    def draw_state(self, canvas: Svg, state: RingState) -> None:
        """Draw what the slots hold, and the pointers."""
        held, visible = state.positions, state.in_window
        for role, chosen in ((STALE, (held >= 0) & ~visible), ("dense", visible & ~state.padding)):
            for first, end in _runs(chosen):
                self._ring(canvas, first, end, role)
        padded = state.padding & (held >= 0)
        for first, end in _runs(padded):
            self._ring(canvas, first, end, "pad")
        self._hatch(canvas, padded)
        # One dashed circle cuts the ring into its slots.
        step = 2 * math.pi * _MIDDLE / self.capacity
        begin = -_GAP / 2 / step
        x, y = self._at(begin, _MIDDLE)
        circle = f"M{number(x)} {number(y)}{self._arc(begin, begin + self.capacity, _MIDDLE)}"
        canvas.path(circle, stroke="paper", stroke_width=_THICK + 1, dash=f"{_GAP:g} {step - _GAP:.4f}")
        self._positions(canvas, held, visible & ~state.padding)
        if state.chunk:
            first = laws.slot(state.written - state.chunk, self.capacity)
            self._outline(canvas, first, first + state.chunk)
        self._pointer(canvas, state.write_slot, "write", "now", inside=False)
        if state.written:
            self._pointer(canvas, state.read_slot, "read", "better", inside=True)

    def _at(self, slot: Number, radius: Number) -> tuple[Number, Number]:
        """Where a point of the ring lies; slot s covers s to s + 1."""
        angle = 2 * math.pi * slot / self.capacity
        return self.x + radius * math.sin(angle), self.y - radius * math.cos(angle)

    def _arc(self, first: Number, end: Number, radius: Number, *, back: bool = False) -> str:
        """The rest of a path that stands at one end of an arc; half a turn at a time."""
        half = (first + end) / 2
        stops = (half, first) if back else (half, end)
        out = ""
        for stop in stops:
            x, y = self._at(stop, radius)
            out += f"A{radius:g} {radius:g} 0 0 {0 if back else 1} {number(x)} {number(y)}"
        return out

    def _ring(self, canvas: Svg, first: int, end: int, role: str) -> None:
        x, y = self._at(first, _MIDDLE)
        d = f"M{number(x)} {number(y)}{self._arc(first, end, _MIDDLE)}"
        canvas.path(d, stroke=role, stroke_width=_THICK, opacity=STALE_OPACITY if role == STALE else 1)

    def _outline(self, canvas: Svg, first: int, end: int) -> None:
        x, y = self._at(first, _INNER + 1)
        if end - first >= self.capacity:
            d = f"M{number(x)} {number(y)}{self._arc(first, end, _INNER + 1)}"
            x, y = self._at(first, _OUTER - 1)
            d += f"M{number(x)} {number(y)}{self._arc(first, end, _OUTER - 1)}"
        else:
            d = f"M{number(x)} {number(y)}{self._arc(first, end, _INNER + 1)}"
            x, y = self._at(end, _OUTER - 1)
            d += f"L{number(x)} {number(y)}{self._arc(first, end, _OUTER - 1, back=True)}z"
        canvas.path(d, stroke="now", stroke_width=3, round_ends=True)

    def _hatch(self, canvas: Svg, chosen: np.ndarray) -> None:
        """Slanted lines in the chosen slots, about 7 pixels apart."""
        count = max(2, round(2 * math.pi * _MIDDLE / self.capacity / 7))
        d = ""
        for slot in np.flatnonzero(chosen):
            for k in range(count):
                low = slot + (k + 0.2) / count
                high = min(low + 1.2 / count, slot + 0.97)
                (x0, y0), (x1, y1) = self._at(low, _INNER + 2), self._at(high, _OUTER - 2)
                d += f"M{number(x0)} {number(y0)}L{number(x1)} {number(y1)}"
        if d:
            canvas.path(d, stroke="muted", opacity=HATCH_OPACITY)

    def _positions(self, canvas: Svg, held: np.ndarray, visible: np.ndarray) -> None:
        arc = 2 * math.pi * _MIDDLE / self.capacity - _GAP
        most = _THICK - 4
        words = [_fit(int(p), most) if p >= 0 else "" for p in held]
        widest = max(text_width(word, _HELD, bold=True) for word in words)
        upright = widest + 4 <= arc
        if upright:
            for fill, chosen, bold in (("on-dense", visible, True), ("ink", ~visible, False)):
                at = [(*self._at(s + 0.5, _MIDDLE), words[s]) for s in np.flatnonzero(chosen) if words[s]]
                items = [(round(x, 1), round(y + 5, 1), word) for x, y, word in at]
                canvas.texts(items, size=_HELD, fill=fill, anchor="middle", bold=bold)
            return
        for slot, word in enumerate(words):
            if not word:
                continue
            x, y = self._at(slot + 0.5, _MIDDLE)
            turn = 360 * (slot + 0.5) / self.capacity - 90
            turn = turn if turn < 90 else turn - 180  # never upside down
            away = math.radians(turn + 90)
            canvas.text(
                round(x + 4.5 * math.cos(away), 1),
                round(y + 4.5 * math.sin(away), 1),
                word,
                size=13,
                fill="on-dense" if visible[slot] else "ink",
                anchor="middle",
                bold=bool(visible[slot]),
                rotate=round(turn, 1),
            )

    def _pointer(self, canvas: Svg, slot: int, name: str, role: str, *, inside: bool) -> None:
        tip, tail = (_INNER - 4, _INNER - 4 - _ARROW) if inside else (_ARROW_AT, _ARROW_AT + _ARROW)
        middle = slot + 0.5
        angle = 2 * math.pi * middle / self.capacity
        (x0, y0), (x1, y1) = self._at(middle, tail), self._at(middle, tip)
        along = (math.sin(angle), -math.cos(angle)) if inside else (-math.sin(angle), math.cos(angle))
        back = (x1 - 8 * along[0], y1 - 8 * along[1])
        side = (5 * along[1], -5 * along[0])
        d = f"M{number(x0)} {number(y0)}L{number(x1)} {number(y1)}"
        d += f"M{number(back[0] - side[0])} {number(back[1] - side[1])}L{number(x1)} {number(y1)}"
        d += f"L{number(back[0] + side[0])} {number(back[1] + side[1])}"
        canvas.path(d, stroke=role, stroke_width=3, round_ends=True)
        # The name stands beyond the tail, moved aside by as much of itself as points that way.
        wide = text_width(name, _POINTER, bold=True) / 2 + 4
        sign = -1 if inside else 1
        x, y = x0 + sign * wide * math.sin(angle), y0 - sign * 11 * math.cos(angle)
        canvas.text(x, y + 5, name, size=_POINTER, fill=f"{role}-text", anchor="middle", bold=True)


def _fit(position: int, width: Number) -> str:
    """Write a position, or the end of it where the whole does not fit into a slot."""
    word = str(position)
    while text_width(word, _HELD, bold=True) > width:
        word = f"…{word.removeprefix('…')[1:]}"
    return word


def _runs(chosen: np.ndarray) -> list[tuple[int, int]]:
    """Half-open runs of chosen slots; one that passes the last slot goes on beyond it."""
    if chosen.all():
        return [(0, len(chosen))]
    first = int(np.argmin(chosen))  # begin behind a slot that is not chosen
    turned = np.concatenate((np.roll(chosen, -first), [False])).astype(np.int8)
    return [(int(a) + first, int(b) + first) for a, b in (np.flatnonzero(np.diff(turned)) + 1).reshape(-1, 2)]
