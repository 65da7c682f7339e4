"""Where one call of the tiled walk spends its time: planning, loading, computing, merging, storing.

The walk appends each event to a list just before it does what the event says. Here that list reads the clock
at every append, so what runs is the walk itself: the time from one event to the next belongs to the first.
Reading the clock costs about as much as appending does, which is little beside work on a tile. Before the
first event the mask is cut into tiles ("plan"), and after the last one the finished tiles are joined, which
counts as storing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.ring.order import TileOrder
from attnlab.ring.tiled import Event, sliding_window_attention

__all__ = ["PHASES", "Phase", "Profile", "profile"]

PHASES = ("plan", "load", "compute", "merge", "store", "skip")


@dataclass(frozen=True)
class Phase:
    """One phase of a call.

    Attributes
    ----------
    name : str
        One of `PHASES`.
    seconds : float
        Spent in it altogether.
    count : int
        How many events it had; the plan is made once.
    bytes : int
        What its events moved, for all heads and sequences; 0 where nothing is moved.
    share : float
        Its part of the call's seconds, 0 to 1.
    """

    name: str
    seconds: float
    count: int
    bytes: int
    share: float


@dataclass(frozen=True)
class Profile:
    """The phases of one call, in the order of `PHASES`; printed as a table."""

    phases: tuple[Phase, ...]

    @property
    def seconds(self) -> float:
        """Of the whole call."""
        return sum(phase.seconds for phase in self.phases)

    def __str__(self) -> str:
        lines = [f"{'phase':<8}{'events':>8}{'bytes':>14}{'ms':>10}{'share':>8}"]
        for phase in self.phases:
            milliseconds = f"{1e3 * phase.seconds:.3f}"
            lines.append(
                f"{phase.name:<8}{phase.count:>8,}{phase.bytes:>14,}{milliseconds:>10}{phase.share:>8.1%}"
            )
        return "\n".join(lines)


class _ClockedEvents(list[Event]):
    """A list of events that notes when each one came."""

    def __init__(self, read: Callable[[], float]) -> None:
        super().__init__()
        self.read = read
        self.times: list[float] = []

    def append(self, event: Event, /) -> None:
        super().append(event)
        self.times.append(self.read())


def profile(
    q: Float[Tensor, "batch q_heads tokens head_dim"],
    k: Float[Tensor, "batch kv_heads tokens head_dim"],
    v: Float[Tensor, "batch kv_heads tokens head_dim"],
    *,
    window: int,
    causal: bool = True,
    order: TileOrder = TileOrder.Q_MAJOR,
    tile_size: int = 64,
    clock: Callable[[], float] = time.perf_counter,
) -> Profile:
    """Run `attnlab.ring.tiled.sliding_window_attention` once with a clock round each event.

    One call before it, which is not timed, warms the caches. No graph is recorded. On CUDA the device is
    waited for at each event, which makes the call slower than it is without a clock.

    Parameters
    ----------
    q, k, v, window, causal, order, tile_size
        As there: W counts visible keys, the query's own included.
    clock : callable
        Returns seconds.
    """

    def read() -> float:
        if q.is_cuda:
            torch.cuda.synchronize(q.device)
        return clock()

    events = _ClockedEvents(read)
    with torch.no_grad():
        for record in (None, events):
            begin = read()
            sliding_window_attention(
                q, k, v, window=window, causal=causal, order=order, tile_size=tile_size, events=record
            )
    return _summary(events, begin, read(), q.shape[0], q.shape[1], k.shape[1])


def _summary(
    events: _ClockedEvents, begin: float, end: float, batch: int, q_heads: int, kv_heads: int
) -> Profile:
    """Add up seconds, events and bytes by phase; keys and values move once for the heads that share them."""
    moments = [begin, *events.times, end]
    seconds, counts, moved = dict.fromkeys(PHASES, 0.0), dict.fromkeys(PHASES, 0), dict.fromkeys(PHASES, 0)
    seconds["plan"], counts["plan"] = moments[1] - begin, 1
    for event, start, stop in zip(events, moments[1:], moments[2:], strict=False):
        seconds[event.kind] += stop - start
        counts[event.kind] += 1
        moved[event.kind] += event.bytes * batch * (kv_heads if event.tensor in ("k", "v") else q_heads)
    whole = sum(seconds.values())
    return Profile(
        tuple(
            Phase(name, seconds[name], counts[name], moved[name], seconds[name] / whole if whole > 0 else 0.0)
            for name in PHASES
        )
    )
