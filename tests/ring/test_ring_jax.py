"""The functional ring in JAX against a deque, the torch ring and dense attention in float64."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

from attnlab.attention import dense_attention
from attnlab.masks import causal, sliding_window
from attnlab.ring import RingCache, laws, reference
from attnlab.ring import jax as ring

B, HKV, D = 2, 2, 5
CAPACITY, WINDOW = 12, 5
MOST = CAPACITY - WINDOW + 1  # the longest chunk, and the longest rollback

append, rollback = jax.jit(ring.append), jax.jit(ring.rollback)
attend = jax.jit(ring.attend, static_argnames="return_lse")


def sizes(rng, most):
    """A chunk size, one of few, because each is compiled anew."""
    return int(rng.choice([size for size in (0, 1, 3, 8) if size <= most]))


def draw(rng, *shape):
    """NumPy, because cutting a JAX array compiles every cut."""
    return rng.standard_normal(shape).astype(np.float32)


def make(capacity=CAPACITY, window=WINDOW, dtype=jnp.float32, batch=B):
    return ring.init(batch, HKV, D, capacity, window=window, dtype=dtype)


def filled(written, rng):
    """A ring with `written` tokens, and the tokens."""
    state, k, v = make(), draw(rng, B, HKV, written, D), draw(rng, B, HKV, written, D)
    for t in range(written):
        state = append(state, k[:, :, t : t + 1], v[:, :, t : t + 1])
    return state, k, v


def dense(q, k, v, window, padding=None):
    """The last rows of q over all keys, in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    seen = (causal() & sliding_window(window)).dense(k.shape[2], k.shape[2])[-q.shape[2] :]
    if padding is not None:
        seen = seen & ~np.asarray(padding)[:, None, None]
    return dense_attention(q, k.repeat(group, axis=1), v.repeat(group, axis=1), seen)


def assert_close(got, want, atol=2e-6):
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=1e-6, atol=atol)


def decode(state, q, k, v):
    """One token after the other; q, k and v are [B, heads, S, D]."""

    def step(state, token):
        q, k, v = (x[:, :, None] for x in token)
        state = ring.append(state, k, v)
        return state, ring.attend(state, q, return_lse=True)

    state, (out, lse) = lax.scan(step, state, tuple(jnp.moveaxis(x, 2, 0) for x in (q, k, v)))
    return state, jnp.moveaxis(out[:, :, :, 0], 0, 2), jnp.moveaxis(lse[..., 0], 0, 2)


@pytest.mark.parametrize("capacity, window", [(CAPACITY, WINDOW), (7, 7), (9, 1), (1, 1)])
def test_slots_are_the_last_rows_over_many_wraps(capacity, window):
    rng = np.random.default_rng(capacity)
    state, rows, written = make(capacity, window), deque(maxlen=capacity), 0
    while written < 12 * capacity:
        chunk = sizes(rng, capacity - window + 1)
        k, v = draw(rng, B, HKV, chunk, D), draw(rng, B, HKV, chunk, D)
        pad = rng.random((B, chunk)) < 0.3
        state = append(state, k, v, pad)
        rows.extend((k[:, :, i], v[:, :, i], pad[:, i]) for i in range(chunk))
        written += chunk
    held = laws.position_of_slot(np.arange(capacity), written, capacity)
    assert (state.position, state.highest, bool(state.valid)) == (written, written, True)
    for slot, position in enumerate(held):
        for array, want in zip((state.k, state.v), rows[position - written], strict=False):
            np.testing.assert_array_equal(array[:, :, slot], want)
        np.testing.assert_array_equal(state.padding[:, slot], rows[position - written][2])


