"""The NumPy path against the reference, on memory laid out in every way, and the bytes it takes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_paths import assert_agree, layout_of

from attnlab.exercises.rows import FEW_SHAPES, Rows, any_rows, packed_rows
from attnlab.segments import MASKS
from attnlab.segments import numpy as segments_numpy

masks = st.sampled_from(MASKS)


@given(packed_rows(), masks)
def test_equals_the_reference_on_valid_rows(rows, mask):
    assert_agree(layout_of("numpy", rows, mask), layout_of("reference", rows, mask))


@given(any_rows(), masks)
def test_agrees_with_the_reference_on_any_rows(rows, mask):
    assert_agree(layout_of("numpy", rows, mask), layout_of("reference", rows, mask))


@settings(max_examples=40)
@given(st.sampled_from(FEW_SHAPES).flatmap(lambda shape: packed_rows(shape) | any_rows(shape)), masks)
def test_agrees_with_the_reference_on_long_rows(rows, mask):
    assert_agree(layout_of("numpy", rows, mask), layout_of("reference", rows, mask))


@given(any_rows(negative=True), masks)
def test_raises_where_the_reference_raises(rows, mask):
    outcomes = []
    for path in ("reference", "numpy"):
        try:
            outcomes.append(layout_of(path, rows, mask))
        except ValueError as error:
            outcomes.append(str(error).partition(";")[0])
    if isinstance(outcomes[0], str):
        assert outcomes[0].partition("_")[0] == outcomes[1].partition("_")[0] == "segment"
    else:
        assert_agree(outcomes[1], outcomes[0])


def read_only(x):
    x.flags.writeable = False
    return x


LAYOUTS = {
    "every second token of a wider array": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "every second row": lambda x: np.repeat(x, 2, axis=0)[::2],
    "backwards": lambda x: x[:, ::-1].copy()[:, ::-1],
    "rows backwards": lambda x: x[::-1].copy()[::-1],
    "a transpose": lambda x: np.asfortranarray(x),
    "a slice": lambda x: np.pad(x, 3, constant_values=77)[3 : 3 + x.shape[0], 3 : 3 + x.shape[1]],
    "read-only": lambda x: read_only(x.copy()),
    "unaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), np.int32, x.size, offset=1).reshape(x.shape),
}


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=30)
@given(packed_rows(), masks)
def test_memory_may_be_laid_out_in_any_way(name, rows, mask):
    moved = Rows(*map(LAYOUTS[name], rows.tokens), rows.max_segments)
    assert_agree(layout_of("numpy", moved, mask), layout_of("numpy", rows, mask))


def test_rows_may_share_their_memory():
    ids = np.array([1, 1, 0, 2, 2, 2], np.int32)
    rows = Rows(
        *(
            np.broadcast_to(x, (3, 6))
            for x in (ids, ids, np.arange(6, dtype=np.int32), np.arange(6, dtype=np.int32))
        ),
        2,
    )
    out = layout_of("numpy", rows, "causal")
    assert out.q_seqlens.tolist() == [[2, 3]] * 3
    assert out.kv_offsets.tolist() == [[0, 3, -1]] * 3


@given(any_rows(), masks)
def test_inputs_are_left_as_they_were_and_outputs_are_new(rows, mask):
    before = [x.copy() for x in rows.tokens]
    for out in layout_of("numpy", rows, mask):
        assert not any(np.shares_memory(out, x) for x in rows.tokens)
    for x, was in zip(rows.tokens, before, strict=True):
        np.testing.assert_array_equal(x, was)


@pytest.mark.parametrize(("max_segments", "bytes_per_token"), [(16, 8), (1024, 8)])
def test_scratch_is_a_few_bytes_per_token_whatever_s_is(max_segments, bytes_per_token):
    tokens = 1 << 17
    ids = np.repeat(np.arange(1, max_segments + 1, dtype=np.int32), tokens // max_segments)[None]
    pos = segments_numpy.positions(ids)
    tracemalloc.start()
    try:
        out = segments_numpy.seqlens_and_offsets(ids, ids, pos, pos, mask="causal", max_segments=max_segments)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert out.valid.all()
    assert peak <= bytes_per_token * tokens
