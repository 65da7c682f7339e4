"""The rank/select search as frames: how the k-th change of id is found without looking at every token twice.

The frames are not a re-telling: they call `attnlab.segments.rank_select` step by step, through readers that
count what is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from attnlab.segments import rank_select
from attnlab.segments.rank_select import FINE
from attnlab.show.card import MARGIN, open_card
from attnlab.show.palette import segment_colour
from attnlab.show.picture import Picture
from attnlab.show.replay import Frame, Replay, replay
from attnlab.show.svg import Svg, number

__all__ = ["Step", "search_replay", "steps"]

_WIDTH, _LABEL, _CELL = 900.0, 130.0, 34.0
_ROW_Y = (24.0, 124.0, 224.0)  # top of the cells at each level


class Step(NamedTuple):
    """Where the search stands: at `level`, in entries ``[low, high)``, with `rank` changes to pass."""

    level: int
    low: int
    high: int
    rank: int
    read: int  # entries read so far


def steps(ids: np.ndarray, k: int) -> Iterator[Step]:
    """Search for change number `k` (0 is the first) with the package's own functions, and report every step.

    Entries of level 0 are blocks of 1024 tokens, of level 1 blocks of 32 within one of those, of level 2
    tokens.
    """
    import jax.numpy as jnp

    directory = rank_select.build(jnp.asarray(ids, jnp.int32))
    n_changes = int(directory.coarse[-1])
    if not 0 <= k < n_changes:
        raise ValueError(
            f"k must be between 0 and {n_changes - 1}, since the row has {n_changes} changes; got {k}"
        )
    read = 0

    def counted(array: Any, per_entry: int) -> Any:
        def reader(i: Any) -> Any:
            nonlocal read
            read += per_entry * i.size
            return array[np.clip(i, 0, array.size - 1)]

        return reader

    row = np.asarray(ids)
    pairs = np.append(row[1:] != row[:-1], False).astype(np.int32)
    fine, change = counted(np.asarray(directory.fine, np.int32), 1), counted(pairs, 2)
    coarse = directory.coarse
    yield Step(0, 0, coarse.size, k, read)
    block, rank = rank_select.coarse_block(coarse, jnp.array([k], jnp.int32))
    read += coarse.size.bit_length()
    yield Step(0, int(block[0]), int(block[0]) + 1, int(rank[0]), read)
    base = block * FINE
    for level, reader in ((1, fine), (2, change)):
        yield Step(level, int(base[0]), int(base[0]) + FINE, int(rank[0]), read)
        for shift in (5, 4, 3, 2, 1):
            base, rank = rank_select.descend(reader, base, rank, 1 << shift)
            yield Step(level, int(base[0]), int(base[0]) + (1 << (shift - 1)), int(rank[0]), read)
        base = base * FINE


def search_replay(ids: np.ndarray, k: int) -> Replay:
    """Replay the search for change number `k` through the three levels of the directory.

    Parameters
    ----------
    ids : int [T]
        Segment ids of one row, T at least 2.
    k : int
        Which change of id to look for; 0 is the first.

    Returns
    -------
    Replay

    Raises
    ------
    ValueError
        If the row has no change number `k`.
    """
    import jax.numpy as jnp

    row = np.asarray(ids)
    trail = list(steps(row, k))
    directory = rank_select.build(jnp.asarray(row, jnp.int32))
    origin = {level: next(s.low for s in trail if s.level == level) for level in (0, 1, 2)}
    sentence = (
        f"{row.size:,} tokens hold {int(directory.coarse[-1])} changes of id. "
        f"Change number {k} lies between tokens {trail[-1].low:,} and {trail[-1].low + 1:,}."
    )
    canvas, top = open_card(_WIDTH, _ROW_Y[2] + _CELL + 8, title=None, sentence=sentence)
    totals = [(str(int(n)), "skip", "ink") for n in directory.coarse]
    _cells(canvas, top, 0, 0, totals, "running total", "of blocks of 1,024")
    counts = [int(n) for n in directory.fine[origin[1] : origin[1] + FINE]]
    marks = [(str(n), "edge" if n else "skip", "on-edge" if n else "quiet") for n in counts]
    _cells(canvas, top, 1, origin[1], marks, "changes", "in blocks of 32")
    tokens = [int(t) for t in row[origin[2] : origin[2] + FINE]]
    colours = [segment_colour(t) if t else "pad" for t in tokens]
    marks = [(str(t), c, f"on-{c}" if t else "quiet") for t, c in zip(tokens, colours, strict=True)]
    _cells(canvas, top, 2, origin[2], marks, "ids", "token by token")
    base = Picture(canvas.render(title="", sentence=sentence), sentence)
    overlays = [Frame(_overlay(top, step, trail, origin), _say(step, trail, row.size)) for step in trail]
    return replay(base, overlays, f"Finding change number {k}")


def _overlay(top: float, step: Step, trail: list[Step], origin: dict[int, int]) -> str:
    """Draw one step: what it has ruled out, what it has passed, and what it has not reached."""
    sizes = (trail[0].high, FINE, FINE)
    canvas, x = Svg(_WIDTH, 1), MARGIN + _LABEL
    for level in range(step.level + 1, 3):  # not reached yet
        canvas.rect(MARGIN - 2, top + _ROW_Y[level] - 24, _WIDTH - MARGIN - 4, _CELL + 50, fill="paper")
    for level in range(step.level):  # passed: the entry chosen there, opened into the next row
        chosen = next(s.low for s in reversed(trail) if s.level == level) - origin[level]
        left, right = x + chosen * _pitch(sizes[level]), x + (chosen + 1) * _pitch(sizes[level]) - 2
        below, onto = top + _ROW_Y[level] + _CELL, top + _ROW_Y[level + 1] - 24
        canvas.rect(left, below - _CELL, right - left, _CELL, stroke="now", stroke_width=2)
        canvas.path(
            f"M{number(left)} {number(below)}L{number(x)} {number(onto)}"
            f"M{number(right)} {number(below)}L{number(x + FINE * _pitch(FINE))} {number(onto)}",
            stroke="now",
            opacity=0.5,
        )
    pitch, y = _pitch(sizes[step.level]), top + _ROW_Y[step.level]
    low, high = step.low - origin[step.level], step.high - origin[step.level]
    for a, b in ((0, low), (high, sizes[step.level])):  # ruled out
        if b > a:
            canvas.rect(x + a * pitch - 1, y - 1, (b - a) * pitch, _CELL + 2, fill="paper", opacity=0.7)
    box = (x + low * pitch - 2, y - 3, (high - low) * pitch + 2, _CELL + 6)
    canvas.rect(*box, stroke="now", stroke_width=2.5, radius=3)
    return canvas.inner()


def _say(step: Step, trail: list[Step], tokens: int) -> str:
    """Put one step into words."""
    if step is trail[0]:
        return f"Running totals for {step.high} blocks of 1,024 tokens: which block holds change {step.rank}?"
    read = f"{step.read} entries read of {tokens:,} tokens."
    if step.level == 0:
        return f"Block {step.low} holds it; {step.rank} {_changes(step.rank)} before it in this block. {read}"
    if step is trail[-1]:
        return f"Found: the id changes after token {step.low:,}. {read}"
    unit = "blocks of 32" if step.level == 1 else "tokens"
    if step.high - step.low == 1:
        return f"It is in the block of 32 tokens that begins with token {step.low * FINE:,}. {read}"
    among = f"It is among {step.high - step.low} {unit}"
    return f"{among}; {step.rank} {_changes(step.rank)} before it there. {read}"


def _changes(count: int) -> str:
    return "change comes" if count == 1 else "changes come"


def _pitch(cells: int) -> float:
    return min((_WIDTH - 2 * MARGIN - _LABEL) / cells, 88.0)


def _cells(
    canvas: Svg, top: float, level: int, origin: int, cells: list[tuple[str, str, str]], what: str, unit: str
) -> None:
    """Draw one level: its name, its cells with their numbers, and where its first cell lies."""
    y, x, pitch = top + _ROW_Y[level], MARGIN + _LABEL, _pitch(len(cells))
    canvas.text(MARGIN, y + 15, what, fill="ink", bold=True)
    canvas.text(MARGIN, y + 33, unit, size=13, fill="quiet")
    wide, high = number(pitch - 2), number(_CELL)
    for role in dict.fromkeys(role for _, role, _ in cells):  # one path for each colour
        boxes = [x + i * pitch for i, (_, other, _) in enumerate(cells) if other == role]
        canvas.path("".join(f"M{number(b)} {number(y)}h{wide}v{high}h-{wide}z" for b in boxes), fill=role)
    for fill in dict.fromkeys(fill for _, _, fill in cells):
        items = [
            (x + (i + 0.5) * pitch - 1, y + 22, text)
            for i, (text, _, role) in enumerate(cells)
            if role == fill
        ]
        canvas.texts(items, size=13, fill=fill, anchor="middle")
    ends = (0, len(cells) // 2, len(cells) - 1)
    scale = (1024, FINE, 1)[level]
    first = origin * scale if level else 0
    canvas.texts(
        [(x + (i + 0.5) * pitch - 1, y - 8, f"{first + i * scale:,}") for i in ends],
        size=12, fill="quiet", anchor="middle",
    )  # fmt: skip
