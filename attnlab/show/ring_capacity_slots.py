"""The slots of a ring after a chunk, and under them the key tiles that a kernel would read."""

from __future__ import annotations

import numpy as np

from attnlab.show.numeric import Number
from attnlab.show.ring_capacity import Consequence
from attnlab.show.ring_dial import STALE, STALE_OPACITY
from attnlab.show.svg import Svg, box_path, number
from attnlab.show.text_width import text_width
from attnlab.show.token_axes import TICK

__all__ = ["LABELS", "draw_slots"]

LABELS = 84.0  # width of the names at the left, in pixels
_LANE, _LANES = 24.0, 2
_SLOTS = "The slots after the chunk, and the key tiles that it reads"


def draw_slots(canvas: Svg, left: Number, right: Number, top: Number, found: Consequence) -> None:
    """Draw the slots between `left` and `right`, and below them the key tiles that the chunk reads."""
    canvas.text(left, top + 12, _SLOTS, size=16, bold=True)
    aside = left + text_width(_SLOTS, 16, bold=True) + 24
    canvas.line(aside, top + 8, aside + 22, top + 8, stroke="now", width=4)
    canvas.text(aside + 30, top + 12, "written by the chunk", size=TICK, fill="quiet")
    size = min(34.0, (right - left - LABELS) / found.capacity)
    x, y, high = left + LABELS, top + 44, 32.0
    canvas.text(left, y - 7, "slot", fill="ink")
    canvas.text(left, y + 21, "position", fill="ink")
    canvas.text(left, y + high + 26, "key tile", fill="ink")
    wrong, fresh = found.wrong_slots, found.held >= found.start
    first_needed = found.first_key
    kinds = (
        ("now", wrong, "on-now"),
        ("dense", ~wrong & (found.held >= first_needed), "on-dense"),
        (STALE, ~wrong & (found.held < first_needed), "ink"),
    )
    rotated = text_width("100", TICK, bold=True) + 3 > size
    for role, chosen, fill in kinds:
        slots = np.flatnonzero(chosen)
        d = "".join(box_path(x + int(s) * size, y, size - 1.5, high) for s in slots)
        if not d:
            continue
        canvas.path(d, fill=role, opacity=STALE_OPACITY if role == STALE else 1)
        bold = role != STALE
        if rotated:
            for s in slots:
                place = (x + (int(s) + 0.5) * size + 4, y + 16, str(found.held[s]))
                canvas.text(*place, size=TICK, fill=fill, anchor="middle", bold=bold, rotate=-90)
        else:
            words = [(x + (int(s) + 0.5) * size - 0.75, y + 21, str(found.held[s])) for s in slots]
            canvas.texts(words, size=TICK, fill=fill, anchor="middle", bold=bold)
    frame = "".join(
        f"M{number(x + int(s) * size)} {number(y - 2)}h{number(size - 1.5)}" for s in np.flatnonzero(fresh)
    )
    canvas.path(frame, stroke="now", stroke_width=4)
    step = max(1, -(-(text_width("48", TICK) + 5) // size))
    marks = [(x + (s + 0.5) * size, y - 9, str(s)) for s in range(0, found.capacity, int(step))]
    canvas.texts(marks, size=TICK, fill="quiet", anchor="middle")
    _draw_tiles(canvas, x, y + high + 10, size, found)


def _draw_tiles(canvas: Svg, x: Number, y: Number, size: Number, found: Consequence) -> None:
    """Brackets under the slots of the touched tiles; tiles that meet another one go one lane down."""
    bad = set(found.straddling) | set(found.sharing)
    lanes = [np.zeros(found.capacity, np.bool_) for _ in range(_LANES)]
    brackets = {"muted": "", "now": ""}
    words: dict[str, list[tuple[Number, Number, str]]] = {"muted": [], "now": []}
    left_out = 0
    for tile in found.tiles:
        runs = found.tile_runs(tile)
        slots = np.concatenate([np.arange(*run) for run in runs]) if runs else None
        free = [i for i, used in enumerate(lanes) if slots is not None and not used[slots].any()]
        if slots is None or not free:
            left_out += 1
            continue
        lanes[free[0]][slots] = True
        role, at = "now" if tile in bad else "muted", y + free[0] * _LANE
        for first, end in runs:
            left, wide = round(x + first * size + 1, 1), round((end - first) * size - 3.5, 1)
            brackets[role] += f"M{number(left)} {number(at)}v5h{number(wide)}v-5"
            if text_width(str(tile), TICK, bold=True) + 2 <= wide + 4:
                words[role].append((left + wide / 2, at + 18, str(tile)))
    for role, d in brackets.items():
        if d:
            canvas.path(d, stroke=role, stroke_width=2)
            canvas.texts(words[role], size=TICK, fill=f"{role}-text", anchor="middle", bold=role == "now")
    if left_out:
        word = f"{left_out} more not drawn for want of room"
        canvas.text(x, y + _LANES * _LANE + 12, word, size=TICK, fill="quiet")
