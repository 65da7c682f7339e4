"""The general path equals dense float64 attention whatever window, padding, mask, bias and dropout say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ring_masked_cases import Case, attend, cases, dense, gradients, made

from attnlab.attention import dense_attention
from attnlab.ring import reference


@settings(max_examples=80)
@given(cases, st.integers(1, 50), st.integers(1, 4) | st.none())
@example(Case(q_len=0), 4, None)
@example(Case(k_len=0), 4, 1)
@example(Case(k_len=0, padded=0.3, mask="heads", dropout=0.4), 4, 1)
@example(Case(q_len=1, k_len=1, q_position=0, mask="float"), 1, 1)
@example(Case(q_position=40), 4, None)  # every key is too old
@example(Case(k_position=40), 4, None)  # every key is yet to come
@example(Case(padded=1.0), 4, None)
@example(Case(group=3, window=None, causal=False, mask="heads", dropout=0.4), 5, 2)
@example(Case(group=3, q_len=40, k_len=40, q_position=0, window=1), 7, 2)
def test_it_equals_dense_attention_forward_and_backward(case, rows, head_tile_size):
    given = made(case)
    leaves = [x.requires_grad_() for x in (given.q, given.k, given.v)]
    expected = dense(case, given)
    got = attend(case, given, rows=rows, head_tile_size=head_tile_size, weights="heads")
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)
    for a, b in zip(gradients(got, leaves), gradients(expected, leaves), strict=True):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=0)


@pytest.mark.parametrize("causal", [True, False])
def test_it_equals_the_reference_and_the_numpy_definition(causal):
    case = Case(q_len=17, q_position=0, causal=causal)
    given = made(case)
    got = attend(case, given, rows=4)
    out, lse = reference.sliding_window_attention(*given[:3], window=5, causal=causal, return_lse=True)
    torch.testing.assert_close(got.out, out, atol=1e-12, rtol=0)
    torch.testing.assert_close(got.lse, lse, atol=1e-12, rtol=0)
    repeated = (x.repeat_interleave(2, dim=1).numpy() for x in (given.k, given.v))
    exact, sums = dense_attention(given.q.numpy(), *repeated, given.seen.numpy())
    np.testing.assert_allclose(got.out.numpy(), exact, atol=1e-12)
    np.testing.assert_allclose(got.lse.numpy(), sums, atol=1e-12)


@pytest.mark.parametrize("options", [dict(mask="float"), dict(padded=0.3, dropout=0.4)])
def test_gradients_are_right_to_second_order(options):
    case = Case(1, 1, 2, 4, 5, 2, 3, True, 1, 0, **options)
    given = made(case)
    leaves = [x.requires_grad_() for x in given[:3]]
    if given.att_mask is not None:
        finite = given.att_mask.isfinite()
        bias = given.att_mask.masked_fill(~finite, 0).requires_grad_()
        leaves.append(bias)

    def function(q, k, v, *bias):
        mask = bias[0].masked_fill(~finite, -torch.inf) if bias else None
        got = attend(case, given._replace(q=q, k=k, v=v, att_mask=mask), rows=3, weights="mean")
        return got.out, torch.where(got.lse.isfinite(), got.lse, 0), got.weights

    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)


def test_shown_weights_are_exp_of_score_minus_lse():
    case = Case(mask="float", padded=0.3)
    given = made(case)
    got = attend(case, given, rows=4, weights="heads")
    scores = given.q @ given.k.repeat_interleave(2, dim=1).mT * case.head_dim**-0.5 + given.bias
    expected = torch.where(given.seen, (scores - got.lse.unsqueeze(-1)).exp(), 0)
    torch.testing.assert_close(got.weights, expected, atol=1e-12, rtol=0)
    mean = attend(case, given, rows=4, weights="mean", head_tile_size=1).weights
    torch.testing.assert_close(mean, expected.mean(dim=1), atol=1e-12, rtol=0)
    assert attend(case, given).weights is None


def test_weights_are_shown_after_dropout_as_multihead_attention_shows_them():
    theirs = torch.nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
    x = torch.randn(1, 30, 8)
    assert (theirs(x, x, x)[1] == 0).any()  # in training mode
    case = Case(dropout=0.5)
    given = made(case)
    got = attend(case, given, weights="heads")
    torch.testing.assert_close(got.weights @ given.v.repeat_interleave(2, dim=1), got.out, atol=1e-12, rtol=0)
    torch.testing.assert_close(got.lse, attend(case._replace(dropout=0.0), given).lse)


def test_positions_may_be_far_beyond_32_bits():
    near, far = Case(dropout=0.3), Case(dropout=0.3, q_position=2**40 + 4, k_position=2**40)
    given = made(near)
    plain = [attend(case._replace(dropout=0.0), given).out for case in (near, far)]
    assert torch.equal(*plain)
    got, expected = attend(far, given, rows=4, weights="heads"), dense(far, given)
    torch.testing.assert_close(got.out, expected[0], atol=1e-12, rtol=0)
    assert not torch.equal(got.out, attend(near, given).out)


def test_a_sequence_may_be_handed_in_piece_by_piece():
    """Chunks of queries, each with just the keys a ring would hold, equal the whole; so does dropout."""
    case = Case(q_len=30, k_len=30, q_position=0, window=6, dropout=0.3)
    given = made(case)
    whole = attend(case, given)
    for start, stop in ((0, 7), (7, 8), (8, 21), (21, 30)):
        oldest = max(0, start - 5)
        part = given._replace(
            q=given.q[:, :, start:stop], k=given.k[:, :, oldest:stop], v=given.v[:, :, oldest:stop]
        )
        got = attend(case._replace(q_position=start, k_position=oldest), part)
        torch.testing.assert_close(got.out, whole.out[:, :, start:stop], atol=1e-12, rtol=0)
