"""What XLA plans for the JAX path at 128k and 1M tokens: bytes and FLOPs, never seconds."""

from __future__ import annotations

import math
import re
from functools import cache

import jax
import jax.numpy as jnp
import pytest

from attnlab.segments import MASKS, jax_rungs
from attnlab.segments import jax as segments_jax

TOKENS = 1 << 17


@cache
def planned(tokens: int, max_segments: int, mask: str = "causal", batch: int = 1):
    """Compile for a shape, with q != kv: two arrays of ids and two of positions. Nothing is allocated."""
    tokens_of = jax.ShapeDtypeStruct((batch, tokens), jnp.int32)
    function = jax.jit(segments_jax.seqlens_and_offsets, static_argnames=("mask", "max_segments"))
    return function.lower(*[tokens_of] * 4, mask=mask, max_segments=max_segments).compile()


def temp_bytes(compiled) -> int:
    return compiled.memory_analysis().temp_size_in_bytes


def largest_array(compiled) -> int:
    """Elements of the largest array that the program names, kept in memory or not."""
    return max(
        math.prod(map(int, dims.split(","))) for dims in re.findall(r"\[(\d+(?:,\d+)*)\]", compiled.as_text())
    )


@pytest.mark.parametrize("mask", MASKS)
def test_sixteen_segments_take_thirty_kilobytes_and_one_look_at_each_token(mask):
    compiled = planned(TOKENS, 16, mask)
    assert temp_bytes(compiled) <= 30_000
    assert compiled.cost_analysis()["flops"] <= 1.5e6


def test_a_thousand_segments_take_a_megabyte():
    assert temp_bytes(planned(TOKENS, 1024)) <= 1_000_000


def test_memory_grows_no_faster_than_the_row():
    assert temp_bytes(planned(8 * TOKENS, 16)) <= 8 * temp_bytes(planned(TOKENS, 16))


def test_memory_grows_no_faster_than_the_batch():
    assert temp_bytes(planned(TOKENS, 16, batch=4)) <= 4 * temp_bytes(planned(TOKENS, 16))


@pytest.mark.parametrize("max_segments", [16, 1024])
def test_nothing_is_larger_than_the_row(max_segments):
    assert largest_array(planned(TOKENS, max_segments)) == TOKENS


def test_the_one_hot_way_plans_what_this_one_avoids():
    # So that the bounds above are known to be able to fail.
    tokens_of = jax.ShapeDtypeStruct((1, TOKENS), jnp.int32)
    one_hot = jax_rungs.by_one_hot.lower(*[tokens_of] * 4, mask="causal", max_segments=16).compile()
    assert largest_array(one_hot) >= 16 * TOKENS
    assert temp_bytes(one_hot) >= 20 * temp_bytes(planned(TOKENS, 16))
    assert one_hot.cost_analysis()["flops"] >= 10 * planned(TOKENS, 16).cost_analysis()["flops"]
