"""Bytes between memory and chip: the formula, the walk, and what who obeys the walk computes."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import numpy as np
import pytest
from dense_gradients import dense_gradients
from hypothesis import given, settings
from hypothesis import strategies as st
from test_masks import Drawn, mask_trees

from attnlab.attention import dense_attention
from attnlab.masks import causal, full, sliding_window
from attnlab.ring.order import TileOrder
from attnlab.ring.traffic import (
    BackwardTraffic,
    backward_traffic,
    forward_traffic,
    head_tiles,
    walk_backward,
)
from attnlab.tiles import tile_map

BLOCKS = st.tuples(st.integers(1, 6), st.integers(1, 6))
HEADS = st.tuples(
    st.integers(1, 5), st.integers(1, 6)
)  # query heads of a K/V head, and how many share a load
ORDERS = st.sampled_from(TileOrder)
TENSORS = [field.name for field in fields(BackwardTraffic) if field.name != "order"]


@settings(max_examples=80)
@given(mask_trees(longest=16), BLOCKS, ORDERS, HEADS, st.integers(1, 8), st.sampled_from([2, 4]))
def test_the_bytes_of_the_backward_walk_are_the_closed_form(
    drawn: Drawn, block, order: TileOrder, heads, head_dim: int, size: int
) -> None:
    tiles = tile_map(drawn.mask, drawn.q_len, drawn.kv_len, block)
    options = dict(head_dim=head_dim, bytes_per_element=size, query_heads=heads[0], head_tile_size=heads[1])
    events = list(walk_backward(tiles, order, **options))
    closed = backward_traffic(tiles, order, **options)
    counted = Counter((event.kind, event.tensor) for event in events)
    moved: Counter[str] = Counter()
    for event in events:
        moved[event.tensor] += event.bytes
    for tensor in TENSORS:
        moves = getattr(closed, tensor)
        assert (counted["load", tensor], counted["store", tensor]) == (moves.loads, moves.stores), tensor
        assert moved[tensor] == moves.bytes, tensor
    passes = len(head_tiles(*heads))
    assert moved[""] == 0 and sum(moved.values()) == closed.bytes
    assert counted["compute", ""] == counted["merge", ""] == passes * tiles.n_visited
    assert counted["skip", ""] == passes * tiles.n_skip
    assert closed.order == order.value


@settings(max_examples=40)
@given(mask_trees(longest=16), BLOCKS, ORDERS, HEADS)
def test_the_walk_visits_in_the_order_of_the_tile_map(drawn: Drawn, block, order: TileOrder, heads) -> None:
    tiles = tile_map(drawn.mask, drawn.q_len, drawn.kv_len, block)
    events = walk_backward(
        tiles, order, head_dim=4, bytes_per_element=2, query_heads=heads[0], head_tile_size=heads[1]
    )
    computed = [[e.head_tile, e.q_tile, e.k_tile] for e in events if e.kind == "compute"]
    steps = tiles.order(order.value).tolist()
    assert computed == [[number, *step] for number in range(len(head_tiles(*heads))) for step in steps]


@settings(max_examples=40)
@given(mask_trees(longest=12, shortest=1), BLOCKS, ORDERS, HEADS)
def test_who_does_what_the_walk_says_has_the_gradients(drawn: Drawn, block, order: TileOrder, heads) -> None:
    """Obey the events with a chip that holds only what was loaded, and loses what it stores."""
    n_heads, dim = heads[0], 3
    rng = np.random.default_rng(0)
    q, dout = rng.standard_normal((2, n_heads, drawn.q_len, dim))
    k, v = rng.standard_normal((2, drawn.kv_len, dim))
    seen = drawn.mask.dense(drawn.q_len, drawn.kv_len)
    out, lse = dense_attention(q, k, v, seen)
    memory = {"q": q, "do": dout, "k": k, "v": v, "lse": lse, "delta": (out * dout).sum(axis=-1)}
    tiles = tile_map(drawn.mask, drawn.q_len, drawn.kv_len, block)
    parts = np.split(np.arange(n_heads), np.cumsum(head_tiles(*heads))[:-1])
    unfinished: dict[tuple, np.ndarray] = {}
    finished = {"dq": np.zeros_like(q), "dk": np.zeros_like(k), "dv": np.zeros_like(v)}
    chip: dict[str, np.ndarray] = {}
    for event in walk_backward(
        tiles, order, head_dim=dim, bytes_per_element=8, query_heads=n_heads, head_tile_size=heads[1]
    ):
        of_keys = event.tensor[:1] == "k" or event.tensor[:1] == "v" or event.tensor[:2] in ("dk", "dv")
        rows = slice(event.q_tile * block[0], (event.q_tile + 1) * block[0])
        keys = slice(event.k_tile * block[1], (event.k_tile + 1) * block[1])
        place = keys if of_keys else (parts[event.head_tile], rows)
        name = event.tensor.removesuffix("_partial")
        key = (name, event.k_tile) if of_keys else (name, event.q_tile, event.head_tile)
        if event.kind == "load":
            chip[name] = unfinished.pop(key) if name in finished else memory[name][place]
        elif event.kind == "compute":
            visible = seen[rows, keys]
            scores = chip["q"] @ chip["k"].T * dim**-0.5
            sums = np.where(np.isneginf(chip["lse"]), 0, chip["lse"])[..., None]
            weights = np.where(visible, np.exp(scores - sums), 0)
            dscores = weights * (chip["do"] @ chip["v"].T - chip["delta"][..., None]) * dim**-0.5
        elif event.kind == "merge":
            for name, term in (
                ("dq", dscores @ chip["k"]),
                ("dk", (dscores.swapaxes(-1, -2) @ chip["q"]).sum(axis=0)),
                ("dv", (weights.swapaxes(-1, -2) @ chip["do"]).sum(axis=0)),
            ):
                chip[name] = chip.get(name, 0) + term
        elif event.kind == "store" and event.tensor.endswith("_partial"):
            unfinished[key] = chip.pop(name)
        elif event.kind == "store":
            assert not finished[name][place].any()
            finished[name][place] = chip.pop(name)
    assert not unfinished
    by_head = [x.swapaxes(0, 1)[None] for x in (q, np.array([k] * n_heads), np.array([v] * n_heads))]
    dense = dense_gradients(*by_head, seen[None], dout.swapaxes(0, 1)[None])
    np.testing.assert_allclose(finished["dq"], dense.dq[0].swapaxes(0, 1), atol=1e-12)
    np.testing.assert_allclose(finished["dk"], dense.dk[0].sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(finished["dv"], dense.dv[0].sum(axis=1), atol=1e-12)


@settings(max_examples=40)
@given(mask_trees(longest=16), BLOCKS, ORDERS, st.integers(1, 8), st.sampled_from([2, 4]))
def test_forward_with_one_head_is_the_traffic_of_the_tile_map(drawn, block, order, head_dim, size) -> None:
    tiles = tile_map(drawn.mask, drawn.q_len, drawn.kv_len, block)
    got = forward_traffic(tiles, order, head_dim=head_dim, bytes_per_element=size)
    assert got == tiles.traffic(order.value, head_dim, size)


@pytest.mark.parametrize("order", TileOrder)
@pytest.mark.parametrize("head_tile_size", [1, 2, 3, 5, 6, 9])
def test_query_heads_that_share_loads(order: TileOrder, head_tile_size: int) -> None:
    tiles = tile_map(causal() & sliding_window(20), 60, 60, 8)
    sizes = dict(head_dim=16, bytes_per_element=2)
    alone, shared = (
        forward_traffic(tiles, order, **sizes, **heads)
        for heads in ({}, dict(query_heads=6, head_tile_size=head_tile_size))
    )
    passes = len(head_tiles(6, head_tile_size))
    assert passes == -(-6 // head_tile_size)
    for tensor in ("k", "v"):
        assert getattr(shared, tensor).bytes == passes * getattr(alone, tensor).bytes
    for tensor in ("q", "o", "partial"):
        assert getattr(shared, tensor).bytes == 6 * getattr(alone, tensor).bytes
        assert getattr(shared, tensor).loads == passes * getattr(alone, tensor).loads

    alone, shared = (
        backward_traffic(tiles, order, **sizes, **heads)
        for heads in ({}, dict(query_heads=6, head_tile_size=head_tile_size))
    )
    assert shared.dk == alone.dk and shared.dv == alone.dv  # finished once, whatever the passes
    assert shared.k.bytes == passes * alone.k.bytes
    assert shared.dq.bytes == 6 * alone.dq.bytes
    assert shared.dk_partial.loads == passes * alone.k.loads - alone.dk.stores


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda t: list(walk_backward(t, "q", head_dim=4, bytes_per_element=2)),
            TypeError,
            "order must be a TileOrder",
        ),
        (
            lambda t: backward_traffic(t, "q", head_dim=4, bytes_per_element=2),
            TypeError,
            "order must be a TileOrder",
        ),
    ],
)
def test_bad_input_is_named(call, error, words) -> None:
    with pytest.raises(error, match=words):
        call(tile_map(full(), 8, 8, 4))
