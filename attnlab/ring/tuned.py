"""Looks up what ``attnlab tune ring`` found fastest on this machine.

`attnlab.bench.ring_tune` writes two files to the user's cache directory: a record of everything it measured,
with this machine's description, and the winners, which are read here. They count only where they were
measured: the processor, the cores, the number of threads and torch's version must be the same. A file that
cannot be read, or was made elsewhere, is as good as none, and the defaults stay.

Importing this module loads no framework.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

__all__ = ["RECORD", "WINNERS", "folder", "forget_loaded", "ignored", "machine", "tuned_block", "tuned_tiles"]

SCHEMA = 1
WINNERS = "ring-tuned.json"
RECORD = "ring-tuning-record.json"
NEAREST = 2  # a winner serves windows up to so many times as long, or as short, as the one it was found with

_ignoring = False


def tuned_block(
    window: int, head_dim: int, dtype: Any, kind: Literal["forward", "backward"] = "forward"
) -> int | None:
    """Rows of a block, T, that the overlapping-block path runs fastest with here.

    Parameters
    ----------
    window : int
        W, keys visible to a query, its own included. The measured window nearest to it by ratio decides, if
        it is at most twice or at least half as long.
    head_dim : int
    dtype : torch.dtype or str
        ``torch.float32`` or ``"float32"``. This and `head_dim` must be those that were measured.
    kind : {"forward", "backward"}
        The pass.

    Returns
    -------
    int or None
        None where nothing was measured on this machine, or nothing beat the default.

    Raises
    ------
    ValueError
        For another `kind`.
    """
    if kind not in ("forward", "backward"):
        raise ValueError(f"kind must be 'forward' or 'backward', got {kind!r}")
    winner = _nearest(kind, window, head_dim, dtype)
    return None if winner is None else int(winner["size"])


def tuned_tiles(window: int, head_dim: int, dtype: Any) -> tuple[int, str] | None:
    """Tile side and order, ``"q"`` or ``"k"``, that the tiled walk runs fastest with; as `tuned_block`."""
    winner = _nearest("tiled", window, head_dim, dtype)
    return None if winner is None else (int(winner["size"]), str(winner["order"]))


def folder() -> Path:
    """Where the two files lie: the user's cache directory, as the operating system has it."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("attnlab", appauthor=False))


def machine() -> dict[str, Any]:
    """What must be the same for a winner to count. It identifies no one."""
    import torch

    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return {
        "processor": _processor(),
        "cores": len(usable),
        "threads": torch.get_num_threads(),
        "torch": metadata.version("torch"),
    }


def forget_loaded() -> None:
    """Read the winners again at the next lookup."""
    _winners.cache_clear()


@contextmanager
def ignored() -> Iterator[None]:
    """Within this context no winner is found, so that what runs is the default."""
    global _ignoring
    before, _ignoring = _ignoring, True
    try:
        yield
    finally:
        _ignoring = before


def _nearest(kind: str, window: int, head_dim: int, dtype: Any) -> dict[str, Any] | None:
    if _ignoring:
        return None
    name = str(dtype).removeprefix("torch.")
    found = [
        winner
        for winner in _winners()
        if (winner["kind"], winner["head_dim"], winner["dtype"]) == (kind, head_dim, name)
    ]

    def apart(winner: dict[str, Any]) -> float:
        return max(winner["window"] / window, window / winner["window"])

    nearest = min(found, key=apart, default=None)
    # What was nearest may be where the default won; then the default is kept here too.
    return None if nearest is None or apart(nearest) > NEAREST or nearest["size"] is None else nearest


@cache
def _winners() -> tuple[dict[str, Any], ...]:
    """The winners found on this machine; none where there is no file, or it is another machine's."""
    try:
        content = json.loads((folder() / WINNERS).read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA or content["machine"] != machine():
            return ()
        return tuple(_checked(winner) for winner in content["winners"])
    except (ImportError, OSError, ValueError, TypeError, KeyError):
        return ()


def _checked(winner: dict[str, Any]) -> dict[str, Any]:
    """The winner itself, if its numbers are ones that a call could be made with."""
    size = winner["size"]
    numbers = (winner["window"], winner["head_dim"], *(() if size is None else (size,)))
    if not all(isinstance(number, int) and number > 0 for number in numbers):
        raise ValueError(f"winner: got {winner}, expected whole numbers above 0")
    if winner["kind"] == "tiled" and winner["order"] not in ("q", "k"):
        raise ValueError(f"winner: got order {winner['order']!r}, expected 'q' or 'k'")
    return winner


@cache
def _processor() -> str:
    """The processor's name, or its architecture where the system does not say."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
