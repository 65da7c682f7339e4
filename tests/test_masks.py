"""Masks against a double loop over Python integers, in every library that evaluates them."""

from __future__ import annotations

import operator
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.masks import (
    Mask,
    bottom_right_causal,
    causal,
    document,
    full,
    padding,
    predicate,
    prefix,
    sliding_window,
)

Pair = Callable[[int, int], bool]


@dataclass(frozen=True)
class Drawn:
    """How to make a mask, the same rule in plain Python, and lengths that both fit."""

    make: Callable[[], Mask]
    rule: Pair
    q_len: int
    kv_len: int

    @cached_property
    def mask(self) -> Mask:
        # Made by the test and not while drawing, where the shape checker would disturb hypothesis.
        return self.make()

    def loop(self) -> np.ndarray:
        table = np.zeros((self.q_len, self.kv_len), np.bool_)
        for q in range(self.q_len):
            for k in range(self.kv_len):
                table[q, k] = self.rule(q, k)
        return table


def _leaf(kind: str, number: int, ids_q: list[int], ids_kv: list[int]) -> tuple[Callable[[], Mask], Pair]:
    q_len, kv_len = len(ids_q), len(ids_kv)
    leaves: dict[str, tuple[Callable[[], Mask], Pair]] = {
        "full": (full, lambda q, k: True),
        "causal": (causal, lambda q, k: k <= q),
        "bottom_right": (
            lambda: bottom_right_causal(q_len, kv_len),
            lambda q, k: q_len - q <= kv_len - k,
        ),
        "window": (lambda: sliding_window(number + 1), lambda q, k: q - k < number + 1),
        "document": (
            lambda: document(np.array(ids_q, np.int32), np.array(ids_kv, np.int32)),
            lambda q, k: ids_q[q] == ids_kv[k] != 0,
        ),
        "padding": (lambda: padding(number), lambda q, k: k < number),
        "prefix": (lambda: prefix(number), lambda q, k: k < number),
    }
    return leaves[kind]


