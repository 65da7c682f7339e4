"""Measure the ways to segment lengths and starts: what XLA plans, and how long each takes.

Rows of T tokens with S skewed segments and 1/16 padding, queries and keys packed differently, causal mask.
The read floor is one pass over both rows of ids: no way that looks at every id can beat it by much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from attnlab.bench.case import Case, Report
from attnlab.bench.memory import numpy_peak, torch_peak, xla_memory
from attnlab.bench.query import one, ratio
from attnlab.bench.rows import TIME, XLA_FLOPS, XLA_TEMP, Row, Target, at_least, at_most

MASK_WAY, COMPACTION, COUNTING, ONE_HOT = "T x T mask", "compaction", "counting", "one-hot"
TREE, FLOOR = "rank/select", "read floor"
NUMPY, TORCH = "NumPy", "torch, eager"

TOKENS = (4096, 16384, 65536, 131072, 262144, 524288, 1048576)
SEGMENTS = (16, 64, 256, 1024)
LONG = 131072
LONGEST = 1048576
NEAR_FLOOR = ((LONG, 16), (LONG, 1024), (LONGEST, 16), (LONGEST, 1024))
MOST_BYTES = 2e9  # a way whose plan is larger is planned but not run


def packed_pair(tokens: int, segments: int) -> tuple[np.ndarray, ...]:
    """Make ids and positions of a query row and of a key row, int32 [1, T] each."""
    from attnlab.segments.numpy import positions
    from attnlab.segments.packing import skewed_lengths

    rows = []
    for seed in (0, 1):
        lengths = skewed_lengths(segments, tokens - tokens // 16, seed=seed)
        ids = np.zeros((1, tokens), np.int32)
        ids[0, : lengths.sum()] = np.repeat(np.arange(1, segments + 1), lengths)
        rows.append(ids)
    return rows[0], rows[1], positions(rows[0]), positions(rows[1])


@cache
def _jax_ways() -> dict[str, Callable[..., Any]]:
    """Jitted functions of one signature, in the order a reader climbs."""
    import jax

    from attnlab.segments import jax as optimised
    from attnlab.segments import jax_rungs

    return {
        MASK_WAY: jax_rungs.through_the_mask,
        COMPACTION: jax_rungs.by_compaction,
        COUNTING: jax_rungs.by_counting,
        ONE_HOT: jax_rungs.by_one_hot,
        TREE: jax.jit(optimised.seqlens_and_offsets, static_argnames=("mask", "max_segments")),
    }


def plan(report: Report, tokens: int, segments: int) -> None:
    """What XLA plans for every way; nothing is allocated, so the mask way is planned at any length."""
    import jax

    row = jax.ShapeDtypeStruct((1, tokens), np.int32)
    # One int32 table of T x T; two of T x S; and for each side and 32 tokens a count and a flag, of one
    # byte each.
    formula = {MASK_WAY: 4 * tokens**2, ONE_HOT: 8 * tokens * segments, TREE: tokens / 8}
    for name, way in _jax_ways().items():
        planned = xla_memory(way, row, row, row, row, mask="causal", max_segments=segments)
        params = {"T": tokens, "S": segments}
        report.xla(name, planned, params=params, temp_formula=formula.get(name), baseline=ONE_HOT)


def plan_over_tokens(report: Report, quick: bool) -> None:
    """Planned bytes and FLOPs against row length, 16 segments."""
    for tokens in (4096, LONG, LONGEST) if quick else TOKENS:
        plan(report, tokens, 16)


def plan_over_segments(report: Report, quick: bool) -> None:
    """Planned bytes and FLOPs against the number of segments, at T = 128k."""
    for segments in (16, 1024) if quick else SEGMENTS:
        plan(report, LONG, segments)


def time_ways(report: Report, tokens: int, segments: int) -> None:
    """Time every way that fits in memory, interleaved, and take the peaks that XLA does not plan."""
    import jax
    import torch

    from attnlab.segments import numpy as in_numpy
    from attnlab.segments import torch as in_torch

    host = packed_pair(tokens, segments)
    on_device = _on_device(tokens, segments)
    tensors = [torch.from_numpy(x) for x in host]
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in host]
    options: dict[str, Any] = {"mask": "causal", "max_segments": segments}

    fns: dict[str, Callable[[], Any]] = {}
    for name, way in _jax_ways().items():
        if xla_memory(way, *shapes, **options).temp_bytes <= MOST_BYTES:
            fns[name] = partial(way, *on_device, **options)
    fns[FLOOR] = partial(_read(), *on_device[:2])
    fns[NUMPY] = partial(in_numpy.seqlens_and_offsets, *host, **options)
    fns[TORCH] = partial(in_torch.seqlens_and_offsets, *tensors, **options)
    params: dict[str, Any] = {"T": tokens, "S": segments}
    report.time(fns, params=params, baseline=TREE, repeats=11 if segments > 16 and tokens >= LONG else None)
    report.peak(NUMPY, numpy_peak(fns[NUMPY]), params=params)
    report.peak(TORCH, torch_peak(fns[TORCH]), params=params)


def near_the_floor(report: Report, quick: bool) -> None:
    """Time rank/select against one pass over the ids, away from ways whose tables empty the caches."""
    for tokens, segments in ((LONG, 16), (LONG, 1024)) if quick else NEAR_FLOOR:
        rows = _on_device(tokens, segments)
        options: dict[str, Any] = {"mask": "causal", "max_segments": segments}
        fns = {TREE: partial(_jax_ways()[TREE], *rows, **options), FLOOR: partial(_read(), *rows[:2])}
        report.time(fns, params={"T": tokens, "S": segments}, baseline=FLOOR)


@cache
def _read() -> Callable[..., Any]:
    import jax

    return jax.jit(lambda ids_q, ids_kv: ids_q.sum() + ids_kv.sum())


def _on_device(tokens: int, segments: int) -> list[Any]:
    import jax.numpy as jnp

    return [jnp.asarray(x) for x in packed_pair(tokens, segments)]


def promises(report: Report, quick: bool) -> None:
    """What a promise saves: read every token, bisect sorted ids, or take the packer's lengths."""
    import jax
    import jax.numpy as jnp

    from attnlab.segments import promises as ladder

    sorted_ids = jax.jit(ladder.from_sorted_ids, static_argnames=("mask", "max_segments"))
    from_lengths = jax.jit(ladder.from_lengths, static_argnames=("mask",))
    for tokens in (LONG,) if quick else (LONG, LONGEST):
        rows = _on_device(tokens, 16)
        lengths = [
            jnp.stack([(ids == s).sum(axis=1, dtype=jnp.int32) for s in range(1, 17)], 1) for ids in rows[:2]
        ]
        options: dict[str, Any] = {"mask": "causal", "max_segments": 16}
        fns: dict[str, Callable[[], Any]] = {
            "no promise": partial(_jax_ways()[TREE], *rows, **options),
            "sorted ids": partial(sorted_ids, *rows[:2], **options),
            "packer's lengths": partial(from_lengths, *lengths, mask="causal"),
        }
        report.time(fns, params={"T": tokens, "S": 16}, baseline="no promise")


