"""What stands beside the tile map of a schedule: what is on chip, bytes moved so far, and one row's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attnlab.show.numeric import Number
from attnlab.show.schedule_steps import TENSORS, RowSoFar, Step
from attnlab.show.svg import TEXT_SIZE, Svg, number
from attnlab.show.text_width import text_width
from attnlab.show.token_axes import TICK
from attnlab.show.units import UNITS

__all__ = ["SchedulePanel"]

_NAMES = {"q": "Q", "k": "K", "v": "V", "o": "O", "partial": "m, l, O", "all": "all"}
_BOXES, _BOX_GAP, _BOX = (74.0, 74.0, 74.0, 100.0), 8.0, 50.0
_ROW, _BAR, _BELOW = 32.0, 11.0, 14.0  # a row has two bars, the second so far below the first
_BARS, _LINE = 166.0, 9.5  # where the rows begin, and the foot of the number at the end of a bar
_STATE, _STATES = 410.0, (("m", 0.0), ("l", 100.0), ("length of O", 196.0))


@dataclass(frozen=True)
class SchedulePanel:
    """Place of the panel, and the scale of its bars.

    Attributes
    ----------
    x, y : float
        Top left corner, in pixels.
    shown, other : str
        The name of the order that is shown, and of the one that it is compared with.
    head_dim, bytes_per_element : int
        Of the tensors whose bytes are shown.
    most : int
        Bytes of the longest bar.
    """

    x: Number
    y: Number
    shown: str
    other: str
    head_dim: int
    bytes_per_element: int
    most: int

    WIDTH = sum(_BOXES) + 3 * _BOX_GAP
    HEIGHT = 464.0

    @property
    def _bars(self) -> Number:
        return self.x + text_width(_NAMES["partial"], TICK) + 10

    @property
    def _scale(self) -> Number:
        """Pixels a byte; what is written behind the longest bar must fit."""
        room = text_width("1,023 KiB", TICK) + 8
        return (self.x + self.WIDTH - room - self._bars) / max(self.most, 1)

    def draw_base(self, canvas: Svg) -> None:
        """Write the headings and the names of the bars."""
        for down, heading in (
            (14, "On chip"),
            (114, "Bytes moved so far, one head"),
            (388, "One query, so far"),
        ):
            canvas.text(self.x, self.y + down, heading, size=16, bold=True)
        words = [
            (self._bars - 10, self._row(i) + (_BELOW + _BAR) / 2 + 4.5, _NAMES[name])
            for i, name in enumerate((*TENSORS, "all"))
        ]
        canvas.texts(words, size=TICK, fill="quiet", anchor="end")
        canvas.path("".join(self._box(i) for i in range(len(_BOXES))), stroke="better", stroke_width=1.5)
        x, y = self.x, self.y + _STATE
        canvas.rect(x, y + 10, self.WIDTH, 8, fill="skip")
        canvas.texts([(x + right, y + 46, name) for name, right in _STATES], fill="quiet")
        number_size = f"{self.bytes_per_element} byte{'s' if self.bytes_per_element > 1 else ''} a number"
        sizes = f"D = {self.head_dim}, {number_size}"
        canvas.text(self.x, self.y + 132, sizes, size=TICK, fill="quiet")
        x, y = self.x, self.y + 153
        for role, name in (("dense", self.shown), ("muted", f"{self.other} at the same step")):
            canvas.rect(x, y - 10, 12, 12, fill=role)
            canvas.text(x + 19, y, name, size=TICK, fill=f"{role}-text", bold=role == "dense")
            x += text_width(name, TICK, bold=True) + 40

    def draw_step(self, canvas: Svg, step: Step, other: Mapping[str, int], row: RowSoFar) -> None:
        """Draw one step; ``other`` is what the other order has moved by then."""
        self._chip(canvas, step)
        self._bytes(canvas, step.moved, other)
        self._state(canvas, row)

    def _box(self, i: int) -> str:
        left, wide = self.x + sum(_BOXES[:i]) + i * _BOX_GAP, _BOXES[i]
        return f"M{number(left)} {number(self.y + 28)}h{number(wide)}v{_BOX:g}h{number(-wide)}z"

    def _chip(self, canvas: Svg, step: Step) -> None:
        fresh, names, notes = "", [], []
        tiles = (step.q_tile, step.k_tile, step.k_tile, step.q_tile)
        for i, (tensor, tile) in enumerate(zip(("q", "k", "v", "partial"), tiles, strict=True)):
            loaded = tensor in step.loaded
            # The state of a query tile is not loaded before its first merge: it begins on chip.
            begins = tensor == "partial" and not loaded and "q" in step.loaded
            fresh += self._box(i) if loaded else ""
            middle = self.x + sum(_BOXES[:i]) + i * _BOX_GAP + _BOXES[i] / 2
            names.append((middle, self.y + 49, f"{_NAMES[tensor]} {tile}"))
            notes.append((middle, self.y + 68, "loaded" if loaded else "begins" if begins else "kept"))
        if fresh:
            canvas.path(fresh, stroke="now", stroke_width=3)
        canvas.texts(names, anchor="middle", bold=True)
        canvas.texts(notes, size=TICK, fill="quiet", anchor="middle")

    def _row(self, i: int) -> Number:
        return self.y + _BARS + i * _ROW + (6 if i == len(TENSORS) else 0)

    def _bytes(self, canvas: Svg, moved: Mapping[str, int], other: Mapping[str, int]) -> None:
        mine, theirs = ([*(amounts[t] for t in TENSORS), sum(amounts.values())] for amounts in (moved, other))
        write = UNITS["bytes"].write
        for role, fill, values, down in (("dense", "ink", mine, 0.0), ("muted", "quiet", theirs, _BELOW)):
            d = ""
            for i, value in enumerate(values):
                wide = number(round(value * self._scale, 1))
                d += (
                    f"M{number(self._bars)} {number(self._row(i) + down)}h{wide}v{_BAR:g}h-{wide}z"
                    if value
                    else ""
                )
            if d:
                canvas.path(d, fill=role)
            words = [
                (round(self._bars + value * self._scale + 7, 1), self._row(i) + down + _LINE, write(value))
                for i, value in enumerate(values)
            ]
            canvas.texts(words, size=TICK, fill=fill)

    def _state(self, canvas: Svg, row: RowSoFar) -> None:
        x, y = self.x, self.y + _STATE
        said = f"query {row.query:,} has seen {row.seen:,} of {row.visible:,} keys"
        canvas.text(x, y, said, fill="quiet")
        if row.seen:
            canvas.rect(x, y + 10, round(self.WIDTH * row.seen / row.visible, 1), 8, fill="dense")
        m = f"{row.m:.3f}".replace("-", "−") if row.seen else "−∞"
        size = float((row.o**2).sum() ** 0.5)
        words = [
            (round(x + right + text_width(name, TEXT_SIZE) + 8), y + 46, text)
            for (name, right), text in zip(_STATES, (m, f"{row.l:.3f}", f"{size:.3f}"), strict=True)
        ]
        canvas.texts(words, bold=True)
