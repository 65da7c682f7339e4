"""The ring benchmark compares like with like, reports every way, and reads its targets off the right rows."""

from __future__ import annotations

import dataclasses
import importlib.util
from functools import partial

import pytest
import torch

from attnlab.bench import ring as bench
from attnlab.bench import ring_caches as caches
from attnlab.bench import ring_decode, ring_sequence, ring_ways
from attnlab.bench.case import Report, techniques
from attnlab.bench.rows import PEAK, TIME, Row
from attnlab.bench.timing import Timing

SMALL = caches.Shape(batch=2, heads=3, head_dim=16, window=8, dtype="float32", device="cpu")
needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)


@pytest.fixture
def on_cpu(monkeypatch):
    """The CPU's setting, whatever the machine has, with one head."""
    place = ring_ways.Setting("cpu", "float32", 1, "strided")
    monkeypatch.setattr(ring_sequence, "setting", lambda: place)
    monkeypatch.setattr(ring_decode, "setting", lambda: place)
    monkeypatch.setattr(ring_decode, "shape_for", lambda batch: dataclasses.replace(SMALL, batch=batch))
    return place


@pytest.fixture
def without_compiler(monkeypatch):
    """FlexAttention cannot be compiled here."""

    def broken(function, **options):
        def call(*args, **kwargs):
            raise RuntimeError("no C++ compiler\nand a long explanation")

        return call

    monkeypatch.setattr(torch, "compile", broken)


def test_the_technique_is_registered():
    assert "ring" in techniques()


@needs_transformers
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("position", [8, 100, 1_000_003])
def test_every_cache_computes_the_same_once_it_has_forgotten_its_made_up_past(position, group, monkeypatch):
    monkeypatch.setattr(caches, "PREFILL", 4)
    ways = caches.WAYS
    if position > 1000:
        ways = {name: way for name, way in ways.items() if name not in (caches.GROWING, caches.AHEAD)}
    shape = dataclasses.replace(SMALL, group=group)
    steps = {name: make(shape, position) for name, make in ways.items()}
    for token in range(3 * SMALL.window):
        q, k, v = (torch.randn(2, heads, 1, 16) for heads in (3 * group, 3, 3))
        got = {name: step(q, k, v) for name, step in steps.items()}
        if token >= SMALL.window - 1:
            for name, out in got.items():
                torch.testing.assert_close(out, got[caches.RING], msg=f"{name} at step {token}")


def test_the_ring_starts_at_its_position_with_every_slot_filled():
    cache = caches.ring_cache(SMALL, 1_000_000)
    assert cache.position == cache.highest == 1_000_000
    assert cache.capacity == SMALL.capacity >= SMALL.window - 1 + caches.PREFILL
    assert (cache.k != 0).any(dim=-1).all()


@needs_transformers
def test_cache_bytes_equal_their_formulas_and_only_the_growing_ones_grow(on_cpu):
    report = Report("ring", bench.FOOTPRINT, quick=True)
    ring_decode.cache_bytes(report, (4, 64, 1024))
    found = {(row.variant, row.params["position"]): row for row in report.rows}
    # A position before the window is full is left out.
    assert {position for _, position in found} == {64, 1024}
    assert {name for name, _ in found} == set(caches.WAYS)
    assert all(row.value == row.formula for row in report.rows)
    for name in caches.WAYS:
        grows = found[name, 1024].value > found[name, 64].value
        assert grows == (name in (caches.GROWING, caches.AHEAD)), name


@pytest.fixture
def no_clock(monkeypatch):
    """Calls every function once and says that it took a millisecond."""

    def measure(fns, *, warmup, repeats, min_sample):
        for fn in fns.values():
            fn()
        return Timing({name: [1e-3] * repeats for name in fns}, dict.fromkeys(fns, 1), warmup)

    monkeypatch.setattr(ring_decode, "measure", measure)


