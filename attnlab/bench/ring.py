"""Measure sliding-window attention: whole sequences, decoding with a ring, and the bytes of caches.

Beside the package's own paths stand PyTorch's SDPA (with the window as a boolean mask, and causal over
everything), compiled FlexAttention, the sliding caches of transformers and caches that grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from attnlab.bench.case import Case
from attnlab.bench.query import one, ratio, select
from attnlab.bench.ring_caches import DYNAMIC, RING, STATIC
from attnlab.bench.ring_decode import BANDWIDTH, COPY, POSITIONS, bandwidth, cache_bytes, decode
from attnlab.bench.ring_sequence import ERROR, errors, forward_backward, prefill
from attnlab.bench.ring_ways import CAUSAL, FLEX, OURS
from attnlab.bench.rows import TIME, Row, Target, at_least, at_most
from attnlab.bench.timing import paired_ratio

# (S, W, rounds): fewer rounds where one takes seconds.
PREFILL = ((4096, 512, 11), (8192, 1024, 7), (16384, 2048, 5))
QUICK_PREFILL = ((2048, 256, 3),)
TRAINING = ((4096, 1024, 7), (4096, 512, 15), (4096, 256, 7), (8192, 1024, 9))
QUICK_TRAINING = ((2048, 256, 3),)
EXACT = (2048, 256)
# (name, sequences, query heads to a key head, window if another), at the ends of the range of positions. The
# window of 4,096 is Mistral's.
MORE_DECODE = (
    ("B = 4", 4, 1, None),
    ("B = 1, four query heads to a key head", 1, 4, None),
    ("B = 1, W = 4,096", 1, 1, 4096),
)

FORWARD, BOTH, DECODE = "prefill forward, S / W = 8", "forward and backward", "decode"
PRECISION, FOOTPRINT, READING = "distance from float64", "cache bytes", "decode against a copy"


def cases(quick: bool) -> list[Case]:
    """List what is measured: whole sequences, their errors, decoding, and bytes; less of it when quick."""
    ends = (POSITIONS[0], POSITIONS[-1])
    positions = ends if quick else POSITIONS
    return [
        *(
            Case(f"{FORWARD}, S = {s:,}", partial(prefill, tokens=s, window=w, repeats=n))
            for s, w, n in (QUICK_PREFILL if quick else PREFILL)
        ),
        *(
            Case(
                f"{BOTH}, S = {s:,}, S / W = {s // w}",
                partial(forward_backward, tokens=s, window=w, repeats=n),
            )
            for s, w, n in (QUICK_TRAINING if quick else TRAINING)
        ),
        Case(PRECISION, partial(errors, tokens=EXACT[0], window=EXACT[1])),
        Case(f"{DECODE}, B = 1", partial(decode, batch=1, positions=positions)),
        *(
            Case(f"{DECODE}, {name}", partial(decode, batch=b, positions=ends, group=group, window=window))
            for name, b, group, window in (() if quick else MORE_DECODE)
        ),
        Case(READING, partial(bandwidth, batch=1)),
        Case(FOOTPRINT, partial(cache_bytes, positions=positions)),
    ]


def targets(rows: Sequence[Row]) -> list[Target]:
    """Read the promises of the specification off a run: those for a GPU where it was made on one."""
    if select(rows, device="cuda"):
        return [
            *(
                at_least(f"prefill beside FlexAttention, S = {s:,}", _prefill(rows, s), 0.9, "x")
                for s, _, _ in PREFILL
            ),
            at_least("decode beside the bandwidth of a copy", _of_copy(rows), 0.75, "x"),
            at_least("decode beside the rolling cache", _beside(rows, "B = 1", (STATIC,)), 4, "x"),
        ]
    gradients = [_error(rows, tensor) for tensor in ("dq", "dk", "dv")]
    return [
        *(
            at_least(f"prefill beside FlexAttention, S = {s:,}", _prefill(rows, s), 0.9, "x")
            for s, _, _ in PREFILL
        ),
        *(at_least(f"stretch: the same, S = {s:,}", _prefill(rows, s), 1.0, "x") for s, _, _ in PREFILL),
        *(
            at_least(f"forward and backward beside SDPA causal, S = {s:,}, S / W = 8", _both(rows, s), 3, "x")
            for s, w, _ in TRAINING
            if s // w == 8
        ),
        at_most("largest error of outputs", _error(rows, "out"), 2e-6, ""),
        at_most("largest error of gradients", _most(gradients), 1e-5, ""),
        at_most("decode: slowest position beside position 1k, up to 1M", _flat(rows), 1.1, "x"),
        *(
            at_least(
                f"decode beside the better sliding cache of transformers, {name}",
                _beside(rows, name, (DYNAMIC, STATIC)),
                1.8,
                "x",
            )
            for name in ("B = 1", *(name for name, *_ in MORE_DECODE))
        ),
    ]


def _prefill(rows: Sequence[Row], tokens: int) -> float | None:
    case = f"{FORWARD}, S = {tokens:,}"
    return ratio(
        one(rows, case=case, metric=TIME, variant=FLEX), one(rows, case=case, metric=TIME, variant=OURS)
    )


def _both(rows: Sequence[Row], tokens: int) -> float | None:
    case = f"{BOTH}, S = {tokens:,}, S / W = 8"
    return ratio(
        one(rows, case=case, metric=TIME, variant=CAUSAL), one(rows, case=case, metric=TIME, variant=OURS)
    )


def _error(rows: Sequence[Row], tensor: str) -> float | None:
    row = one(rows, case=PRECISION, metric=ERROR, variant=OURS, tensor=tensor)
    return None if row is None else row.value


def _flat(rows: Sequence[Row]) -> float | None:
    """The slowest position beside the first; they were timed in the same rounds, and so they are paired."""
    timed = select(rows, case=f"{DECODE}, B = 1", metric=TIME, variant=RING)
    if len(timed) < 2:
        return None
    first = timed[0].samples or [timed[0].value]
    return max(paired_ratio(row.samples or [row.value], first) for row in timed)


def _beside(rows: Sequence[Row], name: str, others: Iterable[str]) -> float | None:
    """How many times as long the fastest of `others` takes as the ring, at the last position."""
    case, position = f"{DECODE}, {name}", POSITIONS[-1]
    ours = one(rows, case=case, metric=TIME, variant=RING, position=position)
    found = [
        ratio(one(rows, case=case, metric=TIME, variant=other, position=position), ours) for other in others
    ]
    return None if None in found else min(x for x in found if x is not None)


def _of_copy(rows: Sequence[Row]) -> float | None:
    return ratio(*(one(rows, case=READING, metric=BANDWIDTH, variant=name) for name in (RING, COPY)))


def _most(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None
