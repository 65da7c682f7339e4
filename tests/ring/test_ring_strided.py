"""Overlapping blocks: exact whatever their length, and in memory that does not know S x S."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.bench.memory import torch_peak
from attnlab.ring import reference
from attnlab.ring.strided import sliding_window_attention


def random_qkv(tokens: int, *, q_heads: int = 4, kv_heads: int = 2, head_dim: int = 5, batch: int = 2):
    rng = torch.Generator().manual_seed(0)
    heads = (q_heads, kv_heads, kv_heads)
    shapes = [(batch, h, tokens, head_dim) for h in heads]
    return [torch.randn(shape, generator=rng, dtype=torch.float64).requires_grad_() for shape in shapes]


@settings(max_examples=30)
@given(st.integers(0, 80), st.integers(1, 90), st.integers(1, 40), st.booleans())
def test_the_block_length_does_not_matter(tokens, window, block, causal):
    leaves = random_qkv(tokens)
    rng = torch.Generator().manual_seed(1)
    results = []
    for function, options in (
        (sliding_window_attention, {"block_size": block}),
        (reference.sliding_window_attention, {}),
    ):
        out, lse = function(*leaves, window=window, causal=causal, return_lse=True, **options)
        grads = torch.randn(out.shape, generator=rng.manual_seed(1), dtype=out.dtype), torch.ones_like(lse)
        results.append((out, lse, *torch.autograd.grad((out, lse), leaves, grads)))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("window", "block"), [(1, 2), (3, 2), (4, 5), (20, 3)])
def test_gradcheck(window, block, causal):
    leaves = random_qkv(13, head_dim=3, batch=1)

    def attend(q, k, v):
        return sliding_window_attention(
            q, k, v, window=window, causal=causal, block_size=block, return_lse=True
        )

    assert torch.autograd.gradcheck(attend, leaves, fast_mode=True)


def test_the_gradient_of_the_log_sum_exp_alone():
    leaves = random_qkv(40)
    _, lse = sliding_window_attention(*leaves, window=7, block_size=6, return_lse=True)
    _, expected = reference.sliding_window_attention(*leaves, window=7, return_lse=True)
    got = torch.autograd.grad(lse.square().sum(), leaves)
    wanted = torch.autograd.grad(expected.square().sum(), leaves, allow_unused=True)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b, atol=1e-11, rtol=0)


@pytest.mark.parametrize(
    ("causal", "with_lse", "block"), [(True, False, None), (False, True, None), (True, True, 32)]
)
def test_memory_of_forward_and_backward_knows_no_table_of_scores(causal, with_lse, block):
    tokens, window, heads, head_dim = 4096, 256, 2, 32
    unit = heads * tokens * head_dim * 4  # one of q, k, v, out in float32

    def step(q, k, v, dout):
        options = dict(window=window, causal=causal, block_size=block, return_lse=True)
        out, lse = sliding_window_attention(q, k, v, **options)
        loss = (out * dout).sum() + (lse.sum() if with_lse else 0)
        return torch.autograd.grad(loss, (q, k, v))

    q, k, v, dout = (torch.randn(1, heads, tokens, head_dim, requires_grad=i < 3) for i in range(4))
    peak = torch_peak(step, q, k, v, dout).peak_bytes
    # dQ, dK, dV, the output, its product with dout and its gradient. A gradient of the log-sum-exp makes
    # padded copies of five.
    units = 6 + (5 if with_lse else 0)
    # One group of blocks: dK and dV, and less than that for dQ. Then log-sum-exps, the padding column, and
    # one table of T x (W + T).
    small = 2 * 4 * 2**20 + heads * tokens * 4 * 8 + 2**20
    assert peak <= units * unit + small
    assert peak < tokens * tokens * 4 / 2  # half of one head's scores


def test_the_workspace_of_the_backward_pass_does_not_grow_with_the_sequence():
    def workspace(tokens):
        q, k, v, dout = (torch.randn(1, 2, tokens, 64, requires_grad=i < 3) for i in range(4))
        out = sliding_window_attention(q, k, v, window=256)
        peak = torch_peak(torch.autograd.grad, out, (q, k, v), dout).peak_bytes
        return peak - 3 * q.nbytes  # beside dQ, dK and dV

    assert workspace(16384) == workspace(8192)


def test_the_forward_pass_alone_copies_no_keys():
    q, k, v = (x.detach() for x in random_qkv(2048, q_heads=4, kv_heads=4, head_dim=16, batch=1))
    peak = torch_peak(sliding_window_attention, q, k, v, window=128).peak_bytes
    out_and_group = 2 * q.nbytes + 3 * q.nbytes // 16  # the result, one group's result, their log-sum-exps
    assert peak <= out_and_group + 2**19  # and the table of T x (W - 1 + T)


@pytest.mark.unchecked
def test_bad_block_sizes_are_named():
    with pytest.raises(ValueError, match="block_size must be between 1"):
        sliding_window_attention(*random_qkv(4), window=2, block_size=0)
