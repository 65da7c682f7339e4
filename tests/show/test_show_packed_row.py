"""The packed-row explorer decodes what the package finds, and says when it cannot be trusted."""

import numpy as np
import pytest

from attnlab.segments.numpy import positions, seqlens_and_offsets
from attnlab.segments.reference import visibility
from attnlab.show.packed_row import ROWS, TOKENS, packed_row, packed_row_picture

MASKS = ("padding", "causal", "bottom_right_causal")
BROKEN = ("one segment too many", "a hole", "a repeat")


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("segments", [2, 5, 8])
def test_each_row_is_as_its_name_says(row, segments):
    ids_q, ids_kv, most = packed_row(segments, 4, row)
    assert ids_q.shape == ids_kv.shape == (TOKENS,)
    inputs = [ids_q[None], ids_kv[None], positions(ids_q[None]), positions(ids_kv[None])]
    layout = seqlens_and_offsets(*inputs, mask="padding", max_segments=most)
    assert bool(layout.valid[0]) == (row not in BROKEN)


@pytest.mark.parametrize("row", ["self-attention", "fewer keys"])
@pytest.mark.parametrize("mask", MASKS)
def test_the_sentence_counts_what_the_mask_shows(row, mask):
    ids_q, ids_kv, _ = packed_row(5, 4, row)
    inputs = [ids_q[None], ids_kv[None], positions(ids_q[None]), positions(ids_kv[None])]
    seen = visibility(*inputs, mask=mask)[0]
    said = f"{seen.any(1).sum()} of {TOKENS} queries and {seen.any(0).sum()} keys take part."
    assert said in packed_row_picture(5, 4, mask, 0, row).sentence


def test_a_window_moves_the_tiles_and_not_the_lengths():
    whole, narrow = (packed_row_picture(3, 2, "causal", window).sentence for window in (0, 2))
    assert whole.split(". ")[1] == narrow.split(". ")[1]
    assert whole.split(". ")[2] != narrow.split(". ")[2]


@pytest.mark.parametrize("row", BROKEN)
def test_a_broken_row_says_so(row):
    picture = packed_row_picture(row=row)
    assert "marked invalid" in picture.sentence
    assert "valid = False" in picture.svg


def test_padding_goes_where_it_should():
    for padding in range(13):
        ids = packed_row(3, padding).segment_ids_q
        assert np.count_nonzero(ids == 0) == padding
        assert sorted(set(ids.tolist()) - {0}) == [1, 2, 3]


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"segments": 0}, "segments"),
        ({"segments": 9}, "segments"),
        ({"padding": 13}, "padding"),
        ({"row": "x"}, "row"),
    ],
)
def test_bad_choices_are_named(change, names):
    with pytest.raises(ValueError, match=names):
        packed_row(**{"segments": 3, "padding": 2, **change})
