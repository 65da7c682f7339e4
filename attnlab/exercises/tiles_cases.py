"""The inputs of the exercises on tiles, each with its right answer and its picture.

Right answers come from `attnlab.tiles`, from counting, or from attention over all keys at once.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st

from attnlab.exercises.check import Case
from attnlab.exercises.ring_strip import Strip, strips
from attnlab.exercises.tiles_numbers import whole
from attnlab.masks import causal, sliding_window
from attnlab.show.picture import Picture
from attnlab.show.tile_picture import tile_picture
from attnlab.tiles import DENSE, EDGE, SKIP, tile_map

# Memory is measured on a row of 2,048 tiles: one byte for every entry of that row of tiles would be 32 MiB.
LONG, LONG_TILE = 2**18, 128
MOST_BYTES = 256 * LONG // LONG_TILE
_NAMES = {SKIP: "skip", EDGE: "edge", DENSE: "dense"}


def kinds(row: int, tile: int, tokens: int, window: int) -> list[int]:
    """Classify a row of tiles by counting what each of its queries sees in each tile."""
    starts = np.arange(0, tokens, tile)
    ends = np.minimum(starts + tile, tokens)
    seen = np.zeros(len(starts), np.int64)
    for query in range(row * tile, min((row + 1) * tile, tokens)):
        seen += np.maximum(np.minimum(ends, query + 1) - np.maximum(starts, query + 1 - window), 0)
    return [int(kind) for kind in np.where(seen == tile * tile, DENSE, np.where(seen > 0, EDGE, SKIP))]


def kinds_case(
    row: int, tile: int, tokens: int, window: int, note: str = "", max_bytes: int | None = None
) -> Case:
    """Ask for the kinds of one row of tiles."""
    words = f"row = {row:,}, tile = {tile}, tokens = {tokens:,} and window = {window:,}"
    draw = partial(_draw_kinds, row, tile, tokens, window)
    return Case((row, tile, tokens, window), kinds(row, tile, tokens, window), words, draw, note, max_bytes)


def kinds_cases() -> list[Case]:
    """Choose cases for `kinds_of_row`."""
    middle = LONG // LONG_TILE // 2
    return [
        kinds_case(3, 4, 20, 10),
        kinds_case(0, 4, 16, 4),
        kinds_case(2, 4, 16, 4, "The window is one tile wide: no tile is dense, and two are edges."),
        kinds_case(2, 4, 16, 5, "The first query of this row sees back to key 4, and no further."),
        kinds_case(2, 4, 16, 7, "The last query of this row does not see key 4, so that tile is an edge."),
        kinds_case(2, 4, 16, 8, "The last query of this row sees back to key 4, so that tile is dense."),
        kinds_case(3, 4, 16, 16, "The window is as long as the sequence."),
        kinds_case(3, 4, 14, 14, "The end cuts the last row of tiles: it lacks entries, and is never dense."),
        kinds_case(1, 1, 5, 2, "A tile is one entry, and is dense if that is visible."),
        kinds_case(0, 8, 5, 5, "The whole sequence is part of one tile."),
        kinds_case(4, 3, 15, 1, "Each query sees only itself."),
        kinds_case(middle, LONG_TILE, LONG, 2048, max_bytes=MOST_BYTES),
        kinds_case(middle, LONG_TILE, LONG, 3 * LONG_TILE - 1, max_bytes=MOST_BYTES),
    ]


@st.composite
def _kinds_input(draw: Any) -> Case:
    tile, tokens = draw(st.integers(1, 6)), draw(st.integers(1, 40))
    row = draw(st.integers(0, (tokens - 1) // tile))
    return kinds_case(row, tile, tokens, draw(st.integers(1, 44)))


kinds_inputs = _kinds_input()


def attend(scores: np.ndarray, values: np.ndarray, tile: int) -> np.ndarray:
    """Attend with one query over all keys at once; 0 if it sees none."""
    largest = scores.max(initial=-np.inf)
    if largest == -np.inf:
        return np.zeros(values.shape[1])
    weights = np.exp(scores - largest)
    return weights @ values / weights.sum()


def attend_case(scores: Any, values: Any, tile: int, note: str = "") -> Case:
    """Ask for the output of one query."""
    scores, values = np.array(scores, np.float64), np.array(values, np.float64)
    said = " ".join(f"{score:.4g}" for score in scores)
    rows = " | ".join(" ".join(f"{x:g}" for x in row) for row in values)
    words = f"scores {said}, values {rows} and tile = {tile}"
    expected = whole(attend(scores, values, tile))
    return Case((scores, values, tile), expected, words, partial(_draw_scores, scores, values, tile), note)


def attend_cases() -> list[Case]:
    """Choose cases for `attend_in_tiles`: every key is visible."""
    three = np.log(3)
    return [
        attend_case([0, 0, 0, 0], [[4, 0], [0, 4], [8, 0], [0, 0]], 2),
        attend_case([1, 2], [[5, 1], [1, 5]], 2, "There is one tile."),
        attend_case(
            [0, 0, three, three], [[0, 8], [0, 0], [8, 0], [8, 8]], 2, "The second tile weighs more."
        ),
        attend_case([three, 0, 0], [[8, 0], [4, 4], [0, 8]], 2, "The last tile is smaller than the others."),
        attend_case([0, 1, 2, 3, 4, 5], [[i, -i] for i in range(6)], 1, "Each tile is one key."),
        attend_case(
            [900, 0, 899, 1], [[1, 2], [3, 4], [5, 6], [7, 8]], 2, "exp(900) is too large for a float."
        ),
        attend_case([-900, -901, -899], [[1, 2], [3, 4], [5, 6]], 2, "exp(-900) is 0 as a float."),
        attend_case([5, 4, 3, 2, 1, 0], [[1, 0]] * 6, 4, "Equal values come out as they are."),
    ]


def _attend_inputs(hidden: bool) -> st.SearchStrategy[Case]:
    score = st.integers(-4, 4).map(float)
    score = st.one_of(score, st.just(-np.inf)) if hidden else score
    keys = st.lists(
        st.tuples(score, st.tuples(st.integers(-9, 9), st.integers(-9, 9))), min_size=1, max_size=9
    )
    return st.builds(
        lambda pairs, tile: attend_case([s for s, _ in pairs], [v for _, v in pairs], tile),
        keys,
        st.integers(1, 4),
    )


attend_inputs = _attend_inputs(hidden=False)


def merge_cases() -> list[Case]:
    """Choose cases for `merge_in_tiles`: some keys are hidden."""
    no = -np.inf
    values = [[4, 0], [0, 4], [8, 0], [0, 8]]
    return [
        attend_case([no, no, 0, 0], values, 2, "The query sees nothing in the first tile."),
        attend_case([0, 0, 1, 1], values, 2, "Nothing is hidden."),
        attend_case([0, 0, no, no], values, 2, "The query sees nothing in the last tile."),
        attend_case([no, 2, no, 1], values, 2),
        attend_case([no, no, no, no], values, 2, "The query sees nothing at all: the output is 0."),
        attend_case([no], [[1, 2]], 3, "The query sees nothing at all: the output is 0."),
        attend_case([no, no, no, no, 3, 1], [*values, [1, 1], [5, 3]], 2, "Two tiles are empty."),
        attend_case(
            [no, no, -800, -801], values, 2, "exp(-800) is 0 as a float, and still something is seen."
        ),
        attend_case([800, no, no, no], values, 1),
    ]


merge_inputs = _attend_inputs(hidden=True)


def blocks_case(
    tokens: int, window: int, head_dim: int, sizes: list[int], most_rows: int, note: str = ""
) -> Case:
    """Ask for the blocks and the order that move least."""
    choices = []
    for q, kv in product(sizes, sizes):
        if 2 * (q + kv) <= most_rows:
            tiles = tile_map(causal() & sliding_window(window), tokens, tokens, (q, kv))
            choices.append((tiles.traffic("q", head_dim, 2).bytes, q, kv, 0))
            choices.append((tiles.traffic("k", head_dim, 2).bytes, q, kv, 1))
    best = list(min(choices)[1:])
    words = (
        f"tokens = {tokens:,}, window = {window:,}, head_dim = {head_dim}, "
        f"sizes = {' '.join(map(str, sizes))} and most_rows = {most_rows}"
    )
    arguments = (tokens, window, head_dim, sizes, most_rows)
    return Case(arguments, best, words, partial(_draw_blocks, tokens, window, best), note)


def blocks_cases() -> list[Case]:
    """Choose cases for `best_blocks`."""
    sizes = [16, 32, 64, 128]
    return [
        blocks_case(512, 128, 64, sizes, 256),
        blocks_case(512, 128, 64, [16], 64, "There is one size."),
        blocks_case(2048, 768, 128, sizes, 512),
        blocks_case(128, 128, 64, sizes, 1024, "Everything fits on the chip at once."),
        blocks_case(512, 1, 64, sizes, 256, "Each query sees only itself."),
        blocks_case(500, 96, 4, [20, 25, 50, 100], 250, "The last tiles are cut by the end."),
        blocks_case(
            300, 40, 1, [10, 30, 60], 140, "With one number to a row, (m, l, O) is three times as long."
        ),
    ]


@st.composite
def _blocks_input(draw: Any) -> Case:
    sizes = sorted(draw(st.sets(st.integers(3, 12), min_size=1, max_size=3)))
    rows = draw(st.integers(4 * sizes[0], 4 * sizes[-1]))
    tokens, head_dim = draw(st.integers(1, 48)), draw(st.sampled_from([1, 2, 8, 64]))
    return blocks_case(tokens, draw(st.integers(1, 50)), head_dim, sizes, rows)


blocks_inputs = _blocks_input()


def _draw_kinds(row: int, tile: int, tokens: int, window: int, answer: Any) -> list[Picture]:
    expected = kinds(row, tile, tokens, window)
    rows = [Strip("key tile", range(len(expected))), Strip("expected", [_NAMES[kind] for kind in expected])]
    if answer is not None:
        given = [int(kind) for kind in answer]
        wrong = [j for j, kind in enumerate(given) if j >= len(expected) or kind != expected[j]]
        rows.append(Strip("your function", [_NAMES.get(kind, kind) for kind in given], wrong))
    pictures = [strips(rows, f"Row {row:,} of the tiles")]
    if len(expected) <= 40:
        tiles = tile_map(causal() & sliding_window(window), tokens, tokens, tile)
        pictures.append(tile_picture(tiles, title="All tiles", side=260, panel=True))
    return pictures


def _draw_scores(scores: np.ndarray, values: np.ndarray, tile: int, answer: Any) -> list[Picture]:
    edges = range(tile, len(scores), tile)
    rows = [
        Strip("score", [f"{score:.3g}" for score in scores], breaks=edges),
        *(
            Strip(f"value[{i}]", [f"{x:g}" for x in column], breaks=edges)
            for i, column in enumerate(values.T[:2])
        ),
    ]
    return [strips(rows, f"One query, its keys in tiles of {tile}")]


def _draw_blocks(tokens: int, window: int, best: list[int], answer: Any) -> list[Picture]:
    def panel(choice: list[int], whose: str) -> Picture:
        order = "K-major" if choice[2] else "Q-major"
        tiles = tile_map(causal() & sliding_window(window), tokens, tokens, (choice[0], choice[1]))
        title = f"{whose}: {choice[0]} queries by {choice[1]} keys, {order}"
        return tile_picture(tiles, title=title, side=220, panel=True)

    pictures = [panel(best, "expected")]
    given = [] if answer is None else [int(value) for value in answer]
    if len(given) == 3 and min(given[:2]) > 0:
        pictures.append(panel(given, "your function"))
    return pictures
