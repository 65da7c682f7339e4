"""Time several variants of one computation so that their ratio can be trusted.

Each choice answers a way in which such numbers go wrong.

- *Warm-up.* The first calls compile, fill caches and grow memory pools. They are made and not timed.
- *Inner loops.* One sample lasts at least ``min_sample`` seconds (1 ms), far above the clock's resolution and
  its cost. The number of calls in a sample is found by calibration, and a sample is the mean seconds of one
  call.
- *Interleaving.* Every round times each variant once, in the order given: A B A B. A machine that slows down
  or speeds up during the run then changes both sides of a ratio alike.
- *Lead-in.* After another variant has run, the caches hold its data and its threads may still spin: the first
  calls of a short function may then take several times as long. A sample shorter than 0.1 s is
  therefore taken twice in a row, and the first is thrown away. What is timed is a function whose data are as
  warm as they stay.
- *Paired ratios.* `Timing.ratio` is the median of the per-round ratios, not the ratio of two medians, so that
  slow drift cancels within each round.
- *Median and inter-quartile range.* Interruptions only ever make a call slower, so the mean and the standard
  deviation would describe the interruptions.
- *Garbage collection* is off while a sample is taken and allowed between samples.
- *Synchronisation.* A result is ready before the clock stops. JAX results are waited for after every call,
  because JAX may otherwise overlap calls: what is timed is the latency of one call. CUDA work is timed by
  `torch.cuda.Event` around the whole inner loop, so calls may queue behind one another on the device, as they
  do in a real program; a function too small to keep the GPU busy is charged for its launches.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from attnlab.bench.sync import Waiter, cuda_seconds, finish_queued_work, waiter_for

__all__ = ["Timing", "interquartile_range", "measure", "paired_ratio"]

# A clock that hardly advances must not calibrate for ever.
MOST_LOOPS = 1_000_000

# Samples at least this long, in seconds, need no lead-in: cold caches are filled in about a millisecond.
LONG_SAMPLE = 0.1


@dataclass(frozen=True)
class Timing:
    """Raw samples of several variants that were timed together.

    Attributes
    ----------
    samples : dict of str to list of float
        Seconds of one call, one entry per round. Entry ``i`` of every variant comes from round ``i``.
    loops : dict of str to int
        How many calls each sample of that variant averages over.
    warmup : int
        Calls made of each variant before anything was timed.
    """

    samples: dict[str, list[float]]
    loops: dict[str, int]
    warmup: int

    def median(self, name: str) -> float:
        """Median seconds of one call."""
        return statistics.median(self.samples[name])

    def spread(self, name: str) -> float:
        """Inter-quartile range of the samples, in seconds."""
        return interquartile_range(self.samples[name])

    def ratio(self, a: str, b: str) -> float:
        """How many times as long ``a`` takes as ``b``: the median over rounds of the paired ratios."""
        return paired_ratio(self.samples[a], self.samples[b])


def interquartile_range(samples: Sequence[int | float]) -> float:
    """Distance between the quartiles (the inclusive method, which interpolates between samples).

    Raises
    ------
    ValueError
        For fewer than two samples, which have no spread.
    """
    if len(samples) < 2:
        raise ValueError(f"samples: got {len(samples)}, expected at least 2 to tell a spread")
    lower, _, upper = statistics.quantiles(samples, n=4, method="inclusive")
    return upper - lower


def paired_ratio(a: Sequence[int | float], b: Sequence[int | float]) -> float:
    """Median of ``a[i] / b[i]`` over rounds ``i``.

    Raises
    ------
    ValueError
        When the two do not come from the same rounds, are empty, or ``b`` holds a zero.
    """
    if len(a) != len(b) or not a:
        raise ValueError(f"samples: got {len(a)} and {len(b)}, expected as many of each, and at least one")
    if min(b) <= 0:
        raise ValueError(f"samples: the divisor holds {min(b)}, expected positive seconds")
    return statistics.median(x / y for x, y in zip(a, b, strict=True))


def measure(
    fns: Mapping[str, Callable[[], Any]],
    *,
    warmup: int = 3,
    repeats: int = 21,
    min_time: int | float = 0.0,
    min_sample: int | float = 1e-3,
    device: str | None = None,
    sync: Waiter | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time every function in ``fns``, interleaved.

    Parameters
    ----------
    fns
        Functions of no arguments by name. Each returns its result, because the result is what can be waited
        for: arrays, or tuples, lists, dicts and dataclasses of arrays.
    warmup
        Untimed calls of each function, at least 1: the first result also tells how to wait for the others.
    repeats, min_time
        Rounds continue until there are at least ``repeats`` of them (2 or more) and until the samples taken
        add up to ``min_time`` seconds.
    min_sample
        The shortest a sample may be, in seconds. Calls are repeated within a sample to reach it.
    device
        ``"cuda"`` times with CUDA events even where the result holds no CUDA tensor (a function that works in
        place). ``None`` looks at each function's own result.
    sync
        Called with each result in place of the waiting described in the module's docstring. The wall clock is
        then used for every function.
    clock
        The wall clock, in seconds.

    Raises
    ------
    ValueError
        For no functions, a count out of range, or a result on a device that cannot be timed here.
    Exception
        Whatever a function raises, with a note naming it.
    """
    _check(fns, warmup, repeats, min_time, min_sample, device, sync)
    samplers: dict[str, Callable[[int], float]] = {}
    loops: dict[str, int] = {}
    led_in: dict[str, bool] = {}
    for name, fn in fns.items():
        with _naming(name):
            samplers[name] = _warm_sampler(fn, warmup, device, sync, clock)
            loops[name], elapsed = _calibrate(samplers[name], min_sample)
            led_in[name] = elapsed < LONG_SAMPLE

    samples: dict[str, list[float]] = {name: [] for name in fns}
    rounds, spent = 0, 0.0
    while rounds < repeats or spent < min_time:
        for name, sampler in samplers.items():
            with _naming(name), _no_garbage_collection():
                if led_in[name]:
                    sampler(loops[name])
                elapsed = sampler(loops[name])
            samples[name].append(elapsed / loops[name])
            spent += elapsed
        rounds += 1
    return Timing(samples, loops, warmup)


