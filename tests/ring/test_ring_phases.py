"""The profile adds up the real walk's events, and its seconds are all those of the call."""

from __future__ import annotations

import itertools

import pytest
import torch

from attnlab.masks import causal, sliding_window
from attnlab.ring import phases, tiled
from attnlab.ring.order import TileOrder
from attnlab.tiles import tile_map

SETTING = dict(window=40, tile_size=16)


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return torch.randn(2, 4, 100, 8), torch.randn(2, 2, 100, 8), torch.randn(2, 2, 100, 8)


def ticking():
    """A clock that gains one second each time it is read."""
    return itertools.count(0.0, 1.0).__next__


@pytest.mark.parametrize("order", TileOrder)
def test_counts_and_bytes_are_those_of_the_walk(qkv, order):
    found = {phase.name: phase for phase in phases.profile(*qkv, order=order, **SETTING).phases}
    tiles = tile_map(causal() & sliding_window(40), 100, 100, 16)
    moved = tiles.traffic(order.value, 8, 4)
    assert tuple(found) == phases.PHASES
    assert found["compute"].count == found["merge"].count == tiles.n_visited
    assert found["skip"].count == tiles.n_skip
    assert found["plan"].count == 1
    q_heads, kv_heads = 2 * 4, 2 * 2  # heads of all sequences
    assert found["load"].count == moved.q.loads + moved.k.loads + moved.v.loads + moved.partial.loads
    assert found["store"].count == moved.o.stores + moved.partial.stores
    partial = moved.partial.bytes // 2
    assert found["load"].bytes == q_heads * (moved.q.bytes + partial) + kv_heads * (
        moved.k.bytes + moved.v.bytes
    )
    assert found["store"].bytes == q_heads * (moved.o.bytes + partial)
    assert found["compute"].bytes == found["merge"].bytes == found["skip"].bytes == 0


def test_time_is_charged_to_the_event_that_it_follows(qkv):
    """With a clock that ticks at every reading, each event takes one second, and the plan one."""
    profile = phases.profile(*qkv, clock=ticking(), **SETTING)
    assert [phase.seconds for phase in profile.phases] == [phase.count for phase in profile.phases]
    assert profile.seconds == sum(phase.count for phase in profile.phases)
    assert sum(phase.share for phase in profile.phases) == pytest.approx(1)


def test_a_slow_phase_has_a_large_share(qkv, monkeypatch):
    now = [0.0]
    merge = tiled._merge

    def slow_merge(*args):
        now[0] += 9.0
        return merge(*args)

    def clock():
        now[0] += 0.001
        return now[0]

    monkeypatch.setattr(tiled, "_merge", slow_merge)
    shares = {phase.name: phase.share for phase in phases.profile(*qkv, clock=clock, **SETTING).phases}
    assert shares["merge"] > 0.99


def test_no_graph_is_recorded_and_inputs_stay_as_they_are(qkv):
    q, k, v = (x.clone().requires_grad_() for x in qkv)
    phases.profile(q, k, v, **SETTING)
    for x, before in zip((q, k, v), qkv, strict=True):
        assert x.grad is None
        assert torch.equal(x.detach(), before)


def test_it_prints_as_a_table(qkv):
    header, *lines = str(phases.profile(*qkv, clock=ticking(), **SETTING)).splitlines()
    assert header.split() == ["phase", "events", "bytes", "ms", "share"]
    assert tuple(line.split()[0] for line in lines) == phases.PHASES
    assert lines[0].split()[1:4] == ["1", "0", "1000.000"]


def test_an_empty_sequence_has_a_plan_and_nothing_else():
    empty = torch.randn(1, 2, 0, 8)
    profile = phases.profile(empty, empty, empty, clock=ticking(), **SETTING)
    assert [phase.count for phase in profile.phases] == [1, 0, 0, 0, 0, 0]
    assert profile.seconds == 1
