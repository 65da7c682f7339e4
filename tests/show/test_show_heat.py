"""Lost gradient and the reverse sweep, drawn from what the ring's own code found."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from show.show_texts import check_words, words_of

from attnlab.ring.gradient_ring import GradientRing, Segment, Sweep, cut
from attnlab.ring.truncation import truncation_loss_map
from attnlab.show import Picture, heat_picture, sweep_replay


def heat(tokens: int, window: int, segment_size: int) -> tuple[Picture, np.ndarray]:
    rows = torch.randn(4, 1, 1, tokens, 4, generator=torch.Generator().manual_seed(0))
    loss = truncation_loss_map(*rows, window=window, segment_size=segment_size)
    arrays = [x.numpy() for x in (loss.pair, loss.pair_lost, loss.lost, loss.dq, loss.dk, loss.dv)]
    return heat_picture(*arrays, segment_size=segment_size, sentence=loss.sentence), loss.lost.numpy()


def events(tokens: int, window: int, segment_size: int) -> list[Sweep]:
    ring = GradientRing(1, 1, 2, window=window)

    def load(first: int, start: int, stop: int) -> Segment:
        own, keys = torch.zeros(1, 1, stop - start, 2), torch.zeros(1, 1, stop - first, 2)
        return Segment(own, keys, keys, own, own[..., 0], own)

    return [swept.event for swept in ring.sweep(load, cut(tokens, segment_size))]


def test_every_lost_pair_is_crossed_out():
    picture, lost = heat(24, 5, 8)
    crossed = re.search(r'<path d="([^"]*)" class="s-paper" fill="none" stroke="#ffffff"/>', picture.svg)[1]
    assert crossed.count("M") == lost.sum() == 2 * (4 + 3 + 2 + 1)
    assert "dQ is exact" in picture.svg
    ElementTree.fromstring(picture.svg)


@pytest.mark.parametrize(("tokens", "window", "segment"), [(24, 5, 8), (40, 12, 7), (1, 1, 1), (6, 1, 2)])
def test_no_words_collide_in_the_heat_map(tokens, window, segment):
    picture, _ = heat(tokens, window, segment)
    check_words(picture)
    assert len(picture.svg) < 16_000


def test_nothing_lost_is_drawn_as_nothing_lost():
    picture, lost = heat(8, 4, 8)
    assert not lost.any() and 'class="s-paper" fill="none" stroke="#ffffff"/>' not in picture.svg


def test_the_sweep_goes_from_the_last_segment_to_the_first():
    replayed = sweep_replay(events(64, 12, 16), 12)
    assert len(replayed) == 5
    said = [replayed.frame(i).sentence for i in range(5)]
    assert said[0] == "Before the sweep no gradient is known. The ring holds 176 B all the time."
    assert said[2] == (
        "Step 2 of 4: positions 32 to 47 are finished; keys and values were read from 21 on. "
        "11 rows of dK and dV, 21 to 31, wait for earlier queries. The ring holds 176 B all the time."
    )
    assert "Nothing is left to carry." in said[4]
    # The slots hold position p in slot p mod (W - 1).
    held = re.search(r'class="f-on-edge"[^>]*>(.*?)</g>', replayed.frame(2).svg)[1]
    places = [(float(x), int(p)) for x, p in re.findall(r'x="([\d.]+)"[^>]*>(\d+)<', held)]
    assert [p % 11 for _, p in sorted(places)] == list(range(11))


def test_a_notebook_keeps_a_step_in_which_rows_wait():
    replayed = sweep_replay(events(64, 12, 16), 12)
    kept = replayed._repr_mimebundle_()
    assert kept["text/plain"] == replayed.frame(2).sentence
    assert "wait for earlier queries" in kept["text/plain"]
    assert kept["image/svg+xml"] == replayed.frame(2).svg


def test_both_plots_of_the_heat_map_name_their_axis():
    words = [word.text for word in words_of(heat(24, 5, 8)[0].svg)]
    assert words.count("key position") == 2


@pytest.mark.parametrize(("tokens", "window", "segment"), [(64, 12, 16), (500, 49, 37), (5, 1, 1), (3, 2, 8)])
def test_no_words_collide_in_the_sweep(tokens, window, segment):
    replayed = sweep_replay(events(tokens, window, segment), window)
    for i in range(len(replayed)):
        ElementTree.fromstring(replayed.frame(i).svg)
        check_words(replayed.frame(i))


def test_one_position_is_said_as_one():
    replayed = sweep_replay(events(5, 2, 1), 2)
    assert replayed.frame(1).sentence.startswith(
        "Step 1 of 5: position 4 is finished; keys and values were read from 3 on. "
        "The row of dK and dV at 3 waits for earlier queries."
    )
    words = {word.text for word in words_of(sweep_replay(events(5, 1, 1), 1).frame(1).svg)}
    assert "the ring, 0 rows" in words


@pytest.mark.unchecked
def test_bad_values_are_named():
    square, row = np.zeros((4, 4)), np.zeros(4)
    with pytest.raises(ValueError, match="segment_size must be at least 1, got 0"):
        heat_picture(square, square, square > 0, row, row, row, segment_size=0, sentence="None.")
    with pytest.raises(ValueError, match="must be \\[S, S\\] and \\[S\\]"):
        heat_picture(square, square, square > 0, row[1:], row, row, segment_size=2, sentence="None.")
    with pytest.raises(ValueError, match="events must hold at least one segment"):
        sweep_replay([], 4)
    with pytest.raises(ValueError, match="window must be from 1 to 49 to be drawn, got 50"):
        sweep_replay(events(4, 50, 2), 50)
