"""The mask of a packed row against the reference, its intervals and its tiles against its own values."""

from __future__ import annotations

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.exercises.rows import Rows, Shape, any_rows, packed_rows, shapes
from attnlab.segments import MASKS, reference
from attnlab.segments.mask import packed_mask
from attnlab.tiles import tile_map

masks = st.sampled_from(MASKS)
windows = st.none() | st.integers(1, 12) | st.just(2**31 - 1)
one_row = shapes(min_batch=1, max_batch=1)


def first_row(rows: Rows) -> tuple[np.ndarray, ...]:
    return tuple(x[0] for x in rows.tokens)


def brute_force(rows: Rows, mask: str, window: int | None) -> np.ndarray:
    """Visibility of the first row by the spec, and the window pair by pair."""
    (seen,) = reference.visibility(*(x[:1] for x in rows.tokens), mask=mask)
    ids_q, ids_kv, pos_q, pos_kv = first_row(rows)
    pos_q, pos_kv = pos_q.tolist(), pos_kv.tolist()
    if mask == "bottom_right_causal":
        lengths_q, lengths_kv = (reference.run_lengths(ids[None])[0].tolist() for ids in (ids_q, ids_kv))
        pos_q = [p - n for p, n in zip(pos_q, lengths_q, strict=True)]
        pos_kv = [p - n for p, n in zip(pos_kv, lengths_kv, strict=True)]
    if window is not None:
        for i, j in np.argwhere(seen):
            seen[i, j] = pos_kv[j] > pos_q[i] - window
    return seen


def filled(spans: np.ndarray, kv_len: int) -> np.ndarray:
    """Intervals written out as booleans."""
    key = np.arange(kv_len)
    return ((spans[:, :, :1] <= key) & (key < spans[:, :, 1:])).any(axis=1)


@given(packed_rows(one_row) | any_rows(one_row), masks, windows)
def test_dense_equals_the_reference(rows, mask, window):
    packed = packed_mask(*first_row(rows), mask=mask, window=window)
    q_len, kv_len = rows.segment_ids_q.shape[1], rows.segment_ids_kv.shape[1]
    np.testing.assert_array_equal(packed.dense(q_len, kv_len), brute_force(rows, mask, window))


@given(packed_rows(one_row), masks, windows)
def test_valid_rows_have_one_interval_per_query(rows, mask, window):
    packed = packed_mask(*first_row(rows), mask=mask, window=window)
    q_len, kv_len = rows.segment_ids_q.shape[1], rows.segment_ids_kv.shape[1]
    spans = packed.intervals(q_len, kv_len)
    assert spans.shape[1] <= 1
    np.testing.assert_array_equal(filled(spans, kv_len), packed.dense(q_len, kv_len))


@given(packed_rows(one_row) | any_rows(one_row), masks, windows, st.integers(1, 9), st.integers(1, 9))
def test_tiles_count_what_dense_shows(rows, mask, window, block_q, block_kv):
    packed = packed_mask(*first_row(rows), mask=mask, window=window)
    q_len, kv_len = rows.segment_ids_q.shape[1], rows.segment_ids_kv.shape[1]
    counts = tile_map(packed, q_len, kv_len, (block_q, block_kv)).counts
    dense = packed.dense(q_len, kv_len)
    for i, j in np.ndindex(*counts.shape):
        tile = dense[i * block_q : (i + 1) * block_q, j * block_kv : (j + 1) * block_kv]
        assert counts[i, j] == tile.sum()
    assert counts.shape == (-(-q_len // block_q), -(-kv_len // block_kv))


@pytest.mark.parametrize(
    ("ids", "pos"),
    [
        ([1, 1, 0, 1], [0, 1, 0, 3]),
        ([1, 2, 1, 1], [0, 0, 1, 2]),
        ([1, 1, 1, 1], [0, 2, 2, 3]),
        ([1, 1, 1, 1], [3, 2, 1, 0]),
    ],
    ids=["a hole", "a repeat", "a position twice", "positions that fall"],
)
def test_keys_that_are_not_single_rising_runs_fall_back_to_values(ids, pos):
    ids, pos = np.array(ids, np.int32), np.array(pos, np.int32)
    rows = Rows(ids[None], ids[None], pos[None], pos[None], 2)
    packed = packed_mask(ids, ids, pos, pos, mask="causal", window=2)
    assert packed.intervals(4, 4) is None
    assert tile_map(packed, 4, 4, 4).counts.item() == brute_force(rows, "causal", 2).sum()


@given(any_rows(one_row), masks)
def test_queries_may_stand_in_any_order(rows, mask):
    # Only the keys have to be single runs for the interval form.
    ids_kv = np.sort(rows.segment_ids_kv[0])
    pos_kv = np.arange(ids_kv.size, dtype=np.int32)
    packed = packed_mask(rows.segment_ids_q[0], ids_kv, rows.segment_pos_q[0], pos_kv, mask=mask)
    spans = packed.intervals(rows.segment_ids_q.shape[1], ids_kv.size)
    other = Rows(rows.segment_ids_q, ids_kv[None], rows.segment_pos_q, pos_kv[None], rows.max_segments)
    np.testing.assert_array_equal(filled(spans, ids_kv.size), brute_force(other, mask, None))


@settings(max_examples=50)
@given(packed_rows(Shape(1, 9, 13, 4)) | any_rows(Shape(1, 9, 13, 4)), masks, windows)
def test_the_same_mask_works_on_torch_and_jax_indices(rows, mask, window):
    packed = packed_mask(*first_row(rows), mask=mask, window=window)
    expected = packed.dense(9, 13)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for arange in (torch.arange, jnp.arange):
            got = packed(0, 0, arange(9)[:, None], arange(13)[None, :])
            np.testing.assert_array_equal(np.asarray(got), expected)


@pytest.mark.parametrize("arange", [np.arange, torch.arange, jnp.arange])
def test_the_largest_window_hides_nothing(arange):
    ids, pos = np.array([0, 1, 1, 1], np.int32), np.array([0, 0, 1, 2], np.int32)
    for mask in MASKS:
        packed = packed_mask(ids, ids, pos, pos, mask=mask, window=2**31 - 1)
        got = packed(0, 0, arange(4)[:, None], arange(4)[None, :])
        np.testing.assert_array_equal(
            np.asarray(got), packed_mask(ids, ids, pos, pos, mask=mask).dense(4, 4), mask
        )


def test_combines_with_other_masks_and_has_a_name():
    from attnlab.masks import prefix

    ids, pos = np.array([1, 1, 2, 2], np.int32), np.array([0, 1, 0, 1], np.int32)
    packed = packed_mask(ids, ids, pos, pos, mask="causal", window=1)
    assert packed.name == "packed causal & window(1)"
    assert packed_mask(ids, ids, pos, pos, mask="padding").name == "packed padding"
    both = packed | prefix(1)
    np.testing.assert_array_equal(both.dense(4, 4), np.eye(4, dtype=bool) | (np.arange(4) == 0))
    np.testing.assert_array_equal(filled(both.intervals(4, 4), 4), both.dense(4, 4))
