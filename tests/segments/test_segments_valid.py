"""What `valid` reports, one reason at a time, on every path and on both sides."""

from __future__ import annotations

import numpy as np
import pytest
from segment_paths import MODULES, layout_of

from attnlab.exercises.rows import Rows
from attnlab.segments import MASKS

TOP = 2**31 - 1

# Rows of eight tokens with room for three segments: ids, then positions.
GOOD = {
    "nothing but padding": ([0] * 8, [0] * 8),
    "one segment": ([1] * 8, list(range(8))),
    "one token": ([0, 0, 3, 0, 0, 0, 0, 0], [0] * 8),
    "padding before, between and after": ([0, 1, 0, 2, 2, 0, 3, 0], [0, 0, 0, 0, 1, 0, 0, 0]),
    "no padding": ([1, 1, 2, 2, 2, 3, 3, 3], [0, 1, 0, 1, 2, 0, 1, 2]),
    "as many runs as S segments can make": ([0, 1, 0, 2, 0, 3, 0, 0], [0] * 8),
    "an id left out": ([1, 1, 1, 0, 3, 3, 3, 3], [0, 1, 2, 0, 0, 1, 2, 3]),
    "padding with any position": ([0, 0, 0, 1, 1, 0, 0, 0], [5, 5, -1, 0, 1, -(2**31), TOP, 0]),
    "positions with gaps": ([1, 1, 1, 2, 2, 2, 2, 2], [0, 7, 9, 3, 4, 6, 100, 101]),
    "positions up to the largest": ([1, 1, 1, 1, 2, 2, 2, 2], [TOP - 3, TOP - 2, TOP - 1, TOP, 0, 1, 2, TOP]),
    "positions that fall to the next segment": ([1, 1, 2, 2, 3, 3, 0, 0], [8, 9, 4, 5, 0, 1, 0, 0]),
}
BAD = {
    "more segments than there is room for": ([1, 1, 2, 2, 3, 3, 4, 4], [0, 1, 0, 1, 0, 1, 0, 1]),
    "an id above S": ([1, 1, 1, 1, 4, 4, 4, 4], [0, 1, 2, 3, 0, 1, 2, 3]),
    "the largest id": ([TOP] * 8, list(range(8))),
    "ids that fall": ([2, 2, 2, 2, 1, 1, 1, 1], [0, 1, 2, 3, 0, 1, 2, 3]),
    "ids that fall after padding": ([2, 2, 2, 0, 1, 1, 1, 1], [0, 1, 2, 0, 0, 1, 2, 3]),
    "a hole": ([1, 1, 1, 0, 1, 1, 1, 1], [0, 1, 2, 0, 4, 5, 6, 7]),
    "a repeat": ([1, 1, 1, 2, 2, 1, 1, 1], [0, 1, 2, 0, 1, 5, 6, 7]),
    "a repeat at the end": ([1, 1, 1, 2, 2, 2, 2, 1], [0, 1, 2, 0, 1, 2, 3, 7]),
    "one more segment after padding": ([0, 1, 0, 2, 0, 3, 0, 4], [0] * 8),
    "a repeat after as many runs as S segments can make": (
        [0, 1, 0, 2, 0, 3, 0, 1],
        [0, 0, 0, 0, 0, 0, 0, 1],
    ),
    "a change at every token": ([1, 2, 1, 2, 1, 2, 1, 2], [0] * 8),
    "a position twice": ([1, 1, 1, 1, 1, 1, 1, 1], [0, 1, 2, 2, 3, 4, 5, 6]),
    "a position twice at the start": ([0, 1, 1, 2, 2, 2, 2, 2], [0, 0, 0, 0, 1, 2, 3, 4]),
    "a position twice at the end": ([1, 1, 1, 2, 2, 2, 2, 2], [0, 1, 2, 0, 1, 2, 3, 3]),
    "positions that fall": ([1, 1, 1, 1, 1, 1, 1, 1], [0, 1, 2, 5, 4, 6, 7, 8]),
    "positions that fall from the largest": ([1, 1, 1, 1, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5, TOP, 0]),
}
NEGATIVE = {
    "a negative id": ([1, 1, -1, -1, 2, 2, 2, 2], [0, 1, 0, 1, 0, 1, 2, 3]),
    "a negative id at the start": ([-3, 1, 1, 1, 2, 2, 2, 2], [0, 0, 1, 2, 0, 1, 2, 3]),
    "a negative id at the end": ([1, 1, 1, 1, 2, 2, 0, -1], [0, 1, 2, 3, 0, 1, 0, 0]),
    "the least id": ([-(2**31)] * 8, list(range(8))),
    "a negative first position": ([1, 1, 1, 1, 2, 2, 2, 2], [0, 1, 2, 3, -1, 0, 1, 2]),
    "negative positions": ([0, 1, 1, 1, 1, 1, 1, 1], [0, -7, -6, -5, -4, -3, -2, -1]),
    "the least position": ([1, 1, 1, 1, 1, 1, 1, 1], [-(2**31), 0, 1, 2, 3, 4, 5, 6]),
}
FINE = GOOD["no padding"]


