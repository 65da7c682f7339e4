"""The slower ways in JAX give the same lengths and starts, and say nothing about validity."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_paths import as_numpy, assert_same_numbers, layout_of

from attnlab.exercises.rows import Shape, packed_rows
from attnlab.segments import MASKS, jax_rungs

RUNGS = ("through_the_mask", "by_compaction", "by_counting", "by_one_hot")
masks = st.sampled_from(MASKS)


@pytest.mark.parametrize("rung", RUNGS)
@settings(max_examples=60)
@given(rows=packed_rows(Shape(2, 33, 24, 5)), mask=masks)
def test_equals_the_reference_on_valid_rows(rung, rows, mask):
    inputs = (jnp.asarray(x) for x in rows.tokens)
    out = as_numpy(getattr(jax_rungs, rung)(*inputs, mask=mask, max_segments=rows.max_segments))
    expected = layout_of("reference", rows, mask)
    assert_same_numbers(out, expected)
    for got, wanted in zip(out[:4], expected[:4], strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    assert out.valid is None


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("rung", RUNGS)
def test_a_query_at_the_largest_position_sees_nothing_where_there_is_no_key(rung, mask):
    # An id without keys has no oldest key, and no position may pass for one.
    ids_q, ids_kv = jnp.array([[1, 1]], jnp.int32), jnp.array([[0, 0]], jnp.int32)
    pos_q = jnp.array([[2**31 - 2, 2**31 - 1]], jnp.int32)
    out = getattr(jax_rungs, rung)(ids_q, ids_kv, pos_q, pos_q, mask=mask, max_segments=1)
    assert out.q_seqlens.tolist() == out.kv_seqlens.tolist() == [[0]]
    assert out.q_offsets.tolist() == out.kv_offsets.tolist() == [[-1, -1]]


def test_the_first_rung_pays_for_every_pair_of_tokens():
    tokens_of = jax.ShapeDtypeStruct((1, 4096), jnp.int32)
    planned = {
        rung: getattr(jax_rungs, rung).lower(*[tokens_of] * 4, mask="causal", max_segments=4).compile()
        for rung in RUNGS
    }
    flops = {rung: compiled.cost_analysis()["flops"] for rung, compiled in planned.items()}
    assert flops["through_the_mask"] >= 4096**2
    assert all(flops[rung] < 4096**2 / 10 for rung in RUNGS[1:])
