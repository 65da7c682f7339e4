"""The ring on paper is the ring in memory: pointers, slots and words after every kind of call."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from show.show_texts import check_words, words_of

from attnlab.ring import RingCache
from attnlab.show import read_ring, ring_explorer_picture, ring_picture, ring_replay, ring_states
from attnlab.show.palette import colour, contrast
from attnlab.show.ring_dial import STALE, STALE_OPACITY


def test_the_sentence_of_the_sketch():
    (*_, state) = ring_states(16, 12, [1] * 38)
    assert ring_picture(state).sentence == (
        "Token 37 overwrites slot 5, which held token 21; "
        "the window is tokens 26 to 37, in slots 10-15 and 0-5."
    )


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ([], "The ring is empty; token 0 will be written to slot 0."),
        ([1], "Token 0 takes slot 0, which was empty; the window is token 0, in slot 0."),
        ([3, 0], "Token 3 will be written to slot 3; the window is tokens 0 to 2, in slots 0-2."),
        (
            [2, 3],
            "Tokens 2 to 4 take slots 2-4, which were empty; the window is tokens 1 to 4, in slots 1-4.",
        ),
        (
            [5, 5],
            "Tokens 5 to 9 overwrite slots 5-7 and 0-1, 2 of them not empty; "
            "the window is tokens 6 to 9, in slots 6-7 and 0-1.",
        ),
        (
            [5, 5, 5],
            "Tokens 10 to 14 overwrite slots 2-6, which held tokens 2 to 6; "
            "the window is tokens 11 to 14, in slots 3-6.",
        ),
        (
            [5, 5, -2],
            "The highest position was 9; token 8 will be written again, to slot 0; "
            "the window is tokens 4 to 7, in slots 4-7.",
        ),
        (
            [5, 5, -3, 1],
            "The highest position was 9; token 7 is written again; "
            "the window is tokens 4 to 7, in slots 4-7.",
        ),
    ],
)
def test_sentences_at_wraps_and_after_rollbacks(steps, sentence):
    assert ring_states(8, 4, steps)[-1].sentence == sentence


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(0, 6), st.integers(0, 2**32 - 1))
def test_the_state_is_what_the_cache_holds(window, spare, seed):
    """K carries its own position, so the slots can be asked what they hold."""
    rng = np.random.default_rng(seed)
    capacity = window + spare
    cache = RingCache(1, 1, 1, capacity, window=window, dtype=torch.float64)
    cache.k.fill_(-1)
    written = 0
    for chunk in rng.integers(0, spare + 2, 12):
        rows = torch.arange(written, written + chunk, dtype=torch.float64).reshape(1, 1, -1, 1)
        cache.append(rows, rows)
        written += int(chunk)
        state = read_ring(cache, chunk=int(chunk))
        assert state.positions.tolist() == cache.k.flatten().tolist()
        seen = state.positions[state.in_window]
        assert sorted(seen) == cache.visible().positions.tolist()
        if chunk:
            assert state.positions[state.write_slot] == written - 1
            assert cache.k.flatten()[state.read_slot] == cache.visible().positions[0]


def test_the_slots_are_drawn_with_what_they_hold():
    states = ring_states(16, 12, [1] * 38, padded={28})
    svg = ring_picture(states[-1]).svg
    words = [word.text for word in words_of(svg)]
    assert words.count("37") == 1 and words.count("21") == 0
    assert {str(position) for position in range(22, 38)} <= set(words)
    bold = re.search(r'font-weight="700" class="f-on-dense"[^>]*>(.*?)</g>', svg)[1]
    # Visible and not padded: 26 to 37 without 28.
    assert re.findall(r">(\d+)<", bold) == [str(p) for p in (32, 33, 34, 35, 36, 37, 26, 27, 29, 30, 31)]
    counts = re.search(r'<g text-anchor="end" font-weight="700">(.*?)</g>', svg)[1]
    assert re.findall(r">(\d+)<", counts) == ["11", "4", "1", "0"]


def test_the_pointers_have_their_colours():
    svg = ring_picture(ring_states(16, 12, [1] * 38)[-1]).svg
    assert re.search(r'fill="#c8375b">write<', svg)
    assert re.search(r'class="s-now" fill="none" stroke="#c8375b"', svg)
    assert re.search(r'class="f-better-text"[^>]*>read<', svg)
    assert re.search(r'class="s-better" fill="none" stroke="#2a9d78"', svg)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_is_no_longer_seen_stands_out_from_an_empty_slot(theme):
    paper, stale, empty = (getattr(colour(role), theme) for role in ("paper", STALE, "skip"))
    pairs = [(int(paper[i : i + 2], 16), int(stale[i : i + 2], 16)) for i in (1, 3, 5)]
    seen = "#" + "".join(f"{round(a + (b - a) * STALE_OPACITY):02x}" for a, b in pairs)
    assert contrast(seen, empty) > 1.6
    assert contrast(seen, getattr(colour("ink"), theme)) > 4.5


def test_an_empty_ring_has_no_read_pointer():
    assert ">read<" not in ring_picture(ring_states(4, 2, [])[0]).svg


def test_a_long_position_shows_its_end():
    words = [word.text for word in words_of(ring_explorer_picture(4, 2, 2, 30).svg)]
    assert "29" in words
    state = ring_states(4, 2, [1] * 2)[-1]
    far = type(state)(4, 2, 1_234_568, 1_234_568, 1, np.zeros(4, np.bool_))
    assert {"…567", "…566"} <= {word.text for word in words_of(ring_picture(far).svg)}


@pytest.mark.parametrize("capacity", [1, 2, 4, 7, 16, 24, 25, 40, 48])
@pytest.mark.parametrize("tokens", [0, 1, 47, 1203])
def test_no_words_collide(capacity, tokens):
    for window in {1, -(-capacity // 2), capacity}:
        check_words(ring_explorer_picture(capacity, window, 1, tokens))


def test_a_replay_shows_the_same_as_the_picture():
    shown = ring_replay(8, 5, (1,) * 20)
    assert len(shown) == 21
    states = ring_states(8, 5, (1,) * 20)
    for i in (0, 7, 8, 20):
        picture = ring_picture(states[i], title="Tokens enter a ring", tokens=20)
        assert shown.frame(i).sentence == picture.sentence
        assert {word.text for word in words_of(shown.frame(i).svg)} == {
            word.text for word in words_of(picture.svg)
        }
    # A notebook stores one step; all of them together travel with the page.
    assert len(shown.frame(-1).svg) < 12_000
    assert sum(len(frame.overlay_svg) for frame in shown._frames) < 60_000


def test_a_broken_law_is_said_as_the_cache_says_it():
    with pytest.raises(ValueError, match="cache law: capacity >= window - 1 \\+ chunk"):
        ring_explorer_picture(8, 6, 4, 4)
    with pytest.raises(ValueError, match="rollback law"):
        ring_replay(8, 6, (1,) * 20 + (-6,))


@pytest.mark.unchecked
def test_bad_values_are_named():
    with pytest.raises(ValueError, match="capacity must be from 1 to 48 to be drawn, got 49"):
        ring_explorer_picture(49)
    state = ring_states(8, 4, [5])[-1]
    with pytest.raises(ValueError, match="tokens must be at least 5, the tokens written; got 4"):
        ring_picture(state, tokens=4)
    with pytest.raises(ValueError, match="chunk must be at most 3"):
        cache = RingCache(1, 1, 1, 8, window=4)
        rows = torch.zeros(1, 1, 3, 1)
        cache.append(rows, rows)
        read_ring(cache, chunk=4)
