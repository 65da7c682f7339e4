"""The merge in any order ends in the same result."""

from __future__ import annotations

import re

import pytest
from show.show_texts import check_words

from attnlab.show import merge_picture


def numbers(svg: str, role: str) -> list[str]:
    return re.findall(
        r">([−\d.]+)<", re.search(rf'class="f-{role}"[^>]*>((?:<text[^>]*>[−\d.]+</text>)+)</g>', svg)[1]
    )


def test_every_order_gives_the_numbers_of_dense_attention():
    results = set()
    for permutation in range(120):
        svg = merge_picture(permutation).svg
        results.add(tuple(numbers(svg, "better-text")))
        assert numbers(svg, "better-text") == numbers(svg, "quiet")
    assert len(results) == 1


def test_the_order_is_named():
    end = "In all 120 orders the result differs from full attention by less than 1e-14."
    assert merge_picture(0).sentence == f"Merged in the order 1, 2, 3, 4, 5. {end}"
    assert merge_picture(119).sentence == f"Merged in the order 5, 4, 3, 2, 1. {end}"
    assert re.findall(r">\+ tile (\d)<", merge_picture(77).svg) == ["4", "1", "5", "3", "2"]


def test_no_words_collide():
    for permutation in range(0, 120, 17):
        check_words(merge_picture(permutation))


@pytest.mark.unchecked
@pytest.mark.parametrize("permutation", [-1, 120])
def test_an_order_that_is_not_there_is_named(permutation):
    with pytest.raises(ValueError, match=f"permutation must be from 0 to 119, got {permutation}"):
        merge_picture(permutation)
