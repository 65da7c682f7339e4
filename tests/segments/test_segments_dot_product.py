"""From a layout to jax.nn.dot_product_attention: output and gradients against dense attention."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dense_gradients import dense_gradients
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_paths import layout_of

from attnlab.exercises.rows import Rows, Shape, packed_rows
from attnlab.segments import MASKS, SegmentLayout, reference
from attnlab.segments import jax as segments_jax
from attnlab.segments.dot_product import DotProductArguments, dot_product_arguments, dot_product_attention

masks = st.sampled_from(MASKS)
SHAPE = Shape(2, 17, 12, 3)
HEADS, HEAD_DIM = 2, 4


def jax_layout(rows: Rows, mask: str) -> SegmentLayout:
    return SegmentLayout(*map(jnp.asarray, layout_of("jax", rows, mask)))


@partial(jax.jit, static_argnames=("mask", "rooms"))
def attend(layout, q, k, v, dout, *, mask, rooms):
    """Output, and the gradients of sum(out * dout), all under one jit."""
    arguments = dot_product_arguments(
        layout, q_tokens=q.shape[1], kv_tokens=k.shape[1], max_seqlen_q=rooms[0], max_seqlen_kv=rooms[1]
    )

    def loss(q, k, v):
        out = dot_product_attention(q, k, v, arguments, mask=mask)
        return (out * dout).sum(), out

    gradients, out = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(q, k, v)
    return out, *gradients


def random_qkv(shape: Shape = SHAPE) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    sizes = (shape.q_tokens, shape.kv_tokens, shape.kv_tokens, shape.q_tokens)
    return [rng.standard_normal((shape.batch, n, HEADS, HEAD_DIM)).astype(np.float32) for n in sizes]


@settings(max_examples=60)
@given(packed_rows(SHAPE, from_zero=True), masks)
def test_output_and_gradients_are_those_of_dense_attention(rows, mask):
    q, k, v, dout = random_qkv()
    expected = dense_gradients(q, k, v, reference.visibility(*rows.tokens, mask=mask), dout)
    got = attend(jax_layout(rows, mask), q, k, v, dout, mask=mask, rooms=(SHAPE.q_tokens, SHAPE.kv_tokens))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@settings(max_examples=40)
@given(packed_rows(SHAPE, from_zero=True), masks, st.sampled_from([(17, 5), (5, 12)]))
def test_a_segment_that_does_not_fit_makes_everything_nan(rows, mask, rooms):
    q, k, v, dout = random_qkv()
    layout = layout_of("reference", rows, mask)
    fits = layout.q_seqlens.max() <= rooms[0] and layout.kv_seqlens.max() <= rooms[1]
    out = attend(jax_layout(rows, mask), q, k, v, dout, mask=mask, rooms=rooms)[0]
    if fits:
        expected = dense_gradients(q, k, v, reference.visibility(*rows.tokens, mask=mask), dout).out
        np.testing.assert_allclose(out, expected, atol=2e-5)
    else:
        assert jnp.isnan(out).all()


def test_one_segment_too_long_is_nan_in_every_token_of_every_row():
    ids = np.array([[1, 1, 1, 1], [1, 2, 2, 0]], np.int32)
    pos = np.array([[0, 1, 2, 3], [0, 0, 1, 0]], np.int32)
    rows, x = Rows(ids, ids, pos, pos, 2), jnp.ones((2, 4, HEADS, HEAD_DIM))
    for rooms, whole in (((4, 4), True), ((3, 4), False), ((4, 3), False)):
        out = attend(jax_layout(rows, "causal"), x, x, x, x, mask="causal", rooms=rooms)[0]
        assert bool(jnp.isnan(out).any()) is not whole
        if not whole:
            assert jnp.isnan(out).all()


@pytest.mark.parametrize("mask", MASKS)
def test_tokens_that_see_nothing_give_zero_and_finite_gradients(mask):
    # Row 0 is padding; in row 1 the id of the queries has no keys.
    ids_q, ids_kv = np.array([[0, 0, 0], [1, 1, 0]], np.int32), np.array([[0, 0], [2, 2]], np.int32)
    rows = Rows(
        ids_q, ids_kv, np.array([[0, 0, 0], [0, 1, 0]], np.int32), np.array([[0, 0], [0, 1]], np.int32), 2
    )
    q, k, v, dout = random_qkv(Shape(2, 3, 2, 2))
    for x in attend(jax_layout(rows, mask), q, k, v, dout, mask=mask, rooms=(3, 2)):
        np.testing.assert_array_equal(x, np.zeros_like(x))


def test_arguments_that_can_be_checked_by_hand():
    ids = jnp.array([[0, 1, 1, 3], [2, 2, 2, 0]], jnp.int32)
    pos = segments_jax.positions(ids)
    layout = segments_jax.seqlens_and_offsets(ids, ids, pos, pos, mask="causal", max_segments=3)
    out = dot_product_arguments(layout, q_tokens=4, kv_tokens=4, max_seqlen_q=3, max_seqlen_kv=2)
    assert isinstance(out, DotProductArguments)
    assert out.query_seq_lengths.tolist() == out.key_value_seq_lengths.tolist() == [2, 0, 1, 0, 3, 0]
    assert (out.indices_q.shape, out.indices_kv.shape) == ((6, 3), (6, 2))
    assert {x.dtype for x in out} == {jnp.dtype("int32")}
    assert out.indices_q[0, :2].tolist() == [1, 2]
    assert out.indices_q[2, :1].tolist() == [3]
    assert out.indices_q[4].tolist() == [4, 5, 6]


def test_options_are_passed_on():
    ids = np.array([[1, 1, 1]], np.int32)
    pos = np.array([[0, 1, 2]], np.int32)
    arguments = dot_product_arguments(
        jax_layout(Rows(ids, ids, pos, pos, 1), "padding"),
        q_tokens=3,
        kv_tokens=3,
        max_seqlen_q=3,
        max_seqlen_kv=3,
    )
    q, k, v, _ = (jnp.asarray(x) for x in random_qkv(Shape(1, 3, 3, 1)))
    out = dot_product_attention(q, k, v, arguments, mask="padding", scale=0.0)
    np.testing.assert_allclose(out, jnp.broadcast_to(v.mean(axis=1, keepdims=True), out.shape), atol=1e-6)
