"""The replayed schedule is the walk that the tiled attention obeys, and its numbers are those of the code."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from show.show_texts import check_words, words_of

from attnlab.attention import dense_attention, normalise
from attnlab.masks import predicate
from attnlab.ring.levels import two_level_map
from attnlab.ring.order import TileOrder
from attnlab.ring.tiled import Event, sliding_window_attention, walk, window_mask
from attnlab.show import (
    schedule,
    schedule_explorer_picture,
    schedule_picture,
    schedule_replay,
    two_level_explorer_picture,
    two_level_picture,
    window_picture,
)
from attnlab.show.outline import outline
from attnlab.show.schedule_map import band
from attnlab.show.schedule_steps import TENSORS, row_so_far, steps_of
from attnlab.show.units import UNITS
from attnlab.tiles import DENSE, EDGE, tile_map


def tiles_of(window=96, tokens=250, block=32, causal=True):
    return tile_map(window_mask(window, causal), tokens, tokens, block)


@pytest.mark.parametrize("order", list(TileOrder))
@pytest.mark.parametrize("causal", [True, False])
def test_the_steps_are_the_events_of_the_attention_that_ran(order, causal):
    q = torch.zeros(1, 1, 250, 16, dtype=torch.bfloat16)
    events: list[Event] = []
    sliding_window_attention(q, q, q, window=96, causal=causal, order=order, tile_size=32, events=events)
    tiles = tiles_of(causal=causal)
    steps = steps_of(events)
    assert [[s.q_tile, s.k_tile] for s in steps] == tiles.order(order.value).tolist()
    assert steps[-1].skipped == tiles.n_skip
    traffic = tiles.traffic(order.value, head_dim=16, bytes_per_element=2)
    assert steps[-1].moved == {name: getattr(traffic, name).bytes for name in TENSORS}
    for before, after in pairwise(steps):
        assert all(before.moved[name] <= after.moved[name] for name in TENSORS)


def test_what_is_loaded_and_what_stays():
    steps = steps_of(walk(tiles_of(), TileOrder.Q_MAJOR, head_dim=16, bytes_per_element=2))
    assert steps[0].loaded == ("q", "k", "v") and steps[0].stored == ("o",)
    assert steps[1].loaded == ("q", "k", "v") and steps[1].stored == ()
    assert steps[2].loaded == ("k", "v") and steps[2].stored == ("o",)
    steps = steps_of(walk(tiles_of(), TileOrder.K_MAJOR, head_dim=16, bytes_per_element=2))
    assert steps[1].loaded == ("q",) and steps[1].stored == ("partial",)
    # Query tile 1 was begun under key tile 0, so its state comes back under key tile 1.
    again = next(step for step in steps if (step.q_tile, step.k_tile) == (1, 1))
    assert again.loaded == ("q", "partial", "k", "v")


@pytest.mark.parametrize("order", ["Q-major", "K-major"])
def test_the_running_row_ends_in_dense_attention(order):
    tiles = tiles_of(tokens=120)
    shown = schedule(tiles, order, head_dim=8)
    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((2, 120, 8))
    q = rng.standard_normal((120, 8))
    exact, lse = dense_attention(q, k, v, tiles.mask)
    last = {step.q_tile: i for i, step in enumerate(shown.steps, 1)}
    for tile, steps in last.items():
        row = row_so_far(tiles, shown.steps[:steps], 3, head_dim=8)
        assert row.query == tile * 32 + 3 and row.seen == row.visible == min(row.query + 1, 96)
        out, total = normalise(np.array([row.m]), np.array([row.l]), row.o[None])
        np.testing.assert_allclose(out[0], exact[row.query], atol=1e-12)
        np.testing.assert_allclose(total[0], lse[row.query], atol=1e-12)


def test_the_sentence_of_the_sketch():
    assert schedule_explorer_picture().sentence == (
        "Step 48 of 91: query tile 9 meets key tile 8. 91 of 256 tiles are visited, 165 are skipped."
    )
    shown = schedule(tiles_of(768, 2048, 128), "K-major")
    assert schedule_picture(shown, 91).sentence.startswith("Step 91 of 91: query tile 15 meets key tile 15.")


def test_both_orders_stand_side_by_side():
    shown = schedule(tiles_of(768, 2048, 128), "Q-major", head_dim=64, bytes_per_element=2)
    words = [word.text for word in words_of(schedule_picture(shown, 91).svg)]
    assert "Q-major" in words and "K-major at the same step" in words
    # 91 tiles of 128 x 64 bfloat16 numbers are 1.42 MiB.
    assert words.count("1.42 MiB") == 3  # K and V, and Q in the other order
    assert "0" in words  # in this order no unfinished state travels
    other = shown.tiles.traffic("k", 64, 2)
    assert sum(shown.other[-1].moved.values()) == other.bytes


@pytest.mark.parametrize("step", [1, 40, 91])
def test_every_number_stands_at_the_end_of_its_own_bar(step):
    shown = schedule(tiles_of(768, 2048, 128), "Q-major", head_dim=32, bytes_per_element=1)
    svg = schedule_picture(shown, step).svg
    assert "D = 32, 1 byte a number" in [word.text for word in words_of(svg)]
    for role, steps in (("dense", shown.steps), ("muted", shown.other)):
        bars = re.findall(
            r"M([\d.]+) ([\d.]+)h([\d.]+)v11h",
            re.search(rf'<path d="([^"]*v11h[^"]*)" class="f-{role}"', svg)[1],
        )
        moved = [steps[step - 1].moved[name] for name in TENSORS]
        amounts = [value for value in (*moved, sum(moved)) if value]
        assert len(bars) == len(amounts)
        for (x, y, wide), value in zip(bars, amounts, strict=True):
            beside = [
                word.text
                for word in words_of(svg)
                if abs(word.left - float(x) - float(wide) - 7) < 0.2 and word.top < float(y) + 6 < word.bottom
            ]
            assert beside == [UNITS["bytes"].write(value)]


def test_the_window_picture_counts_its_tiles():
    picture = window_picture(tile_map(window_mask(20, True), 48, 48, 4), title="A window")
    assert picture.sentence == "57 of 144 tiles are visited, 87 are skipped."
    words = [word.text for word in words_of(picture.svg)]
    assert {"38 dense: all visible", "19 edge: visible in part", "87 skip: nothing visible"} <= set(words)
    check_words(picture)


@pytest.mark.parametrize(("tokens", "block"), [((48, 48), 4), ((48, 30), 7), ((20, 64), (8, 4)), ((1, 1), 1)])
@pytest.mark.parametrize("causal", [True, False])
def test_no_words_collide_in_a_window_picture(tokens, block, causal):
    picture = window_picture(tile_map(window_mask(9, causal), *tokens, block))
    ElementTree.fromstring(picture.svg)
    check_words(picture)


def test_the_triangles_are_the_mask():
    """At one square for each token, the drawn band covers exactly the visible entries."""
    tiles = tiles_of(window=5, tokens=12, block=4)
    d = band(tiles.mask, 12, 12, corners=True)
    points, x, y = [], 0, 0
    for kind, numbers in re.findall(r"([MLHV])([\d ]+)", d):
        ends = [int(number) for number in numbers.split()]
        x, y = ends if kind in "ML" else (ends[0], y) if kind == "H" else (x, ends[0])
        points.append((x, y))
    inside = np.zeros((12, 12), bool)
    for row in range(12):
        for column in range(12):
            x, y, crossings = column + 0.5, row + 0.5, 0
            for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
                if x0 == x1 and min(y0, y1) < y < max(y0, y1) and x0 > x:
                    crossings += 1
            inside[row, column] = crossings % 2 == 1
    assert (inside == tiles.mask.dense(12, 12)).all()


def test_a_replay_holds_every_step():
    shown = schedule(tiles_of(384, 1024, 128))
    replayed = schedule_replay(shown)
    assert len(replayed) == shown.tiles.n_visited
    for i in (0, len(replayed) - 1):
        picture = schedule_picture(shown, i + 1)
        assert replayed.frame(i).sentence == picture.sentence
        both = (words_of(shown.svg) for shown in (replayed.frame(i), picture))
        assert {word.text for word in next(both)} == {word.text for word in next(both)}
        ElementTree.fromstring(picture.svg)
    assert len(replayed.frame(-1).svg) < 12_000
    assert sum(len(frame.overlay_svg) for frame in replayed._frames) < 80_000


@pytest.mark.parametrize("order", ["Q-major", "K-major"])
@pytest.mark.parametrize("window", [1, 64, 768, 2048])
@pytest.mark.parametrize("block", [64, 256])
def test_no_words_collide(order, window, block):
    for progress in (0, 40, 100):
        check_words(schedule_explorer_picture(order, window, block, progress))


def test_two_levels_say_what_they_save():
    picture = two_level_explorer_picture(768, 128, 32)
    assert picture.sentence == (
        "65 dense blocks; 26 edge blocks cut into 156 dense tiles, 104 edge and 156 skipped. "
        "96.0% of what is computed is useful; with blocks alone 85.7%."
    )


@pytest.mark.parametrize("tokens", [256, 250])
def test_two_levels_draw_what_is_visited(tokens):
    levels = two_level_map(window_mask(96, True), tokens, tokens, 64, 8)
    visited = np.zeros((-(-tokens // 8),) * 2, np.uint8)
    for q_start, q_stop, k_start, k_stop, kind in levels.visits():
        visited[q_start // 8 : -(-q_stop // 8), k_start // 8 : -(-k_stop // 8)] = kind
    svg = two_level_picture(levels).svg
    for role, kind in (("edge", EDGE), ("dense", DENSE)):
        assert f'<path d="{outline(visited == kind)}" class="f-{role}"' in svg


@pytest.mark.parametrize("window", [1, 64, 2048])
@pytest.mark.parametrize(("block", "tile"), [(64, 8), (512, 16), (128, 128)])
def test_no_words_collide_in_two_levels(window, block, tile):
    picture = two_level_explorer_picture(window, block, tile)
    check_words(picture)
    assert len(picture.svg) < 20_000


@pytest.mark.unchecked
def test_bad_values_are_named():
    with pytest.raises(ValueError, match="order must be one of 'Q-major', 'K-major', got 'q'"):
        schedule(tiles_of(), "q")
    shown = schedule(tiles_of())
    with pytest.raises(ValueError, match="step must be from 1 to"):
        schedule_picture(shown, 0)
    with pytest.raises(ValueError, match="progress must be from 0 to 100 percent, got 101"):
        schedule_explorer_picture(progress=101)
    with pytest.raises(ValueError, match="events must hold at least one merge"):
        steps_of([])
    with pytest.raises(ValueError, match="offset must name a row of query tile 0, got 32"):
        row_so_far(shown.tiles, shown.steps[:1], 32, head_dim=4)
    odd = predicate(lambda b, h, q, k: (q + k) % 2 == 0, "odd")
    with pytest.raises(ValueError, match="mask must see one stretch of keys in every row, got odd"):
        schedule_picture(schedule(tile_map(odd, 8, 8, 4)), 1)
    with pytest.raises(ValueError, match="levels must have at least one block"):
        two_level_picture(two_level_map(window_mask(4, True), 0, 0, 8, 4))
    with pytest.raises(ValueError, match="tiles must have at least one tile"):
        window_picture(tile_map(window_mask(4, True), 0, 0, 8))
    with pytest.raises(ValueError, match="mask must see one stretch of keys in every row, got odd"):
        window_picture(tile_map(odd, 8, 8, 4))
