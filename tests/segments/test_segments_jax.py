"""The JAX path against the reference, on its own and inside jit and vmap."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_paths import as_numpy, assert_agree, layout_of

from attnlab.exercises.rows import FEW_SHAPES, Rows, Shape, any_rows, packed_rows
from attnlab.segments import MASKS
from attnlab.segments import jax as segments_jax

masks = st.sampled_from(MASKS)


@pytest.mark.parametrize("shape", FEW_SHAPES, ids=lambda shape: "-".join(map(str, shape)))
@settings(max_examples=30)
@given(data=st.data(), mask=masks)
def test_agrees_with_the_reference(shape, data, mask):
    rows = data.draw(packed_rows(shape) | any_rows(shape))
    assert_agree(layout_of("jax", rows, mask), layout_of("reference", rows, mask))


@settings(max_examples=20)
@given(any_rows(Shape(2, 32, 33, 5), negative=True), masks)
def test_negative_values_never_pass_as_valid(rows, mask):
    odd = np.zeros(len(rows.segment_ids_q), bool)
    for ids, pos in (rows.tokens[0::2], rows.tokens[1::2]):
        odd |= (ids < 0).any(axis=1) | ((pos < 0) & (ids != 0)).any(axis=1)
    assert not layout_of("jax", rows, mask).valid[odd].any()
    kept = Rows(*(x[~odd] for x in rows.tokens), rows.max_segments)
    np.testing.assert_array_equal(
        layout_of("jax", rows, mask).valid[~odd], layout_of("reference", kept, mask).valid
    )


@settings(max_examples=20)
@given(any_rows(Shape(6, 24, 17, 3)), masks)
def test_maps_over_another_axis(rows, mask):
    function = partial(segments_jax.seqlens_and_offsets, mask=mask, max_segments=rows.max_segments)
    stacked = [jnp.asarray(x).reshape(3, 2, -1) for x in rows.tokens]
    mapped = jax.vmap(function)(*stacked)
    flat = as_numpy(type(mapped)(*(x.reshape(6, *x.shape[2:]) for x in mapped)))
    assert_agree(flat, layout_of("reference", rows, mask))


def test_maps_over_queries_alone():
    # The keys are shared by all three, so that inside the map only some arguments have the new axis.
    ids_kv = jnp.array([[1, 1, 0, 2, 2, 2]], jnp.int32)
    ids_q = jnp.array([[[1, 2, 2, 0]], [[0, 1, 1, 1]], [[2, 2, 2, 2]]], jnp.int32)
    function = partial(segments_jax.seqlens_and_offsets, mask="causal", max_segments=2)
    mapped = jax.vmap(function, in_axes=(0, None, 0, None))(
        ids_q, ids_kv, segments_jax.positions(ids_q[:, 0])[:, None], segments_jax.positions(ids_kv)
    )
    for i, ids in enumerate(ids_q):
        alone = function(ids, ids_kv, segments_jax.positions(ids), segments_jax.positions(ids_kv))
        assert_agree(as_numpy(type(alone)(*(x[i] for x in mapped))), as_numpy(alone))


@partial(jax.jit, static_argnames="mask")
def layout_and_longest(ids_q, ids_kv, mask):
    positions = segments_jax.positions(ids_q), segments_jax.positions(ids_kv)
    out = segments_jax.seqlens_and_offsets(ids_q, ids_kv, *positions, mask=mask, max_segments=3)
    return out, out.q_seqlens.max(axis=1)


@settings(max_examples=20)
@given(packed_rows(Shape(2, 24, 17, 3), from_zero=True), masks)
def test_works_inside_a_larger_function_under_jit(rows, mask):
    out, longest = layout_and_longest(jnp.asarray(rows.segment_ids_q), jnp.asarray(rows.segment_ids_kv), mask)
    expected = layout_of("reference", rows, mask)
    assert_agree(as_numpy(out), expected)
    np.testing.assert_array_equal(longest, expected.q_seqlens.max(axis=1))


@pytest.mark.parametrize("mask", ["padding", "bottom_right_causal"])
def test_stays_32_bit_where_jax_is_set_to_64(mask):
    ids = np.array([[1, 1, 1, 0, 2, 2, 3, 3], [0, 0, 2, 2, 2, 3, 3, 3]], np.int32)
    pos = np.array([[0, 1, 2, 0, 0, 1, 0, 1], [0, 0, 2, 3, 4, 0, 1, 2]], np.int32)
    rows = Rows(ids, ids[:, 1:], pos, pos[:, 1:], 3)
    with jax.enable_x64(True):
        out = layout_of("jax", rows, mask)
    assert_agree(out, layout_of("reference", rows, mask))
