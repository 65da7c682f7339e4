"""The module's calls: the source's forms verbatim, chunks, steps, wraps, positions, and memory."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ring_calls import close, cut, dense, inputs, model

from attnlab.bench.memory import torch_peak
from attnlab.ring import RingCache, self_attention
from attnlab.ring.config import RingBufferConfig
from attnlab.ring.module import RingBufferAttention
from attnlab.ring.order import TileOrder
from attnlab.ring.state import BufferState


def test_what_the_readme_shows_runs_as_it_stands():
    query, key, value = inputs(20, batch=1, heads=8, kv_heads=8, dim=64, dtype=torch.float32)
    dq, dk, dv = inputs(1, batch=1, heads=8, kv_heads=8, dim=64, seed=1, dtype=torch.float32)
    pos, m, pad = 20, torch.ones(1, 21, dtype=torch.bool), torch.zeros(1, 1, dtype=torch.bool)

    config = RingBufferConfig(num_heads=8, head_dim=64, dropout=0.1, buffer_size=2048, block_size=128,
                              tile_size=32, head_tile_size=4, prefill_size=512, causal=True)  # fmt: skip
    model = RingBufferAttention(config)
    model.eval()
    for order in TileOrder:
        model.tiling_processor.tile_order = order
        assert model.tiling_processor.tile_order is order
        output, state = model(q=query, k=key, v=value, requires_grad=True)
        close(output, dense(query, key, value, window=2048)[0], 2e-6)
        output, state = model(query, key, value, requires_grad=False)
        close(output, dense(query, key, value, window=2048)[0], 2e-6)
        decoder_output = model(q=dq, k=dk, v=dv, position=pos, is_decoder=True, att_mask=m,
                               key_padding_mask=pad, needs_weights=False, output_attentions=False,
                               buffer_state=state)  # fmt: skip
        both = (torch.cat(pair, dim=2) for pair in ((query, dq), (key, dk), (value, dv)))
        close(decoder_output, dense(*both, window=2048)[0][:, :, -1:], 2e-6)
        assert isinstance(state, BufferState) and state.position == 21
    assert list(model.parameters()) == [] and model.state_dict() == {}


lengths = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@settings(max_examples=40)
@given(lengths=lengths, window=st.integers(1, 9), prefill=st.integers(1, 5), decoder=st.booleans())
def test_any_chunking_equals_one_shot_and_the_reference(lengths, window, prefill, decoder):
    q, k, v = inputs(sum(lengths))
    ring = model(buffer_size=window, prefill_size=prefill)
    want, _ = dense(q, k, v, window=window)
    close(ring(q, k, v)[0], want)
    state = ring.new_state(2, dtype=torch.float64)
    parts = []
    for rows in cut(lengths):
        part = ring(q[:, :, rows], k[:, :, rows], v[:, :, rows], is_decoder=decoder, buffer_state=state)
        parts.append(part if decoder else part[0])
        assert state.position == rows.stop
    close(torch.cat(parts, dim=2), want)


def rotary(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Turn pairs of features by an angle that grows with the absolute position (Su et al. 2021)."""
    half = x.shape[-1] // 2
    angles = positions[:, None].double() / 10 ** torch.arange(half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)


@pytest.mark.parametrize("window", [1, 5, 6])
def test_decoding_equals_the_reference_at_every_position_over_ten_wraps_with_rotary_positions(window):
    ring = model(head_dim=6, buffer_size=window)
    total = 10 * ring.config.capacity + 7
    q, k, v = inputs(total, dim=6)
    everywhere = torch.arange(total)
    want, _ = dense(rotary(q, everywhere), rotary(k, everywhere), v, window=window)
    _, state = ring(q[:, :, :0], k[:, :, :0], v[:, :, :0])
    addresses = state.cache.k.data_ptr(), state.cache.v.data_ptr()
    for p in range(total):
        token = slice(p, p + 1)
        here = torch.tensor([p])
        out = ring(
            q=rotary(q[:, :, token], here), k=rotary(k[:, :, token], here), v=v[:, :, token],
            position=p, is_decoder=True, buffer_state=state,
        )  # fmt: skip
        close(out, want[:, :, token])
    assert (state.cache.k.data_ptr(), state.cache.v.data_ptr()) == addresses


