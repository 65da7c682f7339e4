"""Cutting the graph between segments: what stays exact, and which keys lose gradient from which queries."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.ring import reference
from attnlab.ring.truncation import truncated_attention, truncation_loss_map


def random_sequence(tokens: int, heads=(2, 1), head_dim=3) -> list[torch.Tensor]:
    """q, k, v and dout."""
    rng = torch.Generator().manual_seed(0)
    q_heads, kv_heads = heads
    return [
        torch.randn((1, n, tokens, head_dim), generator=rng, dtype=torch.float64)
        for n in (q_heads, kv_heads, kv_heads, q_heads)
    ]


@settings(max_examples=25)
@given(st.integers(0, 30), st.integers(1, 20), st.integers(1, 35), st.sampled_from([(1, 1), (4, 2)]))
def test_outputs_and_dq_are_exact_and_only_the_last_rows_of_a_segment_lose(tokens, window, size, heads):
    *inputs, dout = random_sequence(tokens, heads)
    leaves = [x.requires_grad_() for x in inputs]
    out = truncated_attention(*leaves, window=window, segment_size=size)
    expected = reference.sliding_window_attention(*leaves, window=window)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
    if tokens == 0:
        return
    dq, dk, dv = torch.autograd.grad(out, leaves, dout)
    whole_dq, *whole = torch.autograd.grad(expected, leaves, dout)
    torch.testing.assert_close(dq, whole_dq, atol=1e-12, rtol=0)
    position = torch.arange(tokens)
    stop = (position // size + 1) * size
    # A later segment has queries that see the key, if there is a later segment at all.
    loses = (position + window > stop) & (stop < tokens)
    assert not loses[stop - position > window - 1].any()
    for a, b in zip((dk, dv), whole, strict=True):
        differs = (a - b).abs().amax(dim=(0, 1, 3)) > 1e-12
        assert torch.equal(differs, loses)


@pytest.mark.parametrize(("tokens", "window", "size"), [(24, 5, 8), (20, 9, 4), (13, 1, 4), (10, 6, 20)])
def test_the_map_of_pairs(tokens, window, size):
    loss = truncation_loss_map(*random_sequence(tokens), window=window, segment_size=size)
    p, k = torch.arange(tokens)[:, None], torch.arange(tokens)
    visible = (k <= p) & (k > p - window)
    assert torch.equal(loss.pair > 0, visible)
    assert torch.equal(loss.lost, visible & (p // size > k // size))
    # Of a pair all is lost or nothing.
    torch.testing.assert_close(loss.pair_lost, loss.pair * loss.lost, atol=1e-12, rtol=0)
    keys = int(loss.lost.any(dim=0).sum())
    assert loss.sentence == (
        f"Cut into segments of {size}, {int(loss.lost.sum())} of {int(visible.sum())} visible pairs lose "
        f"their gradient, and {keys} of {tokens} keys lose some."
    )


def test_the_losses_by_position_are_those_of_one_backward_pass():
    q, k, v, dout = random_sequence(24, (4, 2))
    loss = truncation_loss_map(q, k, v, dout, window=7, segment_size=8)
    assert loss.dq[0] == 0
    leaves = [x.requires_grad_() for x in (q, k, v)]
    whole = torch.autograd.grad(reference.sliding_window_attention(*leaves, window=7), leaves, dout)
    cut = torch.autograd.grad(truncated_attention(*leaves, window=7, segment_size=8), leaves, dout)
    for got, exact, truncated in zip((loss.dq, loss.dk, loss.dv), whole, cut, strict=True):
        error, size = ((x * x).sum(dim=(0, 1, 3)).sqrt() for x in (exact - truncated, exact))
        assert (size[1:] > 1e-3).all()  # the first query sees one key, and its dQ is 0
        torch.testing.assert_close(got[1:], (error / size)[1:], atol=1e-12, rtol=0)
    assert loss.dq.max() < 1e-12
    assert loss.dk[:2].max() < 1e-12 < 1e-2 < loss.dk[2:8].min()
    assert loss.dv[16:].max() < 1e-12  # nothing comes after the last segment


def test_works_where_gradients_are_off():
    with torch.no_grad():
        loss = truncation_loss_map(*random_sequence(9), window=3, segment_size=4)
    assert loss.lost.any() and not loss.dk.requires_grad


def test_an_empty_sequence_loses_nothing():
    loss = truncation_loss_map(*random_sequence(0), window=3, segment_size=4)
    assert loss.sentence.startswith("Cut into segments of 4, 0 of 0")


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (dict(window=0), ValueError, "window must be at least 1"),
        (dict(segment_size=0), ValueError, "segment_size must be at least 1"),
        (dict(k=torch.zeros(1, 1, 8, 3).double()), ValueError, "k must have shape"),
        (
            dict(k=torch.zeros(1, 3, 9, 3).double(), v=torch.zeros(1, 3, 9, 3).double()),
            ValueError,
            "k must have heads",
        ),
        (dict(v=torch.zeros(1, 1, 9, 3)), TypeError, "v must have dtype"),
        (dict(dout=torch.zeros(1, 1, 9, 3).double()), ValueError, "dout must have shape"),
        (dict(q=None), TypeError, "q must be a torch Tensor"),
    ],
)
def test_bad_input_is_named(change, error, words):
    options = dict(zip(("q", "k", "v", "dout"), random_sequence(9), strict=True))
    with pytest.raises(error, match=words):
        truncation_loss_map(**(options | dict(window=3, segment_size=4) | change))
