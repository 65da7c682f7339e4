"""The address trace: at most two ascending runs in the ring, one run per row in a token-major cache."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.ring import RingCache, laws
from attnlab.ring.trace import LINE_BYTES, address_trace

SIZES = dict(num_kv_heads=4, head_dim=40, capacity=64, window=48)


@settings(max_examples=60)
@given(
    num_kv_heads=st.integers(1, 5),
    head_dim=st.integers(1, 70),
    window=st.integers(1, 40),
    rows=st.integers(1, 20),
    spare=st.integers(0, 10),
    position=st.integers(0, 10**7),
    size=st.sampled_from([2, 4, 8]),
    data=st.data(),
)
def test_one_head_of_the_ring_is_read_in_at_most_two_ascending_runs(
    num_kv_heads, head_dim, window, rows, spare, position, size, data
):
    head = data.draw(st.integers(0, num_kv_heads - 1))
    capacity = window - 1 + rows + spare
    shape = dict(num_kv_heads=num_kv_heads, head_dim=head_dim, capacity=capacity, window=window)
    trace = address_trace("ring", **shape, position=position, rows=rows, head=head, bytes_per_element=size)
    assert trace.n_runs <= 2
    assert all(start < stop for start, stop in trace.runs)
    assert all(start % LINE_BYTES == 0 for start, _ in trace.rows)
    assert len(trace.rows) == min(position + rows, window - 1 + rows)
    # The oldest key is read first, and a second run begins at the head's first slot.
    row = trace.rows[0][1] - trace.rows[0][0]
    first_slot = (trace.rows[0][0] - head * capacity * row) // row
    assert first_slot == laws.oldest_visible(position + 1, window) % capacity
    if trace.n_runs == 2:
        assert trace.runs[1][0] == head * capacity * row


@pytest.mark.parametrize("head", range(4))
def test_token_major_gives_one_run_per_row(head):
    trace = address_trace("token-major", **SIZES, position=100, head=head)
    assert trace.n_runs == len(trace.rows) == 48
    assert trace.bytes_per_run == 40 * 4
    with_one_head = address_trace("token-major", **{**SIZES, "num_kv_heads": 1}, position=100)
    assert with_one_head.n_runs == 2


@pytest.mark.parametrize("position", [0, 30, 63, 64, 100, 127, 1_000_003])
@pytest.mark.parametrize("layout", ["ring", "token-major"])
def test_the_addresses_are_where_real_storage_keeps_the_rows(layout, position):
    """Every element of a storage is numbered, and read back through the trace's addresses."""
    if layout == "ring":
        cache = RingCache(1, 4, 40, 64, window=48)
        keys = cache.k
    else:
        keys = torch.zeros(1, 64, 4, 40).transpose(1, 2)
    flat = keys.as_strided((keys.untyped_storage().nbytes() // 4,), (1,))
    flat.copy_(torch.arange(len(flat)))
    trace = address_trace(layout, **SIZES, position=position)
    slots = [p % 64 for p in range(max(0, position - 47), position + 1)]
    expected = keys[0][:, slots].flatten(0, 1)
    got = torch.stack([flat[start // 4 : start // 4 + 40] for start, _ in trace.rows])
    assert torch.equal(got, expected)


def test_lines_touched_are_counted_one_by_one():
    ring = address_trace("ring", **SIZES, position=100, head=2)
    other = address_trace("token-major", **SIZES, position=100, head=2)
    for trace in (ring, other):
        touched = {byte // LINE_BYTES for start, _ in trace.rows for byte in range(start, start + 160)}
        assert trace.lines_touched == len(touched)
        assert trace.lines_used == 48 * 160 // LINE_BYTES
    # Rows of 48 bytes fit into one line each, if they begin on one.
    narrow = {**SIZES, "head_dim": 12, "num_kv_heads": 3}
    assert address_trace("ring", **narrow, position=100, head=1).lines_touched == 48
    assert address_trace("token-major", **narrow, position=100, head=1).lines_touched > 48


def test_a_chunk_reads_the_window_of_its_first_query_too():
    trace = address_trace("ring", **{**SIZES, "capacity": 64}, position=100, rows=16, head=0)
    assert len(trace.rows) == 47 + 16


def test_all_heads_are_read_one_after_the_other():
    whole = address_trace("ring", **SIZES, position=100)
    apart = [address_trace("ring", **SIZES, position=100, head=head).rows for head in range(4)]
    assert whole.rows == tuple(row for rows in apart for row in rows)


def test_it_prints_as_a_sentence():
    assert str(address_trace("ring", **SIZES, position=100, head=1)) == (
        "ring: 48 rows in 2 runs, 4,608 bytes per run; 144 cache lines touched, 120 would do."
    )
    assert " in 1 run, " in str(address_trace("ring", **SIZES, position=0, head=1))


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (dict(layout="slots"), ValueError, "layout must be 'ring' or 'token-major'; got 'slots'"),
        (dict(bytes_per_element=3), ValueError, "bytes_per_element must be 2, 4 or 8; got 3"),
        (dict(head=4), ValueError, "head must be less than num_kv_heads, 4; got 4"),
        (dict(head=1.0), TypeError, "head must be an int"),
        (dict(position=-1), ValueError, "position must be at least 0"),
        (dict(rows=18), ValueError, "cache law"),
        (dict(rows=0), ValueError, "rows must be at least 1"),
    ],
)
def test_bad_input_is_refused(change, error, message):
    arguments = {"layout": "ring", **SIZES, "position": 100, **change}
    with pytest.raises(error, match=message):
        address_trace(arguments.pop("layout"), **arguments)
