"""What XLA plans for the ring and the window in JAX: bytes, copies and FLOPs, never seconds."""

from __future__ import annotations

import re
from functools import cache

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from attnlab.ring import jax as ring

CAPACITY, WINDOW, D = 2592, 2048, 64


def rows(n, heads=2):
    return jax.ShapeDtypeStruct((1, heads, n, D), jnp.float32)


@cache
def state():
    return jax.eval_shape(lambda: ring.init(1, 2, D, CAPACITY, window=WINDOW))


def nbytes(tree):
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def copies(compiled):
    """Instructions that copy something with as many rows as the ring has slots."""
    return re.findall(rf"= \S*\b{CAPACITY}\b\S* copy\(.*", compiled.as_text())


def decode(state, q, k, v):
    def step(state, token):
        state = ring.append(state, *token[1:])
        return state, ring.attend(state, token[0])

    return lax.scan(step, state, (q, k, v))


@pytest.mark.parametrize("length", [1, 7, 512])
def test_append_writes_into_a_donated_ring(length):
    compiled = jax.jit(ring.append, donate_argnums=0).lower(state(), rows(length), rows(length)).compile()
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == nbytes(state())
    # A chunk's rows are rolled, and their old slots looked at: a few times the chunk, never the ring.
    assert memory.temp_size_in_bytes <= 4 * nbytes([rows(length)] * 2) + 1024
    assert not copies(compiled)


def test_without_donation_the_ring_is_copied():
    # So that the test above is known to be able to fail.
    compiled = jax.jit(ring.append).lower(state(), rows(1), rows(1)).compile()
    assert compiled.memory_analysis().alias_size_in_bytes == 0
    assert copies(compiled)


def test_decoding_in_a_scan_copies_no_ring():
    steps = [jax.ShapeDtypeStruct((100, *x.shape), x.dtype) for x in (rows(1, 4), rows(1), rows(1))]
    compiled = jax.jit(decode, donate_argnums=0).lower(state(), *steps).compile()
    assert compiled.memory_analysis().alias_size_in_bytes == nbytes(state())
    assert not copies(compiled)
    # The visible rows of K and V are brought together, and little else.
    assert compiled.memory_analysis().temp_size_in_bytes <= 1.1 * nbytes([rows(WINDOW)] * 2)


def test_the_workspace_of_a_chunk_is_bounded_by_blocks_of_queries():
    small, large = (
        jax.jit(ring.attend).lower(state(), rows(n, 4)).compile().memory_analysis().temp_size_in_bytes
        for n in (128, 512)
    )
    assert large - small <= 4 * nbytes(rows(512, 4))


def planned(tokens, *, backward):
    def attention(q, k, v):
        return ring.sliding_window_attention(q, k, v, window=100)

    def loss(*qkv):
        return attention(*qkv).sum()

    function = jax.grad(loss, (0, 1, 2)) if backward else attention
    return jax.jit(function).lower(rows(tokens, 4), rows(tokens), rows(tokens)).compile()


def dense(tokens, *, backward):
    def attention(q, k, v):
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
        return jax.nn.dot_product_attention(q, k, v, is_causal=True, local_window_size=(99, 0))

    def loss(*qkv):
        return attention(*qkv).sum()

    function = jax.grad(loss, (0, 1, 2)) if backward else attention
    return jax.jit(function).lower(rows(tokens, 4), rows(tokens), rows(tokens)).compile()


@pytest.mark.parametrize("backward", [False, True])
def test_a_window_over_a_sequence_is_linear_in_its_length(backward):
    tokens, block = 4096, 128
    short, long = planned(tokens // 4, backward=backward), planned(tokens, backward=backward)
    # XLA counts the body of a loop once. A block takes 2 products forward and 5 backward, T x (W - 1 + T).
    product = 2 * 4 * block * (99 + block) * D
    limit = 1.15 * (7 if backward else 2) * product
    assert short.cost_analysis()["flops"] <= limit
    assert long.cost_analysis()["flops"] <= limit
    for compiled, length in ((short, tokens // 4), (long, tokens)):
        trips = re.findall(r'known_trip_count":\{"n":"(\d+)"', compiled.as_text())
        assert trips == [str(length // block)] * (2 if backward else 1)
    # Tables of one block, and in the backward pass what it keeps: out, lse, delta and dout.
    workspace = 3 * 4 * block * (99 + block) * 4 + 8 * nbytes(rows(block, 4))
    kept = 4 * nbytes(rows(tokens, 4)) if backward else 0
    assert long.memory_analysis().temp_size_in_bytes <= workspace + kept


@pytest.mark.parametrize("backward", [False, True])
def test_the_dense_way_plans_what_this_one_avoids(backward):
    tokens = 4096
    ours, theirs = planned(tokens, backward=backward), dense(tokens, backward=backward)
    assert theirs.memory_analysis().temp_size_in_bytes >= 4 * tokens * tokens * 4
    assert theirs.memory_analysis().temp_size_in_bytes >= 50 * ours.memory_analysis().temp_size_in_bytes
    assert theirs.cost_analysis()["flops"] >= 10 * (tokens // 128) * ours.cost_analysis()["flops"]
