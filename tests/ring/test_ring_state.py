"""The state is a handle: it branches, it is cut, it is saved, and it goes on elsewhere."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from ring_calls import close, cut, dense, inputs, model, snapshot, unchanged

from attnlab.ring import laws
from attnlab.ring.state import BufferState


def filled(ring, length=31, *, grad=False, **sizes):
    """A state after some tokens, over two wraps, and the tokens."""
    tokens = inputs(length, **sizes)
    if grad:
        tokens = [x.requires_grad_() for x in tokens]
    _, state = ring(*tokens, grad)
    return state, tokens


def steps(ring, state, length=20, seed=4, **options):
    """Decode tokens one by one."""
    q, k, v = inputs(length, seed=seed)
    return torch.cat(
        [
            ring(q[:, :, t], k[:, :, t], v[:, :, t], is_decoder=True, buffer_state=state, **options)
            for t in cut([1] * length)
        ],
        dim=2,
    )


def test_a_branch_replays_and_leaves_the_trunk_alone():
    ring = model(dropout=0.3)
    state, _ = filled(ring)
    before = snapshot(state)
    a, b = state.clone(), state.clone()
    first = steps(ring, a)
    unchanged(state, before)
    assert torch.equal(steps(ring, b), first)
    assert torch.equal(steps(ring, state), first)
    assert a.position == b.position == state.position == 51
    assert a.cache.k.data_ptr() != state.cache.k.data_ptr()


def test_branches_part():
    ring = model()
    state, tokens = filled(ring)
    branch = state.clone()
    got = {seed: steps(ring, each, seed=seed) for seed, each in ((4, state), (5, branch))}
    for seed, out in got.items():
        q, k, v = (torch.cat(pair, dim=2) for pair in zip(tokens, inputs(20, seed=seed), strict=True))
        close(out, dense(q, k, v)[0][:, :, 31:])


@pytest.mark.parametrize("causal", [True, False])
def test_saved_to_a_file_and_loaded_in_a_fresh_model(causal):
    sizes = dict(causal=causal, dropout=0.3, **({} if causal else {"buffer_size": 40}))
    ring, other = model(**sizes), model(**sizes)
    q, k, v = inputs(31)
    padding = torch.zeros(2, 31, dtype=torch.bool)
    padding[0, 27:30] = True
    _, state = ring(q, k, v, key_padding_mask=padding)
    file = io.BytesIO()
    torch.save(state.state_dict(), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    assert {type(value) for value in saved.values()} == {torch.Tensor, int, bool}

    loaded = other.new_state(2, dtype=torch.float64)
    loaded.load_state_dict(saved)
    unchanged(loaded, snapshot(state))
    if causal:
        assert torch.equal(steps(other, loaded), steps(ring, state))
    else:
        got, want = (m(q, is_decoder=True, buffer_state=s) for m, s in ((other, loaded), (ring, state)))
        assert torch.equal(got, want)


def test_a_rollback_is_saved_with_the_state():
    ring = model()
    state, _ = filled(ring)
    q, k, v = inputs(1, seed=8)
    ring(q, k, v, position=26, is_decoder=True, buffer_state=state)
    loaded = ring.new_state(2, dtype=torch.float64)
    loaded.load_state_dict(state.state_dict())
    assert (loaded.position, loaded.cache.highest) == (27, 31)
    for each in (state, loaded):  # 12 - 6 + 1 = 7 tokens from 31, not from 27
        with pytest.raises(ValueError, match="rollback law"):
            ring(q, k, v, position=23, is_decoder=True, buffer_state=each)
        ring(q, k, v, position=24, is_decoder=True, buffer_state=each)


def test_a_saved_state_is_a_copy():
    ring = model()
    state, _ = filled(ring)
    saved, before = state.state_dict(), snapshot(state)
    steps(ring, state)
    state.load_state_dict(saved)
    unchanged(state, before)


def test_detach_is_in_place_and_returns_the_state():
    state, _ = filled(model(), grad=True)
    assert state.carries_graph
    values = [x.clone() for x in state.rows(26, 31)]
    assert state.detach() is state and not state.carries_graph
    for got, want in zip(state.rows(26, 31), values, strict=True):
        assert torch.equal(got, want) and not got.requires_grad


def test_loading_cuts_a_graph():
    state, _ = filled(model(), grad=True)
    state.load_state_dict(state.state_dict())
    assert not state.carries_graph


@pytest.mark.parametrize("grad", [False, True])
def test_a_model_can_be_copied_after_any_call_and_goes_on_alike(grad):
    ring = model()
    filled(ring, grad=grad)
    twin = copy.deepcopy(ring)
    assert not twin.buffer_state.carries_graph
    assert torch.equal(steps(twin, twin.buffer_state), steps(ring, ring.buffer_state, requires_grad=False))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("length", [0, 3, 11, 12, 13, 29])
def test_rows_are_those_of_the_positions_however_they_lie(length, grad):
    state, (_, k, v) = filled(model(), length, grad=grad)
    for start in range(max(0, length - 5), length + 1):
        rows = state.rows(start, length)
        assert torch.equal(rows[0], k[:, :, start:]) and torch.equal(rows[1], v[:, :, start:])
        assert rows[2].shape == (2, length - start) and not rows[2].any()
        assert not grad or start == length or rows[0].requires_grad


def test_its_memory_does_not_grow():
    ring = model()
    state, _ = filled(ring, 0)
    addresses, size = (state.cache.k.data_ptr(), state.cache.v.data_ptr()), state.cache.storage_bytes
    for seed in range(5):
        steps(ring, state, 30, seed)
    assert (state.cache.k.data_ptr(), state.cache.v.data_ptr()) == addresses
    assert state.position == 150 and state.cache.storage_bytes == size
    assert size == 2 * 2 * 2 * 12 * laws.round_up(5, 8) * 8


def test_an_encoders_ring_takes_as_many_tokens_as_it_has_slots():
    ring = model(causal=False, buffer_size=9)
    capacity = ring.config.capacity
    state, (_, k, _) = filled(ring, capacity)
    assert state.position == capacity and torch.equal(state.rows(0, capacity)[0], k)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"seed": -1}, ValueError, r"state_dict\['seed'\] must be at least 0"),
        ({"seed": 2**64}, ValueError, r"state_dict\['seed'\] must be below"),
        ({"seed": 1.0}, TypeError, r"state_dict\['seed'\] must be an int"),
        ({"causal": False}, ValueError, r"state_dict\['causal'\] must be True; got False"),
        ({"window": 5}, ValueError, r"state_dict\['window'\]"),
        ({"position": 99}, ValueError, r"state_dict\['position'\]"),
        ({"k": torch.zeros(2, 2, 13, 5).double()}, ValueError, r"state_dict\['k'\]"),
        ({"v": torch.zeros(2, 2, 12, 5)}, TypeError, r"state_dict\['v'\]"),
        ({"more": 1}, ValueError, "state_dict must have the entries"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change, error, message):
    state, _ = filled(model(), grad=True)
    before = snapshot(state)
    with pytest.raises(error, match=message):
        state.load_state_dict({**state.state_dict(), **change})
    unchanged(state, before)


@pytest.mark.unchecked
def test_what_is_no_saved_state_is_refused():
    state, _ = filled(model())
    with pytest.raises(TypeError, match="^state_dict must be a mapping; got list"):
        state.load_state_dict([])
    with pytest.raises(ValueError, match="^state_dict must have the entries seed and causal"):
        state.load_state_dict(state.cache.state_dict())
    with pytest.raises(ValueError, match="^batch_size must be at least 1"):
        BufferState(model().config, 0)
