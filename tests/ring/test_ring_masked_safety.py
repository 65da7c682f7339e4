"""The general path gives no NaN: not from padding, blind rows, hidden keys, large scores or narrow types."""

from __future__ import annotations

import pytest
import torch
from ring_masked_cases import Case, attend, gradients, made

from attnlab.ring.masked import masked_attention


@pytest.mark.parametrize("mask", ["none", "bool", "float"])
def test_nan_in_padding_reaches_neither_result_nor_gradient(mask):
    case = Case(padded=0.5, mask=mask, q_len=17, q_position=0)
    given = made(case)
    leaves = [x.requires_grad_() for x in given[:3]]
    expected = attend(case, given, rows=4, weights="heads")
    clean = gradients(expected, leaves)
    for poison in (torch.nan, torch.inf):
        k, v = (
            x.detach().masked_fill(given.padding[:, None, :, None], poison).requires_grad_()
            for x in (given.k, given.v)
        )
        got = attend(case, given._replace(k=k, v=v), rows=4, weights="heads")
        for a, b in zip(got, expected, strict=True):
            assert torch.equal(a, b)
        for a, b in zip(gradients(got, [given.q, k, v]), clean, strict=True):
            assert torch.equal(a, b)


def test_nan_in_keys_that_the_mask_hides_from_all_does_not_leak_either():
    case = Case(window=None, causal=False)
    given = made(case)
    allowed = torch.arange(17) != 6
    k, v = given.k.clone(), given.v.clone()
    k[:, :, 6], v[:, :, 6] = torch.nan, torch.nan
    for mask in (allowed[None], torch.zeros(1, 17).masked_fill(~allowed, -torch.inf)):
        got = attend(case, given._replace(k=k.requires_grad_(), v=v.requires_grad_(), att_mask=mask))
        expected = attend(case, given._replace(att_mask=mask))
        assert torch.equal(got.out, expected.out)
        assert all(x.isfinite().all() for x in torch.autograd.grad(got.out.sum(), (k, v)))


def test_nan_outside_the_window_of_every_query_is_never_read():
    q, k, v, *_ = made(Case(q_len=10, k_len=40))
    k[:, :, :16] = v[:, :, :16] = k[:, :, 30:] = v[:, :, 30:] = torch.nan
    got = masked_attention(q, k, v, window=5, q_position=20, rows=3)
    assert got.out.isfinite().all() and got.lse.isfinite().all()


@pytest.mark.parametrize("kind", ["bool", "float", "padding", "window"])
def test_a_row_that_sees_nothing_is_zero_and_gives_no_gradient(kind):
    case = Case(q_len=6, k_len=6, q_position=0, window=3)
    given = made(case)
    q = given.q.clone()
    blind = torch.zeros(6, dtype=torch.bool)
    padding, att_mask = None, None
    if kind == "padding":
        padding = (torch.arange(6) < 2).expand(2, 6)
        blind[:2] = True
    elif kind == "window":
        case = case._replace(q_position=4)
        blind[4:] = True
    else:
        blind[[1, 4]] = True
        att_mask = ~blind[:, None].expand(6, 6)
        if kind == "float":
            att_mask = torch.zeros(6, 6, dtype=torch.float64).masked_fill(~att_mask, -torch.inf)
    q[:, :, blind] = torch.nan  # not even this matters
    leaves = [q.requires_grad_(), given.k.requires_grad_(), given.v.requires_grad_()]
    if kind == "float":
        leaves.append(att_mask.requires_grad_())
    got = attend(case, given._replace(q=q, padding=padding, att_mask=att_mask), rows=4, weights="heads")
    assert (got.out[:, :, blind] == 0).all() and (got.weights[:, :, blind] == 0).all()
    assert (got.lse[:, :, blind] == -torch.inf).all() and got.lse[:, :, ~blind].isfinite().all()
    grads = gradients(got, leaves)
    assert all(x.isfinite().all() for x in grads)
    assert (grads[0][:, :, blind] == 0).all() and (grads[0][:, :, ~blind] != 0).any()
    alone = torch.autograd.grad(attend(case, given._replace(padding=padding)).lse.sum(), given.k)[0]
    assert alone.isfinite().all()


def test_large_scores_and_biases_give_no_nan():
    case = Case(mask="float")
    given = made(case)
    leaves = [x.float() * 1e4 for x in given[:2]] + [given.v.float()]
    leaves = [x.requires_grad_() for x in leaves]
    lowest = torch.finfo(torch.float32).min
    bias = torch.where(given.att_mask == -torch.inf, lowest, given.att_mask.float())
    got = attend(case, given._replace(q=leaves[0], k=leaves[1], v=leaves[2], att_mask=bias), weights="mean")
    assert got.out.isfinite().all() and got.weights.isfinite().all()
    assert all(x.isfinite().all() for x in torch.autograd.grad(got.out.sum(), leaves))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_types_are_computed_in_float32(dtype):
    case = Case(q_len=40, k_len=40, q_position=0, window=9, padded=0.2, mask="float")
    given = made(case)
    narrow = given._replace(**{name: getattr(given, name).to(dtype) for name in ("q", "k", "v", "att_mask")})
    wide = given._replace(
        **{name: getattr(narrow, name).double() for name in ("q", "k", "v", "att_mask")}
    )  # fmt: skip
    got, expected = (attend(case, x, rows=16, weights="mean") for x in (narrow, wide))
    assert (got.out.dtype, got.lse.dtype, got.weights.dtype) == (dtype, torch.float32, dtype)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(got.out.double(), expected.out, atol=4 * eps, rtol=eps)
    torch.testing.assert_close(got.lse.double(), expected.lse, atol=1e-5, rtol=0)
