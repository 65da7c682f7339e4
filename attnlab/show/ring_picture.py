"""A ring of slots beside the absolute timeline, both on one cursor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlab.show.card import MARGIN, open_card
from attnlab.show.hatch import hatch
from attnlab.show.numeric import Number
from attnlab.show.picture import Picture
from attnlab.show.ring_dial import HATCH_OPACITY, STALE, STALE_OPACITY, RingDial
from attnlab.show.ring_state import RingState
from attnlab.show.ring_timeline import RingTimeline
from attnlab.show.svg import Svg
from attnlab.show.token_axes import TICK

__all__ = ["RingScene", "ring_picture"]

_MOST_SLOTS = 48
_PANEL = 344.0
_LEGEND = (
    ("dense", "visible to the newest token"),
    (STALE, "still there, no longer seen"),
    ("pad", "padding, never seen"),
    ("skip", "empty"),
)


@dataclass(frozen=True)
class RingScene:
    """The places of everything in a picture of a ring.

    Attributes
    ----------
    top : float
        Where the body of the card starts.
    capacity, tokens : int
        Slots of the ring, and positions on the timeline.
    """

    top: Number
    capacity: int
    tokens: int

    WIDTH = 2 * MARGIN + 2 * RingDial.HALF_WIDTH + 16 + _PANEL
    HEIGHT = 2 * RingDial.HALF_HEIGHT

    @property
    def dial(self) -> RingDial:
        """The ring, at the left."""
        return RingDial(MARGIN + RingDial.HALF_WIDTH, self.top + RingDial.HALF_HEIGHT, self.capacity)

    @property
    def timeline(self) -> RingTimeline:
        """The timeline, at the top right."""
        return RingTimeline(self._panel, self.top + 40, _PANEL, self.tokens)

    @property
    def _panel(self) -> Number:
        return MARGIN + 2 * RingDial.HALF_WIDTH + 16

    @property
    def _legend(self) -> Number:
        return self.top + 40 + RingTimeline.HEIGHT + 58

    def draw_base(self, canvas: Svg, window: int) -> None:
        """Draw what stays."""
        self.dial.draw_slots(canvas)
        middle = self.dial.x
        canvas.text(middle, self.dial.y - 2, f"{self.capacity} slots", size=16, anchor="middle", bold=True)
        canvas.text(middle, self.dial.y + 19, f"window {window}", size=TICK, fill="quiet", anchor="middle")
        canvas.text(self._panel, self.top + 16, "The absolute timeline", size=16, bold=True)
        self.timeline.draw_axis(canvas)
        canvas.text(self._panel, self._legend - 22, "The slots", size=16, bold=True)
        meanings = [
            (self._panel + 62, self._legend + 15 + i * 28, meaning) for i, (_, meaning) in enumerate(_LEGEND)
        ]
        canvas.texts(meanings, fill="quiet")
        for i, (role, _) in enumerate(_LEGEND):
            y = self._legend + i * 28
            canvas.rect(
                self._panel,
                y,
                20,
                20,
                fill=role,
                stroke="hatch" if role in ("pad", "skip") else None,
                opacity=STALE_OPACITY if role == STALE else 1,
            )
            if role == "pad":
                canvas.path(hatch(self._panel, y, 20, 20, 7), stroke="muted", opacity=HATCH_OPACITY)

    def draw_state(self, canvas: Svg, state: RingState) -> None:
        """Draw what moves."""
        self.dial.draw_state(canvas, state)
        self.timeline.draw_state(canvas, state)
        held = state.positions >= 0
        padded = state.padding & held
        visible = state.in_window & ~padded
        kinds = (visible, held & ~state.in_window & ~padded, padded, ~held)
        words = [
            (self._panel + 52, self._legend + 15 + i * 28, str(int(np.count_nonzero(kind))))
            for i, kind in enumerate(kinds)
        ]
        canvas.texts(words, anchor="end", bold=True)


def ring_picture(
    state: RingState,
    *,
    title: str | None = "Ring buffer",
    sentence: str | None = None,
    tokens: int | None = None,
) -> Picture:
    """Draw a ring as slots around a circle, with both pointers, beside its window on the timeline.

    In the slots stand the absolute positions that they hold, outside them their own numbers. The write
    pointer comes from outside, the read pointer from inside. What the last call wrote is framed.

    Parameters
    ----------
    state : RingState
        From `attnlab.show.ring_state.read_ring`; 1 to 48 slots.
    title
        Title of the picture; None leaves the header out.
    sentence
        What to say instead of where the last token went and where the window lies.
    tokens
        Positions on the timeline; by default those that have been written, and at least as many as slots.

    Raises
    ------
    ValueError
        If there are more than 48 slots, or more tokens than the timeline is to have.
    """
    least = max(state.highest, 1)
    tokens = max(least, state.capacity) if tokens is None else tokens
    check_scene(state.capacity, tokens, least)
    sentence = state.sentence if sentence is None else sentence
    canvas, top = open_card(RingScene.WIDTH, RingScene.HEIGHT, title=title, sentence=sentence)
    scene = RingScene(top, state.capacity, tokens)
    scene.draw_base(canvas, state.window)
    scene.draw_state(canvas, state)
    return Picture(canvas.render(title=title or "", sentence=sentence), sentence)


def check_scene(capacity: int, tokens: int, written: int) -> None:
    """Raise a ValueError unless a ring of this many slots and tokens can be drawn."""
    if not 1 <= capacity <= _MOST_SLOTS:
        raise ValueError(f"capacity must be from 1 to {_MOST_SLOTS} to be drawn, got {capacity}")
    if tokens < written:
        raise ValueError(f"tokens must be at least {written}, the tokens written; got {tokens}")
