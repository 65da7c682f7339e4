"""Cases of the Triton kernels for a sequence; `test_ring_triton.py` runs them, in a process of its own."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from triton_interpreter import DEVICE

from attnlab.ring import reference, window
from attnlab.ring.order import TileOrder
from attnlab.ring.triton import sliding_window_attention

NAMES = ("out", "lse", "dq", "dk", "dv")


class Case(NamedTuple):
    tokens: int
    window: int
    causal: bool = True
    group: int = 1
    head_dim: int = 16
    kv_heads: int = 1
    batch: int = 1
    tiles: tuple[int, int] | None = (16, 16)


def inputs(case: Case, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """q, k, v and the gradients of the output and of the log-sum-exp."""
    rng = torch.Generator().manual_seed(0)
    q_shape = (case.batch, case.kv_heads * case.group, case.tokens, case.head_dim)
    kv_shape = (case.batch, case.kv_heads, case.tokens, case.head_dim)
    shapes = (q_shape, kv_shape, kv_shape, q_shape, q_shape[:-1])
    tensors = [torch.randn(shape, generator=rng) for shape in shapes]
    return [x.to(DEVICE, dtype) for x in tensors[:4]] + [tensors[4].to(DEVICE)]


def results(function, case: Case, tensors, *, wanted: str = "out lse", **options) -> list[torch.Tensor]:
    """out, lse, dq, dk, dv, where what is wanted takes part in the loss."""
    *qkv, dout, dlse = tensors
    leaves = [x.detach().requires_grad_() for x in qkv]
    out, lse = function(*leaves, window=case.window, causal=case.causal, return_lse=True, **options)
    parts = {"out": (out, dout.to(out.dtype)), "lse": (lse, dlse.to(lse.dtype))}
    outputs, upstream = zip(*(parts[name] for name in wanted.split()), strict=True)
    grads = torch.autograd.grad(outputs, leaves, upstream, allow_unused=True, materialize_grads=True)
    return [out.detach(), lse.detach(), *grads]


def exact(case: Case, tensors, **options) -> list[torch.Tensor]:
    tensors = [x.double() for x in tensors]
    return results(reference.sliding_window_attention, case, tensors, **options)


def check(got, expected) -> None:
    for name, a, b in zip(NAMES, got, expected, strict=True):
        assert a.dtype == torch.float32 and a.shape == b.shape
        tolerance = 2e-6 if name in ("out", "lse") else 1e-5
        torch.testing.assert_close(
            a.double(), b, atol=tolerance, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize(
    "case",
    [
        Case(70, 40),  # all three parts, and a last tile that is not full
        Case(64, 33, tiles=(32, 16)),
        Case(64, 48, tiles=(16, 32)),
        Case(40, 7),  # a window of less than a tile
        Case(33, 1),  # one key each
        Case(16, 16),
        Case(35, 90),  # everything, causally
        Case(1, 3),
        Case(60, 20, causal=False),
        Case(50, 1, causal=False),
        Case(37, 37, causal=False),
        Case(30, 99, causal=False),
        Case(26, 11, group=3, head_dim=5, kv_heads=2, batch=2),  # a group that is no power of two
        Case(30, 20, group=2, head_dim=20, causal=False),
        Case(20, 12, group=20),  # more heads in a group than rows in a tile
        Case(20, 9, head_dim=1),
        Case(130, 70, group=2, tiles=None),  # the table's own sizes
    ],
    ids=str,
)
def test_forward_and_gradients_equal_float64(case):
    tensors = inputs(case)
    check(results(sliding_window_attention, case, tensors, tiles=case.tiles), exact(case, tensors))


@pytest.mark.parametrize("wanted", ["out", "lse"])
def test_the_gradient_of_one_result_alone(wanted):
    case = Case(40, 20, group=2)
    tensors = inputs(case)
    got = results(sliding_window_attention, case, tensors, wanted=wanted, tiles=case.tiles)
    check(got, exact(case, tensors, wanted=wanted))


@pytest.mark.parametrize("axis", [1, 3])
def test_layouts_need_not_be_contiguous(axis):
    case = Case(34, 12, group=2, kv_heads=2)
    tensors = inputs(case)
    # [batch, length, heads, head_dim] underneath; then one whose rows are scattered.
    odd = [x.transpose(2, axis).contiguous().transpose(2, axis) for x in tensors[:4]]
    assert not odd[0].is_contiguous()
    check(results(sliding_window_attention, case, [*odd, tensors[4]], tiles=(16, 16)), exact(case, tensors))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_right_to_its_own_rounding(dtype):
    case = Case(50, 20, group=2)
    tensors = inputs(case, dtype)
    got = results(sliding_window_attention, case, tensors, tiles=(16, 16))
    for name, a, b in zip(NAMES, got, exact(case, tensors), strict=True):
        assert a.dtype == (torch.float32 if name == "lse" else dtype)
        assert (a.double() - b).abs().max() < 4 * torch.finfo(dtype).eps * b.abs().max()


def test_very_large_scores_give_no_nan():
    case = Case(40, 7, head_dim=8)
    q, k, *rest = inputs(case)
    tensors = [1e4 * q, 1e4 * k, *rest]
    got = results(sliding_window_attention, case, tensors, wanted="out", tiles=(16, 16))
    torch.testing.assert_close(got[0].double(), exact(case, tensors, wanted="out")[0], atol=1e-4, rtol=0)
    assert all(x.isfinite().all() for x in got)


def test_nothing_in_nothing_out():
    for case in (Case(0, 3), Case(5, 3, batch=0)):
        for got, given in zip(
            results(sliding_window_attention, case, inputs(case))[2:], inputs(case), strict=False
        ):
            assert got.shape == given.shape


@pytest.mark.parametrize("order", TileOrder)
def test_the_public_function_takes_this_path(order):
    case = Case(20, 6, group=2)
    tensors = inputs(case)
    got = results(window.sliding_window_attention, case, tensors, impl="triton", order=order)
    check(got, exact(case, tensors))


@pytest.mark.unchecked
@pytest.mark.parametrize("tiles", [(16,), (8, 16), (16, 24)])
def test_bad_tiles_are_named(tiles):
    q, k, v, *_ = inputs(Case(4, 2))
    with pytest.raises(ValueError, match="tiles must be two powers of two from 16"):
        sliding_window_attention(q, k, v, window=2, tiles=tiles)


@pytest.mark.unchecked
def test_float64_is_refused_and_the_message_names_what_would_run():
    q, k, v, *_ = (x.double() for x in inputs(Case(4, 2)))
    with pytest.raises(ValueError, match=r"need float32, bfloat16 or float16.*'reference'.* would run there"):
        window.sliding_window_attention(q, k, v, window=2, impl="triton")
