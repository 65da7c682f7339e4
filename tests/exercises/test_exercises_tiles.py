"""The exercises on tiles: wrong answers of many kinds are told what broke them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wrong_answers import check_feedback, parameters

from attnlab.attention import dense_attention
from attnlab.exercises import tiles_cases
from attnlab.exercises.tiles import check_attend, check_blocks, check_kinds, check_merge
from attnlab.exercises.tiles_bugs import merge_from_nothing, softmax_in_each_tile
from attnlab.masks import causal, sliding_window
from attnlab.tiles import tile_map

EXERCISES = [check_kinds, check_attend, check_merge, check_blocks]
by_name = pytest.mark.parametrize("exercise", EXERCISES, ids=[exercise.name for exercise in EXERCISES])


@by_name
def test_a_stub_is_shown_the_example(exercise):
    result = exercise(lambda *arguments: ...)
    assert result.sentence.startswith("Not solved yet. The function should return ")
    assert result.picture is not None
    assert "not a function" not in exercise(3).sentence and not exercise(3).passed


@by_name
def test_there_are_hints_and_three_levels(exercise):
    assert 2 <= len(exercise.hints) <= 3
    assert exercise.name in exercise.task
    assert [other.level for other in EXERCISES] == ["fill in", "find the bug", "find the bug", "open"]


def at_once(scores, values, tile):
    seen = np.isfinite(scores)
    weights = np.exp(scores[seen] - scores[seen].max(initial=-np.inf))
    return weights @ values[seen] / max(weights.sum(), 1.0)


def test_other_right_ways_pass():
    for exercise in (check_attend, check_merge):
        result = exercise(at_once)
        assert result.passed, result.sentence
    result = check_kinds(lambda *arguments: np.array(corners(*arguments), np.int8))
    assert result.passed, result.sentence


def corners(row, tile, tokens, window, *, cut=True, far=0, near=0):
    """The solution, with places where it can be made wrong."""
    q0, q1 = row * tile, min((row + 1) * tile, tokens) - 1
    k0 = np.arange(0, tokens, tile)
    k1 = np.minimum(k0 + tile, tokens) - 1
    some = (k0 <= q1) & (k1 > q0 - window - far)
    every = (k1 <= q0) & (k0 > q1 - window - near)
    if cut:
        every &= (q1 - q0 == tile - 1) & (k1 - k0 == tile - 1)
    return np.where(every, 2, some.astype(int)).tolist()


def by_table(row, tile, tokens, window):
    mask = causal() & sliding_window(window)
    queries = np.arange(row * tile, min((row + 1) * tile, tokens))
    table = mask(0, 0, queries[:, None], np.arange(tokens))
    seen = np.add.reduceat(table.sum(axis=0), np.arange(0, tokens, tile))
    return np.where(seen == tile * tile, 2, seen > 0).tolist()


def carried(scores, values, tile, *, shrink_total=True, shrink_out=True, safe=True):
    m, total, out = -np.inf, 0.0, np.zeros(values.shape[1])
    for start in range(0, len(scores), tile):
        part = scores[start : start + tile]
        larger = max(m, part.max())
        base = 0.0 if larger == -np.inf else larger
        shrink, weights = np.exp(m - base), np.exp(part - base)
        total = (shrink if shrink_total else 1) * total + weights.sum()
        out = (shrink if shrink_out else 1) * out + weights @ values[start : start + tile]
        m = larger
    if safe and total == 0:
        return out
    with np.errstate(invalid="ignore"):
        return out / total


def without_a_maximum(scores, values, tile):
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.exp(scores)
        return weights @ values / weights.sum()


def changes_scores(scores, values, tile):
    out = at_once(scores, values, tile)
    scores -= 1
    return out


def chosen(tokens, window, head_dim, sizes, most_rows, orders="qk", largest=False):
    pairs = [(q, k) for q, k in product(sizes, sizes) if 2 * (q + k) <= most_rows]
    if largest:
        pairs = [max(pairs, key=lambda pair: (pair[0] * pair[1], pair[0]))]
    return list(
        min(
            (
                tile_map(causal() & sliding_window(window), tokens, tokens, (q, k))
                .traffic(o, head_dim, 2)
                .bytes,
                q,
                k,
                "qk".index(o),
            )
            for q, k in pairs
            for o in orders
        )[1:]
    )


KINDS = "for row = 3, tile = 4, tokens = 20 and window = 10 your function "
SCORES = "for scores 0 0 0 0, values 4 0 | 0 4 | 8 0 | 0 0 and tile = 2 your function "
ZOO = {
    check_kinds: {
        "all edges": (lambda r, t, n, w: [1] * -(-n // t), KINDS + "gave 1 1 1 1 1, expected 1 1 2 1 0."),
        "the example": (
            lambda r, t, n, w: [1, 1, 2, 1, 0],
            "for row = 0, tile = 4, tokens = 16 and window = 4",
        ),
        "causal only": (lambda r, t, n, w: corners(r, t, n, n), KINDS + "gave 2 2 2 1 0"),
        "one key more": (
            lambda *a: corners(*a, far=1),
            "gave 1 1 1 0, expected 0 1 1 0. The first query of this row sees back to key 4",
        ),
        "dense too soon": (lambda *a: corners(*a, near=1), "The last query of this row does not see key 4"),
        "cut tiles": (lambda *a: corners(*a, cut=False), "The end cuts the last row of tiles"),
        "visited only": (lambda *a: [k for k in corners(*a) if k], "gave 1 1 2 1, expected 1 1 2 1 0."),
        "a table": (by_table, "gave the right answer but took"),
        "bools": (lambda *a: [k > 0 for k in corners(*a)], "gave a list, expected a list of ints"),
    },
    check_attend: {
        "as in the source": (softmax_in_each_tile, SCORES + "gave 6 2, expected 3 1."),
        "the mean of tiles": (
            lambda s, v, t: softmax_in_each_tile(s, v, t) / -(-len(s) // t),
            "The second tile weighs more.",
        ),
        "the last tile": (lambda s, v, t: at_once(s[-t:], v[-t:], t), "gave 4 0, expected 3 1."),
        "l is not shrunk": (lambda *a: carried(*a, shrink_total=False), "The second tile weighs more."),
        "O is not shrunk": (lambda *a: carried(*a, shrink_out=False), "The second tile weighs more."),
        "no maximum": (without_a_maximum, "gave nan nan, expected 2.076 3.076. exp(900) is too large"),
        "not divided": (lambda s, v, t: np.exp(s - s.max()) @ v, SCORES + "gave 12 4, expected 3 1."),
        "a list": (
            lambda *a: at_once(*a).tolist(),
            SCORES + "gave a list, expected a float64 array of shape [2]",
        ),
        "whole numbers": (lambda *a: at_once(*a).astype(int), "gave an int64 array of shape [2], expected"),
        "another shape": (lambda *a: at_once(*a)[None], "gave a float64 array of shape [1, 2], expected"),
        "changed input": (changes_scores, "changed its input"),
        "an exception": (lambda s, v, t: v[99], SCORES + "raised IndexError (index 99 is out of bounds"),
        "sometimes None": (
            lambda s, v, t: None if len(s) == 2 else at_once(s, v, t),
            "gave None, expected a list of ints",
        ),
    },
    check_merge: {
        "as shipped": (
            merge_from_nothing,
            "gave nan nan, expected 4 4. The query sees nothing in the first tile.",
        ),
        "nothing at all": (
            lambda *a: carried(*a, safe=False),
            "gave nan nan, expected 0 0. The query sees nothing at all: the output is 0.",
        ),
        "NaN as 0": (lambda *a: np.nan_to_num(merge_from_nothing(*a)), "gave 0 0, expected 4 4."),
        "hidden is 0": (
            lambda s, v, t: at_once(np.where(np.isfinite(s), s, 0.0), v, t),
            "gave 3 3, expected 4 4.",
        ),
        "a small number": (
            lambda s, v, t: at_once(np.maximum(s, -1e3), v, t),
            "expected 0 0. The query sees nothing at all",
        ),
    },
    check_blocks: {
        "the largest": (lambda *a: chosen(*a, largest=True), "expected 64 16 0."),
        "K-major": (lambda *a: chosen(*a, orders="k"), "expected 64 16 0."),
        "Q-major": (lambda *a: chosen(*a, orders="q"), "your function gave"),
        "too many rows": (lambda n, w, d, s, m: chosen(n, w, d, s, 2 * m), "expected 64 16 0."),
        "the example": (lambda *a: [64, 16, 0], "There is one size."),
        "words": (lambda *a: (*chosen(*a)[:2], "q"), "gave a tuple, expected a list of ints: 64 16 0"),
    },
}


@pytest.mark.parametrize(("exercise", "fn", "words"), parameters(ZOO))
def test_a_wrong_answer_is_told_what_broke_it(exercise, fn, words):
    check_feedback(exercise, fn, words)


def test_the_example_is_made_of_whole_numbers():
    """The example is written with whole numbers, and so must be one."""
    for exercise in (check_attend, check_merge):
        case = exercise.cases()[0]
        np.testing.assert_allclose(exercise.exact(*case.arguments), case.expected)


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 6), st.integers(1, 40), st.integers(1, 44))
def test_kinds_are_those_of_a_tile_map(tile, tokens, window):
    tiles = tile_map(causal() & sliding_window(window), tokens, tokens, tile)
    for row in range(len(tiles.kinds)):
        assert tiles_cases.kinds(row, tile, tokens, window) == tiles.kinds[row].tolist()
        assert corners(row, tile, tokens, window) == tiles.kinds[row].tolist()


@settings(max_examples=40, deadline=None)
@given(tiles_cases.merge_inputs)
def test_the_right_answer_is_dense_attention(case):
    scores, values, tile = case.arguments
    finite = np.where(np.isfinite(scores), scores, 0.0)
    seen = np.isfinite(scores)[None]
    want = dense_attention(np.ones((1, 1)), finite[:, None], values, seen, scale=1.0)[0][0]
    np.testing.assert_allclose(check_merge.exact(scores, values, tile), want, atol=1e-12)
