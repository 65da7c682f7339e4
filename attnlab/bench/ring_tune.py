"""Measure which block and tile sizes, and which order, run fastest on this machine, and keep the winners.

``attnlab tune ring`` runs this. `attnlab.ring.tuned` looks the winners up. A candidate wins only if it beats
the default by more than `LEAST_GAIN`, paired round by round; otherwise the default stays.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from attnlab.bench.case import WARMUP, Report
from attnlab.bench.environment import describe
from attnlab.bench.progress import Progress, Stream
from attnlab.bench.record import Record, new_record, write_record
from attnlab.bench.rows import Param, Row
from attnlab.bench.table import align
from attnlab.bench.timing import paired_ratio
from attnlab.bench.units import human
from attnlab.ring import strided, tiled, tuned
from attnlab.ring.order import TileOrder

__all__ = ["Outcome", "Setting", "forget", "outcome", "save", "table", "tune"]

DEFAULT = "default"
LEAST_GAIN = 1.1  # the same code timed twice differs by as much as a twentieth
HEADS = 4
BLOCKS = (16, 32, 64, 128, 256)
TILES = (32, 64, 128, 256)


@dataclass(frozen=True)
class Setting:
    """One thing to tune: a pass of the overlapping blocks, or the tiled walk, at a window and a head size."""

    kind: Literal["forward", "backward", "tiled"]
    window: int
    head_dim: int
    dtype: str = "float32"

    @property
    def params(self) -> dict[str, Param]:
        """The setting as a row's params."""
        return {"kind": self.kind, "W": self.window, "D": self.head_dim, "dtype": self.dtype}


@dataclass(frozen=True)
class Outcome:
    """What came out for a setting: the candidate that won, or the default, and how many times as fast."""

    setting: Setting
    winner: str
    size: int | None
    order: str | None
    gain: float


def settings(quick: bool) -> list[Setting]:
    """What is tuned: three kinds at two windows and two head sizes; one window and one head size if quick."""
    windows, head_dims = ((256,), (64,)) if quick else ((256, 1024), (64, 128))
    kinds: tuple[Literal["forward", "backward", "tiled"], ...] = ("forward", "backward", "tiled")
    return [Setting(kind, window, size) for kind in kinds for window in windows for size in head_dims]


def candidates(setting: Setting, quick: bool) -> Iterator[tuple[str, int | None, TileOrder]]:
    """The candidates of a setting, the default first: a name, a size (None for the default) and an order."""
    yield DEFAULT, None, TileOrder.Q_MAJOR
    if setting.kind == "tiled":
        for size in TILES[1:3] if quick else TILES:
            for order in TileOrder:
                yield f"{size}, {order.value}-major", size, order
    else:
        for size in BLOCKS[1:4] if quick else BLOCKS:
            yield str(size), size, TileOrder.Q_MAJOR


def tune(
    *, quick: bool = False, chosen: Sequence[Setting] | None = None, err: Stream | None = None
) -> list[Row]:
    """Time every candidate of every setting, those of one setting interleaved.

    Parameters
    ----------
    quick : bool
        Few candidates, few rounds and one setting of each kind.
    chosen : sequence of Setting, optional
        Measure these instead.
    err : stream, optional
        Where the progress goes; standard error by default.

    Returns
    -------
    list of Row
        The seconds of each candidate, in its variant's name; the setting is in the params.
    """
    chosen = settings(quick) if chosen is None else chosen
    progress = Progress(len(chosen), sys.stderr if err is None else err)
    rows: list[Row] = []
    for setting in chosen:
        name = f"{setting.kind}, W = {setting.window}, D = {setting.head_dim}"
        progress.start(name)
        report = Report("ring", "tune", quick=quick)
        with tuned.ignored():  # the default is what would run without any winner
            calls = {label: _call(setting, size, order) for label, size, order in candidates(setting, quick)}
            report.time(calls, params=setting.params, baseline=DEFAULT, repeats=5 if quick else 9)
        progress.finish(name, "measured")
        rows += report.rows
    return rows