def on_both_sides(cases: dict) -> tuple[list[str], Rows]:
    """Every case on the query side of a row of its own, then on the other side."""
    names = [f"{name}, {side}" for side in ("q", "kv") for name in cases]
    odd, plain = list(cases.values()), [FINE] * len(cases)
    (ids_q, pos_q), (ids_kv, pos_kv) = (
        np.array(side, np.int32).swapaxes(0, 1) for side in (odd + plain, plain + odd)
    )
    return names, Rows(ids_q, ids_kv, pos_q, pos_kv, 3)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("path", MODULES)
def test_each_reason_is_enough_and_nothing_else_is_one(path, mask):
    # torch and JAX, which cannot raise here without waiting for the device, call negative values not valid.
    names, rows = on_both_sides(GOOD | BAD | (NEGATIVE if path in ("torch", "jax") else {}))
    expected = {name: name.rpartition(", ")[0] in GOOD for name in names}
    assert dict(zip(names, layout_of(path, rows, mask).valid.tolist(), strict=True)) == expected


@pytest.mark.parametrize("name", NEGATIVE)
@pytest.mark.parametrize("path", ["reference", "numpy"])
def test_negative_values_raise_where_values_can_be_read(path, name):
    what = "segment_ids" if " id" in name else "segment_pos"
    _, rows = on_both_sides({name: NEGATIVE[name]})
    for row, side in enumerate(("q", "kv")):
        one = Rows(*(x[row : row + 1] for x in rows.tokens), rows.max_segments)
        with pytest.raises(ValueError, match=f"^{what}_{side} must not be negative; got -"):
            layout_of(path, one, "causal")


@pytest.mark.parametrize("path", ["reference", "numpy"])
def test_a_negative_position_inside_a_row_that_is_not_valid_raises_too(path):
    ids, pos = np.ones((1, 3), np.int32), np.array([[0, -5, 1]], np.int32)
    with pytest.raises(ValueError, match="^segment_pos_q must not be negative; got -5"):
        layout_of(path, Rows(ids, ids, pos, pos, 1), "padding")


@pytest.mark.parametrize("path", MODULES)
@pytest.mark.parametrize("padded", [True, False])
def test_room_for_s_segments_is_enough_and_one_more_is_too_many(path, padded):
    # Single tokens with padding around each make the most changes that S segments can.
    for segments, valid in ((40, True), (41, False)):
        ids = np.arange(1, segments + 1, dtype=np.int32)
        ids = np.append(0, np.stack([ids, np.zeros_like(ids)], axis=1)) if padded else ids
        ids = np.pad(ids[None], ((0, 0), (0, 83 - ids.size))).astype(np.int32)
        pos = np.zeros_like(ids)
        out = layout_of(path, Rows(ids, ids, pos, pos, 40), "causal")
        assert out.valid.tolist() == [valid]
        if valid:
            assert out.q_seqlens.tolist() == [[1] * 40]
            first = np.arange(40) * 2 + 1 if padded else np.arange(40)
            assert out.kv_offsets.tolist() == [[*first.tolist(), -1]]


@pytest.mark.parametrize("path", MODULES)
def test_one_bad_row_leaves_the_others_alone(path):
    _, rows = on_both_sides(BAD)
    fine = Rows(*(np.array([FINE[i]] * 2, np.int32) for i in (0, 0, 1, 1)), 3)
    alone = layout_of("reference", fine, "causal")
    mixed = Rows(
        *(np.concatenate([f[:1], x, f[:1]]) for f, x in zip(fine.tokens, rows.tokens, strict=True)), 3
    )
    out = layout_of(path, mixed, "causal")
    assert out.valid.tolist() == [True, *[False] * (2 * len(BAD)), True]
    for a, b in zip(out, alone, strict=True):
        np.testing.assert_array_equal(a[[0, -1]], b)
