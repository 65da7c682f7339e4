"""Progress of a run, on standard error, so that standard output holds the tables alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from attnlab.bench.units import human

__all__ = ["Progress", "Stream"]


@runtime_checkable
class Stream(Protocol):
    """What is written to: a file, a terminal, a notebook's output, or a buffer in memory."""

    def write(self, text: str, /) -> object:
        """Write text."""

    def flush(self) -> object:
        """Pass on what was written."""

    def isatty(self) -> bool:
        """Whether a person is looking."""
        ...


class Progress:
    """Tells which case is running, of how many.

    On a terminal one line is rewritten, and it is gone when the run ends. Elsewhere, in a log or a pipe, each
    case has a line of its own when it ends.

    Parameters
    ----------
    total
        How many cases there are.
    stream
        Where to write.
    clock
        Seconds, for how long each case took.
    """

    def __init__(self, total: int, stream: Stream, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty()
        self._done = 0
        self._started = 0.0

    def start(self, name: str) -> None:
        """Say that a case begins."""
        self._started = self._clock()
        if self._live:
            self._stream.write(f"\r\x1b[K[{self._done + 1}/{self._total}] {name} ...")
            self._stream.flush()

    def finish(self, name: str, outcome: str) -> None:
        """Say that a case has ended, and how."""
        self._done += 1
        if self._live:
            # The next thing printed, on whichever stream, starts on a clean line.
            self._stream.write("\r\x1b[K")
        else:
            took = human(self._clock() - self._started, "s")
            self._stream.write(f"[{self._done}/{self._total}] {name}: {outcome} after {took}\n")
        self._stream.flush()