@st.composite
def mask_trees(draw: st.DrawFn, longest: int = 12, shortest: int = 0) -> Drawn:
    """Random combinations with & | ~ of the masks that have intervals, at random lengths."""
    ids_q, ids_kv = (draw(st.lists(st.integers(0, 3), min_size=shortest, max_size=longest)) for _ in range(2))
    kinds = ["full", "causal", "bottom_right", "window", "document", "padding", "prefix"]

    def tree(depth: int) -> tuple[Callable[[], Mask], Pair]:
        sign = draw(st.sampled_from("&|~." if depth else "."))
        if sign == ".":
            return _leaf(draw(st.sampled_from(kinds)), draw(st.integers(0, longest + 1)), ids_q, ids_kv)
        make, rule = tree(depth - 1)
        if sign == "~":
            return lambda: ~make(), lambda q, k: not rule(q, k)
        op = {"&": operator.and_, "|": operator.or_}[sign]
        make_other, other_rule = tree(depth - 1)
        return lambda: op(make(), make_other()), lambda q, k: op(rule(q, k), other_rule(q, k))

    return Drawn(*tree(3), len(ids_q), len(ids_kv))


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 0), (0, 3), (3, 0), (1, 1), (5, 5), (4, 9), (9, 4)])
@pytest.mark.parametrize(
    "kind", ["full", "causal", "bottom_right", "window", "document", "padding", "prefix"]
)
def test_constructor_equals_a_double_loop(kind: str, q_len: int, kv_len: int) -> None:
    ids_q, ids_kv = ([(3 * i // length) for i in range(length)] for length in (q_len, kv_len))
    for number in (0, 1, 3, 20):
        drawn = Drawn(*_leaf(kind, number, ids_q, ids_kv), q_len, kv_len)
        table = drawn.mask.dense(q_len, kv_len)
        assert table.dtype == np.bool_
        assert table.shape == (q_len, kv_len)
        np.testing.assert_array_equal(table, drawn.loop())


@given(mask_trees())
def test_combination_equals_a_double_loop(drawn: Drawn) -> None:
    np.testing.assert_array_equal(drawn.mask.dense(drawn.q_len, drawn.kv_len), drawn.loop())


@given(mask_trees(longest=5))
def test_a_pair_of_python_integers_gets_a_truth_value(drawn: Drawn) -> None:
    for q in range(drawn.q_len):
        for k in range(drawn.kv_len):
            # ~True is -2 in Python, which would pass for true.
            assert drawn.mask(0, 0, q, k) in (True, False)
            assert bool(drawn.mask(0, 0, q, k)) == drawn.rule(q, k)


@settings(max_examples=30)
@given(mask_trees(shortest=1))
def test_torch_and_jax_evaluate_the_same_rule(drawn: Drawn) -> None:
    import jax.numpy as jnp
    import torch

    expected = drawn.loop()
    for arange in (torch.arange, jnp.arange):
        q_idx, kv_idx = arange(drawn.q_len)[:, None], arange(drawn.kv_len)[None, :]
        seen = drawn.mask(q_idx[0] * 0, q_idx[0] * 0, q_idx, kv_idx)
        assert "bool" in str(seen.dtype)
        np.testing.assert_array_equal(np.broadcast_to(np.asarray(seen), expected.shape), expected)


def test_a_mask_works_under_jit_and_vmap_in_jax() -> None:
    import jax
    import jax.numpy as jnp

    mask = ~(document(np.array([1, 1, 2, 0])) & causal()) | prefix(1)
    rule = jax.vmap(jax.vmap(lambda q, k: mask(0, 0, q, k), (None, 0)), (0, None))
    np.testing.assert_array_equal(jax.jit(rule)(jnp.arange(4), jnp.arange(4)), mask.dense(4, 4))


def test_mask_mod_is_a_plain_function_that_torch_can_vmap() -> None:
    import torch
    from torch.nn.attention.flex_attention import create_mask

    mask = ~(document(np.array([1, 1, 2, 0])) & causal()) | prefix(1)
    for rule in (mask, mask.mask_mod("cpu")):
        table = create_mask(rule, None, None, 4, 4, device="cpu")
        assert table.dtype == torch.bool
        np.testing.assert_array_equal(table[0, 0].numpy(), mask.dense(4, 4))


def test_window_counts_the_query_itself_and_leaves_the_future_open() -> None:
    assert sliding_window(3).dense(6, 6).sum(axis=1).tolist() == [6, 6, 6, 5, 4, 3]
    assert (causal() & sliding_window(3)).dense(6, 6).sum(axis=1).tolist() == [1, 2, 3, 3, 3, 3]


def test_bottom_right_causal_with_fewer_and_with_more_keys() -> None:
    assert bottom_right_causal(2, 5).dense(2, 5).sum(axis=1).tolist() == [4, 5]
    assert bottom_right_causal(5, 2).dense(5, 2).sum(axis=1).tolist() == [0, 0, 0, 1, 2]


def test_padding_sees_nothing_and_is_not_seen() -> None:
    table = document(np.array([1, 0, 1, 0])).dense(4, 4)
    assert table.astype(int).tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]


def test_document_keeps_its_own_copy_of_the_ids() -> None:
    ids = np.array([1, 1, 2, 2], np.int32)
    mask = document(ids)
    before = mask.dense(4, 4)
    ids[:] = 1
    np.testing.assert_array_equal(mask.dense(4, 4), before)


def test_predicate_evaluates_the_readers_own_rule() -> None:
    every_other = predicate(lambda b, h, q_idx, kv_idx: (q_idx - kv_idx) % 2 == 0, "every other")
    assert (causal() & every_other).dense(3, 3).astype(int).tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 1]]
    everywhere = predicate(lambda b, h, q_idx, kv_idx: True, "everywhere")
    assert everywhere.dense(2, 3).all()


