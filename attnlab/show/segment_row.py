"""How a packed row is drawn: ids as cells or bars, starts above them, lengths as brackets below."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from attnlab.show.hatch import hatch
from attnlab.show.numeric import Number
from attnlab.show.palette import segment_colour
from attnlab.show.segment_strip import Run, SegmentStrip
from attnlab.show.svg import Svg, number
from attnlab.show.text_width import text_width

__all__ = ["LABEL", "Claim", "SegmentRow"]

LABEL = 14.0
_MOST_CELLS = 64
_HEIGHT = 34.0
_LANES = 3
_LANE, _BRACKET = 19.0, 32.0


@dataclass(frozen=True)
class Claim:
    """What the numbers say of one segment: its id, where it starts, and how many tokens it has."""

    id: int
    start: int
    length: int


@dataclass(frozen=True)
class SegmentRow:
    """One packed row, placed at ``x``, with what is claimed about it.

    Attributes
    ----------
    strip : SegmentStrip
        The ids, and the pixels of a token.
    starts : list of int
        Starts to be written above the row.
    claims : list of Claim
        Brackets to be drawn below it.
    x : float
        Left end of the row, in pixels.
    """

    strip: SegmentStrip
    starts: list[int]
    claims: list[Claim]
    x: Number

    @property
    def right(self) -> Number:
        """Right end of the row."""
        return self.x + self.strip.step * len(self.strip.ids)

    @cached_property
    def _lanes(self) -> list[int | None]:
        """The lane in which each start is written, 0 next to the row; None where there is no room.

        A label reaches to the right of its start, so it must lie above every start that it covers.
        """
        lanes: dict[int, int | None] = {}
        ordered = sorted(range(len(self.starts)), key=lambda i: -self.starts[i])
        for rank, i in enumerate(ordered):
            left = self.starts[i] * self.strip.step
            end = left + text_width(f"{self.starts[i]:,}", LABEL) + 4
            covered = [lanes[j] for j in ordered[:rank] if self.starts[j] * self.strip.step < end]
            lane = 1 + max((other for other in covered if other is not None), default=-1)
            lanes[i] = lane if lane < _LANES else None
        return [lanes[i] for i in range(len(self.starts))]

    @cached_property
    def _rows(self) -> list[int]:
        """The row of each bracket: overlapping ones get rows of their own; sound numbers need only one."""
        ends: list[int] = []
        rows = []
        for claim in self.claims:
            row = next((i for i, end in enumerate(ends) if end <= claim.start), len(ends))
            ends[row : row + 1] = [claim.start + claim.length]
            rows.append(row)
        return rows

    @cached_property
    def _length_lanes(self) -> list[int | None]:
        """The lane in which each length is written, 0 next to its bracket; None where there is no room."""
        lanes_below = 1 if max(self._rows, default=0) else _LANES
        ends: dict[tuple[int, int], Number] = {}
        lanes: list[int | None] = []
        for claim, row in zip(self.claims, self._rows, strict=True):
            left, wide = self._bracket(claim)
            middle, half = left + wide / 2, text_width(self._length(claim), LABEL, bold=True) / 2
            places = ((lane, ends.get((row, lane), -math.inf)) for lane in range(lanes_below))
            lane = next((lane for lane, end in places if end < middle - half), None)
            if lane is not None:
                ends[row, lane] = middle + half + 2
            lanes.append(lane)
        return lanes

    @property
    def left_out(self) -> tuple[int, int]:
        """Starts, and lengths, for which there is no room."""
        return self._lanes.count(None), self._length_lanes.count(None)

    @property
    def above(self) -> Number:
        """Pixels needed above the row."""
        return _LANE * (1 + max((lane for lane in self._lanes if lane is not None), default=0))

    @property
    def height(self) -> Number:
        """Pixels needed in all."""
        lanes = max((lane for lane in self._length_lanes if lane is not None), default=0)
        return self.above + _HEIGHT + 36 + _BRACKET * max(self._rows, default=0) + _LANE * lanes

    def draw(self, canvas: Svg, top: Number, *, doubtful: bool) -> None:
        """Draw everything; brackets are dashed where the numbers are ``doubtful``."""
        y = top + self.above
        baselines = (y - 9, y + 22, y + _HEIGHT + 30)
        for baseline, name in zip(baselines, ("offsets", "ids", "seqlens"), strict=True):
            fill = "now-text" if name == "offsets" else "quiet"
            canvas.text(self.x - 12, baseline, name, size=LABEL, fill=fill, anchor="end")
        self._draw_ids(canvas, y)
        self._draw_starts(canvas, y)
        self._draw_brackets(canvas, y + _HEIGHT + 10, doubtful)

    def _draw_ids(self, canvas: Svg, y: Number) -> None:
        strip, step = self.strip, self.strip.step
        cells = len(strip.ids) <= _MOST_CELLS
        blocks = (
            [Run(r.id, t, t + 1) for r in strip.runs for t in range(r.start, r.stop)] if cells else strip.runs
        )
        paths: dict[str, str] = {}
        lines = ""
        for block in blocks:
            left, wide = self.x + block.start * step, (block.stop - block.start) * step
            wide = wide - 1 if wide > 3 else wide
            box = f"M{number(left)} {number(y)}h{number(wide)}v{number(_HEIGHT)}h{number(-wide)}z"
            paths[block.role] = paths.get(block.role, "") + box
            lines += "" if block.id else hatch(left, y, wide, _HEIGHT, 7)
        for role, d in paths.items():
            canvas.path(d, fill=role, stroke="hatch" if role == "pad" else None, stroke_width=0.8)
        if lines:
            canvas.path(lines, stroke="hatch")
        # An id is written in each cell if it fits there, else once in each run.
        each = cells and text_width(str(strip.ids.max()), LABEL, bold=True) + 3 <= step
        words: dict[str, list[tuple[Number, Number, str]]] = {}
        for block in blocks if each else strip.runs:
            text, wide = str(block.id), (block.stop - block.start) * step
            if text_width(text, LABEL, bold=True) + 3 <= wide and (block.id or each):
                middle = self.x + (block.start + block.stop) / 2 * step - 0.5
                words.setdefault(f"on-{block.role}" if block.id else "quiet", []).append(
                    (middle, y + 22, text)
                )
        for fill, items in words.items():
            # A rim of the segment's own colour keeps the lines between cells out of the digits.
            halo = "" if each or fill == "quiet" else fill.removeprefix("on-")
            canvas.texts(items, size=LABEL, fill=fill, anchor="middle", bold=fill != "quiet", halo=halo)

    def _draw_starts(self, canvas: Svg, y: Number) -> None:
        d, words = "", []
        for start, lane in zip(self.starts, self._lanes, strict=True):
            at = self.x + start * self.strip.step
            d += f"M{number(at)} {number(y - 1)}v{-6 if lane is None else number(-6 - lane * _LANE)}"
            if lane is not None:
                words.append((at, y - 9 - lane * _LANE, f"{start:,}"))
        canvas.texts(words, size=LABEL, fill="now-text")
        if d:
            canvas.path(d, stroke="now", stroke_width=1.5)

    def _draw_brackets(self, canvas: Svg, y: Number, doubtful: bool) -> None:
        paths: dict[str, str] = {}
        words: dict[str, list[tuple[Number, Number, str]]] = {}
        for claim, row, lane in zip(self.claims, self._rows, self._length_lanes, strict=True):
            role, at = segment_colour(claim.id), y + row * _BRACKET
            left, wide = self._bracket(claim)
            ends = f"M{number(left)} {number(at - 4)}v8m{number(wide)} -8v8" if wide > 5 else ""
            paths[role] = paths.get(role, "") + f"M{number(left)} {number(at)}h{number(wide)}{ends}"
            if lane is not None:
                word = (left + wide / 2, at + 20 + lane * _LANE, self._length(claim))
                words.setdefault(f"{role}-text", []).append(word)
        for role, d in paths.items():
            canvas.path(d, stroke=role, stroke_width=2, dash="4 3" if doubtful else "")
        for fill, items in words.items():
            canvas.texts(items, size=LABEL, fill=fill, anchor="middle", bold=True)

    def _bracket(self, claim: Claim) -> tuple[Number, Number]:
        """Left end and width of a bracket, which stops where the row stops."""
        stop = min(claim.start + claim.length, len(self.strip.ids))
        return self.x + claim.start * self.strip.step + 1, max((stop - claim.start) * self.strip.step - 3, 1)

    def _length(self, claim: Claim) -> str:
        # A length that would run past the end of the row is written with an arrow.
        return f"{claim.length:,}" + (" →" if claim.start + claim.length > len(self.strip.ids) else "")
