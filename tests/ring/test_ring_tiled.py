"""The walk over tiles: what it moves, what it never reads, and that its order does not matter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.ring import reference
from attnlab.ring.order import TileOrder
from attnlab.ring.tiled import Event, sliding_window_attention, walk, window_mask
from attnlab.tiles import DENSE, EDGE, SKIP, tile_map

orders = st.sampled_from(TileOrder)
geometries = st.tuples(st.integers(0, 60), st.integers(1, 70), st.integers(1, 20), st.booleans())


def random_qkv(tokens: int, head_dim: int = 4, heads: int = 2) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    return [torch.randn((1, heads, tokens, head_dim), generator=rng) for _ in range(3)]


@settings(max_examples=50)
@given(geometries, orders, st.integers(1, 8), st.sampled_from([2, 4, 8]))
def test_the_bytes_of_the_events_are_the_closed_form(geometry, order, head_dim, size):
    tokens, window, tile, causal = geometry
    tiles = tile_map(window_mask(window, causal), tokens, tokens, tile)
    events = list(walk(tiles, order, head_dim=head_dim, bytes_per_element=size))
    closed = tiles.traffic(order.value, head_dim, size)
    counted = Counter((event.kind, event.tensor) for event in events)
    moved = Counter()
    for event in events:
        moved[event.tensor] += event.bytes
    for tensor in ("q", "k", "v", "o", "partial"):
        moves = getattr(closed, tensor)
        assert counted["load", tensor] == moves.loads
        assert counted["store", tensor] == moves.stores
        assert moved[tensor] == moves.bytes
    assert moved[""] == 0
    assert counted["compute", ""] == counted["merge", ""] == tiles.n_visited
    assert counted["skip", ""] == tiles.n_skip


@settings(max_examples=50)
@given(geometries, orders)
def test_computed_tiles_come_in_the_order_of_the_tile_map(geometry, order):
    tokens, window, tile, causal = geometry
    tiles = tile_map(window_mask(window, causal), tokens, tokens, tile)
    events = walk(tiles, order, head_dim=4, bytes_per_element=4)
    computed = [[event.q_tile, event.k_tile] for event in events if event.kind == "compute"]
    assert computed == tiles.order(order.value).tolist()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 3, 8, 40])
def test_the_mask_is_the_window_as_its_docstring_says(window, causal):
    p, k = np.arange(20)[:, None], np.arange(20)
    expected = (p - window < k) & (k <= p) if causal else abs(p - k) < window
    assert np.array_equal(window_mask(window, causal).dense(20, 20), expected)


@pytest.mark.parametrize("order", TileOrder)
def test_attention_hands_out_the_events_of_the_walk(order):
    events: list[Event] = []
    sliding_window_attention(*random_qkv(50), window=9, order=order, tile_size=8, events=events)
    tiles = tile_map(window_mask(9, True), 50, 50, 8)
    assert events == list(walk(tiles, order, head_dim=4, bytes_per_element=4))
    assert {event.kind for event in events} == {"load", "compute", "merge", "skip", "store"}


@pytest.mark.parametrize("order", TileOrder)
@pytest.mark.parametrize("causal", [True, False])
def test_skipped_tiles_are_never_read(order, causal):
    q, k, v = random_qkv(48)
    options = dict(window=9, causal=causal, order=order, tile_size=8)
    clean = sliding_window_attention(q, k, v, **options)
    kinds = tile_map(window_mask(9, causal), 48, 48, 8).kinds
    for row, rows in enumerate(torch.arange(48).split(8)):
        # To this tile of queries the poisoned tiles of keys are to be skipped; other queries do see them.
        poisoned = torch.from_numpy(kinds[row] == SKIP).repeat_interleave(8)[:, None]
        assert poisoned.any()
        bad_k, bad_v = (x.masked_fill(poisoned, torch.nan) for x in (k, v))
        out = sliding_window_attention(q, bad_k, bad_v, **options)
        assert torch.equal(out[:, :, rows], clean[:, :, rows])
        assert out.isnan().any()


def test_positions_are_compared_in_edge_tiles_only(monkeypatch):
    compared = []
    mask = window_mask(20, True)
    monkeypatch.setattr(
        "attnlab.ring.tiled.torch.where", lambda *a, w=torch.where: compared.append(a) or w(*a)
    )
    sliding_window_attention(*random_qkv(64), window=20, tile_size=8)
    tiles = tile_map(mask, 64, 64, 8)
    assert (tiles.kinds == DENSE).any() and len(compared) == tiles.n_edge == np.count_nonzero(
        tiles.kinds == EDGE
    )


@settings(max_examples=25)
@given(geometries, orders, st.randoms(use_true_random=False))
def test_any_permutation_of_the_tiles_gives_the_same_result(geometry, order, random):
    tokens, window, tile, causal = geometry
    q, k, v = random_qkv(tokens)
    visits = [
        tuple(visit)
        for visit in tile_map(window_mask(window, causal), tokens, tokens, tile).order("q").tolist()
    ]
    random.shuffle(visits)
    events: list[Event] = []
    got = sliding_window_attention(
        q,
        k,
        v,
        window=window,
        causal=causal,
        order=order,
        tile_size=tile,
        visits=visits,
        events=events,
        return_lse=True,
    )
    expected = reference.sliding_window_attention(q, k, v, window=window, causal=causal, return_lse=True)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.double(), b, atol=2e-6, rtol=0)
    assert [(event.q_tile, event.k_tile) for event in events if event.kind == "compute"] == visits


@settings(max_examples=20)
@given(geometries, orders)
def test_small_tiles_have_the_gradients_of_the_reference(geometry, order):
    tokens, window, tile, causal = geometry
    leaves = [x.requires_grad_() for x in random_qkv(tokens)]
    out = sliding_window_attention(*leaves, window=window, causal=causal, order=order, tile_size=tile)
    expected = reference.sliding_window_attention(*leaves, window=window, causal=causal)
    dout = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    got = torch.autograd.grad(out, leaves, dout)
    for a, b in zip(got, torch.autograd.grad(expected, leaves, dout.double()), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


@pytest.mark.unchecked
def test_bad_tile_sizes_are_named():
    with pytest.raises(ValueError, match="block_size must be between 1"):
        sliding_window_attention(*random_qkv(4), window=2, tile_size=0)
