"""The Pallas kernel in interpret mode: whole sequences, rings that wrap, and the tiles it walks over."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from attnlab.attention import dense_attention
from attnlab.masks import causal as causal_mask
from attnlab.masks import sliding_window
from attnlab.ring import RingCache, laws, pallas, reference
from attnlab.ring import jax as ring
from attnlab.ring.order import TileOrder
from attnlab.ring.pallas_kernel import tile_bounds
from attnlab.ring.tiled import window_mask
from attnlab.tiles import DENSE, EDGE, SKIP, tile_map


class Case(NamedTuple):
    tokens: int
    window: int
    causal: bool
    tile: int
    kv_heads: int = 2
    group: int = 2


CASES = [
    Case(37, 20, True, 4),  # dense tiles between two edges, a ragged last tile
    Case(37, 9, False, 4, kv_heads=1, group=3),
    Case(32, 3, True, 8, group=1),  # a window below the tile
    Case(37, 1, True, 8),
    Case(21, 50, False, 8),  # a window above the sequence
    Case(5, 3, True, 8),  # a tile above the sequence
]


def inputs(case, seed=0, batch=2, head_dim=5):
    """q, k, v and the gradients of the output and of the log-sum-exp."""
    rng = np.random.default_rng(seed)
    q_shape = (batch, case.kv_heads * case.group, case.tokens, head_dim)
    kv_shape = (batch, case.kv_heads, case.tokens, head_dim)
    shapes = (q_shape, kv_shape, kv_shape, q_shape, q_shape[:-1])
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@cache
def compiled(case):
    def results(q, k, v, dout, dlse):
        def attention(*qkv):
            return pallas.sliding_window_attention(
                *qkv, window=case.window, causal=case.causal, tile_size=case.tile, return_lse=True
            )

        (out, lse), pull_back = jax.vjp(attention, q, k, v)
        return out, lse, *pull_back((dout, dlse))

    return jax.jit(results)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_equals_float64_forward_and_backward(case):
    q, k, v, dout, dlse = inputs(case)
    got = compiled(case)(q, k, v, dout, dlse)
    distance = np.arange(case.tokens)[:, None] - np.arange(case.tokens)
    seen = (distance < case.window) & (distance >= 0 if case.causal else distance > -case.window)
    k_all, v_all = (x.repeat(case.group, axis=1) for x in (k, v))
    for a, want in zip(got[:2], dense_attention(q, k_all, v_all, seen), strict=True):
        assert a.dtype == jnp.float32
        np.testing.assert_allclose(np.asarray(a, np.float64), want, rtol=1e-6, atol=2e-6)
    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (q, k, v)]
    out, lse = reference.sliding_window_attention(
        *leaves, window=case.window, causal=case.causal, return_lse=True
    )
    total = (out * torch.tensor(dout)).sum() + (lse * torch.tensor(dlse)).sum()
    for a, want in zip(got[2:], torch.autograd.grad(total, leaves), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), want, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("dtype, atol", [(jnp.bfloat16, 2e-2), (jnp.float64, 1e-12)])
def test_other_precisions(dtype, atol):
    case = CASES[0]
    with jax.enable_x64(dtype == jnp.float64):
        q, k, v = (jnp.asarray(x, dtype) for x in inputs(case)[:3])
        got = pallas.sliding_window_attention(q, k, v, window=case.window, tile_size=8, return_lse=True)
        seen = (causal_mask() & sliding_window(case.window)).dense(case.tokens, case.tokens)
        q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
        want = dense_attention(q, k.repeat(2, axis=1), v.repeat(2, axis=1), seen)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=atol, atol=atol)
        assert got[0].dtype == dtype and got[1].dtype == (dtype if dtype == jnp.float64 else jnp.float32)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("tokens, tile", [(37, 8), (40, 4), (5, 8)])
@pytest.mark.parametrize("window", [1, 3, 9, 20, 60])
def test_the_walk_is_the_tile_map(tokens, tile, window, causal):
    kinds = tile_map(window_mask(window, causal), tokens, tokens, tile).kinds
    walked = np.full_like(kinds, SKIP)
    for i in range(len(kinds)):
        bounds = tile_bounds(i * tile, tile, tokens, window=min(window, tokens), causal=causal, tile=tile)
        a, b, c, d = map(int, bounds)
        assert 0 <= a <= b <= c <= d
        walked[i, a:b] = walked[i, c:d] = EDGE
        walked[i, b:c] = DENSE
    last = len(kinds) - 1
    if tokens % tile:  # the walk may call a tile dense that lacks queries; a map asks for all entries
        np.testing.assert_array_equal(walked[last] != SKIP, kinds[last] != SKIP)
        walked, kinds = walked[:last], kinds[:last]
    np.testing.assert_array_equal(walked, kinds)


def test_a_tile_that_is_skipped_is_not_read():
    case = Case(40, 9, True, 4)
    q, k, v, *_ = map(jnp.asarray, inputs(case))
    attention = jax.jit(lambda *qkv: pallas.sliding_window_attention(*qkv, window=9, tile_size=4))
    clean = attention(q, k, v)
    poisoned = attention(q, k.at[:, :, :4].set(jnp.nan), v.at[:, :, :4].set(jnp.nan))
    np.testing.assert_array_equal(poisoned[:, :, 12:], clean[:, :, 12:])
    assert jnp.isnan(poisoned[:, :, :12]).all(axis=-1).any()


B, HKV, D = 2, 2, 5
CAPACITY, WINDOW, TILE = 20, 6, 4
MOST = 11  # the longest chunk of the tile law: roundup(6 - 1 + 11, 4) + 4 = 20

append, rollback = jax.jit(ring.append), jax.jit(ring.rollback)
attend = jax.jit(pallas.attend, static_argnames=("return_lse", "tile_size"))


def make(**options):
    return ring.init(B, HKV, D, CAPACITY, window=WINDOW, **options)


def filled(written, rng):
    state, k, v = make(), *rng.standard_normal((2, B, HKV, written, D)).astype(np.float32)
    for t in range(written):
        state = append(state, k[:, :, t : t + 1], v[:, :, t : t + 1])
    return state, k, v


def test_a_ring_that_wraps_equals_the_torch_ring_at_any_chunk():
    rng = np.random.default_rng(1)
    state, cache_ = make(), RingCache(B, HKV, D, CAPACITY, window=WINDOW)
    padded = 0
    while cache_.position < 11 * CAPACITY:
        chunk = int(rng.choice([1, 3, MOST]))
        k, v = rng.standard_normal((2, B, HKV, chunk, D)).astype(np.float32)
        q = rng.standard_normal((B, 2 * HKV, chunk, D)).astype(np.float32)
        pad = rng.random((B, chunk)) < rng.choice([0.0, 0.5, 1.0])
        state = append(state, k, v, pad)
        cache_.append(*map(torch.from_numpy, (k, v, pad)))
        want = cache_.attend(torch.from_numpy(q), return_lse=True)
        got = attend(state, q, return_lse=True, tile_size=TILE)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=2e-6)
        padded += int((want[1] == -torch.inf).sum())
        if rng.random() < 0.3:
            r = int(rng.integers(0, 2))
            state = rollback(state, jnp.int32(r))
            cache_.rollback(r)
    assert padded > 0  # rows that see nothing were among them: output 0, log-sum-exp -inf


@pytest.mark.parametrize("rows", [1, 3])
def test_nan_in_unseen_slots_changes_nothing(rows):
    rng = np.random.default_rng(2)
    for written in (rows, 5, 19, 20, 21, 27, 38):
        state, *_ = filled(written, rng)
        q = rng.standard_normal((B, HKV, rows, D)).astype(np.float32)
        held = laws.position_of_slot(np.arange(CAPACITY), written, CAPACITY)
        unseen = (held <= written - rows - WINDOW) | (held < 0)
        assert unseen.any()
        poison = (np.where(unseen[:, None], np.float32(np.nan), x) for x in (state.k, state.v))
        poisoned = replace(state, **dict(zip("kv", poison, strict=True)))
        clean = attend(state, q, return_lse=True, tile_size=TILE)
        for got, want in zip(attend(poisoned, q, return_lse=True, tile_size=TILE), clean, strict=True):
            np.testing.assert_array_equal(got, want)


def test_positions_up_to_the_largest_int32():
    rng = np.random.default_rng(3)
    start = jnp.int32(2**31 - 1 - 10)
    state = replace(make(), position=start, highest=start)
    k, v, q = rng.standard_normal((3, B, HKV, 10, D)).astype(np.float32)
    state = append(state, k, v)
    want, _ = dense_attention(q[:, :, -1:], k[:, :, -WINDOW:], v[:, :, -WINDOW:])
    np.testing.assert_allclose(attend(state, q[:, :, -1:], tile_size=TILE), want, atol=2e-6)


def test_tile_laws_one_off_raise_while_they_are_traced():
    state, _, _ = filled(20, np.random.default_rng(4))
    q = jnp.ones((B, HKV, MOST + 1, D))
    for call in (attend, pallas.attend):
        with pytest.raises(ValueError, match="tile law: .*capacity 20, window 6, chunk 12 and tile_size 4"):
            call(state, q, tile_size=TILE)
        with pytest.raises(ValueError, match="tile law: capacity % tile_size == 0"):
            call(state, q[:, :, :1], tile_size=8)
    assert jnp.isfinite(attend(state, q[:, :, 1:], tile_size=TILE)).all()


def test_a_broken_attend_law_raises_or_gives_nan():
    state, _, _ = filled(30, np.random.default_rng(5))
    state = ring.rollback(state, CAPACITY - WINDOW + 1)
    q = jnp.ones((B, HKV, 1, D))
    with pytest.raises(ValueError, match="attend law"):
        pallas.attend(state, q, tile_size=TILE)
    assert all(jnp.isnan(x).all() for x in attend(state, q, return_lse=True, tile_size=TILE))
    spoilt = rollback(state, jnp.int32(1))
    assert not spoilt.valid and jnp.isnan(attend(spoilt, q, tile_size=TILE)).all()


def test_a_ring_says_that_it_has_no_gradient():
    state, _, _ = filled(9, np.random.default_rng(6))
    q = jnp.ones((B, HKV, 1, D))
    with pytest.raises(NotImplementedError, match="attnlab.ring.jax.attend has one"):
        jax.grad(lambda q: pallas.attend(state, q, tile_size=TILE).sum())(q)
    with pytest.raises(NotImplementedError, match="attnlab.ring.jax.attend has one"):
        jax.grad(lambda k: pallas.attend(replace(state, k=k), q, tile_size=TILE).sum())(state.k)


def test_empty_inputs_and_the_order_of_loops():
    x = jnp.ones((1, 2, 0, 4))
    out, lse = pallas.sliding_window_attention(x, x, x, window=3, return_lse=True)
    assert out.shape == x.shape and lse.shape == x.shape[:-1]
    q = jnp.ones((B, HKV, 0, D))
    out, lse = pallas.attend(make(), q, return_lse=True, tile_size=TILE)
    assert out.shape == q.shape and lse.shape == q.shape[:-1]
    case = CASES[0]
    q, k, v, *_ = map(jnp.asarray, inputs(case))
    q_major, k_major = (
        pallas.sliding_window_attention(q, k, v, window=case.window, tile_size=8, order=order)
        for order in TileOrder
    )
    np.testing.assert_array_equal(q_major, k_major)


@pytest.mark.unchecked
def test_bad_input_is_refused_by_name():
    x, state = jnp.ones((1, 2, 3, 4)), make()
    for error, message, change in (
        (TypeError, "q must be a JAX array", {"q": np.ones((1, 2, 3, 4))}),
        (ValueError, "k must have heads that divide", {"k": jnp.ones((1, 3, 3, 4))}),
        (ValueError, "window must be", {"window": 0}),
        (ValueError, "tile_size must be", {"tile_size": 0}),
        (TypeError, "tile_size must be an int", {"tile_size": 8.0}),
        (TypeError, "interpret must be a bool", {"interpret": None}),
    ):
        with pytest.raises(error, match=message):
            pallas.sliding_window_attention(**({"q": x, "k": x, "v": x, "window": 2} | change))
    with pytest.raises(TypeError, match="state must be a RingState"):
        pallas.attend(None, x)
    with pytest.raises(ValueError, match="q must have shape"):
        pallas.attend(state, x, tile_size=TILE)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="elsewhere Pallas may compile the kernel")
def test_a_cpu_can_only_interpret():
    x = jnp.ones((1, 2, 3, 4))
    with pytest.raises(ValueError, match="interpret must be True on a CPU"):
        pallas.sliding_window_attention(x, x, x, window=2, interpret=False)