def test_equals_the_torch_ring_over_many_wraps_with_rollbacks_and_padding():
    rng = np.random.default_rng(1)
    state, cache = make(), RingCache(B, HKV, D, CAPACITY, window=WINDOW)
    while cache.position < 12 * CAPACITY:
        chunk = sizes(rng, MOST)
        k, v = rng.standard_normal((2, B, HKV, chunk, D)).astype(np.float32)
        pad = rng.random((B, chunk)) < 0.4
        state = append(state, k, v, pad)
        cache.append(*map(torch.from_numpy, (k, v, pad)))
        spare = CAPACITY - WINDOW + 1 - (cache.highest - cache.position)
        r = int(rng.integers(0, min(spare, cache.position) + 1)) if rng.random() < 0.3 else 0
        state = rollback(state, jnp.int32(r))
        cache.rollback(r)
        rows = sizes(rng, min(cache.position, spare - r))
        assert (state.position, state.highest, state.valid) == (cache.position, cache.highest, True)
        for name in ("k", "v", "padding"):
            np.testing.assert_array_equal(getattr(state, name), getattr(cache, name))
        if rows > 0:
            q = rng.standard_normal((B, 2 * HKV, rows, D)).astype(np.float32)
            want = cache.attend(torch.from_numpy(q), return_lse=True)
            assert_close(attend(state, q, return_lse=True), want, atol=1e-6)


@pytest.mark.parametrize("capacity, window, heads", [(8, 6, HKV), (8, 8, 3 * HKV), (5, 1, 2 * HKV)])
def test_decoding_in_a_scan_equals_dense_at_every_position(capacity, window, heads):
    rng = np.random.default_rng(2)
    tokens = 11 * capacity
    q, k, v = draw(rng, B, heads, tokens, D), draw(rng, B, HKV, tokens, D), draw(rng, B, HKV, tokens, D)
    state, *got = jax.jit(decode)(make(capacity, window), q, k, v)
    assert state.valid and state.position == tokens
    assert_close(got, dense(q, k, v, window))


def test_gradients_flow_through_a_decoding_scan():
    rng = np.random.default_rng(3)
    q, k, v = draw(rng, B, 2 * HKV, 40, D), draw(rng, B, HKV, 40, D), draw(rng, B, HKV, 40, D)
    dout, dlse = draw(rng, *q.shape), draw(rng, *q.shape[:-1])

    def loss(*qkv):
        _, out, lse = decode(make(), *qkv)
        return (out * dout).sum() + (lse * dlse).sum()

    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (q, k, v)]
    out, lse = reference.sliding_window_attention(*leaves, window=WINDOW, return_lse=True)
    total = (out * torch.tensor(dout)).sum() + (lse * torch.tensor(dlse)).sum()
    assert_close(jax.jit(jax.grad(loss, (0, 1, 2)))(q, k, v), torch.autograd.grad(total, leaves), atol=1e-5)


def test_a_long_chunk_is_handled_in_blocks_of_queries():
    rng = np.random.default_rng(4)
    state = make(600, 50)
    q, k, v = draw(rng, B, HKV, 300, D), draw(rng, B, HKV, 700, D), draw(rng, B, HKV, 700, D)
    padding = rng.random((B, 700)) < 0.3
    state = append(state, k[:, :, :400], v[:, :, :400], padding[:, :400])
    state = append(state, k[:, :, 400:], v[:, :, 400:], padding[:, 400:])
    assert_close(attend(state, q, return_lse=True), dense(q, k, v, 50, padding))


def test_before_the_ring_is_full_every_row_can_be_asked_for():
    # With more than C - W + 1 rows the window and the rows together exceed the ring.
    rng = np.random.default_rng(5)
    for written in (CAPACITY - 1, CAPACITY):
        state, k, v = filled(written, rng)
        q = draw(rng, B, HKV, written, D)
        assert_close(attend(state, q, return_lse=True), dense(q, k, v, WINDOW))


