"""Which loop order moves fewer bytes: the ratios, for which windows they hold, and the advice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_masks import Drawn, mask_trees

from attnlab.masks import causal, full, sliding_window
from attnlab.ring.order import TileOrder
from attnlab.ring.traffic import advise, backward_traffic, forward_traffic
from attnlab.tiles import SKIP, TileMap, tile_map

BLOCKS = st.tuples(st.integers(1, 6), st.integers(1, 6))
HEADS = st.tuples(st.integers(1, 5), st.integers(1, 6))  # query heads, and how many of them share a load


def window_tiles(window: int, tile: int, tokens: int) -> TileMap:
    return tile_map(causal() & sliding_window(window), tokens, tokens, tile)


def interior_ratio(form, window_tiles_: int, tile: int, *, heads: int = 1, size: int = 2) -> float:
    """K-major bytes over Q-major bytes for D = 128, of the tile rows between the ends of a long sequence."""

    def added(order: TileOrder) -> int:
        short, long = (
            form(
                window_tiles(window_tiles_ * tile, tile, rows * tile),
                order,
                head_dim=128,
                bytes_per_element=size,
                query_heads=heads,
                head_tile_size=heads,
            ).bytes
            for rows in (2 * window_tiles_ + 4, 2 * window_tiles_ + 8)
        )
        return long - short

    return added(TileOrder.K_MAJOR) / added(TileOrder.Q_MAJOR)


def test_forward_k_major_moves_2_4_times_as_much_when_the_window_is_15_to_35_tiles() -> None:
    ratios = {n: interior_ratio(forward_traffic, n, 128) for n in (1, 4, 14, 15, 16, 32, 35, 36, 120)}
    assert [n for n, ratio in ratios.items() if round(ratio, 1) == 2.4] == [15, 16, 32, 35]
    assert all(ratio > 1.5 for ratio in ratios.values())
    # W / T + 1 visits a row. Q-major moves Q and O once and K, V at each; K-major keeps K, V, and Q and the
    # float32 (m, l, O), read and written, travel: towards 2.53.
    for n, ratio in ratios.items():
        travels = (n + 1) * 2 + n * 2 * 4 * 130 / 128
        assert ratio == pytest.approx((4 + travels + 2) / (4 + 4 * (n + 1)), rel=1e-12)
    assert ratios[120] < (2 + 8 * 130 / 128) / 4


def test_backward_q_major_moves_1_6_times_as_much_from_6_tiles_on() -> None:
    ratios = {n: 1 / interior_ratio(backward_traffic, n, 128) for n in (1, 5, 6, 16, 32, 64, 120)}
    assert [n for n, ratio in ratios.items() if round(ratio, 1) == 1.6] == [6, 16, 32, 64]
    assert all(ratio > 1.3 for ratio in ratios.values())
    for n, ratio in ratios.items():
        rows = 2 * 4 / 128  # lse and delta beside a tile of bfloat16 of that many channels
        q_major = (4 + rows + 2) + (n + 1) * 4 + n * 2 * 8 + 4
        k_major = (4 + 4) + (n + 1) * (4 + rows) + n * 8 + 2
        assert ratio == pytest.approx(q_major / k_major, rel=1e-12)
    assert ratios[120] < 20 / (12 + rows)


@pytest.mark.parametrize(("window", "tile"), [(2048, 128), (4096, 128), (1024, 64), (2048, 64)])
def test_the_advice_at_usual_sizes_is_the_loop_order_of_flash_attention_2(window: int, tile: int) -> None:
    advice = advise(window_tiles(window, tile, 8 * window), 128, 2)
    assert advice.forward.order is TileOrder.Q_MAJOR and advice.backward.order is TileOrder.K_MAJOR
    assert (round(advice.forward.ratio, 1), round(advice.backward.ratio, 1)) == (2.4, 1.6)
    assert advice.sentence == (
        "Forward, Q-major moves fewer bytes and K-major 2.4 times as many; "
        "backward, K-major moves fewer bytes and Q-major 1.6 times as many."
    )


@pytest.mark.parametrize("heads", [2, 4, 8])
def test_from_two_heads_to_a_load_on_q_major_is_cheaper_backward_too(heads: int) -> None:
    assert advise(window_tiles(2048, 128, 16384), 128, 2).backward.order is TileOrder.K_MAJOR
    advice = advise(window_tiles(2048, 128, 16384), 128, 2, head_tile_size=heads)
    assert advice.forward.order is advice.backward.order is TileOrder.Q_MAJOR
    assert interior_ratio(backward_traffic, 16, 128, heads=heads) == pytest.approx(
        advice.backward.ratio, rel=0.02
    )


def test_in_float32_the_gap_is_smaller() -> None:
    assert 1.4 < interior_ratio(forward_traffic, 16, 128, size=4) < 1.5
    assert 1.4 < 1 / interior_ratio(backward_traffic, 16, 128, size=4) < 1.5


def needed(tiles: TileMap, order: TileOrder, q_row: int, k_row: int) -> int:
    """Walk the visits and keep each inner tile from its first to its last: the most bytes at once."""
    steps = [tuple(step) for step in tiles.order(order.value).tolist()]
    outer = 0 if order is TileOrder.Q_MAJOR else 1
    row = (q_row, k_row)
    block, length = (tiles.block_q, tiles.block_kv), (tiles.q_len, tiles.kv_len)

    def size(side: int, tile: int) -> int:
        return row[side] * min(block[side], length[side] - tile * block[side])

    most = 0
    for now in {step[outer] for step in steps}:
        inner = {step[1 - outer] for step in steps if step[outer] <= now}
        inner &= {step[1 - outer] for step in steps if step[outer] >= now}
        most = max(most, size(outer, now) + sum(size(1 - outer, tile) for tile in inner))
    return most


@settings(max_examples=60)
@given(mask_trees(longest=16), BLOCKS, HEADS)
def test_what_a_chip_needs_so_that_nothing_crosses_twice(drawn: Drawn, block, heads) -> None:
    tiles = tile_map(drawn.mask, drawn.q_len, drawn.kv_len, block)
    together = min(heads)
    advice = advise(tiles, 4, 2, query_heads=heads[0], head_tile_size=heads[1])
    for choice, q_row, k_row in (
        (advice.forward, 8 + 16 + 8, 16),  # Q in two bytes, (m, l, O) in four; K and V
        (advice.backward, 16 + 8 + 16, 16 + 32),  # Q, dO, two numbers, dQ; K, V, dK, dV
    ):
        for order, got in (
            (TileOrder.Q_MAJOR, choice.q_major_needs),
            (TileOrder.K_MAJOR, choice.k_major_needs),
        ):
            assert got == needed(tiles, order, q_row * together, k_row)
    roomy = advise(tiles, 4, 2, 10**6, query_heads=heads[0], head_tile_size=heads[1])
    for choice in (roomy.forward, roomy.backward):
        assert choice.order is None and choice.ratio == 1.0
        assert "the order does not matter: the chip holds all" in choice.sentence


def test_a_chip_that_fits_one_order_only() -> None:
    tiles = window_tiles(64, 16, 1024)
    tight = advise(tiles, 32, 2)
    q_major, k_major = tight.forward.q_major_needs, tight.forward.k_major_needs
    assert q_major < k_major
    advice = advise(tiles, 32, 2, q_major)
    assert (advice.forward.q_major_fits, advice.forward.k_major_fits) == (True, False)
    # Every tensor once: Q, K, V in and O out, two bytes each.
    assert advice.forward.q_major_bytes == 4 * 1024 * 32 * 2 < tight.forward.q_major_bytes
    assert advice.forward.k_major_bytes == tight.forward.k_major_bytes
    assert advise(tiles, 32, 2, k_major).forward.order is None
    assert not advise(tiles, 32, 2, q_major - 1).forward.q_major_fits


def test_one_visit_a_tile_moves_the_same_either_way() -> None:
    advice = advise(window_tiles(1, 4, 16), 8, 2)
    assert (tiles := window_tiles(1, 4, 16)).n_visited == 4 and (tiles.kinds == SKIP).sum() == 12
    assert advice.sentence == (
        "Forward, the order does not matter: both move the same bytes; "
        "backward, the order does not matter: both move the same bytes."
    )


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda t: advise(t, 0, 2), ValueError, "head_dim must be between 1"),
        (lambda t: advise(t, 4, 0.5), TypeError, "bytes_per_element must be an int"),
        (lambda t: advise(t, 4, 2, head_tile_size=0), ValueError, "must be between 1 .* got 0"),
        (lambda t: advise(t, 4, 2, 0), ValueError, "on_chip_bytes must be between 1"),
        (lambda t: advise(t, 4, 2, 191), ValueError, "tiles of one forward visit, 192 bytes, got 191"),
        (lambda t: advise(t, 4, 2, 351), ValueError, "tiles of one backward visit, 352 bytes, got 351"),
    ],
)
def test_bad_input_is_named(call, error, words) -> None:
    with pytest.raises(error, match=words):
        call(tile_map(full(), 8, 8, 4))
