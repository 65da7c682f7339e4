"""A ring that is too small: the law that is said is the law that is broken, and the lost keys are lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from show.show_texts import check_words

from attnlab.ring import laws
from attnlab.show import capacity_picture
from attnlab.show.ring_capacity import consequence

SIZES = {
    "capacity": st.integers(4, 48),
    "window": st.integers(1, 32),
    "chunk": st.integers(1, 24),
    "tile_size": st.integers(1, 16),
}


@settings(max_examples=60, deadline=None)
@given(**SIZES)
def test_keys_are_lost_exactly_when_the_cache_law_is_broken(capacity, window, chunk, tile_size):
    found = consequence(capacity, window, chunk, tile_size)
    assert bool(found.lost_keys) == ("cache law" in found.broken) == (capacity < window - 1 + chunk)
    # Token p is overwritten by p + C, if that is in the chunk, and missed by queries that stand after it.
    newest = found.start + chunk - 1
    gone = [k for k in range(found.first_key, newest + 1) if k + capacity <= newest]
    assert found.lost_keys == gone
    assert found.needed.sum() == chunk * window


@settings(max_examples=60, deadline=None)
@given(**SIZES)
def test_the_tile_laws_are_enough(capacity, window, chunk, tile_size):
    found = consequence(capacity, window, chunk, tile_size)
    if "tile laws" not in found.broken:
        assert found.straddling == [] and found.sharing == []
    if found.straddling or found.sharing:
        assert found.broken["tile laws"].startswith("tile law: ")


def test_the_message_is_that_of_the_laws():
    found = consequence(12, 12, 4, 4)
    for name, check in (("cache law", laws.check_cache), ("tile laws", laws.check_tiles)):
        with pytest.raises(ValueError) as error:
            check(12, 12, 4, *([4] if name == "tile laws" else []))
        assert found.broken[name] == str(error.value)
    svg = capacity_picture(12, 12, 4, 4).svg
    assert ">cache law: capacity &gt;= window - 1 + chunk; got capacity 12, " in svg
    assert svg.count(">broken<") == 2 and ">holds<" not in svg


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((20, 12, 4, 4), "All 15 keys that the chunk needs are still there. Every law holds."),
        ((16, 12, 5, 4), "All 16 keys that the chunk needs are still there. Key tiles 1 and 5 share slots."),
        (
            (22, 12, 4, 4),
            "All 15 keys that the chunk needs are still there. Key tile 5 straddles the end of the ring.",
        ),
        ((14, 12, 4, 1), "1 of 15 keys is overwritten before query 14 reads it: position 3."),
        ((4, 1, 1, 16), "The key is there. A key tile is longer than the ring."),
        (
            (12, 12, 4, 4),
            "3 of 15 keys are overwritten before queries 13 to 15 read them: positions 2 to 4. "
            "Key tiles 0 to 1 and 3 to 4 share slots.",
        ),
    ],
)
def test_sentences(values, sentence):
    assert capacity_picture(*values).sentence.startswith(sentence)


@pytest.mark.parametrize("capacity", [4, 17, 48])
@pytest.mark.parametrize("window", [1, 32])
@pytest.mark.parametrize("chunk", [1, 24])
@pytest.mark.parametrize("tile", [1, 5, 16])
def test_no_words_collide_at_the_ends_of_the_sliders(capacity, window, chunk, tile):
    picture = capacity_picture(capacity, window, chunk, tile)
    check_words(picture)
    assert len(picture.svg) < 28_000


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("name", "value"), [("capacity", 3), ("capacity", 49), ("window", 0), ("chunk", 25), ("tile", 17)]
)
def test_bad_values_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name} must be from .* to be drawn, got {value}"):
        capacity_picture(**{name: value})
