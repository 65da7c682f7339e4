"""The arithmetic of the ring, against a deque and against brute force, and each law one off."""

from __future__ import annotations

import subprocess
import sys
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.ring import laws

capacities = st.integers(1, 24)


@given(capacities, st.lists(st.integers(0, 30), max_size=20))
def test_slots_hold_what_a_deque_holds(capacity, chunks):
    held: deque[int] = deque(maxlen=capacity)
    slots = np.full(capacity, -1)
    written = 0
    for chunk in chunks:
        positions = np.arange(written, written + chunk)
        held.extend(positions.tolist())
        for position in positions:
            slots[laws.slot(int(position), capacity)] = position
        written += chunk
        got = laws.position_of_slot(np.arange(capacity), written, capacity)
        np.testing.assert_array_equal(got, slots)
        assert sorted(got[got >= 0].tolist()) == list(held)


@given(capacities, st.integers(0, 500), st.data())
def test_a_stretch_is_at_most_two_ascending_runs(capacity, start, data):
    stop = start + data.draw(st.integers(0, capacity))
    runs = laws.runs(start, stop, capacity)
    assert len(runs) <= 2
    assert all(0 <= first < end <= capacity for first, end in runs)
    trace = [s for first, end in runs for s in range(first, end)]
    assert trace == laws.slot(np.arange(start, stop), capacity).tolist()


@given(st.integers(0, 100), st.integers(1, 100))
def test_oldest_visible_is_the_read_pointer(written, window):
    seen = [k for k in range(written) if written - 1 - window < k]
    assert laws.oldest_visible(written, window) == (seen[0] if seen else 0)


@given(st.integers(0, 300), st.integers(1, 40))
def test_round_up_is_the_next_multiple(tokens, multiple):
    up = laws.round_up(tokens, multiple)
    assert up % multiple == 0 and tokens <= up < tokens + multiple


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 16))
def test_the_default_capacity_obeys_the_laws_and_a_tile_less_does_not(window, prefill, tile):
    capacity = laws.default_capacity(window, prefill, tile)
    laws.check_cache(capacity, window, prefill)
    laws.check_tiles(capacity, window, prefill, tile)
    with pytest.raises(ValueError, match="tile law"):
        laws.check_tiles(capacity - tile, window, prefill, tile)


def test_the_default_capacity_of_the_default_config():
    assert laws.default_capacity(window=2048, prefill_size=512, tile_size=32) == 2592


@given(st.integers(1, 30), st.integers(0, 30))
def test_cache_law_is_where_writing_first_loses_a_needed_key(window, chunk):
    capacity = window - 1 + chunk
    laws.check_cache(capacity, window, chunk)
    # After the chunk the slots hold the newest `capacity` positions, and its first query needs the oldest.
    written = 1000
    assert written - chunk - window + 1 == written - capacity
    with pytest.raises(ValueError, match=r"cache law: .*capacity -?\d+, window \d+ and chunk \d+"):
        laws.check_cache(capacity - 1, window, chunk)


@pytest.mark.parametrize(
    ("capacity", "message"),
    [(32, None), (33, r"capacity % tile_size == 0; got capacity 33 and tile_size 8"), (24, r"and 24 < 32")],
)
def test_tile_laws_one_off(capacity, message):
    if message is None:
        laws.check_tiles(capacity, 17, 8, 8)
    else:
        with pytest.raises(ValueError, match=f"tile law: .*{message}"):
            laws.check_tiles(capacity, 17, 8, 8)


@given(st.integers(1, 20), st.integers(0, 20), st.integers(0, 200))
def test_rollback_law_allows_c_minus_w_plus_1_from_the_highest(window, spare, highest):
    capacity = window + spare
    most = capacity - window + 1
    laws.check_rollback(highest - most, highest, window, capacity)
    with pytest.raises(ValueError, match=r"rollback law: .*highest"):
        laws.check_rollback(highest - most - 1, highest, window, capacity)


@given(st.integers(1, 20), st.integers(0, 20), st.integers(0, 100), st.data())
def test_attend_law_asks_whether_the_oldest_key_is_still_there(window, spare, highest, data):
    capacity = window + spare
    written = data.draw(st.integers(0, highest))
    rows = data.draw(st.integers(0, written))
    there = laws.position_of_slot(np.arange(capacity), highest, capacity)
    needed = range(max(0, written - rows - window + 1), written)
    if rows and set(needed) <= set(there.tolist()):
        laws.check_attend(written, rows, highest, window, capacity)
    elif rows:
        with pytest.raises(ValueError, match=r"attend law: .*rows \d+"):
            laws.check_attend(written, rows, highest, window, capacity)


def test_attend_law_one_off():
    laws.check_attend(100, 5, highest=100, window=4, capacity=8)
    with pytest.raises(ValueError, match=r"attend law: .*got written 100, rows 6, .* and 91 < 92"):
        laws.check_attend(100, 6, highest=100, window=4, capacity=8)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "name"),
    [
        (lambda: laws.slot(-1, 4), ValueError, "position"),
        (lambda: laws.slot(1.0, 4), TypeError, "position"),
        (lambda: laws.slot(np.array([0, -2]), 4), ValueError, "position"),
        (lambda: laws.slot(np.array([0.5]), 4), TypeError, "position"),
        (lambda: laws.slot(1, 0), ValueError, "capacity"),
        (lambda: laws.position_of_slot(np.array([4]), 1, 4), ValueError, "slots"),
        (lambda: laws.position_of_slot([0], 1, 4), TypeError, "slots"),
        (lambda: laws.position_of_slot(np.array([0]), -1, 4), ValueError, "written"),
        (lambda: laws.oldest_visible(3, 0), ValueError, "window"),
        (lambda: laws.oldest_visible(True, 1), TypeError, "written"),
        (lambda: laws.runs(3, 2, 4), ValueError, "stop"),
        (lambda: laws.runs(0, 5, 4), ValueError, "capacity"),
        (lambda: laws.round_up(3, 0), ValueError, "multiple"),
        (lambda: laws.default_capacity(1, 0, 1), ValueError, "prefill_size"),
    ],
)
def test_bad_input_names_the_argument(call, error, name):
    with pytest.raises(error, match=name):
        call()


def test_the_room_and_its_laws_load_no_framework():
    code = (
        "import sys, attnlab.ring, attnlab.ring.laws\n"
        "assert 'RingCache' in dir(attnlab.ring)\n"
        "assert not {'torch', 'jax'} & set(sys.modules), 'a framework was loaded'\n"
        "from attnlab.ring import RingCache\n"
        "assert 'torch' in sys.modules and RingCache.__module__ == 'attnlab.ring.cache'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_room_has_its_names_and_no_others():
    import attnlab.ring

    for name in attnlab.ring.__all__:
        assert getattr(attnlab.ring, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'RingCash'"):
        attnlab.ring.RingCash  # noqa: B018
