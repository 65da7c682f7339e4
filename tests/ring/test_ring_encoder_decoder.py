"""Encoder and decoder: memory written once, cross-attention over all of it, a decoder that is fed back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ring_calls import close, cut, dense, inputs, model, snapshot, unchanged

from attnlab.bench.memory import torch_peak
from attnlab.ring.dropout import keep_mask
from attnlab.ring.feedback import FeedbackBuffer, right_shift


def encoder(**changes):
    return model(**{"causal": False, "buffer_size": 20, **changes})


@settings(max_examples=25)
@given(length=st.integers(1, 24), window=st.integers(1, 30), grad=st.booleans(), padded=st.booleans())
def test_an_encoder_sees_both_sides_of_its_window(length, window, grad, padded):
    q, k, v = inputs(length)
    bits = torch.from_numpy(np.random.default_rng(length).random((2, length)) < 0.3) if padded else None
    ring = encoder(buffer_size=24, window=window)
    out, state = ring(q, k, v, grad, key_padding_mask=bits)
    close(out, dense(q, k, v, window=window, causal=False, padding=bits)[0])
    assert state.position == length


def test_the_default_window_of_an_encoder_is_the_buffer_size():
    q, k, v = inputs(24)
    ring = encoder()
    assert ring.config.capacity == 26
    close(ring(q, k, v)[0], dense(q, k, v, window=20, causal=False)[0])


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("grad", [False, True])
def test_an_encoder_takes_masks_and_gives_weights(kind, grad):
    q, k, v = inputs(15)
    noise = torch.randn(15, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mask = noise > 0 if kind == "bool" else noise
    ring = encoder(buffer_size=30, window=4)
    out, _, weights = ring(q, k, v, grad, att_mask=mask, output_attentions=True)
    want, table = dense(q, k, v, window=4, causal=False, mask=mask)
    close(out, want)
    close(weights, table)


def test_an_encoder_is_written_once_and_no_further_than_its_slots():
    ring = encoder()
    capacity = ring.config.capacity
    q, k, v = inputs(capacity + 1)
    with pytest.raises(
        ValueError, match=f"^k must have at most as many tokens .*{capacity}; got {capacity + 1}"
    ):
        ring(q, k, v)
    assert ring.buffer_state is None
    _, state = ring(*inputs(capacity))
    before = snapshot(state)
    for position in (None, 0):
        with pytest.raises(ValueError, match="^buffer_state must be empty for an encoder"):
            ring(*inputs(1), position=position, buffer_state=state)
    with pytest.raises(ValueError, match="^k and v must be None when is_decoder=True and .*causal=False"):
        ring(*inputs(1), is_decoder=True, buffer_state=state)
    unchanged(state, before)


def attend_as_torch_does(q, k, v, padding=None, mask=None):
    """nn.MultiheadAttention with identity projections: output [B, L, E] and weights per head."""
    heads, dim = q.shape[1], q.shape[3]
    module = torch.nn.MultiheadAttention(heads * dim, heads, bias=False, batch_first=True, dtype=q.dtype)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(heads * dim).repeat(3, 1))
        module.out_proj.weight.copy_(torch.eye(heads * dim))
    rows = (x.transpose(1, 2).flatten(2) for x in (q, k, v))
    out, weights = module(*rows, key_padding_mask=padding, attn_mask=mask, average_attn_weights=False)
    return out.unflatten(2, (heads, dim)).transpose(1, 2), weights


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("extra", [None, "padding", "mask", "weights"])
def test_cross_attention_equals_multihead_attention_with_identity_projections(extra, grad):
    eq, ek, ev = inputs(18, kv_heads=4)
    dq, *_ = inputs(7, seed=2)
    ring = encoder(num_kv_heads=4)
    stored = torch.zeros(2, 18, dtype=torch.bool)
    stored[1, 15:] = True
    _, memory = ring(eq, ek, ev, grad, key_padding_mask=stored if extra == "padding" else None)
    before = snapshot(memory)
    options, padding, refused = {}, None, None
    if extra == "padding":  # this call's bits add to those that are stored
        options["key_padding_mask"] = torch.zeros(2, 18, dtype=torch.bool)
        options["key_padding_mask"][0, 2:5] = True
        padding = stored | options["key_padding_mask"]
    elif extra == "mask":
        refused = torch.rand(7, 18, generator=torch.Generator().manual_seed(0)) < 0.4
        options["att_mask"] = ~refused  # True = attend; in nn.MultiheadAttention True = leave out
    elif extra == "weights":
        options["output_attentions"] = True
    got = ring(q=dq, k=None, v=None, is_decoder=True, buffer_state=memory, requires_grad=grad, **options)
    want, weights = attend_as_torch_does(dq, ek, ev, padding, refused)
    if extra == "weights":
        got, shown = got
        close(shown, weights)
        mean = ring(q=dq, is_decoder=True, buffer_state=memory, needs_weights=True)[1]
        close(mean, weights.mean(dim=1))
    close(got, want)
    unchanged(memory, before)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_queries_that_share_a_key_head_read_it_from_another_models_memory(kv_heads):
    eq, ek, ev = inputs(18, kv_heads=kv_heads)
    dq, *_ = inputs(5, seed=2)
    _, memory = encoder(num_kv_heads=kv_heads)(eq, ek, ev)
    decoder = model(num_kv_heads=4)  # causal, with other key heads: only its queries matter here
    want, _ = dense(dq, ek, ev, window=None, causal=False)
    close(decoder(q=dq, is_decoder=True, buffer_state=memory), want)
    assert decoder.buffer_state is None  # the decoder's own sequence is another one
    unseen = torch.ones(2, 18, dtype=torch.bool)
    out = decoder(q=dq, is_decoder=True, buffer_state=memory, key_padding_mask=unseen)
    assert not out.any()


def test_without_a_state_an_encoder_reads_its_own_last_one():
    eq, ek, ev = inputs(18)
    ring = encoder()
    ring(eq, ek, ev)
    close(ring(q=eq, is_decoder=True), dense(eq, ek, ev, window=None, causal=False)[0])


def test_gradients_reach_the_encoder_through_its_state():
    eq, ek, ev = (x.requires_grad_() for x in inputs(18))
    dq = inputs(7, seed=2)[0].requires_grad_()
    bits = torch.zeros(2, 18, dtype=torch.bool)
    ring = encoder()
    _, memory = ring(eq, ek, ev, requires_grad=True)
    wanted = dense(dq, ek, ev, window=None, causal=False)[0]
    want = torch.autograd.grad(wanted.square().sum(), [dq, ek, ev], retain_graph=True)
    for options in ({}, {"key_padding_mask": bits}, {"needs_weights": True}):
        out = ring(q=dq, is_decoder=True, buffer_state=memory, **options)
        out = out if isinstance(out, torch.Tensor) else out[0]
        got = torch.autograd.grad(out.square().sum(), [dq, ek, ev], retain_graph=True)
        for a, b in zip(got, want, strict=True):
            close(a, b, 1e-11)
    out = ring(q=dq, is_decoder=True, buffer_state=memory, requires_grad=False)
    assert not out.requires_grad
    out = ring(q=dq, is_decoder=True, buffer_state=memory.detach(), requires_grad=True)
    (got,) = torch.autograd.grad(out.square().sum(), [dq])
    close(got, want[0], 1e-11)


def test_dropout_of_cross_attention_goes_by_position():
    eq, ek, ev = inputs(18)
    dq, *_ = inputs(9, seed=2)
    ring = encoder(dropout=0.4)
    _, memory = ring(eq, ek, ev)
    at_once = ring(q=dq, is_decoder=True, buffer_state=memory)
    steps = [
        ring(q=dq[:, :, t], is_decoder=True, position=t.start, buffer_state=memory) for t in cut([1] * 9)
    ]
    close(torch.cat(steps, dim=2), at_once)
    _, weights = dense(dq, ek, ev, window=None, causal=False)
    own = keep_mask(memory.seed, range(2), range(4), range(9), range(18), 0.4)
    values = ev.repeat_interleave(2, dim=1)
    assert not torch.allclose(
        at_once, (weights * own / 0.6) @ values
    )  # not the pattern of the encoder itself


def test_cross_attention_reads_no_slot_beyond_the_sequence():
    eq, ek, ev = inputs(18)
    ring = encoder()
    _, memory = ring(eq, ek, ev)
    memory.cache.k[:, :, 18:] = memory.cache.v[:, :, 18:] = torch.nan
    for options in ({}, {"att_mask": torch.ones(18, 18, dtype=torch.bool)}):
        out = ring(q=eq, is_decoder=True, buffer_state=memory, **options)
        close(out, dense(eq, ek, ev, window=None, causal=False)[0])


def test_without_weights_cross_attention_allocates_no_table():
    length = 1024
    q, k, v = inputs(length, batch=1, heads=1, kv_heads=1, dim=4, dtype=torch.float32)
    ring = encoder(num_heads=1, num_kv_heads=1, head_dim=4, buffer_size=length, window=8, block_size=32)
    _, memory = ring(q, k, v)
    for options in ({}, {"key_padding_mask": torch.zeros(1, length, dtype=torch.bool)}):
        peak = torch_peak(ring, q=q, is_decoder=True, buffer_state=memory, requires_grad=False, **options)
        assert peak.peak_bytes < length * length * 4 / 4


class Decoder(torch.nn.Module):
    """One decoder layer: self-attention over its own ring, then cross-attention over the encoder's."""

    def __init__(self):
        super().__init__()
        rng = torch.Generator().manual_seed(3)
        self.own, self.cross = model(num_kv_heads=4), encoder(num_kv_heads=4)
        self.maps = torch.randn(5, 20, 20, generator=rng, dtype=torch.float64) / 20**0.5

    def heads(self, x, i):
        return (x @ self.maps[i]).unflatten(2, (4, 5)).transpose(1, 2)

    def forward(self, x, memory, state, padding=None):
        q, k, v = (self.heads(x, i) for i in range(3))
        own = self.own(q=q, k=k, v=v, is_decoder=True, key_padding_mask=padding, buffer_state=state)
        x = x + own.transpose(1, 2).flatten(2)
        far = self.cross(q=self.heads(x, 3), k=None, v=None, is_decoder=True, buffer_state=memory)
        return torch.tanh((x + far.transpose(1, 2).flatten(2)) @ self.maps[4])


