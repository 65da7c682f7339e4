"""Key intervals against the dense table, and the promises of their canonical form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_masks import Drawn, mask_trees

from attnlab.intervals import same_id
from attnlab.masks import MOST_RUNS, Mask, causal, document, full, predicate, prefix, sliding_window


def drawn_out(spans: np.ndarray, kv_len: int) -> np.ndarray:
    """The dense table that key intervals stand for, and a failure if a key is counted twice."""
    table = np.zeros((spans.shape[0], kv_len), np.int64)
    for row, intervals in zip(table, spans, strict=True):
        for lo, hi in intervals:
            row[lo:hi] += 1
    assert table.max(initial=0) <= 1
    return table.astype(np.bool_)


@given(mask_trees())
def test_intervals_equal_the_dense_mask(drawn: Drawn) -> None:
    spans = drawn.mask.intervals(drawn.q_len, drawn.kv_len)
    assert spans is not None
    assert spans.dtype == np.int64
    np.testing.assert_array_equal(drawn_out(spans, drawn.kv_len), drawn.loop())


@given(mask_trees())
def test_intervals_are_canonical(drawn: Drawn) -> None:
    spans = drawn.mask.intervals(drawn.q_len, drawn.kv_len)
    assert spans is not None
    lo, hi = spans[..., 0], spans[..., 1]
    assert ((lo >= 0) & (hi <= drawn.kv_len) & (lo <= hi)).all()
    assert (spans[lo == hi] == drawn.kv_len).all()  # one spelling of the empty interval
    gap = lo[:, 1:] > hi[:, :-1]
    last = lo[:, 1:] == drawn.kv_len
    assert (gap | last).all()  # sorted, disjoint, not touching; empty ones at the end
    assert spans.shape[1] == (lo < hi).sum(axis=1).max(initial=0)  # no column more than some row needs


@given(mask_trees(), st.data())
def test_equal_masks_have_equal_intervals(drawn: Drawn, data: st.DataObject) -> None:
    a, lengths = drawn.mask, (drawn.q_len, drawn.kv_len)
    b = data.draw(st.sampled_from([causal(), prefix(3), sliding_window(2)]))
    pairs: list[tuple[Mask, Mask]] = [
        (~(a & b), ~a | ~b),
        (~~a, a),
        (a & b, b & a),
        (a | (a & b), a),
        (a & ~a, ~full()),
    ]
    for one, other in pairs:
        np.testing.assert_array_equal(one.intervals(*lengths), other.intervals(*lengths))


def test_known_examples() -> None:
    assert (causal() & sliding_window(2)).intervals(4, 4)[:, 0].tolist() == [[0, 1], [0, 2], [1, 3], [2, 4]]
    assert (causal() | prefix(2)).intervals(4, 3)[:, 0].tolist() == [[0, 2], [0, 2], [0, 3], [0, 3]]
    assert (~causal() & full()).intervals(3, 3)[:, 0].tolist() == [[1, 3], [2, 3], [3, 3]]
    assert (~full()).intervals(3, 3).shape == (3, 0, 2)
    assert full().intervals(0, 3).shape == (0, 0, 2)


def test_an_id_that_returns_takes_one_interval_for_each_run() -> None:
    spans = document(np.array([1, 1, 2, 1, 0, 2])).intervals(6, 6)
    ones, twos, none = [[0, 2], [3, 4]], [[2, 3], [5, 6]], [[6, 6], [6, 6]]
    assert spans.tolist() == [ones, ones, twos, ones, none, twos]


def test_documents_laid_in_order_take_one_interval() -> None:
    assert document(np.repeat(np.arange(1, 101), 7)).intervals(700, 700).shape == (700, 1, 2)


def test_ids_of_the_queries_choose_among_the_runs_of_the_keys() -> None:
    spans = same_id(np.array([7, 0, 2, 5]), np.array([2, 2, 0, 7, 2, 9]), most=4)
    assert spans.tolist() == [[[3, 4], [6, 6]], [[6, 6]] * 2, [[0, 2], [4, 5]], [[6, 6]] * 2]
    # Only the ids that some query carries decide how many intervals are needed.
    assert same_id(np.array([7]), np.array([2, 2, 0, 7, 2, 9]), most=4).tolist() == [[[3, 4]]]


@pytest.mark.parametrize("runs", [MOST_RUNS, MOST_RUNS + 1])
def test_too_many_runs_of_one_id_have_no_small_form(runs: int) -> None:
    ids = np.tile([1, 0], runs)
    spans = document(ids).intervals(ids.size, ids.size)
    if runs > MOST_RUNS:
        assert spans is None
        assert (~document(ids) | causal()).intervals(ids.size, ids.size) is None
    else:
        np.testing.assert_array_equal(drawn_out(spans, ids.size), document(ids).dense(ids.size, ids.size))


def test_a_predicate_has_no_intervals_alone_or_combined() -> None:
    mine = predicate(lambda b, h, q_idx, kv_idx: kv_idx <= q_idx, "mine")
    for mask in (mine, ~mine, mine & causal(), full() | mine):
        assert mask.intervals(4, 4) is None
