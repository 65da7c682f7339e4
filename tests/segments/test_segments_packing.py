"""Packing loses nothing, cuts nothing and says where everything went."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.segments.packing import pack, skewed_lengths


@given(st.lists(st.integers(1, 20), max_size=40), st.integers(20, 50))
def test_every_sequence_is_packed_once_and_whole(lengths, tokens):
    packed = pack(np.array(lengths, np.int64), tokens)
    placed = packed.sequence[packed.sequence >= 0]
    assert sorted(placed.tolist()) == list(range(len(lengths)))
    for row, (sizes, who) in enumerate(zip(packed.lengths, packed.sequence, strict=True)):
        kept = sizes[who >= 0]
        assert [lengths[i] for i in who[who >= 0]] == kept.tolist()
        expected = np.repeat(np.arange(1, kept.size + 1), kept)
        assert packed.segment_ids[row].tolist() == np.pad(expected, (0, tokens - expected.size)).tolist()
        assert kept.sum() <= tokens


@given(st.lists(st.integers(1, 20), min_size=1, max_size=40))
def test_rows_are_few(lengths):
    rows = len(pack(np.array(lengths), 20).segment_ids)
    fewest = -(-sum(lengths) // 20)
    # Any two rows hold more than one row's worth together, or first fit would have joined them.
    assert fewest <= rows <= 2 * fewest


def test_no_sequences_make_no_rows():
    packed = pack(np.zeros(0, np.int32), 8)
    assert packed.segment_ids.shape == (0, 8)


@given(st.integers(1, 60), st.integers(0, 500), st.integers(0, 9), st.sampled_from([0.0, 1.0, 3.0]))
def test_skewed_lengths_add_up_and_repeat(segments, extra, seed, spread):
    lengths = skewed_lengths(segments, segments + extra, seed=seed, spread=spread)
    assert lengths.dtype == np.int32 and lengths.shape == (segments,)
    assert lengths.sum() == segments + extra and lengths.min() >= 1
    assert (lengths == skewed_lengths(segments, segments + extra, seed=seed, spread=spread)).all()


def test_no_spread_means_equal():
    assert np.ptp(skewed_lengths(7, 700, seed=3, spread=0.0)) <= 1


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("lengths", "tokens", "error", "names"),
    [
        ([1, 2], 8, TypeError, "lengths"),
        (np.array([1.0]), 8, TypeError, "lengths"),
        (np.array([[1]]), 8, ValueError, "lengths"),
        (np.array([0]), 8, ValueError, "lengths"),
        (np.array([9]), 8, ValueError, "lengths"),
        (np.array([1]), 8.0, TypeError, "tokens"),
        (np.array([1]), True, TypeError, "tokens"),
    ],
)
def test_bad_input_to_pack_is_named(lengths, tokens, error, names):
    with pytest.raises(error, match=names):
        pack(lengths, tokens)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"segments": 0}, "segments"),
        ({"total": 3}, "total"),
        ({"spread": -1.0}, "spread"),
        ({"spread": np.nan}, "spread"),
    ],
)
def test_bad_input_to_skewed_lengths_is_named(change, names):
    with pytest.raises(ValueError, match=names):
        skewed_lengths(**{"segments": 4, "total": 9, "seed": 0, **change})
