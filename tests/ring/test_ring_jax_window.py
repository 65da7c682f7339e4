"""Sliding-window attention over a sequence in JAX, against float64 and against jax.nn."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.attention import dense_attention
from attnlab.ring import reference
from attnlab.ring.jax import sliding_window_attention
from attnlab.ring.order import TileOrder


class Case(NamedTuple):
    tokens: int
    window: int
    causal: bool
    block: int
    kv_heads: int = 2
    group: int = 2


CASES = [
    Case(37, 9, True, 8),
    Case(37, 9, False, 8, group=1),
    Case(40, 1, True, 8),
    Case(37, 60, True, 8, kv_heads=1, group=3),
    Case(37, 60, False, 16),
    Case(37, 20, False, 8),  # both sides together pass the sequence
    Case(33, 5, True, 64),  # one block, larger than the sequence
    Case(64, 30, True, 4),  # windows that span many blocks
    Case(1, 1, True, 1),
]


def inputs(case, seed=0, batch=2, head_dim=5):
    """q, k, v and the gradients of the output and of the log-sum-exp."""
    rng = np.random.default_rng(seed)
    q_shape = (batch, case.kv_heads * case.group, case.tokens, head_dim)
    kv_shape = (batch, case.kv_heads, case.tokens, head_dim)
    shapes = (q_shape, kv_shape, kv_shape, q_shape, q_shape[:-1])
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def in_float64(case, tensors):
    *leaves, dout, dlse = (torch.tensor(x, dtype=torch.float64) for x in tensors)
    leaves = [x.requires_grad_() for x in leaves]
    out, lse = reference.sliding_window_attention(
        *leaves, window=case.window, causal=case.causal, return_lse=True
    )
    gradients = torch.autograd.grad((out * dout).sum() + (lse * dlse).sum(), leaves)
    return [x.detach().numpy() for x in (out, lse, *gradients)]


@cache
def compiled(case):
    def results(q, k, v, dout, dlse):
        def attention(*qkv):
            return sliding_window_attention(
                *qkv, window=case.window, causal=case.causal, block_size=case.block, return_lse=True
            )

        (out, lse), pull_back = jax.vjp(attention, q, k, v)
        return out, lse, *pull_back((dout, dlse))

    return jax.jit(results)


@settings(max_examples=30)
@given(st.sampled_from(CASES), st.integers(0, 2**32 - 1))
def test_equals_float64_forward_and_backward(case, seed):
    tensors = inputs(case, seed)
    got = compiled(case)(*tensors)
    for name, a, b in zip(("out", "lse", "dq", "dk", "dv"), got, in_float64(case, tensors), strict=True):
        assert a.dtype == jnp.float32 and a.shape == b.shape
        tolerance = 2e-6 if name in ("out", "lse") else 1e-5
        np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=1e-6, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_equals_dense_attention_under_the_window(case):
    q, k, v, *rest = inputs(case, seed=1)
    distance = np.arange(case.tokens)[:, None] - np.arange(case.tokens)
    seen = (distance < case.window) & (distance >= 0 if case.causal else distance > -case.window)
    k_all, v_all = (x.repeat(case.group, axis=1) for x in (k, v))
    for got, want in zip(
        compiled(case)(q, k, v, *rest), dense_attention(q, k_all, v_all, seen), strict=False
    ):
        np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_equals_the_local_window_of_jax_nn(causal):
    # There the window does not count the query's own key, and heads come after the length.
    case = Case(37, 9, causal, 8)
    q, k, v, dout, dlse = inputs(case)

    def theirs(*qkv):
        left, right = case.window - 1, 0 if causal else case.window - 1
        q, k, v = (x.swapaxes(1, 2) for x in qkv)
        out = jax.nn.dot_product_attention(q, k, v, local_window_size=(left, right), is_causal=causal)
        return out.swapaxes(1, 2)

    @jax.jit
    def theirs_with_gradients(*qkv):
        want, pull_back = jax.vjp(theirs, *qkv)
        return want, pull_back(dout)

    want, expected_gradients = theirs_with_gradients(q, k, v)
    out, _, *gradients = compiled(case)(q, k, v, dout, np.zeros_like(dlse))
    np.testing.assert_allclose(out, want, atol=2e-6)
    for got, expected in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("dtype, atol", [(jnp.bfloat16, 3e-2), (jnp.float16, 4e-3), (jnp.float64, 1e-12)])
def test_other_precisions(dtype, atol):
    case = CASES[0]
    with jax.enable_x64(dtype == jnp.float64):
        tensors = [jnp.asarray(x, dtype) for x in inputs(case)]
        tensors[-1] = tensors[-1].astype(jnp.promote_types(dtype, jnp.float32))
        got = compiled(case)(*tensors)
        wide = [np.asarray(x, np.float64) for x in tensors]
        for a, b in zip(got, in_float64(case, wide), strict=True):
            np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=atol, atol=atol)
        assert got[1].dtype == tensors[-1].dtype
        assert all(x.dtype == dtype for x in (got[0], *got[2:]))


def test_the_order_of_loops_and_the_block_change_nothing_that_matters():
    q, k, v, *_ = map(jnp.asarray, inputs(CASES[0]))
    out = sliding_window_attention(q, k, v, window=9, block_size=8)
    k_major = sliding_window_attention(q, k, v, window=9, block_size=8, order=TileOrder.K_MAJOR)
    np.testing.assert_array_equal(out, k_major)
    np.testing.assert_allclose(out, sliding_window_attention(q, k, v, window=9), atol=1e-6)


def test_maps_over_another_axis():
    q, k, v, *_ = map(jnp.asarray, inputs(CASES[0]))

    def attention(q, k, v):
        return sliding_window_attention(q[None], k[None], v[None], window=9, block_size=8)[0]

    np.testing.assert_allclose(
        jax.vmap(attention)(q, k, v), sliding_window_attention(q, k, v, window=9, block_size=8), atol=1e-6
    )


@pytest.mark.parametrize("shape", [(0, 2, 5, 4), (2, 2, 0, 4)])
def test_empty_inputs_give_empty_outputs(shape):
    x = jnp.zeros(shape)
    out, lse = sliding_window_attention(x, x, x, window=3, return_lse=True)
    assert out.shape == shape and lse.shape == shape[:-1] and lse.dtype == jnp.float32


def test_forward_mode_says_that_it_is_not_there():
    x = jnp.ones((1, 1, 4, 2))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda q: sliding_window_attention(q, x, x, window=2), (x,), (x,))


@pytest.mark.unchecked
@pytest.mark.parametrize(
    "error, message, change",
    [
        (TypeError, "q must be a JAX array; got ndarray", {"q": np.ones((1, 2, 3, 4))}),
        (TypeError, "q must be float32, .*got int32", {"q": jnp.ones((1, 2, 3, 4), jnp.int32)}),
        (ValueError, "q must have shape", {"q": jnp.ones((2, 3, 4))}),
        (ValueError, "q must have shape", {"q": jnp.ones((1, 2, 3, 0))}),
        (TypeError, "k must have dtype float32; got bfloat16", {"k": jnp.ones((1, 2, 3, 4), jnp.bfloat16)}),
        (ValueError, "k must have shape", {"k": jnp.ones((1, 2, 5, 4))}),
        (ValueError, "k must have heads that divide the 2 of q; got 3", {"k": jnp.ones((1, 3, 3, 4))}),
        (ValueError, "v must have shape", {"v": jnp.ones((1, 1, 3, 4))}),
        (ValueError, "window must be", {"window": 0}),
        (TypeError, "window must be an int", {"window": 2.0}),
        (TypeError, "causal must be a bool", {"causal": 1}),
        (TypeError, "return_lse must be a bool", {"return_lse": None}),
        (TypeError, "order must be a TileOrder", {"order": "q"}),
        (ValueError, "block_size must be", {"block_size": 0}),
    ],
)
def test_bad_input_is_refused_by_name(error, message, change):
    x = jnp.ones((1, 2, 3, 4))
    arguments = {"q": x, "k": x, "v": x, "window": 2} | change
    with pytest.raises(error, match=message):
        sliding_window_attention(**arguments)
