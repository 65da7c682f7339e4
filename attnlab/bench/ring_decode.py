"""Decoding one token at a time: seconds per step against the position, and the bytes a cache holds."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from attnlab.bench.case import WARMUP, Report
from attnlab.bench.ring_caches import (
    AHEAD,
    DYNAMIC,
    FROM_TRANSFORMERS,
    GROWING,
    RING,
    ROOM,
    STATIC,
    WAYS,
    Shape,
    Stepper,
    layer_of,
    ring,
    ring_cache,
)
from attnlab.bench.ring_ways import HEAD_DIM, setting, skip
from attnlab.bench.rows import TIME, Param
from attnlab.bench.timing import measure
from attnlab.bench.units import human

CACHE, BANDWIDTH = "cache bytes", "bandwidth"
COPY = "copy"

POSITIONS = (1024, 4096, 16384, 65536, 262144, 1048576)
MOST_GROWN = 300e6  # a growing cache of more bytes than this is counted but not run
TOKENS = 64  # different tokens that are decoded in turn
SAMPLE = 5e-3  # seconds a sample lasts at least


def shape_for(batch: int) -> Shape:
    """What is decoded here: on a CUDA device with 32 times the batch and a window four times as long."""
    place = setting()
    if place.device == "cuda":
        return Shape(32 * batch, 8, HEAD_DIM, 4096, place.dtype, place.device)
    return Shape(batch, 8, HEAD_DIM, 1024, place.dtype, place.device)


def decode(
    report: Report, batch: int, positions: Sequence[int], group: int = 1, window: int | None = None
) -> None:
    """Time steps of every cache at every position, all interleaved; `group` query heads share a key head.

    A ring takes longer where its window passes the end of its storage, so one timed call of the ring is many
    steps, a whole turn if that is not too long, and each call goes on where the last one stopped.
    """
    shape = shape_for(batch)
    shape = replace(shape, heads=shape.heads // group, group=group, window=window or shape.window)
    calls: dict[str, Callable[[], Any]] = {}
    about: dict[str, tuple[str, dict[str, Param], int]] = {}
    for position in _filled(shape, positions):
        params: dict[str, Param] = {
            "device": shape.device,
            "B": shape.batch,
            "q heads": shape.heads * group,
            "kv heads": shape.heads,
            "W": shape.window,
            "position": position,
        }
        for name, make in WAYS.items():
            why = _missing(name) or _too_large(name, shape, position)
            if why:
                skip(report, name, why, **params)
                continue
            steps = _turn(shape) if name == RING else 1
            label = f"{name} at {position}"
            calls[label] = _burst(make(shape, position), shape, steps)
            about[label] = name, params, steps
    timing = measure(calls, warmup=WARMUP, repeats=_rounds(report), min_sample=SAMPLE)
    for label, (name, params, steps) in about.items():
        samples = [seconds / steps for seconds in timing.samples[label]]
        report.add(
            name,
            TIME,
            statistics.median(samples),
            "s",
            params=params,
            baseline=RING,
            samples=samples,
            loops=steps * timing.loops[label],
        )


def bandwidth(report: Report, batch: int) -> None:
    """How fast a step reads its window, beside a plain copy of as many bytes: bytes moved per second."""
    import torch

    shape = shape_for(batch)
    window_bytes = shape.row_bytes * shape.window
    source = torch.ones(window_bytes // 2, dtype=torch.uint8, device=shape.device)
    target = torch.empty_like(source)
    step = _burst(ring(shape, shape.capacity), shape, _turn(shape))
    calls: dict[str, Callable[[], Any]] = {RING: step, COPY: lambda: target.copy_(source)}
    timing = measure(calls, warmup=WARMUP, repeats=_rounds(report), min_sample=SAMPLE)
    params: dict[str, Param] = {"device": shape.device, "B": shape.batch, "W": shape.window}
    # A copy of half as many bytes reads them and writes them, so that it moves as many as the step reads.
    for name, steps in ((RING, _turn(shape)), (COPY, 1)):
        rates = [window_bytes * steps / seconds / 1e9 for seconds in timing.samples[name]]
        report.add(
            name, BANDWIDTH, statistics.median(rates), "GB/s", params=params, baseline=COPY, samples=rates
        )


def cache_bytes(report: Report, positions: Sequence[int]) -> None:
    """What each cache's storage holds after so many tokens, measured, and by its formula.

    Except for the ring, tensors of torch's device "meta" go through the same code: they have storages of
    true sizes, with nothing in them. The last token is given alone, as in decoding: after a prefill in one
    piece, the dynamic sliding layer keeps the whole prefill alive until then.
    """
    shape = shape_for(1)
    for position in _filled(shape, positions):
        params: dict[str, Param] = {"device": shape.device, "W": shape.window, "position": position}
        held = {
            RING: (ring_cache(shape, position).storage_bytes, shape.row_bytes * shape.capacity),
            AHEAD: (
                2 * shape.without_data().past(position + ROOM).nbytes,
                shape.row_bytes * (position + ROOM),
            ),
        }
        for name, tokens in ((DYNAMIC, shape.window), (STATIC, shape.window), (GROWING, position)):
            why = _missing(name)
            if why:
                skip(report, name, why, **params)
            else:
                held[name] = _layer_bytes(name, shape, position), shape.row_bytes * min(tokens, position)
        for name, (measured, formula) in held.items():
            report.add(name, CACHE, measured, "B", params=params, formula=formula, baseline=RING)


def _turn(shape: Shape) -> int:
    """Steps in one timed call of the ring: a whole turn, or a sixth of one that would take seconds."""
    return shape.capacity if shape.capacity < 2048 else shape.capacity // 6


def _rounds(report: Report) -> int:
    """Few, because one sample of the ring is many steps of it."""
    return 3 if report.quick else 11


def _filled(shape: Shape, positions: Sequence[int]) -> list[int]:
    """The positions at which a whole window lies behind."""
    return [position for position in positions if position >= shape.window]


def _missing(name: str) -> str:
    if name in FROM_TRANSFORMERS and importlib.util.find_spec("transformers") is None:
        return "transformers is not installed"
    return ""


def _too_large(name: str, shape: Shape, position: int) -> str:
    size = shape.row_bytes * position
    return f"it would hold {human(size, 'B')}" if name in (GROWING, AHEAD) and size > MOST_GROWN else ""


def _burst(step: Stepper, shape: Shape, steps: int) -> Callable[[], Any]:
    """A function that makes `steps` steps, with a few tokens in turn, and returns the last output."""
    q, k, v = (shape.past(TOKENS, group=group).split(1, dim=2) for group in (shape.group, 1, 1))
    tokens = cycle([tuple(x.contiguous() for x in token) for token in zip(q, k, v, strict=True)])

    def burst() -> Any:
        out = None
        for _ in range(steps):
            out = step(*next(tokens))
        return out

    return burst


def _layer_bytes(name: str, shape: Shape, position: int) -> int:
    """Bytes of the storages that a layer of transformers holds after `position` tokens."""
    layer, shape = layer_of(name, shape), shape.without_data()
    for tokens in (position - 1, 1):
        layer.update(shape.past(tokens), shape.past(tokens))
    return sum(x.untyped_storage().nbytes() for x in (layer.keys, layer.values))