def test_without_a_state_a_decoder_begins_and_then_goes_on_with_the_models_last():
    q, k, v = inputs(30)
    want, _ = dense(q, k, v)
    ring = model()
    assert ring.buffer_state is None
    steps = [ring(q[:, :, t], k[:, :, t], v[:, :, t], is_decoder=True) for t in cut([1] * 10)]
    close(torch.cat(steps, dim=2), want[:, :, :10])
    assert ring.buffer_state.position == 10

    out, state = ring(q[:, :, :13], k[:, :, :13], v[:, :, :13])  # a call without is_decoder begins afresh
    assert ring.buffer_state is state
    close(out, want[:, :, :13])
    rest = slice(13, 30)
    close(ring(q[:, :, rest], k[:, :, rest], v[:, :, rest], is_decoder=True), want[:, :, rest])
    assert state.position == 30


def test_a_new_state_begins_another_sequence():
    q, k, v = inputs(9)
    ring = model()
    ring(q, k, v)
    state = ring.new_state(2, dtype=torch.float64)
    out = ring(q[:, :, :3], k[:, :, :3], v[:, :, :3], is_decoder=True, buffer_state=state)
    close(out, dense(q, k, v)[0][:, :, :3])
    assert ring.buffer_state is state


@settings(max_examples=30)
@given(data=st.data())
def test_a_smaller_position_takes_tokens_back_and_the_reference_forgets_them(data):
    ring = model()
    capacity, window = ring.config.capacity, 6
    q, k, v = inputs(0)
    state, highest = ring.new_state(2, dtype=torch.float64), 0
    for turn in range(12):
        least = max(0, highest - capacity + window - 1)
        position = data.draw(st.integers(min(least, state.position), state.position), label="position")
        new = inputs(data.draw(st.integers(1, 7), label="length"), seed=turn + 1)
        q, k, v = (torch.cat([old[:, :, :position], x], dim=2) for old, x in zip((q, k, v), new, strict=True))
        out = ring(*new, position=position, is_decoder=True, buffer_state=state)
        close(out, dense(q, k, v)[0][:, :, position:])
        highest = max(highest, state.position)
        assert (state.position, state.cache.highest) == (k.shape[2], highest)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("extra", [{}, {"needs_weights": True}])
def test_a_call_without_tokens_can_take_tokens_back(grad, extra):
    q, k, v = inputs(30)
    ring = model()
    _, state = ring(q, k, v, False)
    none = [x[:, :, :0] for x in (q, k, v)]
    out, _, *_ = ring(*none, grad, position=26, buffer_state=state, **extra)
    assert out.shape == none[0].shape and state.position == 26
    rest = [x[:, :, 26:] for x in (q, k, v)]
    close(ring(*rest, is_decoder=True, buffer_state=state), dense(q, k, v)[0][:, :, 26:])


@pytest.mark.parametrize("heads", [(4, 4), (4, 1), (6, 2)])
@pytest.mark.parametrize("tile", [1, 2, 3, 4, 5, 100])
def test_head_tile_size_changes_nothing_even_if_it_does_not_divide_the_heads(heads, tile):
    q, k, v = inputs(11, heads=heads[0], kv_heads=heads[1])
    sizes = dict(num_heads=heads[0], num_kv_heads=heads[1], head_tile_size=tile)
    padding = torch.zeros(2, 11, dtype=torch.bool)
    padding[1, 3:7] = True
    for causal, grad in product([True, False], [True, False]):
        ring = model(**sizes, causal=causal, **({} if causal else {"window": 6, "buffer_size": 12}))
        want, _ = dense(q, k, v, causal=causal, padding=padding)
        out, _ = ring(q, k, v, requires_grad=grad, key_padding_mask=padding)
        close(out, want)
        mask = ~padding[:, None, None]
        out, _, weights = ring(q, k, v, requires_grad=grad, att_mask=mask, output_attentions=True)
        close(out, want)
        close(weights, dense(q, k, v, causal=causal, padding=padding)[1])


@pytest.mark.parametrize("order", TileOrder)
@pytest.mark.parametrize("impl", ["auto", "reference", "tiled", "strided"])
def test_neither_the_path_nor_the_order_changes_the_result(impl, order):
    q, k, v = inputs(17)
    ring = model(impl=impl)
    ring.tiling_processor.tile_order = order
    for grad in (True, False):
        close(ring(q, k, v, requires_grad=grad)[0], dense(q, k, v)[0])


