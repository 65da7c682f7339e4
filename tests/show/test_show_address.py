"""The order in which bytes are read."""

from __future__ import annotations

import pytest
from show.show_texts import check_words, words_of

from attnlab.ring.trace import address_trace
from attnlab.show import address_picture

RING = [(2688, 4096), (2048, 2560)]
TOKENS = [(start, start + 128) for start in range(0, 4096, 512)]


def test_it_counts_bytes_runs_and_steps_back():
    picture = address_picture({"ring": RING, "token-major": TOKENS}, total_bytes=4096)
    assert picture.sentence == "ring: 1.88 KiB in 2 runs; token-major: 1 KiB in 8 runs."
    words = {word.text for word in words_of(picture.svg)}
    assert "2 runs, the longest 1.38 KiB, 1 step back" in words
    assert "8 runs, the longest 128 B" in words
    check_words(picture)


def test_a_ring_reads_one_head_in_two_runs():
    layouts = ("ring", "token-major")
    sizes = dict(num_kv_heads=4, head_dim=16, capacity=16, window=12, position=37, head=2)
    picture = address_picture({name: address_trace(name, **sizes).runs for name in layouts})
    assert picture.sentence == "ring: 768 B in 2 runs; token-major: 768 B in 12 runs."
    check_words(picture)


def test_runs_lie_in_proportion_and_in_order():
    svg = address_picture({"one": [(0, 50), (75, 100)]}, total_bytes=100).svg
    # 766 pixels for 100 bytes, from pixel 90 on.
    assert "M90 " in svg and "h383v" in svg
    assert "M664.5 " in svg and "h191.5v" in svg


@pytest.mark.parametrize("count", [1, 2, 13, 100, 512])
def test_no_words_collide(count):
    runs = [(i * 1024, i * 1024 + 256) for i in range(count)]
    picture = address_picture({"a": runs, "b": runs[::-1]}, total_bytes=512 * 1024)
    check_words(picture)
    assert len(picture.svg) < 60_000


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("layouts", "message"),
    [
        ({}, "layouts must hold at least one layout"),
        ({"a": []}, "layouts\\['a'\\] must hold 1 to 512 runs to be drawn, got 0"),
        ({"a": [(0, 4)] * 513}, "got 513"),
        ({"a": [(4, 4)]}, "a run must lie in the 100 bytes, got 4 to 4"),
        ({"a": [(90, 101)]}, "got 90 to 101"),
    ],
)
def test_bad_runs_are_named(layouts, message):
    with pytest.raises(ValueError, match=message):
        address_picture(layouts, total_bytes=100)
