"""No rows, no tokens, one token: right answers on every path."""

from __future__ import annotations

import numpy as np
import pytest
from segment_paths import MODULES, assert_agree, layout_of

from attnlab.exercises.rows import Rows
from attnlab.segments import MASKS
from attnlab.segments import numpy as segments_numpy
from attnlab.segments.promises import from_lengths, from_sorted_ids

EMPTY = [(0, 0, 0), (0, 3, 2), (2, 0, 0), (2, 0, 3), (2, 3, 0)]


@pytest.mark.parametrize("shape", EMPTY, ids=str)
@pytest.mark.parametrize("path", MODULES)
def test_nothing_sees_nothing(path, shape):
    batch, q_tokens, kv_tokens = shape
    q, kv = np.ones((batch, q_tokens), np.int32), np.ones((batch, kv_tokens), np.int32)
    rows = Rows(q, kv, segments_numpy.positions(q), segments_numpy.positions(kv), 2)
    for mask in MASKS:
        out = layout_of(path, rows, mask)
        assert [x.shape for x in out] == [(batch, 2), (batch, 2), (batch, 3), (batch, 3), (batch,)]
        assert [str(x.dtype) for x in out] == ["int32"] * 4 + ["bool"]
        assert not out.q_seqlens.any()
        assert not out.kv_seqlens.any()
        assert (out.q_offsets == -1).all()
        assert (out.kv_offsets == -1).all()
        assert out.valid.all()


@pytest.mark.parametrize("path", MODULES)
def test_an_empty_side_does_not_excuse_the_other(path):
    ids = np.array([[1, 2, 1], [1, 1, 1]], np.int32)
    pos, none = np.array([[0, 0, 0], [0, 1, 2]], np.int32), np.zeros((2, 0), np.int32)
    assert layout_of(path, Rows(ids, none, pos, none, 2), "causal").valid.tolist() == [False, True]
    assert layout_of(path, Rows(none, ids, none, pos, 2), "causal").valid.tolist() == [False, True]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("path", MODULES)
def test_one_token(path, mask):
    # Same id; padding; another id; a key that stands after the query, which only "padding" shows.
    ids_q, ids_kv = np.array([[[2], [0], [1], [2]], [[2], [0], [2], [2]]], np.int32)
    pos_q, pos_kv = np.array([[[0], [0], [0], [3]], [[0], [0], [0], [4]]], np.int32)
    rows = Rows(ids_q, ids_kv, pos_q, pos_kv, 2)
    out = layout_of(path, rows, mask)
    last = 1 if mask == "padding" else 0
    assert out.q_seqlens.tolist() == out.kv_seqlens.tolist() == [[0, 1], [0, 0], [0, 0], [0, last]]
    assert out.q_offsets.tolist() == [[0, -1, -1], [-1] * 3, [-1] * 3, [last - 1, -1, -1]]
    assert out.valid.all()
    assert_agree(out, layout_of("reference", rows, mask))


@pytest.mark.parametrize("shape", EMPTY, ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_promises_about_nothing(mask, shape):
    batch, q_tokens, kv_tokens = shape
    q, kv = np.ones((batch, q_tokens), np.int32), np.ones((batch, kv_tokens), np.int32)
    out = from_sorted_ids(q, kv, mask=mask, max_segments=2)
    rows = Rows(q, kv, segments_numpy.positions(q), segments_numpy.positions(kv), 2)
    assert_agree(out, layout_of("reference", rows, mask))
    lengths = np.zeros((batch, 2), np.int32)
    assert_agree(from_lengths(lengths, lengths, mask=mask), out)
