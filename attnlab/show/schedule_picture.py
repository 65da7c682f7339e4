"""A schedule of tiles: one step of the walk as a picture, and the whole walk as a replay."""

from __future__ import annotations

import functools
import re

from attnlab.show.card import open_card
from attnlab.show.picture import Picture
from attnlab.show.replay import Frame, Replay, replay
from attnlab.show.schedule_scene import ScheduleScene
from attnlab.show.schedule_walks import Schedule, schedule
from attnlab.show.svg import Svg
from attnlab.tiles import tile_map

__all__ = ["schedule_explorer_picture", "schedule_picture", "schedule_replay"]


def _title(shown: Schedule) -> str:
    mask = re.sub(r"window\((\d+)\)", r"window \1", shown.tiles.mask.name).replace(" & ", ", ")
    return f"Tile schedule · {mask} · {shown.order}"


def schedule_picture(shown: Schedule, step: int) -> Picture:
    """Draw one step of a walk over tiles.

    At the left the tile map with the path so far; at the right what is on chip, what has been moved so far in
    this order and in the other, and the running (m, l, O) of the middle row of the current query tile.

    Parameters
    ----------
    shown : Schedule
    step : int
        1 is the first.

    Raises
    ------
    ValueError
        If there is no such step.
    """
    if not 1 <= step <= len(shown.steps):
        raise ValueError(f"step must be from 1 to {len(shown.steps)}, got {step}")
    places = ScheduleScene(0, shown)
    sentence = shown.sentence(step)
    canvas, top = open_card(places.width, places.height, title=_title(shown), sentence=sentence)
    scene = ScheduleScene(top, shown)
    scene.draw_base(canvas)
    scene.draw_step(canvas, step)
    return Picture(canvas.render(title=_title(shown), sentence=sentence), sentence, (scene.grid,))


def schedule_replay(shown: Schedule) -> Replay:
    """Replay a whole walk, one step for each visited tile."""
    places = ScheduleScene(0, shown)
    canvas, top = open_card(places.width, places.height, title=None, sentence="")
    scene = ScheduleScene(top, shown)
    scene.draw_base(canvas)
    said = f"{_title(shown)}."
    base = Picture(canvas.render(title="", sentence=said), said, (scene.grid,))
    frames = []
    for step in range(1, len(shown.steps) + 1):
        overlay = Svg(*base.size)
        scene.draw_step(overlay, step)
        frames.append(Frame(overlay.inner(), shown.sentence(step)))
    return replay(base, frames, _title(shown))


def schedule_explorer_picture(
    order: str = "Q-major", window: int = 768, block: int = 128, progress: int = 53, *, tokens: int = 2048
) -> Picture:
    """Draw a step of the walk over a causal window, for an explorer.

    Parameters
    ----------
    order : "Q-major" or "K-major"
    window : int
        W, keys visible to a query, its own included.
    block : int
        Side of a tile, in tokens.
    progress : int
        How far the walk has come, in percent; 0 is the first step, 100 the last.
    tokens : int
        Length of the sequence.

    Raises
    ------
    ValueError
        If a value is out of range.
    """
    if not 0 <= progress <= 100:
        raise ValueError(f"progress must be from 0 to 100 percent, got {progress}")
    shown = _causal(order, window, block, tokens)
    return schedule_picture(shown, max(1, round(progress / 100 * len(shown.steps))))


@functools.lru_cache(maxsize=32)
def _causal(order: str, window: int, block: int, tokens: int) -> Schedule:
    from attnlab.ring.tiled import window_mask

    return schedule(tile_map(window_mask(window, True), tokens, tokens, block), order)