def test_names_have_the_brackets_they_need() -> None:
    a, b, c = causal(), sliding_window(768), document(np.array([1]))
    assert a.name == "causal"
    assert (a & b).name == "causal & window(768)"
    assert (a & b & c).name == "causal & window(768) & document"
    assert (a | b & c).name == "causal | window(768) & document"
    assert ((a | prefix(4)) & padding(9)).name == "(causal | prefix(4)) & padding(9)"
    assert (~(a & b)).name == "~(causal & window(768))"
    assert (~a | ~~b).name == "~causal | ~~window(768)"
    assert (bottom_right_causal(1, 2) & full()).name == "bottom_right_causal & full"
    assert repr(a & b) == "Mask(causal & window(768))"


def test_the_ground_floor_imports_no_framework() -> None:
    code = (
        "import sys, attnlab.masks, attnlab.intervals, attnlab.tiles, attnlab.attention\n"
        "print([name for name in ('torch', 'jax', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: sliding_window(0), ValueError, "window must be between 1 .* got 0"),
        (lambda: sliding_window(2**31), ValueError, "window"),
        (lambda: sliding_window(2.0), TypeError, "window must be an int, got float"),
        (lambda: sliding_window(True), TypeError, "window must be an int, got bool"),
        (lambda: prefix(-1), ValueError, "length must be between 0 .* got -1"),
        (lambda: padding(-1), ValueError, "kv_length must be between 0 .* got -1"),
        (lambda: padding(10**30), ValueError, "kv_length"),
        (lambda: bottom_right_causal(-1, 2), ValueError, "q_len"),
        (lambda: bottom_right_causal(1, "2"), TypeError, "kv_len must be an int, got str"),
        (lambda: document([1, 2]), TypeError, "segment_ids_q must be a NumPy array of integers, got list"),
        (lambda: document(np.array([1.0])), TypeError, "segment_ids_q .* got dtype float64"),
        (lambda: document(np.array([1]), np.array([True])), TypeError, "segment_ids_kv .* got dtype bool"),
        (lambda: document(np.ones((2, 3), int)), ValueError, r"segment_ids_q .* got shape \(2, 3\)"),
        (lambda: document(np.array([1, -1])), ValueError, "segment_ids_q must lie between 0 .* got -1 to 1"),
        (lambda: document(np.array([1]), np.array([2**40])), ValueError, "segment_ids_kv must lie"),
        (lambda: predicate("causal", "name"), TypeError, "fn must be callable, got str"),
        (lambda: predicate(lambda b, h, q, k: q, 3), TypeError, "name must be a str, got int"),
        (lambda: causal().dense(-1, 2), ValueError, "q_len must be between 0 .* got -1"),
        (lambda: causal().dense(2, 2.5), TypeError, "kv_len must be an int, got float"),
        (lambda: causal().intervals(2, 2**31), ValueError, "kv_len"),
        (
            lambda: document(np.array([1, 1])).dense(3, 2),
            ValueError,
            "q_len must be 2, .* 'document' .* got 3",
        ),
        (lambda: (~bottom_right_causal(2, 3)).intervals(2, 2), ValueError, "kv_len must be 3, .* got 2"),
        (
            lambda: document(np.array([1, 1])) & bottom_right_causal(2, 3),
            ValueError,
            r"'document & bottom_right_causal' do not fit together: built for \[2, 3\] keys",
        ),
        (lambda: predicate(lambda b, h, q, k: q - k, "dist").dense(2, 2), TypeError, "'dist' .* int64"),
        (
            lambda: predicate(lambda b, h, q, k: np.ones(3, bool), "odd").dense(2, 2),
            ValueError,
            r"'odd' must give shape \(2, 2\), got \(3,\)",
        ),
        (lambda: causal() & (lambda b, h, q, k: True), TypeError, "unsupported operand"),
    ],
)
def test_bad_input_is_named(make: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()
