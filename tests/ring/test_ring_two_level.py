"""Blocks and tiles: counted by brute force, as FlexAttention sees them, and attention that obeys them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_masks import Drawn, mask_trees

from attnlab.masks import causal, predicate, sliding_window
from attnlab.ring import reference
from attnlab.ring.order import TileOrder
from attnlab.ring.tiled import window_mask
from attnlab.ring.two_level import Counters, two_level_attention, two_level_map
from attnlab.tiles import DENSE, EDGE, SKIP, tile_map

SIDES = st.tuples(st.integers(1, 4), st.integers(1, 4)).map(lambda s: (s[0] * s[1], s[1]))  # block, tile
LARGER_SIDES = st.tuples(st.integers(1, 4), st.integers(2, 6)).map(lambda s: (s[0] * s[1], s[1]))
ORDERS = st.sampled_from(TileOrder)
GEOMETRIES = st.tuples(st.integers(0, 40), st.integers(1, 45), st.booleans())  # tokens, window, causal


def pieces(table: np.ndarray, side: int):
    """Corner, shape, and what a square of this side is, for every square of a table, row by row."""
    for i in range(0, table.shape[0], side):
        for j in range(0, table.shape[1], side):
            part = table[i : i + side, j : j + side]
            kind = DENSE if part.sum() == side * side else EDGE if part.any() else SKIP
            yield (i, i + part.shape[0], j, j + part.shape[1], kind), part


def brute(table: np.ndarray, block: int, tile: int):
    """The visits in Q-major order, and how many blocks and tiles of each kind there are."""
    visits, blocks, tiles = [], [0, 0, 0], [0, 0, 0]
    for (i, i_stop, j, j_stop, kind), part in pieces(table, block):
        blocks[kind] += 1
        if kind == DENSE:
            visits.append((i, i_stop, j, j_stop, kind))
        elif kind == EDGE:
            for (m, m_stop, n, n_stop, small), _ in pieces(part, tile):
                tiles[small] += 1
                if small != SKIP:
                    visits.append((i + m, i + m_stop, j + n, j + n_stop, small))
    return visits, blocks, tiles


@given(mask_trees(longest=20), SIDES)
def test_counts_and_visits_equal_brute_force(drawn: Drawn, sides: tuple[int, int]) -> None:
    table = drawn.loop()
    block, tile = sides
    visits, blocks, tiles = brute(table, block, tile)
    for mask in (drawn.mask, predicate(drawn.mask, "by value")):
        both = two_level_map(mask, drawn.q_len, drawn.kv_len, block, tile)
        assert [both.n_skip_blocks, both.n_edge_blocks, both.n_dense_blocks] == blocks
        assert [both.n_skip_tiles, both.n_edge_tiles, both.n_dense_tiles] == tiles
        assert both.visible == table.sum()
        assert both.visited == blocks[DENSE] * block**2 + (tiles[EDGE] + tiles[DENSE]) * tile**2
        assert both.useful == (both.visible / both.visited if both.visited else 1.0)
        assert (both.block_size, both.tile_size) == sides
        assert [tuple(visit) for visit in both.visits()] == visits

        def columns_first(visit):
            q, _, k, _, _ = visit
            return k // block, q // block, k, q

        assert [tuple(visit) for visit in both.visits(TileOrder.K_MAJOR)] == sorted(visits, key=columns_first)


@given(mask_trees(longest=20), SIDES)
def test_what_is_computed_is_what_small_tiles_alone_would_compute(drawn: Drawn, sides) -> None:
    both = two_level_map(drawn.mask, drawn.q_len, drawn.kv_len, *sides)
    alone = tile_map(drawn.mask, drawn.q_len, drawn.kv_len, sides[1])
    assert both.visited == alone.n_visited * sides[1] ** 2
    assert both.n_edge_tiles == alone.n_edge
    assert both.useful == alone.useful


@settings(max_examples=20)
@given(mask_trees(longest=20, shortest=1), SIDES)
def test_blocks_are_the_full_partial_and_empty_ones_of_flex_attention(drawn: Drawn, sides) -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    both = two_level_map(drawn.mask, drawn.q_len, drawn.kv_len, *sides)
    theirs = create_block_mask(
        drawn.mask, None, None, drawn.q_len, drawn.kv_len, device="cpu", BLOCK_SIZE=sides[0]
    )
    kinds = np.full(both.blocks.kinds.shape, SKIP)
    for kind, number, index in (
        (EDGE, theirs.kv_num_blocks, theirs.kv_indices),
        (DENSE, theirs.full_kv_num_blocks, theirs.full_kv_indices),
    ):
        for i, n in enumerate(number[0, 0].tolist()):
            kinds[i, index[0, 0, i, :n].numpy()] = kind
    np.testing.assert_array_equal(both.blocks.kinds, kinds)
    np.testing.assert_array_equal(list(both.refined), np.argwhere(kinds == EDGE).reshape(-1, 2).tolist())


@pytest.mark.parametrize(("window", "block", "tile"), [(2048, 128, 32), (1024, 256, 64), (96, 128, 32)])
def test_of_a_long_causal_window_w_of_w_plus_tile_is_useful(window: int, block: int, tile: int) -> None:
    both = two_level_map(causal() & sliding_window(window), 2**15, 2**15, block, tile)
    assert both.useful == pytest.approx(window / (window + tile), rel=0.02)
    # Blocks alone waste more.
    assert both.blocks.useful < both.useful


def test_no_table_of_all_pairs_is_made() -> None:
    n_tokens, block = 2**16, 1024
    mask = causal() & sliding_window(4096)
    tracemalloc.start()
    both = two_level_map(mask, n_tokens, n_tokens, block, 64)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    n_small = both.n_edge_blocks * (block // 64) ** 2
    assert both.n_edge_blocks == 64 + 60
    assert peak < 160 * n_tokens + 64 * (n_tokens // block) ** 2 + 64 * n_small  # 13 MB; a table takes 4.3 GB


def random_qkv(tokens: int, heads=(2, 1), dtype=torch.float64, head_dim: int = 4) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    shapes = [(1, n, tokens, head_dim) for n in (heads[0], heads[1], heads[1])]
    return [torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype) for shape in shapes]


@settings(max_examples=25)
@given(GEOMETRIES, LARGER_SIDES, ORDERS, st.sampled_from([(1, 1), (4, 2), (5, 1)]), st.integers(1, 6))
def test_outputs_and_gradients_equal_the_reference(geometry, sides, order, heads, head_tile_size) -> None:
    tokens, window, causal_ = geometry
    leaves = [x.requires_grad_() for x in random_qkv(tokens, heads)]
    options = dict(window=window, causal=causal_, return_lse=True)
    block, tile = sides
    got = two_level_attention(
        *leaves, order=order, block_size=block, tile_size=tile, head_tile_size=head_tile_size, **options
    )
    expected = reference.sliding_window_attention(*leaves, **options)
    rng = torch.Generator().manual_seed(1)
    grads = [torch.randn(x.shape, generator=rng, dtype=x.dtype) for x in expected]
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)
    of = (torch.autograd.grad(results, leaves, grads) for results in (got, expected))
    for a, b in zip(*of, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("order", TileOrder)
def test_other_dtypes_and_the_default_sizes(dtype, tolerance, order) -> None:
    q, k, v = random_qkv(230, (4, 2), dtype)
    out, lse = two_level_attention(q, k, v, window=150, order=order, return_lse=True)
    expected, sums = reference.sliding_window_attention(q, k, v, window=150, return_lse=True)
    assert out.dtype == dtype and lse.dtype == torch.float32
    torch.testing.assert_close(out.double(), expected, atol=tolerance, rtol=0)
    torch.testing.assert_close(lse.double(), sums, atol=5e-6, rtol=0)
    torch.testing.assert_close(two_level_attention(q, k, v, window=150, order=order), out, atol=0, rtol=0)


@pytest.mark.parametrize("order", TileOrder)
@pytest.mark.parametrize("causal_", [True, False])
@pytest.mark.parametrize("window", [1, 3, 9, 21, 100])
def test_what_is_skipped_is_never_read(order, causal_, window) -> None:
    """Poison, for each tile of queries, the keys that no visit reads with it."""
    tokens, block, tile = 48, 16, 4
    q, k, v = random_qkv(tokens)
    options = dict(window=window, causal=causal_, order=order, block_size=block, tile_size=tile)
    clean = two_level_attention(q, k, v, **options)
    for start in range(0, tokens, tile):
        poisoned = torch.ones(tokens, dtype=torch.bool)
        for visit in two_level_map(window_mask(window, causal_), tokens, tokens, block, tile).visits(order):
            if visit.q_start <= start < visit.q_stop:
                poisoned[visit.k_start : visit.k_stop] = False
        bad_k, bad_v = (x.masked_fill(poisoned[:, None], torch.nan) for x in (k, v))
        out = two_level_attention(q, bad_k, bad_v, **options)
        assert torch.equal(out[:, :, start : start + tile], clean[:, :, start : start + tile])
        assert out.isnan().any() == poisoned.any()
    assert poisoned.any() == (window < 32)  # the last tile of queries sees all if the window is long


@pytest.mark.parametrize("order", TileOrder)
@pytest.mark.parametrize(("window", "causal_"), [(24, True), (24, False), (3, True), (1, True)])
def test_positions_are_compared_in_edge_tiles_only(monkeypatch, order, window, causal_) -> None:
    compared: list[tuple] = []
    monkeypatch.setattr(
        "attnlab.ring.two_level.torch.where", lambda *a, w=torch.where: compared.append(a[0].shape) or w(*a)
    )
    counters = Counters()
    options = dict(block_size=16, tile_size=4, order=order, counters=counters)
    two_level_attention(*random_qkv(96), window=window, causal=causal_, **options)
    both = two_level_map(window_mask(window, causal_), 96, 96, 16, 4)
    assert len(compared) == counters.masked_tiles == both.n_edge_tiles > 0
    assert set(compared) == {(4, 4)}
    assert (counters.dense_blocks, counters.dense_tiles) == (both.n_dense_blocks, both.n_dense_tiles)


@pytest.mark.parametrize("order", TileOrder)
@pytest.mark.parametrize(
    ("head_tile_size", "passes"), [(None, 1), (1, 6), (2, 3), (4, 2), (5, 2), (6, 1), (9, 1)]
)
def test_query_heads_share_loads_of_keys_and_values(order, head_tile_size, passes) -> None:
    q, k, v = random_qkv(64, (12, 2))
    options = dict(window=20, order=order, block_size=8, tile_size=4)
    counters = Counters()
    out = two_level_attention(q, k, v, head_tile_size=head_tile_size, counters=counters, **options)
    torch.testing.assert_close(out, two_level_attention(q, k, v, **options), atol=1e-14, rtol=0)
    loaded = []
    for visit in two_level_map(window_mask(20, True), 64, 64, 8, 4).visits(order):
        if loaded[-1:] != [(visit.k_start, visit.k_stop)]:
            loaded.append((visit.k_start, visit.k_stop))
    assert counters.kv_loads == passes * len(loaded)
    assert counters.kv_rows == passes * sum(stop - start for start, stop in loaded)


def test_k_major_loads_fewer_keys() -> None:
    rows = {}
    for order in TileOrder:
        counters = Counters()
        options = dict(block_size=16, tile_size=4, order=order, counters=counters)
        two_level_attention(*random_qkv(128), window=64, **options)
        rows[order] = counters.kv_rows
    assert rows[TileOrder.K_MAJOR] < rows[TileOrder.Q_MAJOR] / 2


# --- Bad input ---


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("sides", "error", "words"),
    [
        ((12, 8), ValueError, "block_size must be a multiple of tile_size, 8, got 12"),
        ((4, 8), ValueError, "block_size must be a multiple of tile_size, 8, got 4"),
        ((8, 0), ValueError, "tile_size must be between 1"),
        ((0, 8), ValueError, "block_size must be between 1"),
        (((8, 8), 4), TypeError, "block_size must be an int"),
    ],
)
def test_bad_sides_are_named(sides, error, words) -> None:
    with pytest.raises(error, match=words):
        two_level_map(causal(), 16, 16, *sides)
    with pytest.raises(error, match=words):
        two_level_attention(*random_qkv(16), window=4, block_size=sides[0], tile_size=sides[1])


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (dict(q=None), TypeError, "q must be a torch Tensor"),
        (dict(q=torch.zeros(1, 2, 9, 4, dtype=torch.int64)), TypeError, "q must be float64"),
        (dict(k=torch.zeros(1, 1, 8, 4).double()), ValueError, "k must have shape"),
        (dict(v=torch.zeros(1, 2, 9, 4).double()), ValueError, "v must have shape"),
        (dict(v=torch.zeros(1, 1, 9, 4)), TypeError, "v must have dtype"),
        (dict(q=torch.zeros(1, 0, 9, 4).double()), ValueError, "k must have heads that divide the 0 of q"),
        (dict(window=0), ValueError, "window must be between 1"),
        (dict(causal=1), TypeError, "causal must be a bool"),
        (dict(order="q"), TypeError, "order must be a TileOrder"),
        (dict(head_tile_size=0), ValueError, "head_tile_size must be between 1"),
    ],
)
def test_bad_arguments_are_named(change, error, words) -> None:
    options = dict(zip(("q", "k", "v"), random_qkv(9), strict=True)) | dict(window=3)
    with pytest.raises(error, match=words):
        two_level_attention(**(options | change))
