"""The paths of `attnlab.segments` under one face: NumPy rows in, a NumPy layout out."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import torch

from attnlab.exercises.rows import Rows
from attnlab.segments import SegmentLayout, reference
from attnlab.segments import jax as segments_jax
from attnlab.segments import numpy as segments_numpy
from attnlab.segments import torch as segments_torch

MODULES = {
    "reference": reference,
    "numpy": segments_numpy,
    "torch": segments_torch,
    "jax": segments_jax,
}
# From a NumPy array to the array that each path takes; torch gets a copy, since it warns at read-only memory.
NATIVE: dict[str, Callable] = {
    "reference": np.asarray,
    "numpy": np.asarray,
    "torch": torch.tensor,
    "jax": jnp.asarray,
}


def layout_of(path: str, rows: Rows, mask: str) -> SegmentLayout:
    """Run one path and bring its layout back to NumPy."""
    inputs = (NATIVE[path](x) for x in rows.tokens)
    return as_numpy(MODULES[path].seqlens_and_offsets(*inputs, mask=mask, max_segments=rows.max_segments))


def as_numpy(layout: SegmentLayout) -> SegmentLayout:
    return SegmentLayout(*(None if x is None else np.asarray(x) for x in layout))


def assert_agree(got: SegmentLayout, expected: SegmentLayout) -> None:
    """Same dtypes, shapes and `valid`, and the same numbers in the rows that are valid."""
    for name, a, b in zip(SegmentLayout._fields, got, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
    np.testing.assert_array_equal(got.valid, expected.valid, "valid")
    assert_same_numbers(got, expected)


def assert_same_numbers(got: SegmentLayout, expected: SegmentLayout) -> None:
    """Same lengths and starts in the rows that `expected` calls valid."""
    for name, a, b in zip(SegmentLayout._fields[:4], got, expected, strict=False):
        np.testing.assert_array_equal(a[expected.valid], b[expected.valid], name)