@needs_transformers
@pytest.mark.parametrize("group", [1, 3])
def test_decode_reports_every_cache_at_every_position_or_why_not(on_cpu, no_clock, monkeypatch, group):
    monkeypatch.setattr(ring_decode, "MOST_GROWN", 100 * SMALL.row_bytes // group)
    report = Report("ring", "decode, B = 2", quick=True)
    ring_decode.decode(report, 2, (64, 1024), group)
    timed = {(row.variant, row.params["position"]) for row in report.rows if row.metric == TIME}
    skipped = {row.variant: row.params for row in report.rows if row.metric == ring_ways.SKIPPED}
    grown = {caches.GROWING, caches.AHEAD}
    assert timed == {(name, 64) for name in caches.WAYS} | {(name, 1024) for name in set(caches.WAYS) - grown}
    assert set(skipped) == grown
    assert all(params["why"].startswith("it would hold") for params in skipped.values())
    ring = next(row for row in report.rows if row.variant == caches.RING)
    assert (ring.params["q heads"], ring.params["kv heads"]) == (3, 3 // group)
    # One timed call is a whole turn of the ring.
    assert ring.loops == SMALL.capacity
    assert ring.value == pytest.approx(1e-3 / SMALL.capacity)


def test_without_transformers_its_caches_are_reported_as_skipped(on_cpu, no_clock, monkeypatch):
    monkeypatch.setattr(ring_decode.importlib.util, "find_spec", lambda name: None)
    for case in (partial(ring_decode.decode, batch=1), ring_decode.cache_bytes):
        report = Report("ring", "any", quick=True)
        case(report, positions=(64,))
        why = {row.variant: row.params["why"] for row in report.rows if row.metric == ring_ways.SKIPPED}
        assert why == dict.fromkeys(caches.FROM_TRANSFORMERS, "transformers is not installed")


def test_bandwidth_counts_as_many_bytes_for_the_copy_as_for_the_step(on_cpu, no_clock):
    report = Report("ring", bench.READING, quick=True)
    ring_decode.bandwidth(report, 2)
    window_bytes = 2 * 2 * 3 * 8 * 16 * 4
    values = {row.variant: row.value for row in report.rows}
    assert values[ring_decode.COPY] == pytest.approx(window_bytes / 1e-3 / 1e9)
    assert values[caches.RING] == pytest.approx(window_bytes * SMALL.capacity / 1e-3 / 1e9)


def test_prefill_reports_the_eager_ways_where_nothing_compiles(on_cpu, without_compiler):
    report = Report("ring", "prefill", quick=True)
    ring_sequence.prefill(report, tokens=64, window=16, repeats=2)
    timed = [row.variant for row in report.rows if row.metric == TIME]
    assert timed == [ring_ways.OURS, ring_ways.CAUSAL, ring_ways.MASKED]
    (skipped,) = [row for row in report.rows if row.metric == ring_ways.SKIPPED]
    assert (skipped.variant, skipped.params["why"]) == (ring_ways.FLEX, "RuntimeError: no C++ compiler")


def test_a_mask_that_is_too_large_is_reported_and_not_made(on_cpu, without_compiler, monkeypatch):
    monkeypatch.setattr(ring_sequence, "MOST_MASKED", 32)
    report = Report("ring", "prefill", quick=True)
    ring_sequence.prefill(report, tokens=64, window=16, repeats=2)
    assert not [row for row in report.rows if row.variant == ring_ways.MASKED and row.metric == TIME]
    assert [row.params["why"] for row in report.rows if row.variant == ring_ways.MASKED] == [
        "its table has 64 x 64 entries"
    ]


def test_forward_and_backward_reports_times_peaks_and_the_lack_of_a_backward(on_cpu):
    report = Report("ring", "both", quick=True)
    ring_sequence.forward_backward(report, tokens=64, window=16, repeats=2)
    ways = [ring_ways.OURS, ring_ways.CAUSAL, ring_ways.MASKED]
    assert [row.variant for row in report.rows if row.metric == TIME] == ways
    assert [row.variant for row in report.rows if row.metric == PEAK] == ways
    assert report.rows[0].params["why"] == ring_sequence.NO_BACKWARD


def test_errors_are_small_and_those_of_another_window_are_not(on_cpu, monkeypatch):
    report = Report("ring", bench.PRECISION, quick=True)
    ring_sequence.errors(report, tokens=128, window=32)
    assert {(row.variant, row.params["tensor"]) for row in report.rows} == {
        (name, tensor) for name in (ring_ways.OURS, ring_ways.MASKED) for tensor in ("out", "dq", "dk", "dv")
    }
    assert all(0 < row.value < 1e-5 for row in report.rows)

    ways = ring_ways.eager_ways
    monkeypatch.setattr(
        ring_sequence,
        "eager_ways",
        lambda place, tokens, window, names: ways(place, tokens, window + 1, names),
    )
    wrong = Report("ring", bench.PRECISION, quick=True)
    ring_sequence.errors(wrong, tokens=128, window=32)
    assert all(row.value > 1e-3 for row in wrong.rows)


@pytest.mark.unchecked
@pytest.mark.slow
def test_flex_attention_is_compiled_apart_and_agrees(on_cpu):
    q, k, v = ring_ways.inputs(on_cpu, 256)
    report = Report("ring", "prefill", quick=True)
    flex = ring_ways.compiled_flex(report, on_cpu, 256, 64, q, k, v, S=256)
    assert [row.metric for row in report.rows] == [ring_ways.COMPILE]
    ours = ring_ways.eager_ways(on_cpu, 256, 64, (ring_ways.OURS,))[ring_ways.OURS]
    torch.testing.assert_close(flex(q, k, v), ours(q, k, v), atol=2e-6, rtol=0)


def row(case, variant, metric, value, unit="s", **params):
    return Row("ring", case, variant, metric, unit, float(value), {"device": "cpu", **params})


def test_targets_are_read_off_their_own_rows():
    prefill, both = f"{bench.FORWARD}, S = 8,192", f"{bench.BOTH}, S = 4,096, S / W = 8"
    decode = f"{bench.DECODE}, B = 1"
    rows = [
        row(prefill, ring_ways.OURS, TIME, 2.0, S=8192),
        row(prefill, ring_ways.FLEX, TIME, 1.9, S=8192),
        row(both, ring_ways.OURS, TIME, 1.0, S=4096),
        row(both, ring_ways.CAUSAL, TIME, 4.0, S=4096),
        *(row(bench.PRECISION, ring_ways.OURS, ring_sequence.ERROR, far, "", tensor=name)
          for name, far in (("out", 1e-6), ("dq", 2e-6), ("dk", 2e-5), ("dv", 1e-6))),
        row(decode, caches.RING, TIME, 1.0, position=1024),
        row(decode, caches.RING, TIME, 1.05, position=1048576),
        row(decode, caches.STATIC, TIME, 4.2, position=1048576),
        row(decode, caches.DYNAMIC, TIME, 2.1, position=1048576),
    ]  # fmt: skip
    targets = {target.name: target for target in bench.targets(rows)}
    assert targets["prefill beside FlexAttention, S = 8,192"].met is True
    assert targets["stretch: the same, S = 8,192"].met is False
    assert targets["prefill beside FlexAttention, S = 4,096"].met is None
    assert targets["forward and backward beside SDPA causal, S = 4,096, S / W = 8"].measured == 4.0
    assert targets["largest error of outputs"].met is True
    assert targets["largest error of gradients"].met is False
    assert targets["decode: slowest position beside position 1k, up to 1M"].measured == pytest.approx(1.05)
    better = "decode beside the better sliding cache of transformers, B = "
    assert targets[better + "1"].measured == pytest.approx(2.0)
    assert targets[better + "4"].met is None


def test_a_run_on_a_gpu_is_judged_by_the_gpus_targets():
    decode = f"{bench.DECODE}, B = 1"
    rows = [
        row(bench.READING, caches.RING, ring_decode.BANDWIDTH, 80, "GB/s", device="cuda"),
        row(bench.READING, ring_decode.COPY, ring_decode.BANDWIDTH, 100, "GB/s", device="cuda"),
        row(decode, caches.RING, TIME, 1, position=1048576, device="cuda"),
        row(decode, caches.STATIC, TIME, 3, position=1048576, device="cuda"),
    ]
    targets = {target.name: target for target in bench.targets(rows)}
    assert targets["decode beside the bandwidth of a copy"].met is True
    assert targets["decode beside the rolling cache"].met is False
    assert targets["prefill beside FlexAttention, S = 16,384"].met is None


def test_cases_have_names_of_their_own_and_targets_ask_for_them():
    for quick in (True, False):
        names = [case.name for case in bench.cases(quick)]
        assert len(set(names)) == len(names)
    assert {f"{bench.FORWARD}, S = {s:,}" for s, _, _ in bench.PREFILL} <= set(names)
    assert {f"{bench.BOTH}, S = {s:,}, S / W = 8" for s in (4096, 8192)} <= set(names)
    decodes = {f"{bench.DECODE}, {name}" for name in ("B = 1", *(more[0] for more in bench.MORE_DECODE))}
    assert {bench.PRECISION, bench.READING, *decodes} <= set(names)
