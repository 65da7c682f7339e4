"""The places of everything in a picture of a schedule, and what stays and what moves in it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from attnlab.show.card import MARGIN
from attnlab.show.grid import Grid
from attnlab.show.numeric import Number
from attnlab.show.schedule_map import draw_schedule_map, swatch
from attnlab.show.schedule_panel import SchedulePanel
from attnlab.show.schedule_steps import row_so_far
from attnlab.show.schedule_walks import Schedule
from attnlab.show.svg import Svg, number
from attnlab.show.text_width import text_width
from attnlab.show.token_axes import TICK, TokenAxes

__all__ = ["ScheduleScene"]

_SIDE, _PANEL_GAP = 400.0, 34.0


@dataclass(frozen=True, eq=False)
class ScheduleScene:
    """The places of everything; `top` is where the body of the card starts."""

    top: Number
    shown: Schedule

    @functools.cached_property
    def axes(self) -> TokenAxes:
        """The plot at the left."""
        tiles = self.shown.tiles
        scale = _SIDE / max(tiles.q_len, tiles.kv_len)
        return TokenAxes(
            tiles.q_len, tiles.kv_len, width=scale * tiles.kv_len, height=scale * tiles.q_len, above=4,
            x_label="key position", y_label="query position", block_q=tiles.block_q, block_kv=tiles.block_kv,
        )  # fmt: skip

    @functools.cached_property
    def grid(self) -> Grid:
        """The tiles."""
        tiles, axes = self.shown.tiles, self.axes
        cell = (axes.width * tiles.block_kv / tiles.kv_len, axes.height * tiles.block_q / tiles.q_len)
        return Grid(axes.left, self.top + axes.top, axes.width, axes.height, *cell)

    @functools.cached_property
    def panel(self) -> SchedulePanel:
        """The panel at the right."""
        shown = self.shown
        most = max(sum(steps[-1].moved.values()) for steps in (shown.steps, shown.other))
        x = round(self.axes.left + _SIDE + _PANEL_GAP)
        sizes = shown.head_dim, shown.bytes_per_element
        return SchedulePanel(x, self.top, shown.order, shown.other_order, *sizes, most)

    @property
    def width(self) -> Number:
        """Width of the card."""
        return self.panel.x + SchedulePanel.WIDTH + MARGIN

    @property
    def height(self) -> Number:
        """Height of the body."""
        return SchedulePanel.HEIGHT + 24

    def draw_base(self, canvas: Svg) -> None:
        """Draw what stays."""
        draw_schedule_map(canvas, self.grid, self.shown.tiles)
        self.axes.draw(canvas, self.top)
        self.panel.draw_base(canvas)
        tiles = self.shown.tiles
        x, y = self.grid.x, self.top + self.axes.body_height + 22
        for role, count, kind in (
            ("dense", tiles.n_dense, "dense"),
            ("edge", tiles.n_edge, "edge"),
            ("skip", tiles.n_skip, "skipped"),
        ):
            swatch(canvas, x, y - 12, 16, role)
            name = f"{count:,} {kind}"
            canvas.text(x + 23, y + 1, name, size=TICK, fill="quiet")
            x += text_width(name, TICK) + 46

    def draw_step(self, canvas: Svg, step: int) -> None:
        """Draw what moves; the first step is 1."""
        shown = self.shown
        past = shown.steps[:step]
        points = [self.grid.centre(s.q_tile, s.k_tile) for s in past]
        d = _polyline(points)
        if d:
            canvas.path(d, stroke="ink", stroke_width=1.3, opacity=0.6, round_ends=True)
        box = self.grid.box(past[-1].q_tile, past[-1].k_tile)
        canvas.rect(*box, stroke="now", stroke_width=3)
        tiles = shown.tiles
        tall = min(tiles.block_q, tiles.q_len - past[-1].q_tile * tiles.block_q)
        row = row_so_far(tiles, past, tall // 2, head_dim=shown.head_dim)
        self.panel.draw_step(canvas, past[-1], shown.other[step - 1].moved, row)


def _polyline(points: list[tuple[Number, Number]]) -> str:
    """A path through the points; those on the way between two others are left out."""
    kept: list[tuple[Number, Number]] = []
    for point in points:
        if len(kept) > 1 and (
            kept[-2][0] == kept[-1][0] == point[0] or kept[-2][1] == kept[-1][1] == point[1]
        ):
            kept.pop()
        kept.append(point)
    words = [f"{number(round(x, 1))} {number(round(y, 1))}" for x, y in kept]
    return f"M{'L'.join(words)}" if len(words) > 1 else ""