def outcome(rows: Sequence[Row]) -> list[Outcome]:
    """The winner of each setting that the rows hold, by the median of the ratios of paired rounds."""
    found = []
    for key in dict.fromkeys(tuple(row.params.values()) for row in rows):
        group = [row for row in rows if tuple(row.params.values()) == key]
        setting = Setting(*key)  # type: ignore[arg-type]
        default = next(row for row in group if row.variant == DEFAULT)
        gains = {row.variant: paired_ratio(default.samples or (), row.samples or ()) for row in group}
        best = max(gains, key=lambda name: gains[name])
        if gains[best] < LEAST_GAIN:
            best = DEFAULT
        label, size, order = next(c for c in candidates(setting, False) if c[0] == best)
        kept = order.value if setting.kind == "tiled" and size is not None else None
        found.append(Outcome(setting, label, size, kept, gains[label]))
    return found


def table(rows: Sequence[Row]) -> str:
    """Every candidate with its median, how many times as fast as the default it is, and who won."""
    winners = {tuple(o.setting.params.values()): o.winner for o in outcome(rows)}
    lines = []
    for row in rows:
        key = tuple(row.params.values())
        default = next(r for r in rows if tuple(r.params.values()) == key and r.variant == DEFAULT)
        gain = paired_ratio(default.samples or (), row.samples or ())
        won = "winner" if winners[key] == row.variant else ""
        lines.append([*map(str, key), row.variant, human(row.value, "s"), human(gain, "x"), won])
    header = ["path", "W", "D", "dtype", "candidate", "median", "gain over the default", ""]
    return align(header, lines, ("W", "D", "median", "gain over the default"))


def save(rows: Sequence[Row], command: str) -> Path:
    """Write the record and the winners to the user's cache directory, and return that directory."""
    place = tuned.folder()
    place.mkdir(parents=True, exist_ok=True)
    write_record(record(rows, command), place / tuned.RECORD)
    winners = [
        {
            "kind": o.setting.kind,
            "window": o.setting.window,
            "head_dim": o.setting.head_dim,
            "dtype": o.setting.dtype,
            "size": o.size,
            "order": o.order,
            "gain": o.gain,
        }
        for o in outcome(rows)
    ]
    content = {"schema": tuned.SCHEMA, "machine": tuned.machine(), "record": tuned.RECORD, "winners": winners}
    # The winners appear whole or not at all: another process may be looking one up.
    handle, temporary = tempfile.mkstemp(dir=place, prefix=tuned.WINNERS, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
    os.replace(temporary, place / tuned.WINNERS)
    tuned.forget_loaded()
    return place


def record(rows: Sequence[Row], command: str) -> Record:
    """Gather the rows with this machine's description."""
    return new_record(command, describe(), WARMUP, list(rows), [])


def forget() -> bool:
    """Remove the winners and their record; False where there were none."""
    files = [tuned.folder() / name for name in (tuned.WINNERS, tuned.RECORD)]
    there = [file for file in files if file.exists()]
    for file in there:
        file.unlink()
    tuned.forget_loaded()
    return bool(there)


def _call(setting: Setting, size: int | None, order: TileOrder) -> Callable[[], Any]:
    """One pass with a candidate, over sequences four windows long; two windows in the slower tiled walk."""
    tokens = setting.window * (2 if setting.kind == "tiled" else 4)
    generator = torch.Generator().manual_seed(0)
    q, k, v, dout = (
        torch.randn(1, HEADS, tokens, setting.head_dim, generator=generator).to(getattr(torch, setting.dtype))
        for _ in range(4)
    )
    if setting.kind == "tiled":
        sizes: dict[str, Any] = {} if size is None else {"tile_size": size}
        return torch.no_grad()(
            lambda: tiled.sliding_window_attention(q, k, v, window=setting.window, order=order, **sizes)
        )
    if setting.kind == "forward":
        return torch.no_grad()(
            lambda: strided.sliding_window_attention(q, k, v, window=setting.window, block_size=size)
        )
    given = tuple(x.requires_grad_() for x in (q, k, v))
    out = strided.sliding_window_attention(*given, window=setting.window, block_size=size)
    return lambda: torch.autograd.grad(out, given, dout, retain_graph=True)
