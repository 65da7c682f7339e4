"""Masks and tiles: the counts in words, the colours, and where things lie."""

from __future__ import annotations

import re

import numpy as np
import pytest
from show.show_pictures import IDS, packed_mask

from attnlab.masks import causal, full, sliding_window
from attnlab.show import mask_picture, tile_picture
from attnlab.show.token_axes import tick_positions
from attnlab.tiles import tile_map


def area(svg: str, role: str) -> list[str]:
    return re.findall(rf'<path d="([^"]*)" class="f-{role}" fill="[^"]*"(?: opacity="[^"]*")?/>', svg)


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        (np.tri(8, dtype=bool), "36 of 64 pairs are visible (56.2%)."),
        (np.ones((32, 32), bool), "All 1,024 pairs are visible."),
        (np.zeros((1, 5), bool), "0 of 5 pairs are visible (0.0%)."),
        (np.eye(1, 2, dtype=bool), "1 of 2 pairs is visible (50.0%)."),
        (np.ones((1, 1), bool), "The only pair is visible."),
    ],
)
def test_a_mask_counts_its_pairs(mask, sentence):
    assert mask_picture(mask).sentence == sentence


def test_pairs_take_the_colour_of_their_segment():
    svg = mask_picture(packed_mask(), segment_ids_q=IDS).svg
    for segment in range(1, 6):
        (d, *_) = area(svg, f"seg{segment}")
        first = int(np.flatnonzero(segment == IDS)[0])
        assert d.startswith(f"M{first} {first}h1v1")
    assert not area(svg, "dense")


def test_a_mask_without_ids_is_plain():
    svg = mask_picture(np.tri(4, dtype=bool)).svg
    assert area(svg, "dense") == ["M0 0h1v1h1v1h1v1h1v1h-4z"]


def test_rows_are_highlighted_with_words():
    svg = mask_picture(packed_mask(), highlight_row=17, highlight_label="row 17: max → id 3").svg
    assert ">row 17: max → id 3</text>" in svg
    assert ">row 1,000</text>" in mask_picture(np.tri(1024, dtype=bool), highlight_row=1000).svg


def test_detail_beyond_the_screen_is_shaded_and_said():
    fine = mask_picture(np.tri(512, dtype=bool)).svg
    assert "Each square" not in fine
    coarse = mask_picture(np.tri(4096, dtype=bool)).svg
    assert "Each square is 32 × 32 pairs; its shade is the share visible." in coarse
    # Squares on the diagonal are a little more than half visible: three quarters of full colour, rounded up.
    assert set(re.findall(r'class="f-dense" fill="#3b6fb6"( opacity="[^"]*")?', coarse)) == {
        "",
        ' opacity=".75"',
    }


def test_one_visible_pair_in_a_large_square_still_shows():
    mask = np.zeros((4096, 4096), bool)
    mask[2000, 3000] = True
    assert area(mask_picture(mask).svg, "dense")


def test_the_grid_of_a_mask_knows_its_cells():
    grid = mask_picture(np.tri(8, dtype=bool)).plots[0]
    assert (grid.width, grid.height) == (320, 320)
    assert grid.box(2, 3) == (grid.x + 120, grid.y + 80, 40, 40)
    assert grid.centre(0, 0) == (grid.x + 20, grid.y + 20)
    with pytest.raises(ValueError, match="outside the grid"):
        grid.box(8, 0)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mask": np.ones((2, 2))}, TypeError, "mask must be Boolean, got float64"),
        ({"mask": np.ones(3, bool)}, ValueError, "mask must have shape"),
        ({"mask": np.ones((0, 3), bool)}, ValueError, "mask must have shape"),
        ({"segment_ids_kv": np.ones(4, int)}, ValueError, "segment_ids_q must be given"),
        ({"segment_ids_q": np.ones(3, int)}, ValueError, r"segment_ids_q must have shape \(4,\)"),
        ({"segment_ids_q": np.ones(4)}, TypeError, "segment_ids_q must be integers"),
        ({"segment_ids_q": np.array([1, 1, -1, 1])}, ValueError, "segment_ids_q must not be negative"),
        ({"highlight_row": 4}, ValueError, r"highlight_row must be in \[0, 4\), got 4"),
    ],
)
def test_bad_masks_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        mask_picture(**({"mask": np.ones((4, 4), bool)} | arguments))


@pytest.mark.parametrize(
    ("mask", "tokens", "block", "sentence"),
    [
        (causal() & sliding_window(768), 2048, 128, "91 of 256 tiles are visited, 165 are skipped."),
        (full(), 256, 128, "4 of 4 tiles are visited, none is skipped."),
        (causal(), 256, 128, "3 of 4 tiles are visited, 1 is skipped."),
        (causal(), 100, 128, "1 of 1 tiles is visited, none is skipped."),
    ],
)
def test_tiles_are_counted(mask, tokens, block, sentence):
    assert tile_picture(tile_map(mask, tokens, tokens, block)).sentence == sentence


def test_tiles_are_named_with_their_counts_and_edges_are_hatched():
    tiles = tile_map(causal() & sliding_window(768), 2048, 2048, 128)
    svg = tile_picture(tiles).svg
    for words in (f">{tiles.n_dense} dense<", f">{tiles.n_edge} edge<", f">{tiles.n_skip} skip<"):
        assert words in svg
    hatched = re.findall(r'<path d="([^"]*)" class="s-paper" fill="none" [^>]*opacity=".75"/>', svg)
    assert hatched[0].count("M") >= 2 * tiles.n_edge
    assert " dense<" not in tile_picture(tiles, legend=False).svg


def test_a_ragged_last_tile_is_as_small_as_it_is():
    tiles = tile_map(causal(), 1000, 1000, 128)
    grid = tile_picture(tiles, side=300).plots[0]
    *_, width, height = grid.box(7, 7)
    assert width == height == pytest.approx(300 * (1000 - 7 * 128) / 1000)
    assert grid.box(0, 0)[2] == pytest.approx(300 * 128 / 1000)


@pytest.mark.unchecked
def test_no_tiles_are_refused():
    with pytest.raises(ValueError, match="tiles must have at least one tile"):
        tile_picture(tile_map(causal(), 0, 0, 128))


@pytest.mark.parametrize(
    ("count", "pixels", "ticks"),
    [
        (32, 380, [0, 5, 10, 15, 20, 25, 30]),
        (2048, 420, [0, 256, 512, 768, 1024, 1280, 1536, 1792, 2048]),
        (1000, 420, [0, 200, 400, 600, 800, 1000]),
        (1, 40, [0]),
    ],
)
def test_ticks_are_round(count, pixels, ticks):
    assert tick_positions(count, pixels, 50 if count > 32 else 30) == ticks


def test_the_name_of_a_low_axis_lies_flat_above_the_plot():
    low, high = mask_picture(np.ones((1, 64), bool)), mask_picture(np.ones((64, 64), bool))
    (name,) = re.findall(r'<text x="24" y="([\d.]+)">query token</text>', low.svg)
    assert float(name) < low.plots[0].y
    assert "rotate" not in low.svg and "rotate(-90" in high.svg
