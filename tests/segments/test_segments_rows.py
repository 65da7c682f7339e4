"""The strategies draw what they say, so that the tests and the exercises built on them mean something."""

from __future__ import annotations

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from attnlab.exercises.rows import FEW_SHAPES, Rows, any_rows, packed_rows, shapes
from attnlab.segments import reference


def trusted(rows: Rows) -> np.ndarray:
    q = reference.trusted(rows.segment_ids_q, rows.segment_pos_q, rows.max_segments)
    return q & reference.trusted(rows.segment_ids_kv, rows.segment_pos_kv, rows.max_segments)


def check_shapes(rows: Rows) -> None:
    assert all(x.dtype == np.int32 and x.ndim == 2 for x in rows.tokens)
    assert rows.segment_ids_q.shape == rows.segment_pos_q.shape
    assert rows.segment_ids_kv.shape == rows.segment_pos_kv.shape
    assert len(rows.segment_ids_q) == len(rows.segment_ids_kv)


@given(packed_rows() | packed_rows(st.sampled_from(FEW_SHAPES)))
def test_packed_rows_are_valid(rows):
    check_shapes(rows)
    assert trusted(rows).all()
    reference.check_values(*rows.tokens)


@given(packed_rows(from_zero=True, tail_padding=True, equal_sides=True))
def test_packed_rows_keep_the_promises_asked_of_them(rows):
    np.testing.assert_array_equal(rows.segment_ids_q, rows.segment_ids_kv)
    np.testing.assert_array_equal(rows.segment_pos_q, rows.segment_pos_kv)
    for ids, pos in zip(rows.segment_ids_q, rows.segment_pos_q, strict=True):
        real = np.flatnonzero(ids)
        np.testing.assert_array_equal(real, np.arange(real.size))
        for start, stop in reference.runs(ids[real]):
            np.testing.assert_array_equal(pos[start:stop], np.arange(stop - start))


@given(any_rows() | any_rows(st.sampled_from(FEW_SHAPES)))
def test_any_rows_are_never_negative_unless_asked(rows):
    check_shapes(rows)
    reference.check_values(*rows.tokens)


def neighbouring_runs(rows: Rows) -> list[tuple[int, int, int]]:
    """The ids of every three runs in a row."""
    names = [[row[start] for start, _ in reference.runs(row)] for row in rows.segment_ids_kv]
    return [three for row in names for three in zip(row, row[1:], row[2:], strict=False)]


WANTED = {
    "a valid row": lambda rows: trusted(rows).any(),
    "an invalid row": lambda rows: not trusted(rows).all(),
    "both in one batch": lambda rows: len(set(trusted(rows))) == 2,
    "no rows": lambda rows: len(rows.segment_ids_q) == 0,
    "no tokens": lambda rows: rows.segment_ids_q.shape[1] == 0,
    "one token": lambda rows: rows.segment_ids_q.shape[1] == 1,
    "nothing but padding": lambda rows: rows.segment_ids_q.size > 4 and not rows.segment_ids_q.any(),
    "an id above S": lambda rows: (rows.segment_ids_q > rows.max_segments).any(),
    "the largest position": lambda rows: (rows.segment_pos_q == 2**31 - 1).any(),
    "a hole": lambda rows: any(a == c != b == 0 for a, b, c in neighbouring_runs(rows)),
    "a repeat": lambda rows: any(a == c != b and a != 0 and b != 0 for a, b, c in neighbouring_runs(rows)),
    "positions that stand still": lambda rows: any(
        ((np.diff(ids) == 0) & (ids[1:] != 0) & (np.diff(pos) == 0)).any()
        for ids, pos in zip(rows.segment_ids_q, rows.segment_pos_q, strict=True)
    ),
}


def features(strategy, wanted: dict) -> set[str]:
    """Which of `wanted` some example of a few hundred has."""
    found: set[str] = set()

    @settings(max_examples=300, phases=[Phase.generate], derandomize=True, database=None)
    @given(strategy)
    def look(rows):
        found.update(name for name, has in wanted.items() if name not in found and has(rows))

    look()
    return found


def test_any_rows_try_everything():
    assert features(any_rows(), WANTED) == set(WANTED)


WANTED_VALID = {
    "an id left out": lambda rows: (np.diff(rows.segment_ids_q, axis=1) > 1).any(),
    "padding between two segments": lambda rows: any(b == 0 for _, b, _ in neighbouring_runs(rows)),
    "positions that skip": lambda rows: (
        (np.diff(rows.segment_ids_q) == 0)
        & (rows.segment_ids_q[:, 1:] > 0)
        & (np.diff(rows.segment_pos_q) > 1)
    ).any(),
    "a segment trimmed to nothing": lambda rows: (
        reference.seqlens_and_offsets(*rows.tokens, mask="causal", max_segments=rows.max_segments).q_seqlens
        < reference.seqlens_and_offsets(
            *rows.tokens, mask="padding", max_segments=rows.max_segments
        ).q_seqlens
    ).any(),
    "as many segments as there is room for": lambda rows: any(
        len(set(row) - {0}) == rows.max_segments > 3 for row in rows.segment_ids_q
    ),
}


def test_packed_rows_try_everything():
    assert features(packed_rows(), WANTED_VALID) == set(WANTED_VALID)


@given(shapes(min_batch=1, max_batch=2, min_tokens=3, max_tokens=5, max_segments=4))
def test_shapes_keep_their_bounds(shape):
    assert 1 <= shape.batch <= 2
    assert 3 <= min(shape.q_tokens, shape.kv_tokens) <= max(shape.q_tokens, shape.kv_tokens) <= 5
    assert 1 <= shape.max_segments <= 4
