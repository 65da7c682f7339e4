"""Dense attention against loops, and the merge of parts against dense attention."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.attention import dense_attention, merge, merge_mlo, normalise, partial_attention
from attnlab.masks import causal, document, full, sliding_window


@pytest.fixture(autouse=True)
def _no_floating_point_accidents() -> object:
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        yield


def inputs(
    q_len: int, kv_len: int, head_dim: int = 4, value_dim: int = 3, batch: tuple[int, ...] = ()
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = ((q_len, head_dim), (kv_len, head_dim), (kv_len, value_dim))
    q, k, v = (rng.standard_normal(batch + shape) for shape in shapes)
    return q, k, v


def by_loops(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    out, lse = np.zeros((len(q), v.shape[1])), np.full(len(q), -np.inf)
    for i in range(len(q)):
        weights = {j: math.exp(scale * math.fsum(q[i] * k[j])) for j in range(len(k)) if seen[i, j]}
        total = math.fsum(weights.values())
        if weights:
            lse[i] = math.log(total)
            out[i] = sum(weight * v[j] for j, weight in weights.items()) / total
    return out, lse


def assert_close(got: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> None:
    assert len(got) == len(expected)
    for x, y in zip(got, expected, strict=True):
        assert not np.isnan(x).any()
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 1), (5, 5), (3, 8), (8, 3)])
def test_dense_attention_equals_loops(q_len: int, kv_len: int) -> None:
    q, k, v = inputs(q_len, kv_len)
    for mask in (causal(), ~causal(), full(), causal() & sliding_window(2)):
        assert_close(
            dense_attention(q, k, v, mask), by_loops(q, k, v, mask.dense(q_len, kv_len), 1 / math.sqrt(4))
        )
    assert_close(dense_attention(q, k, v, scale=0.3), by_loops(q, k, v, np.ones((q_len, kv_len), bool), 0.3))


def test_dense_attention_equals_torch() -> None:
    import torch

    q, k, v = inputs(6, 9, batch=(2, 3))
    mask = np.random.default_rng(1).random((2, 1, 6, 9)) < 0.5
    mask[..., 0] = True
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(torch.from_numpy(x) for x in (q, k, v)), attn_mask=torch.from_numpy(mask)
    )
    out, lse = dense_attention(q, k, v, mask)
    assert lse.shape == (2, 3, 6)
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-12, atol=1e-13)


def test_leading_axes_broadcast() -> None:
    q, k, v = inputs(4, 5, batch=(2, 3))
    out, lse = dense_attention(q, k[:, :1], v[0, 0], causal())
    assert out.shape == (2, 3, 4, 3)
    assert lse.shape == (2, 3, 4)
    one = dense_attention(q[1, 2], k[1, 0], v[0, 0], causal())
    assert_close((out[1, 2], lse[1, 2]), one)
    # Even an axis that only v has appears in every part of the result.
    m, l, o = partial_attention(q[0, 0], k[0, 0], v)  # noqa: E741
    assert m.shape == l.shape == o.shape[:-1] == (2, 3, 4)


def test_a_query_that_sees_nothing_gets_zero_and_minus_infinity() -> None:
    q, k, v = inputs(4, 4)
    out, lse = dense_attention(q, k, v, document(np.array([1, 0, 1, 0])))
    assert (out[[1, 3]] == 0).all()
    assert np.isneginf(lse[[1, 3]]).all()
    assert np.isfinite(lse[[0, 2]]).all()
    out, lse = dense_attention(q, k[:0], v[:0])
    assert (out == 0).all() and out.shape == (4, 3)
    assert np.isneginf(lse).all()
    assert dense_attention(q[:0], k, v)[0].shape == (0, 3)


def test_large_scores_do_not_overflow() -> None:
    q, k, v = inputs(3, 6)
    out, lse = dense_attention(1e4 * q, k, v)
    best = (q @ k.T).argmax(axis=1)
    np.testing.assert_allclose(out, v[best], rtol=1e-12)
    np.testing.assert_allclose(lse, 1e4 * (q @ k.T).max(axis=1) / 2, rtol=1e-12)


def test_float32_is_computed_in_float64() -> None:
    q, k, v = (x.astype(np.float32) for x in inputs(5, 5))
    got = dense_attention(q, k, v, causal())
    assert all(x.dtype == np.float64 for x in got)
    assert_close(got, dense_attention(*(x.astype(np.float64) for x in (q, k, v)), causal()))


def test_a_key_that_nobody_sees_has_no_influence() -> None:
    q, k, v = inputs(4, 6)
    expected = dense_attention(q, k, v, causal())
    k[4:], v[4:] = np.nan, np.nan
    with np.errstate(invalid="ignore"):
        assert_close(dense_attention(q, k, v, causal()), expected)


@given(st.data())
def test_any_cut_and_any_order_of_merging_equals_dense_attention(data: st.DataObject) -> None:
    """Keys are dealt into parts at random; some parts, and some queries in a part, see nothing."""
    q_len, kv_len = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    q, k, v = inputs(q_len, kv_len, batch=(2,))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    seen = rng.random((q_len, kv_len)) < data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    part_of = rng.integers(0, 4, kv_len)
    order = data.draw(st.permutations(range(4)))

    expected = dense_attention(q, k, v, seen)
    cuts = [(k[:, part_of == p], v[:, part_of == p], seen[:, part_of == p]) for p in order]
    assert_close(functools.reduce(merge, [dense_attention(q, *cut) for cut in cuts]), expected)
    triples = [partial_attention(q, *cut) for cut in cuts]
    assert_close(normalise(*functools.reduce(merge_mlo, triples)), expected)


def test_merge_is_associative_and_commutative() -> None:
    q, k, v = inputs(5, 9)
    seen = causal().dense(5, 9)
    parts = [dense_attention(q, k[i : i + 3], v[i : i + 3], seen[:, i : i + 3]) for i in (0, 3, 6)]
    a, b, c = parts
    assert_close(merge(merge(a, b), c), merge(a, merge(b, c)))
    for permuted in itertools.permutations(parts):
        assert_close(functools.reduce(merge, permuted), merge(merge(a, b), c))
    triples = [partial_attention(q, k[i : i + 3], v[i : i + 3], seen[:, i : i + 3]) for i in (0, 3, 6)]
    x, y, z = triples
    assert_close(merge_mlo(merge_mlo(x, y), z), merge_mlo(x, merge_mlo(y, z)))


def test_a_part_that_sees_nothing_changes_nothing() -> None:
    q, k, v = inputs(4, 4)
    some, nothing = dense_attention(q, k, v, causal()), dense_attention(q, k, v, ~full())
    assert_close(merge(some, nothing), some)
    assert_close(merge(nothing, some), some)
    assert_close(merge(nothing, nothing), nothing)
    triple, zero = partial_attention(q, k, v, causal()), partial_attention(q, k, v, ~full())
    assert_close(merge_mlo(triple, zero), triple)
    assert_close(merge_mlo(zero, zero), (np.full(4, -np.inf), np.zeros(4), np.zeros((4, 3))))


def test_merge_of_parts_with_very_different_scores() -> None:
    q, k, v = inputs(4, 6)
    k[3:] *= 1e4
    parts = [dense_attention(q, k[i : i + 3], v[i : i + 3]) for i in (0, 3)]
    assert_close(merge(*parts), dense_attention(q, k, v))


def test_merge_keeps_float32() -> None:
    q, k, v = inputs(4, 6)
    parts = [
        tuple(x.astype(np.float32) for x in dense_attention(q, k[i : i + 3], v[i : i + 3])) for i in (0, 3)
    ]
    assert [x.dtype for x in merge(*parts)] == [np.float32, np.float32]


X, ROW = np.zeros((3, 4)), np.zeros(3)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: dense_attention([[1.0]], X, X), TypeError, "q must be a NumPy array of floats, got list"),
        (lambda: dense_attention(X, X.astype(int), X), TypeError, "k must be .* got dtype int64"),
        (lambda: dense_attention(X, X, ROW), ValueError, r"v must have shape .* got \(3,\)"),
        (lambda: dense_attention(X[:, :0], X[:, :0], X), ValueError, r"q must have shape .* got \(3, 0\)"),
        (
            lambda: dense_attention(X, X[:, :2], X),
            ValueError,
            r"k must have the head_dim of q, 4, .*\(3, 2\)",
        ),
        (lambda: dense_attention(X, X, X[:2]), ValueError, r"v must have the length of k, 3, .*\(2, 4\)"),
        (
            lambda: dense_attention(np.zeros((2, 3, 4)), np.zeros((5, 3, 4)), X),
            ValueError,
            "leading axes of q, k, v must broadcast",
        ),
        (lambda: dense_attention(X, X, X, np.ones((3, 3))), TypeError, "mask must be .* got dtype float64"),
        (lambda: dense_attention(X, X, X, "causal"), TypeError, "mask must be .* got str"),
        (
            lambda: dense_attention(X, X, X, np.ones((3, 2), bool)),
            ValueError,
            r"mask must broadcast to \(3, 3\), got shape \(3, 2\)",
        ),
        (
            lambda: dense_attention(X, X, X, np.ones((2, 3, 3), bool)),
            ValueError,
            r"mask must broadcast to \(3, 3\), got shape \(2, 3, 3\)",
        ),
        (lambda: dense_attention(X, X, X, document(np.array([1, 1]))), ValueError, "q_len must be 2"),
        (lambda: dense_attention(X, X, X, scale=math.inf), ValueError, "scale must be finite, got inf"),
        (lambda: merge((X, ROW[:2]), (X, ROW)), ValueError, "part_a: shapes"),
        (lambda: merge((X, ROW), (X[:2], ROW[:2])), ValueError, r"part_b has an output of shape \(2, 4\)"),
        (lambda: merge_mlo((ROW, ROW, X), (ROW, ROW[:1], X)), ValueError, "part_b: shapes"),
        (lambda: normalise(ROW, ROW[:2], X), ValueError, "m, l, o: shapes"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
