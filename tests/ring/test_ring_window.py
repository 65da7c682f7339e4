"""Every path to sliding-window attention equals the dense reference, and bad input is refused by name."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attnlab.attention import dense_attention
from attnlab.masks import causal as causal_mask
from attnlab.masks import sliding_window
from attnlab.ring import reference
from attnlab.ring.order import TileOrder
from attnlab.ring.window import IMPLS, sliding_window_attention

ON_CPU = [impl for impl in IMPLS if impl != "triton"]  # whose cases are in files of their own
orders = st.sampled_from(TileOrder)
impls = st.sampled_from(ON_CPU)


class Case(NamedTuple):
    batch: int
    kv_heads: int
    group: int
    tokens: int
    head_dim: int
    window: int
    causal: bool


def draws(most_tokens: int = 150) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        batch=st.integers(1, 2),
        kv_heads=st.integers(1, 2),
        group=st.integers(1, 3),
        tokens=st.integers(0, most_tokens),
        head_dim=st.integers(1, 9),
        window=st.integers(1, 30) | st.integers(1, most_tokens + 20),
        causal=st.booleans(),
    )


def inputs(case: Case, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """q, k, v and the gradients of the output and of the log-sum-exp."""
    rng = torch.Generator().manual_seed(0)
    q_shape = (case.batch, case.kv_heads * case.group, case.tokens, case.head_dim)
    kv_shape = (case.batch, case.kv_heads, case.tokens, case.head_dim)
    shapes = (q_shape, kv_shape, kv_shape, q_shape, q_shape[:-1])
    return [torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype) for shape in shapes]


def results(function, case: Case, tensors, *, with_lse: bool, **options):
    """out, lse, dq, dk, dv, where the log-sum-exp takes part in the loss only if asked."""
    *qkv, dout, dlse = tensors
    leaves = [x.detach().clone().requires_grad_() for x in qkv]
    out, lse = function(*leaves, window=case.window, causal=case.causal, return_lse=True, **options)
    loss = (out * dout.to(out.dtype)).sum()
    if with_lse:
        loss = loss + (lse * dlse.to(lse.dtype)).sum()
    return out.detach(), lse.detach(), *torch.autograd.grad(loss, leaves)


def in_float64(case: Case, tensors, *, with_lse: bool):
    tensors = [x.double() for x in tensors]
    return results(reference.sliding_window_attention, case, tensors, with_lse=with_lse)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 4, 40])
def test_the_reference_is_dense_attention_under_the_window(window, causal):
    case = Case(2, 2, 2, 17, 5, window, causal)
    q, k, v, *_ = (x.double() for x in inputs(case))
    distance = np.arange(17)[:, None] - np.arange(17)
    seen = (causal_mask() & sliding_window(window)).dense(17, 17) if causal else abs(distance) < window
    repeated = (x.repeat_interleave(2, dim=1).numpy() for x in (k, v))
    expected = dense_attention(q.numpy(), *repeated, seen)
    got = reference.sliding_window_attention(q, k, v, window=window, causal=causal, return_lse=True)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b, atol=1e-12)


@settings(max_examples=60)
@given(draws(), impls, orders, st.booleans())
@example(Case(1, 1, 1, 0, 4, 3, True), "tiled", TileOrder.K_MAJOR, False)
@example(Case(1, 1, 1, 0, 4, 3, False), "strided", TileOrder.Q_MAJOR, True)
@example(Case(2, 2, 2, 33, 4, 1, True), "strided", TileOrder.Q_MAJOR, True)
@example(Case(2, 2, 2, 33, 4, 33, True), "strided", TileOrder.Q_MAJOR, True)
@example(Case(2, 2, 2, 33, 4, 34, False), "tiled", TileOrder.K_MAJOR, True)
@example(Case(1, 1, 2, 150, 4, 20, False), "strided", TileOrder.K_MAJOR, False)
def test_every_path_equals_float64_forward_and_backward(case, impl, order, with_lse):
    tensors = inputs(case)
    got = results(sliding_window_attention, case, tensors, with_lse=with_lse, impl=impl, order=order)
    expected = in_float64(case, tensors, with_lse=with_lse)
    for name, a, b in zip(("out", "lse", "dq", "dk", "dv"), got, expected, strict=True):
        assert a.dtype == torch.float32 and a.shape == b.shape
        tolerance = 2e-6 if name in ("out", "lse") else 1e-5
        torch.testing.assert_close(
            a.double(), b, atol=tolerance, rtol=0, msg=lambda text, name=name: name + text
        )


@pytest.mark.parametrize("impl", ON_CPU)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_right_to_its_own_rounding(impl, dtype):
    case = Case(1, 2, 2, 150, 16, 40, True)
    tensors = inputs(case, dtype)
    got = results(sliding_window_attention, case, tensors, with_lse=False, impl=impl)
    expected = in_float64(case, tensors, with_lse=False)
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a.dtype == (torch.float32 if i == 1 else dtype)
        assert (a.double() - b).abs().max() < 4 * torch.finfo(dtype).eps * b.abs().max()


@pytest.mark.parametrize("impl", ON_CPU)
def test_layouts_need_not_be_contiguous(impl):
    case = Case(2, 2, 2, 90, 8, 20, True)
    tensors = inputs(case)
    expected = results(sliding_window_attention, case, tensors, with_lse=False, impl=impl)
    *qkv, dout, _ = tensors
    for axis in (1, 3):  # [batch, length, heads, head_dim] underneath; then one whose rows are scattered
        odd = [x.transpose(2, axis).contiguous().transpose(2, axis) for x in (*qkv, dout)]
        assert not odd[0].is_contiguous()
        leaves = [x.requires_grad_() for x in odd[:3]]
        out, lse = sliding_window_attention(*leaves, window=20, impl=impl, return_lse=True)
        got = (out, lse, *torch.autograd.grad(out, leaves, odd[3]))
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, atol=5e-6, rtol=0)


@pytest.mark.parametrize("impl", ON_CPU)
def test_very_large_scores_give_no_nan(impl):
    q, k, v, *_ = inputs(Case(1, 1, 1, 100, 8, 7, True))
    q, k = (1e4 * x for x in (q, k))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = sliding_window_attention(*leaves, window=7, impl=impl)
    expected = reference.sliding_window_attention(*leaves, window=7)
    torch.testing.assert_close(out.double(), expected, atol=1e-4, rtol=0)
    assert all(x.isfinite().all() for x in torch.autograd.grad(out.sum(), leaves))


@pytest.mark.parametrize("impl", ON_CPU)
def test_a_key_outside_the_window_does_not_matter_and_one_inside_does(impl):
    q, k, v, *_ = inputs(Case(1, 1, 1, 40, 4, 5, True))
    changed = k.clone()
    changed[:, :, 20] += 1
    moved = sliding_window_attention(q, changed, v, window=5, impl=impl) - sliding_window_attention(
        q, k, v, window=5, impl=impl
    )
    assert moved.abs().amax(dim=(0, 1, 3)).nonzero().flatten().tolist() == [20, 21, 22, 23, 24]


def test_only_the_output_is_returned_unless_the_log_sum_exp_is_asked_for():
    q, k, v, *_ = inputs(Case(1, 1, 1, 6, 4, 3, True))
    for impl in ON_CPU:
        alone = sliding_window_attention(q, k, v, window=3, impl=impl)
        both = sliding_window_attention(q, k, v, window=3, impl=impl, return_lse=True)
        assert isinstance(alone, torch.Tensor) and torch.equal(alone, both[0])


def ones(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device=device)


GOOD = dict(q=ones(1, 4, 6, 8), k=ones(1, 2, 6, 8), v=ones(1, 2, 6, 8), window=3)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (dict(q=[1.0]), TypeError, "q must be a torch Tensor, got list"),
        (dict(v=ones(1, 2, 6, 8).int()), TypeError, "v must be float64.*got torch.int32"),
        (dict(k=ones(1, 2, 6, 8).double()), TypeError, "k must have the dtype of q.*got torch.float64"),
        (dict(q=ones(4, 6, 8)), ValueError, r"q must have shape .*got \[4, 6, 8\]"),
        (dict(q=ones(1, 4, 6, 0)), ValueError, "q must have shape .*head_dim > 0"),
        (dict(k=ones(1, 2, 5, 8)), ValueError, r"k must have shape \[1, heads, 6, 8\].*got \[1, 2, 5, 8\]"),
        (dict(v=ones(1, 2, 6, 4)), ValueError, "v must have shape .*to fit q"),
        (dict(k=ones(1, 3, 6, 8), v=ones(1, 3, 6, 8)), ValueError, "k must have heads that divide the 4"),
        (dict(k=ones(1, 0, 6, 8), v=ones(1, 0, 6, 8)), ValueError, "k must have heads.*got 0"),
        (dict(v=ones(1, 1, 6, 8)), ValueError, "v must have the 2 heads of k, got 1"),
        (dict(k=ones(1, 2, 6, 8, device="meta")), ValueError, "k must be on the device of q, cpu, got meta"),
        (dict(window=0), ValueError, "window must be between 1"),
        (dict(window=2.0), TypeError, "window must be an int, got float"),
        (dict(causal=1), TypeError, "causal must be a bool, got int"),
        (dict(return_lse="yes"), TypeError, "return_lse must be a bool, got str"),
        (dict(order="q"), TypeError, "order must be a TileOrder, got str"),
        (dict(impl="flash"), ValueError, "impl must be one of 'auto', 'reference'.*got 'flash'"),
        (dict(impl=None), TypeError, "impl must be one of .*got NoneType"),
    ],
)
def test_bad_input_names_the_argument(bad, error, message):
    with pytest.raises(error, match=message):
        sliding_window_attention(**(GOOD | bad))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_path_for_a_gpu_says_which_would_run_on_the_cpu(dtype):
    tensors = {name: x.to(dtype) for name, x in GOOD.items() if name != "window"}
    problem = "float32, bfloat16 or float16" if dtype == torch.float64 else "tensors on a CUDA device"
    with pytest.raises(ValueError, match=f"impl 'triton' .*need {problem}.*'tiled' and 'strided' would run"):
        sliding_window_attention(**tensors, window=3, impl="triton")


def test_no_path_falls_back_on_another_device_and_the_message_says_what_would_run():
    elsewhere = {name: x.to("meta") for name, x in GOOD.items() if name != "window"}
    for impl, problem in (("auto", "on the CPU"), ("strided", "on the CPU"), ("triton", "on a CUDA device")):
        with pytest.raises(ValueError, match=f"tensors {problem}.*got .*meta; 'reference' and 'tiled' would"):
            sliding_window_attention(**elsewhere, window=3, impl=impl)