def _check(
    fns: Mapping[str, Callable[[], Any]],
    warmup: int,
    repeats: int,
    min_time: int | float,
    min_sample: int | float,
    device: str | None,
    sync: Waiter | None,
) -> None:
    if not fns:
        raise ValueError("fns: got no functions, expected at least one")
    if warmup < 1:
        raise ValueError(f"warmup: got {warmup}, expected at least 1")
    if repeats < 2:
        raise ValueError(f"repeats: got {repeats}, expected at least 2, or there is no spread to report")
    # The upper bounds also refuse nan and inf, with which the rounds would never end.
    if not 0 <= min_time < math.inf or not 0 <= min_sample < math.inf:
        raise ValueError(
            f"min_time, min_sample: got {min_time} and {min_sample}, expected finite seconds >= 0"
        )
    if device not in (None, "cpu", "cuda"):
        raise ValueError(f"device: got {device!r}, expected None, 'cpu' or 'cuda'")
    if device is not None and sync is not None:
        raise ValueError("device, sync: got both, expected at most one of them")


def _warm_sampler(
    fn: Callable[[], Any],
    warmup: int,
    device: str | None,
    sync: Waiter | None,
    clock: Callable[[], float],
) -> Callable[[int], float]:
    """Warm `fn` up, and return how to time a number of calls of it, in seconds."""
    result = fn()
    wait, on_cuda = (sync, False) if sync is not None else waiter_for(result)
    if device is not None:
        on_cuda = device == "cuda"
    if wait is not None:
        wait(result)
    del result
    for _ in range(warmup - 1):
        warm = fn()
        if wait is not None:
            wait(warm)
    finish_queued_work()

    def wall(loops: int) -> float:
        # Work another variant queued must not be charged to this one, nor this one's to the next.
        finish_queued_work()
        start = clock()
        if wait is None:
            for _ in range(loops):
                fn()
        else:
            for _ in range(loops):
                wait(fn())
        finish_queued_work()
        return clock() - start

    return (lambda loops: cuda_seconds(fn, loops)) if on_cuda else wall


def _calibrate(sampler: Callable[[int], float], min_sample: int | float) -> tuple[int, float]:
    """The number of calls whose sample lasts at least `min_sample` seconds, and the seconds it lasted."""
    loops = 1
    while True:
        with _no_garbage_collection():
            elapsed = sampler(loops)
        if elapsed >= min_sample or loops == MOST_LOOPS:
            return loops, elapsed
        # Aim a fifth above the mark; grow at least twofold, and at most tenfold where the clock said little.
        aim = math.ceil(1.2 * loops * min_sample / elapsed) if elapsed > 0 else 10 * loops
        loops = min(MOST_LOOPS, max(2 * loops, min(10 * loops, aim)))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"while timing variant {name!r}")
        raise
