"""A packed row: the words, the brackets, and numbers that are wrong."""

from __future__ import annotations

import re

import numpy as np
import pytest
from show.show_pictures import IDS, OFFSETS, SEQLENS

from attnlab.segments import numpy as segments_numpy
from attnlab.segments.numpy import positions
from attnlab.show import segment_picture


def words(svg: str, fill: str) -> list[str]:
    """The texts that are written in one colour, in order."""
    out = []
    for group in re.findall(rf'<g[^>]* class="f-{fill}"[^>]*>((?:<text.*?</text>)*)</g>', svg):
        out += re.findall(r">([^<]*)</text>", group)
    return out


def test_the_sentence_is_computed():
    picture = segment_picture(IDS, SEQLENS, OFFSETS)
    assert picture.sentence == (
        "28 tokens attend, 4 are padding. The mask has 1,024 entries; 11 numbers say the same."
    )


@pytest.mark.parametrize(
    ("ids", "seqlens", "offsets", "sentence"),
    [
        ([1, 1], [2], [0, -1], "2 tokens attend, none is padding."),
        ([1, 0], [1], [0, -1], "1 token attends, 1 is padding."),
        (
            [1, 1, 2, 2, 0],
            [2, 0],
            [0, -1, -1],
            "2 tokens attend, 2 have no partner, 1 is padding.",
        ),
    ],
)
def test_sentences_agree_in_number(ids, seqlens, offsets, sentence):
    picture = segment_picture(np.array(ids), np.array(seqlens), np.array(offsets))
    assert picture.sentence.startswith(f"{sentence} The mask has {len(ids) ** 2} entries; ")


def test_it_draws_what_the_package_found():
    pos = positions(IDS[None])
    layout = segments_numpy.seqlens_and_offsets(IDS[None], IDS[None], pos, pos, mask="causal", max_segments=5)
    picture = segment_picture(IDS, layout.q_seqlens[0], layout.q_offsets[0])
    assert picture.svg == segment_picture(IDS, SEQLENS, OFFSETS).svg
    assert words(picture.svg, "now-text") == ["0", "7", "13", "22", "28"]
    assert [words(picture.svg, f"seg{i}-text") for i in range(1, 6)] == [["7"], ["4"], ["9"], ["5"], ["3"]]


def test_wrong_numbers_give_brackets_in_the_wrong_place():
    right = segment_picture(IDS, SEQLENS, OFFSETS).svg
    wrong = segment_picture(IDS, SEQLENS, np.array([0, 7, 13, 16, 22, 28]), invalid=True).svg

    def bracket(svg, segment):
        d = re.search(rf'<path d="([^"]*)" class="s-seg{segment}"', svg)[1]
        return float(re.match(r"M([\d.]+)", d)[1])

    assert bracket(wrong, 1) == bracket(right, 1)
    assert bracket(wrong, 4) == pytest.approx(bracket(right, 4) - 6 * 840 / 32)
    assert "stroke-dasharray" in wrong and "stroke-dasharray" not in right


def test_an_invalid_layout_says_so():
    picture = segment_picture(IDS, SEQLENS + 1, OFFSETS, invalid=True)
    assert picture.sentence == (
        "valid = False: these numbers cannot be trusted. "
        "The numbers say that 33 tokens attend; the row holds 28 with an id and 4 of padding."
    )
    assert ">valid = False: these numbers cannot be trusted</text>" in picture.svg


def test_a_length_past_the_end_of_the_row_is_marked():
    svg = segment_picture(np.array([1, 1, 1]), np.array([9]), np.array([1, -1]), invalid=True).svg
    assert words(svg, "seg1-text") == ["9 →"]


def test_a_long_row_is_drawn_in_proportion_and_every_number_finds_a_place():
    lengths = np.array([700, 40, 60, 500, 20, 2000])
    ids = np.repeat(np.arange(1, 7), lengths)
    starts = np.append(np.cumsum(lengths) - lengths, -1)
    svg = segment_picture(ids, lengths, starts).svg
    assert words(svg, "now-text") == ["0", "700", "740", "800", "1,300", "1,320"]
    assert "want of room" not in svg
    width = float(re.search(r"h([\d.]+)v34", re.search(r'<path d="([^"]*)" class="f-seg6"', svg)[1])[1])
    assert width == pytest.approx(840 * 2000 / 3320 - 1, abs=0.01)


def test_a_row_of_a_thousand_segments_is_cut_and_says_so():
    svg = segment_picture(np.repeat(np.arange(1, 1001), 40), np.full(1000, 40), np.arange(1001) * 40).svg
    assert "Shown: the first 960 of 40,000 tokens, 24 of 1,000 runs." in svg
    assert ">and so on</text>" in svg


def test_nothing_attends_in_a_row_of_padding():
    picture = segment_picture(np.zeros(4, int), np.zeros(2, int), np.full(3, -1))
    assert picture.sentence.startswith("0 tokens attend, 4 are padding.")


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("ids", "seqlens", "offsets", "error", "message"),
    [
        ([1.0], [1], [0, -1], TypeError, "segment_ids must be integers"),
        ([1], [1.0], [0, -1], TypeError, "seqlens must be integers"),
        ([1], [1], [[0, -1]], ValueError, "offsets must be one row"),
        (np.zeros(0, int), [1], [0, -1], ValueError, "segment_ids must hold at least one token"),
        ([-1], [1], [0, -1], ValueError, "segment_ids must not be negative, got -1"),
        ([1], [-2], [0, -1], ValueError, "seqlens must not be negative, got -2"),
    ],
)
def test_bad_rows_are_named(ids, seqlens, offsets, error, message):
    with pytest.raises(error, match=message):
        segment_picture(np.array(ids), np.array(seqlens), np.array(offsets))
