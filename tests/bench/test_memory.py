from __future__ import annotations

import tracemalloc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from attnlab.bench.memory import Peak, numpy_peak, torch_peak, xla_memory
from attnlab.bench.storages import StorageWatch

# What Python itself may allocate around a call: frames, shape tuples, array headers.
SLACK = 4096


def test_numpy_peak_counts_what_lives_together():
    def two_then_one():
        first = np.zeros(1_000_000, np.uint8)
        second = np.zeros(500_000, np.uint8)
        del first
        third = np.zeros(200_000, np.uint8)
        del second
        return third

    measured = numpy_peak(two_then_one)
    assert 1_500_000 <= measured.peak_bytes < 1_500_000 + SLACK
    assert 200_000 <= measured.kept_bytes < 200_000 + SLACK


def test_numpy_peak_leaves_out_what_was_there_before_and_passes_arguments():
    big = np.ones(2_000_000, np.uint8)
    measured = numpy_peak(lambda x, *, upto: x[:upto] + 1, big, upto=1000)
    assert 1000 <= measured.peak_bytes < 1000 + SLACK


def test_numpy_peak_leaves_tracing_as_it_found_it():
    numpy_peak(lambda: None)
    assert not tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        np.zeros(3_000_000, np.uint8)  # a peak of the caller's own, over before the call
        measured = numpy_peak(lambda: np.zeros(1000, np.uint8))
        assert tracemalloc.is_tracing()
        assert measured.peak_bytes < 1000 + SLACK
    finally:
        tracemalloc.stop()


def test_numpy_peak_stops_tracing_when_the_function_fails():
    with pytest.raises(ZeroDivisionError):
        numpy_peak(lambda: 1 // 0)
    assert not tracemalloc.is_tracing()


def test_torch_peak_of_a_chain():
    x = torch.zeros(250)

    def chain():
        y = x + 1  # 1000 bytes
        y = y * 2  # 2000 while both live
        return y.sum()  # then 4 more

    assert torch_peak(chain) == Peak(peak_bytes=2000, kept_bytes=4)


def test_torch_peak_counts_a_view_once_and_keeps_its_whole_storage():
    def view():
        whole = torch.zeros(1000, dtype=torch.uint8)
        return whole.view(10, 100).transpose(0, 1)[3]

    assert torch_peak(view) == Peak(1000, 1000)


def test_torch_peak_of_views_and_in_place_work_on_older_tensors_is_zero():
    x = torch.zeros(64)

    def in_place():
        x.view(8, 8).add_(1)
        x.mul_(2)
        torch.add(x, 1, out=x)
        return x[3:]

    assert torch_peak(in_place) == Peak(0, 0)
    assert x[0] == 3


def test_torch_peak_counts_only_the_growth_of_an_out_argument():
    out = torch.empty(10)

    def grow():
        out.resize_(25)
        torch.add(torch.ones(25), 1, out=out)

    # 60 bytes of growth, and the 100 of the ones.
    assert torch_peak(grow) == Peak(160, 60)


def test_torch_peak_counts_an_empty_out_argument_that_the_operator_fills():
    def fill():
        out = torch.empty(0)
        torch.add(torch.ones(100, dtype=torch.float32), 1, out=out)
        return out

    assert torch_peak(fill) == Peak(800, 400)


def test_torch_peak_counts_a_tensor_made_from_a_list():
    assert torch_peak(lambda: torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)) == Peak(24, 24)


def test_torch_peak_sees_what_autograd_saved():
    w = torch.ones(100, requires_grad=True)

    def forward():
        return (w * w).exp().sum()

    # w * w (400) is given up when exp returns (its own result, 400, is what backward needs), then the sum.
    measured = torch_peak(forward)
    assert measured == Peak(800, 404)


def test_torch_peak_counts_the_gradient():
    w = torch.ones(100, requires_grad=True)
    measured = torch_peak(lambda: (w * 2).sum().backward())
    assert measured.kept_bytes == 400


def test_torch_peak_is_zero_growth_when_nothing_is_kept_in_a_loop():
    def loop():
        for _ in range(20):
            torch.zeros(1000, dtype=torch.uint8)

    assert torch_peak(loop) == Peak(1000, 0)


def test_a_storage_that_dies_after_the_context_is_still_taken_back():
    with StorageWatch() as watch:
        kept = torch.zeros(100, dtype=torch.uint8)
        assert watch.live_bytes == 100
    del kept
    assert watch.live_bytes == 0
    assert watch.peak_bytes == 100
    gone = weakref.ref(watch)
    del watch
    assert gone() is None


@pytest.mark.unchecked
def test_torch_peak_refuses_what_it_cannot_measure():
    with pytest.raises(ValueError, match="device: got 'mps', expected 'cpu' or 'cuda'"):
        torch_peak(lambda: None, device="mps")
    with pytest.raises(ValueError, match="compiled function"):
        torch_peak(torch.compile(lambda: torch.zeros(1)))
    with pytest.raises(ValueError, match="made a tensor on meta"):
        torch_peak(lambda: torch.zeros(3, device="meta"))
    with pytest.raises(ValueError, match="only strided ones are counted"):
        torch_peak(lambda: torch.eye(4).to_sparse())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_torch_peak_on_cuda_says_that_there_is_none():
    with pytest.raises(ValueError, match="no CUDA device"):
        torch_peak(lambda: None, device="cuda")


@pytest.mark.gpu
def test_torch_peak_on_cuda():
    x = torch.zeros(1024, device="cuda")

    def chain():
        y = x + 1
        return y * 2

    assert torch_peak(chain, device="cuda") == Peak(8192, 4096)


def test_xla_memory_of_a_matrix_product():
    planned = xla_memory(
        lambda a, b: a @ b,
        jax.ShapeDtypeStruct((100, 50), jnp.float32),
        jax.ShapeDtypeStruct((50, 20), jnp.float32),
    )
    assert planned.argument_bytes == 4 * (100 * 50 + 50 * 20)
    assert planned.output_bytes == 4 * 100 * 20
    assert planned.flops == 2 * 100 * 50 * 20
    assert planned.accessed_bytes == planned.argument_bytes + planned.output_bytes


def test_xla_memory_sees_scratch_that_cannot_be_fused_away():
    # The sorted copy must exist as a whole before it can be gathered from.
    planned = xla_memory(lambda x: jnp.sort(x)[::-1].cumsum()[:1], jax.ShapeDtypeStruct((4096,), jnp.float32))
    assert planned.temp_bytes >= 4 * 4096
    assert planned.output_bytes == 4


def test_xla_memory_allocates_nothing_for_shapes_alone():
    huge = jax.ShapeDtypeStruct((1 << 40,), jnp.float32)
    planned = xla_memory(lambda x: x.sum(), huge)
    assert planned.argument_bytes == 4 << 40


def test_xla_memory_takes_static_arguments_and_jitted_functions():
    def repeat(x, times):
        return jnp.tile(x, times)

    x = jax.ShapeDtypeStruct((10,), jnp.int32)
    assert xla_memory(repeat, x, times=7, static_argnames=("times",)).output_bytes == 280
    jitted = jax.jit(repeat, static_argnames=("times",))
    assert xla_memory(jitted, x, times=3).output_bytes == 120
    with pytest.raises(ValueError, match="already jitted"):
        xla_memory(jitted, x, times=3, static_argnames=("times",))
