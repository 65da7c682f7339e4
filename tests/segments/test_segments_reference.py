"""The oracle against numbers worked out by hand, and against its own rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.exercises.rows import any_rows, packed_rows
from attnlab.segments import MASKS, reference

masks = st.sampled_from(MASKS)


def row(*values: int) -> np.ndarray:
    return np.array([values], np.int32)


def layout(ids_q, ids_kv, pos_q, pos_kv, mask, max_segments=3):
    out = reference.seqlens_and_offsets(ids_q, ids_kv, pos_q, pos_kv, mask=mask, max_segments=max_segments)
    return tuple(x[0].tolist() for x in out)


# Three segments on either side; of the second the queries are fewer, of the others the keys.
IDS_Q, IDS_KV = row(1, 1, 1, 0, 2, 2, 3, 3), row(1, 1, 0, 2, 2, 2, 2, 3)
POS_Q, POS_KV = row(0, 1, 2, 0, 0, 1, 0, 1), row(0, 1, 0, 0, 1, 2, 3, 0)


def test_padding_on_eight_tokens():
    expected = ([3, 2, 2], [2, 4, 1], [0, 4, 6, -1], [0, 3, 7, -1], True)
    assert layout(IDS_Q, IDS_KV, POS_Q, POS_KV, "padding") == expected


def test_causal_on_eight_tokens():
    # Of segment 2, keys 2 and 3 stand after the last query, 1.
    expected = ([3, 2, 2], [2, 2, 1], [0, 4, 6, -1], [0, 3, 7, -1], True)
    assert layout(IDS_Q, IDS_KV, POS_Q, POS_KV, "causal") == expected


def test_bottom_right_causal_on_eight_tokens():
    # The last query lines up with the last key, so the first ones of segments 1 and 3 stand before every key.
    expected = ([2, 2, 1], [2, 4, 1], [1, 4, 7, -1], [0, 3, 7, -1], True)
    assert layout(IDS_Q, IDS_KV, POS_Q, POS_KV, "bottom_right_causal") == expected


def test_the_masks_of_eight_tokens():
    pictures = {
        "padding": "11...... 11...... 11...... ........ ...1111. ...1111. .......1 .......1",
        "causal": "1....... 11...... 11...... ........ ...1.... ...11... .......1 .......1",
        "bottom_right_causal": "........ 1....... 11...... ........ ...111.. ...1111. ........ .......1",
    }
    for mask, picture in pictures.items():
        (seen,) = reference.visibility(IDS_Q, IDS_KV, POS_Q, POS_KV, mask=mask)
        assert " ".join("".join(".1"[int(x)] for x in line) for line in seen) == picture, mask


@pytest.mark.parametrize("mask", MASKS)
def test_equal_sides_keep_every_token(mask):
    ids, pos = row(0, 1, 1, 1, 3, 3, 0, 0), row(9, 0, 1, 2, 0, 1, 9, -9)
    # Id 2 does not appear: its bucket is empty, and the starts close up.
    expected = ([3, 0, 2], [3, 0, 2], [1, 4, -1, -1], [1, 4, -1, -1], True)
    assert layout(ids, ids, pos, pos, mask) == expected


def test_a_start_is_the_first_visible_token_padding_included():
    ids, pos_q, pos_kv = row(0, 0, 1, 1, 1, 0), row(0, 0, 0, 1, 2, 0), row(0, 0, 2, 3, 4, 0)
    # Queries 0 and 1 come before the oldest key, 2; keys 3 and 4 after the newest query, 2.
    assert layout(ids, ids, pos_q, pos_kv, "causal", 1) == ([1], [1], [4, -1], [2, -1], True)


def test_a_segment_trimmed_to_nothing_has_no_start():
    ids = row(1, 1, 2, 2, 3, 3)
    pos_q, pos_kv = row(0, 1, 0, 1, 0, 1), row(0, 1, 5, 6, 0, 1)
    expected = ([2, 0, 2], [2, 0, 2], [0, 4, -1, -1], [0, 4, -1, -1], True)
    assert layout(ids, ids, pos_q, pos_kv, "causal") == expected


def test_bottom_right_causal_counts_from_the_ends_of_the_runs():
    # Positions from 100 change nothing as long as both sides start there; a later start of the keys does.
    ids_q, ids_kv = row(1, 1), row(1, 1, 1)
    pos_q, pos_kv = row(100, 101), row(100, 101, 102)
    mask = "bottom_right_causal"
    assert layout(ids_q, ids_kv, pos_q, pos_kv, mask, 1) == ([2], [3], [0, -1], [0, -1], True)
    assert layout(ids_q, ids_kv, pos_q, pos_kv + 2, mask, 1) == ([1], [1], [1, -1], [0, -1], True)


def test_an_id_on_one_side_only_sees_nothing():
    ids_q, ids_kv, pos = row(1, 1, 2, 2), row(2, 2, 3, 3), row(0, 1, 0, 1)
    assert layout(ids_q, ids_kv, pos, pos, "padding") == (
        [0, 2, 0],
        [0, 2, 0],
        [2, -1, -1, -1],
        [0, -1, -1, -1],
        True,
    )


@given(packed_rows(), masks)
def test_lengths_and_starts_pair_up_and_point_at_the_first_visible_token(rows, mask):
    out = reference.seqlens_and_offsets(*rows.tokens, mask=mask, max_segments=rows.max_segments)
    seen = reference.visibility(*rows.tokens, mask=mask)
    sides = (
        (rows.segment_ids_q, seen.any(axis=2), out.q_seqlens, out.q_offsets),
        (rows.segment_ids_kv, seen.any(axis=1), out.kv_seqlens, out.kv_offsets),
    )
    assert out.valid.all()
    np.testing.assert_array_equal(out.q_seqlens > 0, out.kv_seqlens > 0)
    for ids, visible, lengths, offsets in sides:
        for i in range(len(ids)):
            names = np.flatnonzero(lengths[i]) + 1
            used = offsets[i][offsets[i] >= 0]
            np.testing.assert_array_equal(
                offsets[i], np.pad(used, (0, offsets.shape[1] - used.size), constant_values=-1)
            )
            assert len(names) == len(used)
            for name, start in zip(names, used, strict=True):
                tokens = np.flatnonzero(visible[i] & (ids[i] == name))
                np.testing.assert_array_equal(tokens, np.arange(start, start + lengths[i, name - 1]))


@given(any_rows(), masks)
def test_lengths_count_visible_tokens_even_where_rows_are_not_valid(rows, mask):
    out = reference.seqlens_and_offsets(*rows.tokens, mask=mask, max_segments=rows.max_segments)
    seen = reference.visibility(*rows.tokens, mask=mask)
    for ids, visible, lengths in (
        (rows.segment_ids_q, seen.any(axis=2), out.q_seqlens),
        (rows.segment_ids_kv, seen.any(axis=1), out.kv_seqlens),
    ):
        for name in range(1, rows.max_segments + 1):
            np.testing.assert_array_equal(lengths[:, name - 1], (visible & (ids == name)).sum(axis=1))
