from __future__ import annotations

import dataclasses
import gc
import sys
import types
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from attnlab.bench import sync
from attnlab.bench.timing import Timing, interquartile_range, measure, paired_ratio


class FakeClock:
    """A clock that only the timed functions move, and a log of who ran."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def __call__(self):
        return self.now

    def takes(self, name, seconds):
        def fn():
            self.log.append(name)
            self.now += seconds() if callable(seconds) else seconds

        return fn


def test_variants_are_interleaved_round_by_round():
    clock = FakeClock()
    fns = {"a": clock.takes("a", 1.0), "b": clock.takes("b", 2.0), "c": clock.takes("c", 3.0)}
    timing = measure(fns, warmup=2, repeats=4, clock=clock)
    # Each is warmed up and calibrated with one call, as one call is longer than a sample need be.
    assert clock.log == ["a"] * 3 + ["b"] * 3 + ["c"] * 3 + ["a", "b", "c"] * 4
    assert timing.loops == {"a": 1, "b": 1, "c": 1}
    assert timing.samples == {"a": [1.0] * 4, "b": [2.0] * 4, "c": [3.0] * 4}
    assert timing.warmup == 2


def test_short_functions_are_repeated_within_a_sample():
    clock = FakeClock()
    timing = measure({"short": clock.takes("short", 2.0**-14)}, repeats=3, min_sample=2.0**-10, clock=clock)
    # One call is 1/16 of a sample. A first try of one call is followed by one of 10 at most, then of 20.
    assert timing.loops == {"short": 20}
    assert timing.samples["short"] == [2.0**-14] * 3
    # Every sample that is kept follows one that is not.
    assert len(clock.log) == 3 + (1 + 10 + 20) + 3 * (20 + 20)


def test_a_sample_is_never_shorter_than_asked():
    for seconds in (1e-7, 3e-6, 4.2e-5, 9.9e-4, 1.1e-3):
        clock = FakeClock()
        timing = measure({"f": clock.takes("f", seconds)}, repeats=2, min_sample=1e-3, clock=clock)
        assert timing.loops["f"] * seconds >= 0.999e-3


def test_the_calls_that_follow_another_variant_are_not_in_the_sample():
    """A function that is slow whenever another ran before it, as caches make it."""
    clock = FakeClock()

    def seconds():
        return 2.0**-10 if clock.log[-2:] == ["a", "a"] else 1.0

    fns = {"a": clock.takes("a", seconds), "b": clock.takes("b", 2.0**-10)}
    timing = measure(fns, repeats=3, min_sample=2.0**-10, clock=clock)
    assert timing.loops == {"a": 1, "b": 1}
    assert timing.samples["a"] == [2.0**-10] * 3
    assert clock.log[-12:] == ["a", "a", "b", "b"] * 3


def test_calibration_ends_when_the_clock_stands_still():
    calls = 0

    def fn():
        nonlocal calls
        calls += 1

    timing = measure({"f": fn}, repeats=2, clock=lambda: 0.0)
    assert timing.loops["f"] == 1_000_000


def test_rounds_go_on_until_min_time_is_sampled():
    clock = FakeClock()
    timing = measure(
        {"a": clock.takes("a", 1.0), "b": clock.takes("b", 2.0)}, repeats=2, min_time=10, clock=clock
    )
    # Three seconds a round: four rounds are the first to reach ten.
    assert len(timing.samples["a"]) == len(timing.samples["b"]) == 4


def test_drift_cancels_in_the_paired_ratio():
    clock = FakeClock()
    pace = 1.0

    def slowing(factor):
        def seconds():
            nonlocal pace
            pace *= 1.5 if factor == 2.0 else 1.0
            return factor * pace

        return seconds

    fns = {"a": clock.takes("a", slowing(2.0)), "b": clock.takes("b", slowing(1.0))}
    timing = measure(fns, repeats=9, clock=clock)
    assert timing.samples["a"][-1] > 20 * timing.samples["a"][0]
    assert timing.ratio("a", "b") == pytest.approx(2.0)


def test_summary_of_given_samples():
    timing = Timing({"a": [4.0, 1.0, 3.0, 2.0, 5.0], "b": [2.0, 1.0, 1.0, 2.0, 10.0]}, {"a": 1, "b": 1}, 3)
    assert timing.median("a") == 3.0
    assert timing.spread("a") == 2.0
    # The paired ratios are 2, 1, 3, 1, 0.5; the ratio of the medians would be 1.5.
    assert timing.ratio("a", "b") == 1.0


@pytest.mark.unchecked
def test_summaries_refuse_what_has_no_answer():
    with pytest.raises(ValueError, match="got 1, expected at least 2"):
        interquartile_range([1.0])
    with pytest.raises(ValueError, match="got 2 and 3"):
        paired_ratio([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="at least one"):
        paired_ratio([], [])
    with pytest.raises(ValueError, match="expected positive seconds"):
        paired_ratio([1.0], [0.0])


def test_garbage_collection_is_off_in_samples_and_back_on_between_and_after():
    clock = FakeClock()
    seen = []

    def fn():
        seen.append(gc.isenabled())
        clock.now += 1.0

    assert gc.isenabled()
    measure({"f": fn}, warmup=2, repeats=3, clock=clock)
    assert seen == [True, True] + [False] * 4
    assert gc.isenabled()


def test_garbage_collection_stays_off_where_it_was_off():
    gc.disable()
    try:
        measure({"f": lambda: None}, repeats=2, min_sample=0.0)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_failing_function_is_named_and_collection_is_back_on():
    clock = FakeClock()
    calls = 0

    def fails_late():
        nonlocal calls
        calls += 1
        clock.now += 1.0
        if calls == 6:
            raise RuntimeError("the table is full")

    with pytest.raises(RuntimeError, match="the table is full") as caught:
        measure({"good": clock.takes("good", 1.0), "bad": fails_late}, warmup=1, repeats=9, clock=clock)
    assert caught.value.__notes__ == ["while timing variant 'bad'"]
    assert gc.isenabled()


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("fns", "options", "message"),
    [
        ({}, {}, "fns: got no functions"),
        ({"f": int}, {"warmup": 0}, "warmup: got 0"),
        ({"f": int}, {"repeats": 1}, "repeats: got 1"),
        ({"f": int}, {"min_time": float("nan")}, "min_time"),
        ({"f": int}, {"min_sample": float("inf")}, "min_sample"),
        ({"f": int}, {"device": "tpu"}, "device: got 'tpu'"),
        ({"f": int}, {"device": "cpu", "sync": print}, "device, sync: got both"),
    ],
)
def test_measure_refuses_bad_arguments(fns, options, message):
    with pytest.raises(ValueError, match=message):
        measure(fns, **options)


def test_sync_is_called_with_every_result_before_the_clock_stops():
    clock = FakeClock()
    waited = []

    def wait(result):
        waited.append(result)
        clock.now += 5.0

    timing = measure({"f": lambda: "result"}, warmup=2, repeats=3, sync=wait, clock=clock)
    assert waited == ["result"] * (2 + 1 + 3)
    assert timing.samples["f"] == [5.0] * 3


class Pending:
    """Stands for a JAX array that is ready only once it was waited for."""

    def __init__(self, clock):
        self.clock = clock

    def block_until_ready(self):
        self.clock.now += 7.0
        return self


@dataclasses.dataclass
class Holder:
    first: object
    rest: object


def test_jax_results_are_waited_for_wherever_they_are_nested():
    clock = FakeClock()
    fns = {
        "bare": lambda: Pending(clock),
        "nested": lambda: Holder([np.zeros(1), (Pending(clock),)], {"x": Pending(clock), "n": 3}),
    }
    timing = measure(fns, repeats=2, clock=clock)
    assert timing.samples == {"bare": [7.0, 7.0], "nested": [14.0, 14.0]}


def test_each_kind_of_result_is_recognised():
    assert sync.waiter_for(np.zeros(2)) == (None, False)
    assert sync.waiter_for((torch.zeros(2), None, 3)) == (None, False)
    wait, on_cuda = sync.waiter_for({"x": jnp.zeros(2)})
    assert wait is not None and not on_cuda
    wait({"x": jnp.zeros(2)})
    with pytest.raises(ValueError, match="got tensors on meta, expected cpu or cuda"):
        sync.waiter_for(torch.zeros(2, device="meta"))


def test_leaves_looks_into_containers_and_not_into_types():
    held = Holder(1, {"a": [2, (3,)]})
    assert list(sync.leaves(held)) == [1, 2, 3]
    assert list(sync.leaves(Holder)) == [Holder]


def test_real_functions_of_three_frameworks():
    x = np.ones((32, 32), np.float32)
    multiply, y, z = jax.jit(jnp.matmul), jnp.asarray(x), torch.from_numpy(x)
    timing = measure(
        {"numpy": lambda: x @ x, "torch": lambda: z @ z, "jax": lambda: multiply(y, y)},
        repeats=2,
        min_sample=1e-5,
    )
    assert [(name, len(samples)) for name, samples in timing.samples.items()] == [
        ("numpy", 2),
        ("torch", 2),
        ("jax", 2),
    ]
    assert all(sample > 0 for samples in timing.samples.values() for sample in samples)


class FakeCuda:
    """As much of torch.cuda as timing uses; its events may be read only after the device was waited for."""

    def __init__(self):
        self.device_now = 0.0
        self.synchronised = 0
        cuda = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at = cuda.device_now

            def elapsed_time(self, end):
                assert cuda.synchronised >= 2
                return (end.at - self.at) * 1e3

        self.Event = Event

    def synchronize(self):
        self.synchronised += 1

    def is_available(self):
        return True

    def is_initialized(self):
        return True


def test_cuda_work_is_timed_by_events(monkeypatch):
    cuda = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda, Tensor=torch.Tensor))

    def in_place():
        cuda.device_now += 0.25

    timing = measure(
        {"f": in_place}, repeats=3, device="cuda", clock=lambda: pytest.fail("the wall clock was read")
    )
    assert timing.samples["f"] == [0.25] * 3
    assert timing.loops == {"f": 1}


def test_the_wall_clock_waits_for_queued_cuda_work_before_and_after(monkeypatch):
    cuda = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda, Tensor=torch.Tensor))
    reads = []

    def clock():
        reads.append(cuda.synchronised)
        return float(len(reads))

    measure({"f": lambda: None}, repeats=2, clock=clock)
    # Between the two readings of every sample, and between samples, the device was waited for.
    assert all(later > earlier for earlier, later in pairwise(reads))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_asking_for_cuda_without_one_is_refused():
    with pytest.raises(ValueError, match="torch sees no CUDA device"):
        measure({"f": lambda: None}, device="cuda")


@pytest.mark.gpu
def test_cuda_tensors_choose_events_by_themselves():
    x = torch.ones(64, 64, device="cuda")
    assert sync.waiter_for(x) == (None, True)
    timing = measure({"f": lambda: x @ x}, repeats=2, clock=lambda: pytest.fail("the wall clock was read"))
    assert all(sample > 0 for sample in timing.samples["f"])
