"""The torch path against the reference, without a synchronisation, and whole under torch.compile."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_paths import NATIVE, as_numpy, assert_agree, layout_of
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from attnlab.exercises.rows import FEW_SHAPES, Rows, Shape, any_rows, packed_rows
from attnlab.segments import MASKS
from attnlab.segments import torch as segments_torch

masks = st.sampled_from(MASKS)


@given(packed_rows(), masks)
def test_equals_the_reference_on_valid_rows(rows, mask):
    assert_agree(layout_of("torch", rows, mask), layout_of("reference", rows, mask))


@given(any_rows(), masks)
def test_agrees_with_the_reference_on_any_rows(rows, mask):
    assert_agree(layout_of("torch", rows, mask), layout_of("reference", rows, mask))


@settings(max_examples=40)
@given(st.sampled_from(FEW_SHAPES).flatmap(lambda shape: packed_rows(shape) | any_rows(shape)), masks)
def test_agrees_with_the_reference_on_long_rows(rows, mask):
    assert_agree(layout_of("torch", rows, mask), layout_of("reference", rows, mask))


@settings(max_examples=30)
@given(packed_rows(), masks)
def test_strides_do_not_matter(rows, mask):
    strided = [torch.tensor(np.repeat(x, 2, axis=1))[:, ::2] for x in rows.tokens[:2]]
    strided += [torch.tensor(x.T.copy()).T for x in rows.tokens[2:]]
    out = segments_torch.seqlens_and_offsets(*strided, mask=mask, max_segments=rows.max_segments)
    assert_agree(as_numpy(out), layout_of("torch", rows, mask))


class NoSynchronisation(TorchDispatchMode):
    """Fail at every operation whose result, or its shape, the host must wait for."""

    FORBIDDEN = (
        "local_scalar_dense",
        "item",
        "is_nonzero",
        "nonzero",
        "equal",
        "unique",
        "masked_select",
        "bincount",
    )

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert not name.lstrip("_").startswith(self.FORBIDDEN), f"{name} waits for the device"
        if name == "index":
            indices = [x for x in args[1] if x is not None]
            assert all(x.dtype != torch.bool for x in indices), "an index of booleans waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        torch.unique,
    ],
)
def test_the_watch_for_synchronisation_notices_one(wait):
    with pytest.raises(AssertionError, match="waits for the device"), NoSynchronisation():
        wait(torch.ones(3))


@settings(max_examples=30)
@given(any_rows(negative=True), masks)
def test_nothing_waits_for_the_device(rows, mask):
    inputs = [NATIVE["torch"](x) for x in rows.tokens]
    with NoSynchronisation():
        segments_torch.seqlens_and_offsets(*inputs, mask=mask, max_segments=rows.max_segments)
        segments_torch.positions(inputs[0])


@pytest.mark.parametrize("mask", MASKS)
def test_shapes_depend_on_shapes_alone(mask):
    # A fake tensor has a shape and no values: whatever looks at a value raises.
    with FakeTensorMode():
        q, kv = torch.empty(2, 33, dtype=torch.int32), torch.empty(2, 64, dtype=torch.int32)
        out = segments_torch.seqlens_and_offsets(q, kv, q, kv, mask=mask, max_segments=5)
        assert [list(x.shape) for x in out] == [[2, 5], [2, 5], [2, 6], [2, 6], [2]]
        assert segments_torch.positions(q).shape == q.shape


def test_scratch_does_not_grow_with_tokens_times_segments():
    largest = 0

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for x in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(x, torch.Tensor):
                    largest = max(largest, x.untyped_storage().nbytes())
            return out

    tokens, max_segments = 1 << 17, 1024
    ids = torch.arange(1, max_segments + 1, dtype=torch.int32).repeat_interleave(tokens // max_segments)[None]
    pos = segments_torch.positions(ids)
    with Sizes():
        out = segments_torch.seqlens_and_offsets(ids, ids, pos, pos, mask="causal", max_segments=max_segments)
    assert out.valid.all()
    assert largest <= 8 * tokens  # one int64 per token


@pytest.mark.slow
@pytest.mark.unchecked
def test_compiles_whole():
    shape = Shape(2, 33, 64, 5)
    compiled = torch.compile(segments_torch.seqlens_and_offsets, fullgraph=True)

    @settings(max_examples=30)
    @given(packed_rows(shape) | any_rows(shape), masks)
    def check(rows: Rows, mask: str) -> None:
        inputs = [NATIVE["torch"](x) for x in rows.tokens]
        out = compiled(*inputs, mask=mask, max_segments=rows.max_segments)
        assert_agree(as_numpy(out), layout_of("reference", rows, mask))

    check()


@pytest.mark.gpu
@settings(max_examples=30)
@given(packed_rows() | any_rows(), masks)
def test_agrees_on_cuda_without_a_synchronisation(rows, mask):
    inputs = [NATIVE["torch"](x).cuda() for x in rows.tokens]
    torch.cuda.set_sync_debug_mode("error")
    try:
        out = segments_torch.seqlens_and_offsets(*inputs, mask=mask, max_segments=rows.max_segments)
        segments_torch.positions(inputs[0])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert_agree(as_numpy(type(out)(*(x.cpu() for x in out))), layout_of("reference", rows, mask))
