"""Which calls the ring kernel gets. Most tests replace it by what it must equal; two run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ring_calls import close, cut, dense, inputs, model, snapshot, unchanged

from attnlab.ring import self_attention
from attnlab.ring.cache import RingCache

SIZES = dict(tile_size=16, block_size=16, prefill_size=8)


@pytest.fixture
def kernel(monkeypatch):
    """The rows of each call of the kernel, which is stood in for by masked attention over a cache's slots."""
    rows = []

    def stand_in(q, k, v, *, window, written, highest, padding):
        rows.append(q.shape[2])
        cache = RingCache(len(q), k.shape[1], q.shape[3], k.shape[2], window=window, dtype=q.dtype)
        bits = torch.zeros(len(q), k.shape[2], dtype=torch.bool) if padding is None else padding
        state = dict(position=written, highest=highest, window=window, k=k, v=v, padding=bits)
        cache.load_state_dict(state)
        return cache.attend(q)

    monkeypatch.setattr(self_attention, "ring_attention", stand_in)
    monkeypatch.setattr(self_attention, "obstacle", lambda dtype, device: None)
    return rows


def test_with_impl_triton_the_kernel_reads_the_ring_and_padding_only_where_there_is_some(kernel):
    q, k, v = inputs(120)
    bits = torch.zeros(2, 120, dtype=torch.bool)
    bits[1, 41:44] = True
    want, _ = dense(q, k, v, padding=bits)
    ring = model(**SIZES, impl="triton")
    state = ring.new_state(2, dtype=torch.float64)
    first, *rest = cut([1, 30, 9, 8] + [1] * 72)
    padded = torch.zeros(2, 1, dtype=torch.bool)  # so that the window kernel is not asked
    ring(q[:, :, first], k[:, :, first], v[:, :, first], key_padding_mask=padded, buffer_state=state)
    for t in rest:
        given = bits[:, t] if bits[:, t].any() else None
        out = ring(
            q[:, :, t], k[:, :, t], v[:, :, t], is_decoder=True, key_padding_mask=given, buffer_state=state
        )
        close(out, want[:, :, t])
    assert sum(kernel) == 120
    assert state.padding_from(43) is not None and state.padding_from(48) is None


@pytest.mark.parametrize("impl", ["auto", "strided", "reference", "tiled"])
def test_on_the_cpu_other_paths_leave_the_ring_to_the_cache(kernel, impl):
    q, k, v = inputs(30)
    close(model(**SIZES, impl=impl)(q, k, v)[0], dense(q, k, v)[0])
    assert kernel == []


@pytest.mark.unchecked
def test_where_the_kernels_cannot_run_nothing_has_changed():
    ring = model(**SIZES, impl="triton")
    state = ring.new_state(2, dtype=torch.float64)
    q, k, v = inputs(20)
    ring(q, k, v, is_decoder=True, needs_weights=True, buffer_state=state)  # masked attention needs no kernel
    before = snapshot(state)
    for position in (None, 15):
        with pytest.raises(ValueError, match="impl 'triton' does not run: the Triton kernels need float32"):
            ring(q, k, v, position=position, is_decoder=True, buffer_state=state)
    unchanged(state, before)


def test_the_kernels_themselves_under_tritons_interpreter(checkout):
    pytest.importorskip("triton")
    cases = Path(__file__).with_name("triton_cases_module.py")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(cases)]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grad", [False, True])
def test_on_a_gpu_every_call_equals_the_reference(dtype, grad):
    q, k, v = inputs(400, heads=8, dim=64)
    bits = torch.zeros(2, 400, dtype=torch.bool)
    bits[1, 101:140] = True
    want, _ = dense(q, k, v, window=48, padding=bits)
    ring = model(num_heads=8, head_dim=64, buffer_size=48, prefill_size=64, tile_size=16, block_size=64)
    q, k, v = (x.to("cuda", dtype) for x in (q, k, v))
    bits = bits.cuda()
    state = ring.new_state(2, dtype=dtype, device="cuda")
    for t in cut([100, 60, 1, 1, 150, *[1] * 88]):
        given = bits[:, t] if t.start == 100 else None
        out = ring(
            q[:, :, t], k[:, :, t], v[:, :, t], grad, key_padding_mask=given, is_decoder=True,
            buffer_state=state,
        )  # fmt: skip
        close(out.cpu(), want[:, :, t], 2e-2 if dtype == torch.bfloat16 else 1e-4)
        if grad and state.position % 50 == 0:
            state.detach()
