"""Where a promise holds, less is read and the answer is the same."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_paths import as_numpy, assert_agree, layout_of

from attnlab.exercises.rows import Rows, Shape, packed_rows
from attnlab.segments import MASKS
from attnlab.segments import numpy as segments_numpy
from attnlab.segments.promises import from_lengths, from_sorted_ids

masks = st.sampled_from(MASKS)
promised = partial(packed_rows, from_zero=True, tail_padding=True)


@given(promised(), masks)
def test_sorted_ids_numpy(rows, mask):
    out = from_sorted_ids(rows.segment_ids_q, rows.segment_ids_kv, mask=mask, max_segments=rows.max_segments)
    assert_agree(out, layout_of("reference", rows, mask))


jitted_sorted_ids = jax.jit(from_sorted_ids, static_argnames=("mask", "max_segments"))


@settings(max_examples=40)
@given(promised(Shape(2, 17, 33, 4)), masks)
def test_sorted_ids_jax_under_jit(rows, mask):
    ids = jnp.asarray(rows.segment_ids_q), jnp.asarray(rows.segment_ids_kv)
    out = jitted_sorted_ids(*ids, mask=mask, max_segments=rows.max_segments)
    assert_agree(as_numpy(out), layout_of("reference", rows, mask))


@pytest.mark.parametrize("call", [from_sorted_ids, jitted_sorted_ids], ids=["numpy", "jax"])
def test_sorted_ids_say_when_an_id_is_above_s(call):
    valid = {
        (1, 2, 2, 0): True,
        (0, 0, 0, 0): True,
        (1, 2, 3, 0): False,
        (3, 3, 3, 3): False,
        (9, 9, 0, 0): False,
    }
    valid[1, 2, 2, 2**31 - 1] = False
    ids = np.array(list(valid), np.int32)
    if call is jitted_sorted_ids:
        ids = jnp.asarray(ids)
    assert call(ids, ids, mask="causal", max_segments=2).valid.tolist() == list(valid.values())


class Library:
    """An array library that counts what is read."""

    def __init__(self):
        self.read = 0

    def __getattr__(self, name):
        return getattr(np, name)

    def take_along_axis(self, opaque, indices, axis):
        self.read += indices.size
        return np.take_along_axis(opaque.hidden, indices, axis=axis)


class Opaque:
    """An array that shows its shape and dtype, and its values only through `Library.take_along_axis`."""

    def __init__(self, hidden, library):
        self.hidden, self.library = hidden, library
        self.shape, self.dtype, self.ndim = hidden.shape, hidden.dtype, hidden.ndim

    def __array_namespace__(self):
        return self.library


@pytest.mark.parametrize("mask", MASKS)
def test_sorted_ids_read_a_few_tokens_per_segment(mask):
    max_segments, read = 16, []
    for tokens in (1 << 10, 1 << 20):
        library = Library()
        lengths = np.full(max_segments, tokens // max_segments - 1)
        ids = np.pad(np.repeat(np.arange(1, max_segments + 1, dtype=np.int32), lengths), (0, max_segments))[
            None
        ]
        opaque = Opaque(ids, library)
        out = from_sorted_ids(opaque, opaque, mask=mask, max_segments=max_segments)
        assert out.q_seqlens.tolist() == [lengths.tolist()]
        # Two sides; S + 1 edges and the end of the last segment; one read per halving.
        assert library.read <= 2 * (max_segments + 2) * (tokens.bit_length() + 1)
        read.append(library.read)
    # A row a thousand times as long takes ten more halvings.
    assert read[1] - read[0] <= 2 * (max_segments + 2) * 10


lengths_of_rows = st.integers(1, 5).flatmap(
    lambda segments: st.lists(
        st.tuples(*[st.lists(st.integers(0, 6), min_size=segments, max_size=segments)] * 2),
        min_size=0,
        max_size=3,
    ).map(lambda rows: np.array(rows, np.int32).reshape(-1, 2, segments).swapaxes(0, 1))
)


def packed(lengths: np.ndarray) -> np.ndarray:
    """Ids of segments back to back, with a padding token at least at the end."""
    names = np.arange(1, lengths.shape[1] + 1, dtype=np.int32)
    ids = np.zeros((len(lengths), lengths.sum(axis=1).max(initial=0) + 1), np.int32)
    for row, n in enumerate(lengths):
        ids[row, : n.sum()] = np.repeat(names, n)
    return ids


def expected_of(q_lengths, kv_lengths, mask):
    ids_q, ids_kv = packed(q_lengths), packed(kv_lengths)
    pos = segments_numpy.positions(ids_q), segments_numpy.positions(ids_kv)
    return layout_of("reference", Rows(ids_q, ids_kv, *pos, q_lengths.shape[1]), mask)


@given(lengths_of_rows, masks)
def test_lengths_numpy(lengths, mask):
    assert_agree(from_lengths(*lengths, mask=mask), expected_of(*lengths, mask))


@settings(max_examples=40)
@given(st.lists(st.integers(0, 6), min_size=16, max_size=16), masks)
def test_lengths_jax_under_jit(lengths, mask):
    lengths = np.array(lengths, np.int32).reshape(2, 2, 4)
    out = jax.jit(from_lengths, static_argnames="mask")(*map(jnp.asarray, lengths), mask=mask)
    assert_agree(as_numpy(out), expected_of(*lengths, mask))


@pytest.mark.parametrize("to", [np.asarray, jnp.asarray])
def test_a_negative_length_is_not_valid(to):
    q, kv = (
        to(np.array([[1, 2], [1, -1], [0, 0]], np.int32)),
        to(np.array([[1, 2], [1, 1], [-2, 0]], np.int32)),
    )
    assert from_lengths(q, kv, mask="padding").valid.tolist() == [True, False, False]


def test_promises_leave_their_inputs_as_they_were():
    lengths = np.array([[3, 0, 2]], np.int32)
    ids = packed(lengths)
    for array in (lengths, ids):
        array.flags.writeable = False
    for mask in MASKS:
        out = from_lengths(lengths, lengths, mask=mask)
        assert_agree(out, from_sorted_ids(ids, ids, mask=mask, max_segments=3))
