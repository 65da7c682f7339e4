"""Tile maps against brute force and against FlexAttention's own block masks."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_masks import Drawn, mask_trees

from attnlab.attention import dense_attention
from attnlab.masks import Mask, bottom_right_causal, causal, document, full, predicate, prefix, sliding_window
from attnlab.tiles import DENSE, EDGE, PARTIAL_BYTES, SKIP, TileMap, tile_map

BLOCKS = st.tuples(st.integers(1, 6), st.integers(1, 6))
ORDERS: tuple[Literal["q", "k"], ...] = ("q", "k")


def brute_counts(table: np.ndarray, block_q: int, block_kv: int) -> np.ndarray:
    q_len, kv_len = table.shape
    rows, columns = math.ceil(q_len / block_q), math.ceil(kv_len / block_kv)
    counts = np.zeros((rows, columns), np.int64)
    for i in range(rows):
        for j in range(columns):
            tile = table[i * block_q : (i + 1) * block_q, j * block_kv : (j + 1) * block_kv]
            counts[i, j] = np.count_nonzero(tile)
    return counts


def without_intervals(mask: Mask) -> Mask:
    return predicate(mask, mask.name)


@given(mask_trees(longest=16), BLOCKS)
def test_counts_and_kinds_equal_brute_force(drawn: Drawn, block: tuple[int, int]) -> None:
    expected = brute_counts(drawn.loop(), *block)
    for mask in (drawn.mask, without_intervals(drawn.mask)):
        tiles = tile_map(mask, drawn.q_len, drawn.kv_len, block)
        assert tiles.counts.dtype == np.int64
        np.testing.assert_array_equal(tiles.counts, expected)
        assert tiles.kinds.dtype == np.uint8
        for kind, where in ((SKIP, expected == 0), (DENSE, expected == math.prod(block))):
            np.testing.assert_array_equal(tiles.kinds == kind, where)
        assert tiles.n_skip + tiles.n_edge + tiles.n_dense == expected.size
        assert tiles.n_edge == np.count_nonzero(tiles.kinds == EDGE)
        assert tiles.n_visited == tiles.n_edge + tiles.n_dense == np.count_nonzero(expected)


@given(mask_trees(longest=16), BLOCKS)
def test_orders_visit_every_tile_that_is_not_skipped_once(drawn: Drawn, block: tuple[int, int]) -> None:
    tiles = tile_map(drawn.mask, drawn.q_len, drawn.kv_len, block)
    rows, columns = tiles.kinds.shape
    q_major = [(i, j) for i in range(rows) for j in range(columns) if tiles.kinds[i, j] != SKIP]
    assert [tuple(step) for step in tiles.order("q").tolist()] == q_major
    k_major = sorted(q_major, key=lambda step: step[::-1])
    assert [tuple(step) for step in tiles.order("k").tolist()] == k_major


def counted_walk(tiles: TileMap, order: Literal["q", "k"], head_dim: int, size: int) -> dict[str, list[int]]:
    """Walk the tiles with one tile of each tensor on chip and count loads, stores and bytes."""
    moved = {name: [0, 0, 0] for name in ("q", "k", "v", "o", "partial")}

    def count(name: str, column: int, n_bytes: int) -> None:
        moved[name][column] += 1
        moved[name][2] += n_bytes

    steps = [tuple(step) for step in tiles.order(order).tolist()]
    left = {i: sum(step[0] == i for step in steps) for i, _ in steps}
    started: set[int] = set()
    outer = 0 if order == "q" else 1
    for before, step in zip([None, *steps], steps, strict=False):
        i, j = step
        rows = min(tiles.block_q, tiles.q_len - i * tiles.block_q)
        keys = min(tiles.block_kv, tiles.kv_len - j * tiles.block_kv)
        new_outer = before is None or before[outer] != step[outer]
        if order == "k" or new_outer:
            count("q", 0, rows * head_dim * size)
            if i in started:
                count("partial", 0, rows * (head_dim + 2) * PARTIAL_BYTES)
        if order == "q" or new_outer:
            count("k", 0, keys * head_dim * size)
            count("v", 0, keys * head_dim * size)
        started.add(i)
        left[i] -= 1
        if left[i] == 0:
            count("o", 1, rows * head_dim * size)
        elif order == "k":
            count("partial", 1, rows * (head_dim + 2) * PARTIAL_BYTES)
    return moved


@given(mask_trees(longest=16), BLOCKS, st.sampled_from(ORDERS))
def test_traffic_equals_a_counted_walk(
    drawn: Drawn, block: tuple[int, int], order: Literal["q", "k"]
) -> None:
    tiles = tile_map(drawn.mask, drawn.q_len, drawn.kv_len, block)
    traffic, walk = tiles.traffic(order, 5, 2), counted_walk(tiles, order, 5, 2)
    for name, expected in walk.items():
        moves = getattr(traffic, name)
        assert [moves.loads, moves.stores, moves.bytes] == expected, name
    assert traffic.order == order
    assert traffic.bytes == sum(moved[2] for moved in walk.values())


def test_q_major_moves_less_when_the_state_would_travel() -> None:
    tiles = tile_map(full(), 4096, 4096, 128)
    q_major, k_major = (tiles.traffic(order, 128, 2) for order in ORDERS)
    assert q_major.partial.bytes == 0
    assert q_major.k.loads == k_major.q.loads == tiles.n_visited == 32 * 32
    assert k_major.bytes > 2 * q_major.bytes


def test_the_causal_window_of_the_sketch() -> None:
    tiles = tile_map(causal() & sliding_window(768), 2048, 2048, 128)
    assert (tiles.n_visited, tiles.n_skip) == (91, 165)
    assert tiles.n_edge == 16 + 10  # the diagonal, and the window's far edge once it has left the first tile
    assert tiles.counts.sum() == 768 * 2048 - 768 * 767 // 2


def test_useful_share_of_a_long_causal_window() -> None:
    # In the interior a row of tiles visits W / tile + 1 tiles, and uses W keys per query.
    tiles = tile_map(causal() & sliding_window(512), 2**17, 2**17, 128)
    assert tiles.useful == pytest.approx(512 / (512 + 128), abs=1e-3)
    assert tile_map(full(), 8, 8, 4).useful == 1.0
    assert tile_map(full(), 9, 8, 4).useful == 72 / 96  # a ragged tile is computed whole
    assert tile_map(~full(), 8, 8, 4).useful == 1.0


def test_a_repeated_id_beyond_the_small_form_is_counted_from_values() -> None:
    ids = np.arange(200) % 4
    mask = document(ids) & causal()
    assert mask.intervals(200, 200) is None
    table = (ids[:, None] == ids) & (ids != 0) & (np.arange(200)[:, None] >= np.arange(200))
    np.testing.assert_array_equal(tile_map(mask, 200, 200, (32, 48)).counts, brute_counts(table, 32, 48))


def test_arrays_of_a_tile_map_cannot_be_written() -> None:
    tiles = tile_map(causal(), 4, 4, 2)
    for array in (tiles.counts, tiles.kinds):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 7


def test_a_million_tokens_take_memory_for_tokens_and_tiles_only() -> None:
    n_tokens, block = 2**20, 1024
    n_tiles = (n_tokens // block) ** 2
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.choice(n_tokens, 15, replace=False))
    ids = np.searchsorted(cuts, np.arange(n_tokens), side="right") + 1
    mask = causal() & sliding_window(100_000) & document(ids)

    tracemalloc.start()
    tiles = tile_map(mask, n_tokens, n_tokens, block)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert tiles.counts.size == n_tiles
    assert peak < 160 * n_tokens + 64 * n_tiles  # 235 MB; a table of booleans takes 1.1 TB
    lengths = np.diff(np.concatenate([[0], cuts, [n_tokens]]))
    seen = np.minimum(lengths, 100_000)
    assert tiles.counts.sum() == (seen * lengths - seen * (seen - 1) // 2).sum()


# --- Against FlexAttention ---


def assert_equals_flex(mask: Mask, q_len: int, kv_len: int, block: tuple[int, int]) -> None:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, create_mask

    tiles = tile_map(mask, q_len, kv_len, block)
    ours = tiles.block_mask("cpu")
    theirs = create_block_mask(mask, None, None, q_len, kv_len, device="cpu", BLOCK_SIZE=block)
    names = [
        prefix + end for prefix in ("kv_", "full_kv_", "q_", "full_q_") for end in ("num_blocks", "indices")
    ]
    for name in names:
        a, b = getattr(ours, name), getattr(theirs, name)
        assert a.dtype == b.dtype == torch.int32, name
        assert torch.equal(a, b), name
    assert ours.shape == theirs.shape
    assert ours.BLOCK_SIZE == theirs.BLOCK_SIZE == block
    # Which tiles are full and which partial, as FlexAttention finds them in the values.
    for kind, number, index in (
        (EDGE, theirs.kv_num_blocks, theirs.kv_indices),
        (DENSE, theirs.full_kv_num_blocks, theirs.full_kv_indices),
    ):
        table = np.zeros(tiles.kinds.shape, bool)
        for i, n in enumerate(number[0, 0].tolist()):
            table[i, index[0, 0, i, :n].numpy()] = True
        np.testing.assert_array_equal(tiles.kinds == kind, table)
    seen = create_mask(ours.mask_mod, None, None, q_len, kv_len, device="cpu")
    np.testing.assert_array_equal(seen[0, 0].numpy(), mask.dense(q_len, kv_len))


@settings(max_examples=30)
@given(mask_trees(longest=16, shortest=1), BLOCKS)
def test_block_mask_equals_create_block_mask(drawn: Drawn, block: tuple[int, int]) -> None:
    assert_equals_flex(drawn.mask, drawn.q_len, drawn.kv_len, block)


@pytest.mark.parametrize(("q_len", "kv_len"), [(256, 256), (200, 300), (300, 200)])
def test_block_mask_of_the_usual_masks_equals_create_block_mask(q_len: int, kv_len: int) -> None:
    def ids(length: int) -> np.ndarray:
        return np.minimum(np.arange(length) // 70 + 1, 3) * (np.arange(length) < 190)

    packed = document(ids(q_len), ids(kv_len))
    for mask in (
        causal() & sliding_window(100),
        bottom_right_causal(q_len, kv_len),
        causal() | prefix(70),
        packed & causal(),
        without_intervals(packed & causal()),
    ):
        assert_equals_flex(mask, q_len, kv_len, (64, 32))


@pytest.mark.slow
@pytest.mark.unchecked
def test_compiled_flex_attention_equals_dense_attention() -> None:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    n_tokens = 256
    ids = np.minimum(np.arange(n_tokens) // 70 + 1, 3)
    mask = causal() & (document(ids) | ~sliding_window(200))
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, n_tokens, 32), np.float32) for _ in range(3))
    expected, _ = dense_attention(q, k, v, mask)

    compiled = torch.compile(flex_attention, fullgraph=True)
    block_masks = {
        "from tiles": tile_map(mask, n_tokens, n_tokens, 128).block_mask("cpu"),
        "from the mask itself": create_block_mask(mask, None, None, n_tokens, n_tokens, device="cpu"),
        "from mask_mod": create_block_mask(
            mask.mask_mod("cpu"), None, None, n_tokens, n_tokens, device="cpu"
        ),
    }
    for name, block_mask in block_masks.items():
        out = compiled(*(torch.from_numpy(x) for x in (q, k, v)), block_mask=block_mask)
        np.testing.assert_allclose(out.numpy(), expected, atol=2e-6, err_msg=name)

    def whole(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        block_mask = create_block_mask(mask, None, None, n_tokens, n_tokens, device="cpu")
        return flex_attention(q, k, v, block_mask=block_mask)

    out = torch.compile(whole, fullgraph=True)(*(torch.from_numpy(x) for x in (q, k, v)))
    np.testing.assert_allclose(out.numpy(), expected, atol=2e-6, err_msg="made inside the compiled function")


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: tile_map(lambda b, h, q, k: True, 4, 4, 2), TypeError, "mask must be a Mask, got function"),
        (lambda: tile_map(causal(), -1, 4, 2), ValueError, "q_len must be between 0 .* got -1"),
        (lambda: tile_map(causal(), 4, 2**31, 2), ValueError, "kv_len must be between 0"),
        (lambda: tile_map(causal(), 4.0, 4, 2), TypeError, "q_len must be an int, got float"),
        (lambda: tile_map(causal(), 4, 4, 0), ValueError, "block_size must be between 1 .* got 0"),
        (lambda: tile_map(causal(), 4, 4, (2, 2**31)), ValueError, "block_size must be between 1"),
        (lambda: tile_map(causal(), 4, 4, (2, 2, 2)), ValueError, "block_size must be an int or a pair"),
        (lambda: tile_map(causal(), 4, 4, "2"), TypeError, "block_size must be an int, got str"),
        (lambda: tile_map(document(np.array([1])), 4, 4, 2), ValueError, "q_len must be 1, .* got 4"),
        (
            lambda: tile_map(causal(), 4, 4, 2).order("row"),
            ValueError,
            'major must be "q" or "k", got \'row\'',
        ),
        (lambda: tile_map(causal(), 4, 4, 2).traffic("Q", 8, 2), ValueError, 'order must be "q" or "k"'),
        (lambda: tile_map(causal(), 4, 4, 2).traffic("q", 0, 2), ValueError, "head_dim must be between 1"),
        (
            lambda: tile_map(causal(), 4, 4, 2).traffic("q", 8, 0.5),
            TypeError,
            "bytes_per_element must be an int",
        ),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
