"""The capacity of a ring, too small or large enough: the laws, the keys that are gone, and the tiles."""

from __future__ import annotations

import numpy as np

from attnlab.ring import laws
from attnlab.show.card import MARGIN, open_card
from attnlab.show.numeric import Number
from attnlab.show.picture import Picture
from attnlab.show.ring_capacity import Consequence, consequence
from attnlab.show.ring_capacity_queries import draw_queries
from attnlab.show.ring_capacity_slots import draw_slots
from attnlab.show.svg import Svg
from attnlab.show.text_width import wrap

__all__ = ["capacity_picture"]

_WIDTH = 900.0
_INNER = _WIDTH - 2 * MARGIN
_LAWS, _MATRIX, _STRIP = 124.0, 262.0, 132.0


def capacity_picture(capacity: int = 20, window: int = 12, chunk: int = 4, tile: int = 4) -> Picture:
    """Draw what happens when a chunk is written into a full ring, and then its queries look back.

    At the top the laws, in the words of `attnlab.ring.laws`. Below them one row for each query of the chunk:
    the keys that it needs, and, crossed out, those that the chunk itself has overwritten. At the bottom the
    slots, and the key tiles that a kernel would read.

    Parameters
    ----------
    capacity : int
        C, slots, 4 to 48.
    window : int
        W, keys visible to a query, its own included, 1 to 32.
    chunk : int
        Tokens that are written by one call, 1 to 24.
    tile : int
        T, tokens of a key tile, 1 to 16.

    Raises
    ------
    TypeError, ValueError
        If a number is no int or out of range.
    """
    limits = (
        ("capacity", capacity, 4, 48),
        ("window", window, 1, 32),
        ("chunk", chunk, 1, 24),
        ("tile", tile, 1, 16),
    )
    for name, value, least, most in limits:
        if not least <= value <= most:
            raise ValueError(f"{name} must be from {least} to {most} to be drawn, got {value}")
    found = consequence(capacity, window, chunk, tile)
    sentence = _say(found)
    canvas, top = open_card(
        _WIDTH, _LAWS + _MATRIX + _STRIP, title="Is the ring large enough?", sentence=sentence, room_for=2
    )
    _draw_laws(canvas, top, found)
    draw_queries(canvas, (MARGIN, top + _LAWS, _INNER, _MATRIX), found)
    draw_slots(canvas, MARGIN, _WIDTH - MARGIN, top + _LAWS + _MATRIX, found)
    return Picture(canvas.render(title="Is the ring large enough?", sentence=sentence), sentence)


def _say(found: Consequence) -> str:
    keys = found.window - 1 + found.chunk
    lost, blind = found.lost_keys, found.blind_queries
    if lost:
        said = f"{len(lost)} of {_count(keys, 'key')} {'is' if len(lost) == 1 else 'are'} overwritten before "
        said += f"{_list('query', 'queries', blind)} {'reads' if len(blind) == 1 else 'read'} "
        said += f"{'it' if len(lost) == 1 else 'them'}: {_list('position', 'positions', lost)}."
    else:
        said = f"All {keys} keys that the chunk needs are still there." if keys > 1 else "The key is there."
    if found.tile_size > found.capacity:
        return f"{said} A key tile is longer than the ring."
    if found.straddling:
        said += f" {_list('Key tile', 'Key tiles', found.straddling)} "
        said += f"{'straddles' if len(found.straddling) == 1 else 'straddle'} the end of the ring."
    if found.sharing:
        said += f" {_list('Key tile', 'Key tiles', found.sharing)} share slots."
    if not found.broken:
        said += " Every law holds."
    return said


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _list(one: str, many: str, values: list[int]) -> str:
    """Name values, runs of neighbours as "3 to 5"."""
    cuts = np.flatnonzero(np.diff(values) != 1) + 1
    runs = np.split(np.array(values), cuts)
    parts = [f"{r[0]}" if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs]
    words = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"{one if len(values) == 1 else many} {words}"


def _draw_laws(canvas: Svg, top: Number, found: Consequence) -> None:
    keys = found.window - 1 + found.chunk
    enough = laws.default_capacity(found.window, found.chunk, found.tile_size)
    held = {
        "cache law": f"cache law: {found.capacity} slots for the {keys} keys that the chunk needs together",
        "tile laws": f"tile laws: {found.capacity} slots, in whole tiles, where {enough} are enough",
    }
    y = top
    for name, meaning in held.items():
        message = found.broken.get(name)
        role = "now" if message else "better"
        lines = wrap(message or meaning, 14, _INNER - 100)
        canvas.rect(MARGIN, y, 76, 24, fill=role, radius=5)
        word = "broken" if message else "holds"
        canvas.text(MARGIN + 38, y + 17, word, fill=f"on-{role}", anchor="middle", bold=True)
        for i, line in enumerate(lines):
            canvas.text(MARGIN + 92, y + 17 + i * 20, line)
        y += 54
