"""Positions counted along runs, in the three libraries and through the common door."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_paths import MODULES, NATIVE

from attnlab.exercises.rows import FEW_SHAPES, any_rows
from attnlab.segments import positions, reference

LIBRARIES = ("numpy", "torch", "jax")


def expected(ids: np.ndarray) -> np.ndarray:
    out = np.zeros_like(ids)
    for row, line in enumerate(ids):
        for start, stop in reference.runs(line):
            if line[start] != 0:
                out[row, start:stop] = np.arange(stop - start)
    return out


def test_eight_tokens():
    ids = np.array([[0, 1, 1, 1, 0, 2, 2, 1], [5, 5, 0, 0, 0, 0, 0, 3]], np.int32)
    assert expected(ids).tolist() == [[0, 0, 1, 2, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=60)
@given(rows=any_rows(st.sampled_from(FEW_SHAPES[::3]), negative=True))
def test_positions_count_along_each_run(library, rows):
    out = MODULES[library].positions(NATIVE[library](rows.segment_ids_q))
    assert str(out.dtype).removeprefix("torch.") == "int32"
    np.testing.assert_array_equal(np.asarray(out), expected(rows.segment_ids_q))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0), (1, 1), (3, 1)])
@pytest.mark.parametrize("library", LIBRARIES)
def test_empty_rows_and_single_tokens(library, shape):
    out = MODULES[library].positions(NATIVE[library](np.ones(shape, np.int32)))
    np.testing.assert_array_equal(np.asarray(out), np.zeros(shape, np.int32))


@pytest.mark.parametrize(
    ("library", "kind"), [("numpy", np.ndarray), ("torch", torch.Tensor), ("jax", jax.Array)]
)
def test_the_common_door_gives_back_the_kind_that_came(library, kind):
    out = positions(NATIVE[library](np.array([[1, 1, 2]], np.int32)))
    assert isinstance(out, kind)
    assert np.asarray(out).tolist() == [[0, 1, 0]]


def test_the_common_door_knows_subclasses_and_traced_arrays():
    ids = np.array([[1, 1, 2]], np.int32)
    assert jax.jit(positions)(jnp.asarray(ids)).tolist() == [[0, 1, 0]]
    assert positions(torch.nn.Parameter(torch.tensor(ids), requires_grad=False)).tolist() == [[0, 1, 0]]
    assert positions(ids.view(np.memmap)).tolist() == [[0, 1, 0]]


@pytest.mark.unchecked
@pytest.mark.parametrize("other", [[[1, 1]], ((1, 1),), None, 3, "ids", range(3)])
def test_anything_else_is_refused(other):
    with pytest.raises(
        TypeError, match="segment_ids must be a NumPy array, a torch tensor or a JAX array; got"
    ):
        positions(other)


@pytest.mark.unchecked
@pytest.mark.parametrize("library", LIBRARIES)
def test_wrong_arrays_are_refused(library):
    native, door = NATIVE[library], MODULES[library].positions
    with pytest.raises(TypeError, match="segment_ids must have dtype int32; got float32"):
        door(native(np.ones((1, 2), np.float32)))
    with pytest.raises(TypeError, match="segment_ids must have dtype int32; got uint8"):
        door(native(np.ones((1, 2), np.uint8)))
    with pytest.raises(ValueError, match=r"segment_ids must have shape \[batch, tokens\]; got \[2\]"):
        door(native(np.ones(2, np.int32)))
    with pytest.raises(TypeError, match="segment_ids must be a .*; got list"):
        door([[1, 1]])