@pytest.mark.parametrize("steps", [5, 60])
def test_step_by_step_equals_teacher_forcing(steps):
    """Free-running from the feedback buffer, then the same tokens at once, shifted by a pointer."""
    decoder = Decoder()
    _, memory = decoder.cross(*inputs(18, kv_heads=4))
    before = snapshot(memory)
    state = decoder.own.new_state(2, dtype=torch.float64)
    start = torch.randn(2, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    fed_back = FeedbackBuffer(2, steps, 20, start=start, dtype=torch.float64)
    for t in range(steps):
        (x,) = fed_back.inputs(t, t + 1)
        fed_back.append(decoder(x, memory, state))
    rows = torch.cat([start[:, None], *fed_back.outputs(0, steps)], dim=1)
    taught, outputs = right_shift(rows)
    assert taught.untyped_storage().data_ptr() == outputs.untyped_storage().data_ptr()
    fresh = decoder.own.new_state(2, dtype=torch.float64)
    close(decoder(taught, memory, fresh), outputs)
    unchanged(memory, before)  # the decoder's own keys and values stay apart from the encoder's
    assert state.position == steps


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (dict(q=None), TypeError, "^q must be a torch Tensor"),
        (dict(q=inputs(3, batch=1)[0]), ValueError, r"^q must have shape \[2, any, any, any\]"),
        (dict(q=inputs(3)[0].float()), TypeError, "^q must have dtype torch.float64"),
        (dict(q=inputs(3, heads=2)[0]), ValueError, r"^q must have shape \[any, 4, any, 5\]"),
        (dict(v=inputs(3)[2]), ValueError, "^k must be given"),
        (dict(is_decoder=False), ValueError, "^k must be given"),
        (dict(position=-1), ValueError, "^position must be at least 0"),
        (dict(position="0"), TypeError, "^position must be an int"),
        (dict(att_mask=torch.ones(3, 3)), ValueError, "^att_mask"),
        (dict(att_mask=3), TypeError, "^att_mask must be a torch Tensor"),
        (
            dict(key_padding_mask=torch.zeros(2, 3, dtype=torch.bool)),
            ValueError,
            r"^key_padding_mask .*\[2, 18\]",
        ),
        (dict(key_padding_mask=torch.zeros(2, 18)), TypeError, "^key_padding_mask must have dtype"),
        (dict(buffer_state=None), ValueError, "^buffer_state must be given when k and v are None"),
        (dict(buffer_state=model().new_state(2)), ValueError, "^buffer_state must come from .*causal=False"),
        (
            dict(buffer_state=encoder().new_state(2)),
            ValueError,
            "^buffer_state must hold an encoded sequence",
        ),
        (
            dict(buffer_state=encoder(head_dim=6).new_state(2)),
            ValueError,
            "^buffer_state must have head_dim 5",
        ),
        (
            dict(buffer_state=encoder(num_heads=6, num_kv_heads=3).new_state(2)),
            ValueError,
            "^buffer_state must have .*divide 4; got head_dim 5 and 3 key heads",
        ),
    ],
)
def test_a_bad_cross_attention_names_the_argument_and_changes_nothing(change, error, message):
    _, memory = encoder()(*inputs(18))
    before, decoder = snapshot(memory), model()
    with pytest.raises(error, match=message):
        decoder(**{"q": inputs(3)[0], "is_decoder": True, "buffer_state": memory, **change})
    unchanged(memory, before)
    assert decoder.buffer_state is None
