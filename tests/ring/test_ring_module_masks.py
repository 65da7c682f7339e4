"""Masks, padding, dropout and weights through the module, in one shot, in chunks, and while decoding."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ring_calls import close, cut, dense, inputs, model

from attnlab.bench.memory import torch_peak
from attnlab.ring.dropout import keep_mask


def draw_mask(shape, kind, seed=0):
    rng = torch.Generator().manual_seed(seed)
    noise = torch.randn(shape, generator=rng, dtype=torch.float64)
    return noise > -0.5 if kind == "bool" else noise.masked_fill(noise > 1, -torch.inf)


@pytest.mark.parametrize(("kind", "grad"), list(product(["bool", "float"], [False, True])))
@pytest.mark.parametrize("shape", [(19, 19), (1, 19), (19, 1), (2, 1, 19, 19), (1, 4, 19, 19), (2, 4, 1, 19)])
def test_a_mask_over_a_whole_sequence_equals_sdpa(shape, kind, grad):
    q, k, v = inputs(19)
    ring = model(buffer_size=40)
    mask = draw_mask(shape, kind)
    out, _ = ring(q, k, v, requires_grad=grad, att_mask=mask)
    causal = torch.ones(19, 19, dtype=torch.bool).tril()
    both = mask & causal if kind == "bool" else mask.masked_fill(~causal, -torch.inf)
    k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=both.expand(2, 4, 19, 19))
    close(out, want.nan_to_num(0.0))


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=9),
    kind=st.sampled_from(["bool", "float"]),
    grad=st.booleans(),
    per_head=st.booleans(),
)
def test_the_key_axis_is_the_visible_keys_oldest_first_however_often_the_ring_has_wrapped(
    lengths, kind, grad, per_head
):
    """One mask over all positions; each call gets the columns from max(0, n - L - W + 1) to n - 1."""
    lengths = [7, 9, 8, 1, *lengths]
    q, k, v = inputs(sum(lengths))
    ring = model()
    mask = draw_mask((2, 4 if per_head else 1, len(q[0, 0]), len(q[0, 0])), kind)
    want, weights = dense(q, k, v, mask=mask)
    state = ring.new_state(2, dtype=torch.float64)
    for rows in cut(lengths):
        first = max(0, rows.stop - (rows.stop - rows.start) - 6 + 1)
        out, shown = ring(
            q=q[:, :, rows], k=k[:, :, rows], v=v[:, :, rows], is_decoder=True, buffer_state=state,
            requires_grad=grad, att_mask=mask[:, :, rows, first : rows.stop], output_attentions=True,
        )  # fmt: skip
        close(out, want[:, :, rows])
        close(shown, weights[:, :, rows, first : rows.stop])


def test_the_two_masks_have_opposite_polarity():
    q, k, v = inputs(5, batch=1)
    hidden = torch.tensor([[False, True, False, False, True]])
    ring = model()
    padded, _ = ring(q, k, v, key_padding_mask=hidden)
    allowed, _ = ring(q, k, v, att_mask=~hidden)
    close(padded, allowed)
    close(padded, dense(q, k, v, padding=hidden)[0])


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("lengths", [[23], [9, 1, 13], [1] * 23])
def test_a_padded_batch_equals_its_rows_without_padding(lengths, grad):
    """Left padding: a short sequence ends with the others, and its real tokens see only one another."""
    total, ring = 23, model()
    q, k, v = inputs(total, batch=3)
    short = [0, 5, 17]  # padded tokens at the front
    bits = torch.arange(total) < torch.tensor(short)[:, None]
    k, v = (x.masked_fill(bits[:, None, :, None], torch.nan) for x in (k, v))
    state = ring.new_state(3, dtype=torch.float64)
    parts = [
        ring(
            q[:, :, t], k[:, :, t], v[:, :, t], requires_grad=grad, key_padding_mask=bits[:, t],
            is_decoder=True, buffer_state=state,
        )
        for t in cut(lengths)
    ]  # fmt: skip
    out = torch.cat(parts, dim=2)
    for b, first in enumerate(short):
        alone, _ = ring(*(x[b : b + 1, :, first:] for x in (q, k, v)))
        close(out[b : b + 1, :, first:], alone)
        assert not out[b, :, :first].any()  # a query that sees only padding gives 0


def test_padding_is_remembered_until_it_has_left_the_window():
    q, k, v = inputs(30)
    bits = torch.zeros(2, 30, dtype=torch.bool)
    bits[0, 3:9] = bits[1, 7] = True
    want, _ = dense(q, k, v, padding=bits)
    ring = model()
    first, *rest = cut([9] + [1] * 21)
    _, state = ring(q[:, :, first], k[:, :, first], v[:, :, first], key_padding_mask=bits[:, first])
    for grad in (False, True):
        branch = state.clone()
        for t in rest:
            got = ring(q[:, :, t], k[:, :, t], v[:, :, t], grad, is_decoder=True, buffer_state=branch)
            close(got, want[:, :, t])


@pytest.mark.parametrize("grad", [False, True])
def test_weights_are_returned_on_request_and_belong_to_the_output(grad):
    q, k, v = inputs(17)
    want, weights = dense(q, k, v)
    ring = model()
    out, state, mean = ring(q, k, v, requires_grad=grad, needs_weights=True)
    close(out, want)
    close(mean, weights.mean(dim=1))
    for needs in (False, True):  # per head wins
        _, _, heads = ring(q, k, v, requires_grad=grad, needs_weights=needs, output_attentions=True)
        close(heads, weights)
    token = inputs(1, seed=3)
    q, k, v = (torch.cat(pair, dim=2) for pair in zip((q, k, v), token, strict=True))
    out, mean = ring(*token, requires_grad=grad, is_decoder=True, needs_weights=True, buffer_state=state)
    want, weights = dense(q, k, v)
    close(out, want[:, :, 17:])
    assert mean.shape == (2, 1, 6)
    close(mean, weights.mean(dim=1)[:, 17:, 12:])


@pytest.mark.parametrize(("grad", "causal"), list(product([False, True], [False, True])))
def test_without_weights_nothing_as_large_as_their_table_is_allocated(grad, causal):
    length = 1024
    q, k, v = inputs(length, batch=1, heads=1, kv_heads=1, dim=4, dtype=torch.float32)
    ring = model(
        num_heads=1, num_kv_heads=1, head_dim=4, buffer_size=16 if causal else length, prefill_size=32,
        block_size=32, causal=causal, window=None if causal else 16,
    )  # fmt: skip
    table = 4 * length * length
    padding = torch.zeros(1, length, dtype=torch.bool)
    for extra in ({}, {"key_padding_mask": padding}):
        assert torch_peak(ring, q, k, v, requires_grad=grad, **extra).peak_bytes < table / 4
    assert torch_peak(ring, q, k, v, requires_grad=grad, needs_weights=True).peak_bytes > table


def dropped(q, k, v, seed, p=0.4):
    """Dense attention whose normalised weights are dropped by the same counters."""
    n = q.shape[2]
    _, weights = dense(q, k, v)
    keep = keep_mask(seed, range(len(q)), range(q.shape[1]), range(n), range(n), p)
    return (weights * keep / (1 - p)) @ v.double().repeat_interleave(q.shape[1] // v.shape[1], dim=1)


@settings(max_examples=15)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=8), grad=st.booleans())
def test_dropout_is_the_same_under_any_chunking(lengths, grad):
    q, k, v = inputs(sum(lengths))
    ring = model(dropout=0.4)
    state = ring.new_state(2, dtype=torch.float64)
    want = dropped(q, k, v, state.seed)
    parts = [
        ring(q[:, :, t], k[:, :, t], v[:, :, t], grad, is_decoder=True, buffer_state=state)
        for t in cut(lengths)
    ]
    close(torch.cat(parts, dim=2), want)


def test_dropout_acts_in_training_mode_alone():
    q, k, v = inputs(12)
    ring = model(dropout=0.4)
    assert ring.training
    assert not torch.allclose(ring(q, k, v)[0], dense(q, k, v)[0])
    ring.eval()
    close(ring(q, k, v)[0], dense(q, k, v)[0])


def test_the_seed_comes_from_torchs_generator_once_per_sequence_and_only_if_it_is_needed():
    q, k, v = inputs(12)
    ring = model(dropout=0.4)
    torch.manual_seed(5)
    a, first = ring(q, k, v)
    b, second = ring(q, k, v)
    assert first.seed != second.seed and not torch.equal(a, b)
    torch.manual_seed(5)
    again, third = ring(q, k, v)
    assert third.seed == first.seed and torch.equal(a, again)
    before = torch.get_rng_state()
    ring(q, k, v, is_decoder=True)
    _, state = model()(q, k, v)
    assert state.seed == 0 and torch.equal(before, torch.get_rng_state())