def cases(quick: bool) -> list[Case]:
    """List what is measured: plans over T and over S, times at five sizes, and the promise ladder."""
    sizes = ((4096, 16), (LONG, 16), (LONG, 1024)) if quick else (
        (4096, 16), (LONG, 16), (LONG, 1024), (LONGEST, 16), (LONGEST, 1024),
    )  # fmt: skip
    return [
        Case("planned, over row length", partial(plan_over_tokens, quick=quick)),
        Case("planned, over segments", partial(plan_over_segments, quick=quick)),
        *(Case(f"time, T = {t:,}, S = {s}", partial(time_ways, tokens=t, segments=s)) for t, s in sizes),
        Case("near the read floor", partial(near_the_floor, quick=quick)),
        Case("promises", partial(promises, quick=quick)),
    ]


def targets(rows: Sequence[Row]) -> list[Target]:
    """Read the promises of the specification off a run."""

    def planned(metric: str, variant: str, tokens: int, segments: int) -> Row | None:
        case = "planned, over segments" if tokens == LONG else "planned, over row length"
        return one(rows, case=case, metric=metric, variant=variant, T=tokens, S=segments)

    def timed(variant: str, tokens: int, segments: int) -> Row | None:
        return one(rows, case=f"time, T = {tokens:,}, S = {segments}", metric=TIME, variant=variant)

    def value(row: Row | None) -> float | None:
        return None if row is None else row.value

    def growth(before: Row | None, after: Row | None) -> float | None:
        return None if before is None or after is None else after.value / before.value

    def faster(tokens: int, segments: int) -> float | None:
        return ratio(timed(ONE_HOT, tokens, segments), timed(TREE, tokens, segments))

    def near_floor(variant: str, tokens: int, segments: int) -> Row | None:
        return one(rows, case="near the read floor", metric=TIME, variant=variant, T=tokens, S=segments)

    def above_floor(tokens: int, segments: int) -> float | None:
        return ratio(near_floor(TREE, tokens, segments), near_floor(FLOOR, tokens, segments))

    plan_16, plan_1024 = planned(XLA_TEMP, TREE, LONG, 16), planned(XLA_TEMP, TREE, LONG, 1024)
    plan_longest = planned(XLA_TEMP, TREE, LONGEST, 16)
    slower = growth(near_floor(TREE, LONG, 16), near_floor(TREE, LONGEST, 16))
    return [
        at_most("XLA temporaries, T = 128k, S = 16", value(plan_16), 30e3, "B"),
        at_most("XLA FLOPs, T = 128k, S = 16", value(planned(XLA_FLOPS, TREE, LONG, 16)), 1.5e6, "FLOP"),
        at_least("faster than one-hot, T = 128k, S = 16", faster(LONG, 16), 6, "x"),
        at_most("XLA temporaries, T = 128k, S = 1024", value(plan_1024), 1e6, "B"),
        at_least("faster than one-hot, T = 128k, S = 1024", faster(LONG, 1024), 50, "x"),
        at_most("growth of temporaries, 128k to 1M, S = 16", growth(plan_16, plan_longest), 8, "x"),
        at_most("growth of time, 128k to 1M, S = 16", slower, 8, "x"),
        at_most("distance to the read floor, T = 128k, S = 16", above_floor(LONG, 16), 5, "x"),
        at_most("distance to the read floor, T = 128k, S = 1024", above_floor(LONG, 1024), 5, "x"),
        at_most("distance to the read floor, T = 1M, S = 16", above_floor(LONGEST, 16), 5, "x"),
        at_most("distance to the read floor, T = 1M, S = 1024", above_floor(LONGEST, 1024), 5, "x"),
    ]