@pytest.mark.parametrize("rows", [1, 3])
def test_nan_in_unseen_slots_changes_nothing(rows):
    rng = np.random.default_rng(6)
    weigh = jax.jit(jax.grad(lambda q, state: ring.attend(state, q).sum()))
    for written in (rows, 4, 11, 12, 13, 16, 23, 29):
        state, *_ = filled(written, rng)
        q = draw(rng, B, HKV, rows, D)
        held = laws.position_of_slot(np.arange(CAPACITY), written, CAPACITY)
        unseen = (held <= written - rows - WINDOW) | (held < 0)
        assert unseen.any()
        where = unseen[:, None]
        poisoned = replace(
            state,
            k=np.where(where, np.float32(np.nan), state.k),
            v=np.where(where, np.float32(np.nan), state.v),
        )
        clean = attend(state, q, return_lse=True)
        for got, want in zip(attend(poisoned, q, return_lse=True), clean, strict=True):
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(weigh(q, poisoned), weigh(q, state))


def test_padded_rows_equal_unpadded_rows():
    rng = np.random.default_rng(7)
    total, lengths = 60, (60, 41)
    q, k, v = (draw(rng, B, HKV, total, D) for _ in "qkv")
    padding = np.arange(total) < total - np.array(lengths)[:, None]  # on the left
    # Whatever a padded row holds must not matter.
    k, v = (np.where(padding[:, None, :, None], np.float32(np.nan), x) for x in (k, v))
    state, alone, outs, lses = make(), [make(batch=1) for _ in lengths], [], []
    for t in range(0, total, 4):
        new = slice(t, t + 4)
        state = append(state, k[:, :, new], v[:, :, new], padding[:, new])
        out, lse = attend(state, q[:, :, new], return_lse=True)
        outs.append(out)
        lses.append(lse)
    out, lse = np.concatenate(outs, axis=2), np.concatenate(lses, axis=2)
    for row, one in enumerate(alone):
        own = ~padding[row]
        assert (out[row][:, ~own] == 0).all() and (lse[row][:, ~own] == -np.inf).all()
        qkv = (x[row : row + 1][:, :, own] for x in (q, k, v))
        _, want_out, want_lse = jax.jit(decode)(one, *qkv)
        assert_close((out[row : row + 1][:, :, own], lse[row : row + 1][:, :, own]), (want_out, want_lse))


def test_everything_padded_gives_zero_and_minus_infinity_and_no_gradient():
    x = jnp.ones((B, HKV, 3, D))

    def run(q, k, v):
        state = ring.append(make(), k, v, jnp.ones((B, 3), jnp.bool_))
        return ring.attend(state, q, return_lse=True)

    out, lse = jax.jit(run)(x, x, x)
    assert (out == 0).all() and (lse == -jnp.inf).all()
    for gradient in jax.jit(jax.grad(lambda *qkv: run(*qkv)[0].sum(), (0, 1, 2)))(x, x, x):
        assert (gradient == 0).all()


def test_states_at_different_positions_are_mapped_over():
    rng = np.random.default_rng(8)
    positions = (3, 12, 29)
    states, ks, vs = zip(*(filled(written, rng) for written in positions), strict=True)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *states)
    k, v, q = (draw(rng, 3, B, HKV, 4, D) for _ in "kvq")

    @jax.jit
    @jax.vmap
    def step(state, q, k, v):
        return ring.attend(ring.append(state, k, v), q, return_lse=True)

    out, lse = step(stacked, q, k, v)
    for i in range(3):
        keys, values = (np.concatenate([old[i], new[i]], axis=2) for old, new in ((ks, k), (vs, v)))
        assert_close((out[i], lse[i]), dense(q[i], keys, values, WINDOW))


@pytest.mark.parametrize("dtype, atol", [(jnp.bfloat16, 1e-2), (jnp.float16, 2e-3), (jnp.float64, 1e-13)])
def test_other_precisions(dtype, atol):
    rng = np.random.default_rng(9)
    with jax.enable_x64(dtype == jnp.float64):
        q, k, v = (jnp.asarray(rng.standard_normal((B, HKV, 40, D)), dtype) for _ in "qkv")
        state, out, lse = jax.jit(decode)(make(dtype=dtype), q, k, v)
        assert out.dtype == dtype and lse.dtype == (dtype if dtype == jnp.float64 else jnp.float32)
        assert state.position.dtype == jnp.int32
        assert_close((out, lse), dense(q, k, v, WINDOW), atol=atol)