@pytest.mark.parametrize("extra", [{}, {"needs_weights": True}])
def test_every_row_is_computed_once(monkeypatch, extra):
    """Count the query rows that reach whatever computes: prefill in uneven calls, then steps."""
    rows = []

    def counted(function, argument):
        def wrapper(*args, **kwargs):
            rows.append(args[argument].shape[2])
            return function(*args, **kwargs)

        return wrapper

    monkeypatch.setattr(RingCache, "attend", counted(RingCache.attend, 1))
    for name in ("sliding_window_attention", "masked_attention"):
        monkeypatch.setattr(self_attention, name, counted(getattr(self_attention, name), 0))
    q, k, v = inputs(31)
    ring = model()
    state = ring.new_state(2, dtype=torch.float64)
    for part in cut([9, 1, 13, 1, 7]):
        ring(q[:, :, part], k[:, :, part], v[:, :, part], is_decoder=True, buffer_state=state, **extra)
    assert sum(rows) == 31 and max(rows) == ring.config.prefill_size


def test_the_workspace_depends_on_the_sizes_and_not_on_the_length():
    ring = model(head_dim=8, buffer_size=32, prefill_size=16, tile_size=8, block_size=16)
    over = {}
    for length in (200, 400, 800):
        q, k, v = inputs(length, dim=8, dtype=torch.float32)
        state = ring.new_state(2)
        peak = torch_peak(ring, q, k, v, requires_grad=False, buffer_state=state)
        over[length] = peak.peak_bytes - q.nbytes
    assert over[200] == over[400] == over[800]
    scores = 4 * 2 * 4 * 16 * (16 + 31)  # one chunk's, in float32
    assert over[200] < 6 * scores


@pytest.mark.parametrize("masked", [False, True])
def test_slots_that_no_query_sees_are_never_read(masked):
    """All slots but the visible ones are poisoned before every call."""
    q, k, v = inputs(60)
    want, _ = dense(q, k, v)
    ring = model()
    state = ring.new_state(2, dtype=torch.float64)
    for rows in cut([3, 1, 1, 4, 1, 2, 4, 4, 1, 1, 1, 4, 3, 4, 1, 4, 1, 4, 4, 4, 4, 4]):
        held = torch.arange(max(0, state.position - 5), state.position) % ring.config.capacity
        poisoned = torch.ones(ring.config.capacity, dtype=torch.bool)
        poisoned[held] = False
        state.cache.k[:, :, poisoned] = torch.nan
        state.cache.v[:, :, poisoned] = torch.nan
        extra = {}
        if masked:
            first = max(0, rows.start - 5)
            extra["att_mask"] = torch.ones(rows.stop - rows.start, rows.stop - first, dtype=torch.bool)
        out = ring(q[:, :, rows], k[:, :, rows], v[:, :, rows], is_decoder=True, buffer_state=state, **extra)
        close(out, want[:, :, rows])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_dtypes_stay_what_they_are(dtype):
    q, k, v = inputs(20, dtype=dtype)
    ring = model()
    first, rest = cut([14, 6])
    for grad in (False, True):
        out, state = ring(q[:, :, first], k[:, :, first], v[:, :, first], requires_grad=grad)
        more, _ = ring(
            q[:, :, rest], k[:, :, rest], v[:, :, rest], requires_grad=grad, buffer_state=state,
            key_padding_mask=torch.zeros(2, 6, dtype=torch.bool),
        )  # fmt: skip
        got = torch.cat([out, more], dim=2)
        assert got.dtype == dtype == state.cache.k.dtype
        close(got, dense(q, k, v)[0], 4 * torch.finfo(dtype).eps)


def test_a_call_in_inference_mode_leaves_a_state_that_can_be_used_outside():
    q, k, v = inputs(12)
    ring = model()
    with torch.inference_mode():
        _, state = ring(q[:, :, :9], k[:, :, :9], v[:, :, :9])
        branch = state.clone()
    for each in (state, branch):
        out = ring(q[:, :, 9:], k[:, :, 9:], v[:, :, 9:], is_decoder=True, buffer_state=each)
        close(out, dense(q, k, v)[0][:, :, 9:])


def test_its_repr_shows_the_config():
    assert "buffer_size=6" in repr(model()) and "Q_MAJOR" in repr(model().tiling_processor)
