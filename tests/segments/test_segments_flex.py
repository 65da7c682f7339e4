"""From a packed batch to FlexAttention (torch): the BlockMask against torch's, attention against dense."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dense_gradients import dense_gradients
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_paths import NATIVE
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attnlab.exercises.rows import Rows, Shape, any_rows, packed_rows, shapes
from attnlab.segments import MASKS, reference
from attnlab.segments import numpy as segments_numpy
from attnlab.segments.flex import block_mask

masks = st.sampled_from(MASKS)
windows = st.none() | st.integers(1, 9)
some_tokens = shapes(min_batch=1, min_tokens=1)

FIELDS = (
    "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices",
    "q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices",
)  # fmt: skip


def block_mask_of(rows: Rows, mask: str, device: str = "cpu", **options):
    return block_mask(*(NATIVE["torch"](x).to(device) for x in rows.tokens), mask=mask, **options)


def made_by_torch(got, batch: int, q_tokens: int, kv_tokens: int, block_size: int = 128):
    """What create_block_mask makes of the same rule, pair by pair."""

    # torch counts the arguments of the function it is given, which a shape checker's wrapper would hide.
    def rule(b, h, q_idx, kv_idx):
        return got.mask_mod(b, h, q_idx, kv_idx)

    return create_block_mask(rule, batch, 1, q_tokens, kv_tokens, device="cpu", BLOCK_SIZE=block_size)


def assert_same_blocks(got, expected) -> None:
    assert (got.BLOCK_SIZE, got.seq_lengths, got.shape) == (
        expected.BLOCK_SIZE,
        expected.seq_lengths,
        expected.shape,
    )
    for field in FIELDS:
        a, b = getattr(got, field), getattr(expected, field)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), field
        assert torch.equal(a, b), field


def brute_force(rows: Rows, mask: str, window: int | None) -> np.ndarray:
    seen = reference.visibility(*rows.tokens, mask=mask)
    if window is None:
        return seen
    back_q = back_kv = 0
    if mask == "bottom_right_causal":
        back_q = reference.run_lengths(rows.segment_ids_q)[:, :, None]
        back_kv = reference.run_lengths(rows.segment_ids_kv)[:, None, :]
    pos_q = rows.segment_pos_q[:, :, None].astype(np.int64) - back_q
    pos_kv = rows.segment_pos_kv[:, None, :].astype(np.int64) - back_kv
    return seen & (pos_kv > pos_q - window)


@settings(max_examples=50)
@given(packed_rows(some_tokens) | any_rows(some_tokens), masks, windows, st.sampled_from([1, 3, 8, 128]))
def test_equals_what_create_block_mask_makes_of_its_rule(rows, mask, window, block_size):
    got = block_mask_of(rows, mask, window=window, block_size=block_size)
    expected = brute_force(rows, mask, window)
    batch, q, kv = np.ogrid[tuple(slice(n) for n in expected.shape)]
    seen = got.mask_mod(torch.tensor(batch), torch.tensor(0), torch.tensor(q), torch.tensor(kv))
    np.testing.assert_array_equal(seen, expected)
    assert_same_blocks(got, made_by_torch(got, *expected.shape, block_size))


@pytest.mark.parametrize("mask", MASKS)
def test_long_rows_have_blocks_of_every_kind(mask):
    ids = np.repeat(np.array([[1, 2, 2, 2, 2, 2, 0, 3], [0, 0, 1, 1, 1, 1, 1, 1]], np.int32), 96, axis=1)
    pos = segments_numpy.positions(ids)
    rows = Rows(ids, ids[:, 40:], pos, pos[:, 40:], 3)
    got = block_mask_of(rows, mask)
    assert got.full_kv_num_blocks.sum() > 0
    assert got.kv_num_blocks.sum() > 0
    assert got.sparsity() > 0
    assert_same_blocks(got, made_by_torch(got, 2, 768, 728))


def random_qkv(rows: Rows, head_dim: int, dtype=np.float64) -> list[np.ndarray]:
    """q, k, v and a gradient of the output."""
    rng = np.random.default_rng(0)
    q, kv = rows.segment_ids_q.shape, rows.segment_ids_kv.shape
    return [rng.standard_normal((*shape, 2, head_dim)).astype(dtype) for shape in (q, kv, kv, q)]


# FlexAttention compiles even where it runs eagerly, so what calls it is unchecked.


@pytest.mark.unchecked
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("mask", MASKS)
@settings(max_examples=5)
@given(rows=packed_rows(Shape(2, 20, 24, 4)) | any_rows(Shape(2, 20, 24, 4)))
def test_eager_attention_is_dense_attention(mask, rows):
    torch._dynamo.reset()
    *qkv, dout = random_qkv(rows, head_dim=4)
    expected = dense_gradients(*qkv, reference.visibility(*rows.tokens, mask=mask), dout).out
    out = flex_attention(
        *(torch.tensor(x).transpose(1, 2) for x in qkv), block_mask=block_mask_of(rows, mask, block_size=8)
    )
    np.testing.assert_allclose(out.transpose(1, 2), expected, atol=1e-12)


def long_rows() -> Rows:
    """Two rows whose keys start later than the queries, with a segment on one side only."""
    ids = np.repeat(np.array([[1, 2, 2, 2, 2, 2, 0, 3], [0, 0, 1, 1, 1, 4, 4, 4]], np.int32), 40, axis=1)
    ids_kv = np.where(ids == 4, 0, ids)[:, 56:].copy()
    return Rows(ids, ids_kv, segments_numpy.positions(ids), segments_numpy.positions(ids_kv), 4)


@pytest.mark.slow
@pytest.mark.unchecked
def test_compiled_attention_is_dense_attention():
    rows = long_rows()
    compiled = torch.compile(flex_attention)
    for mask in MASKS:
        *qkv, dout = random_qkv(rows, head_dim=16, dtype=np.float32)
        expected = dense_gradients(*qkv, reference.visibility(*rows.tokens, mask=mask), dout).out
        out = compiled(*(torch.tensor(x).transpose(1, 2) for x in qkv), block_mask=block_mask_of(rows, mask))
        np.testing.assert_allclose(out.transpose(1, 2), expected, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.unchecked
@pytest.mark.parametrize("mask", MASKS)
def test_gradients_on_cuda_are_those_of_dense_attention(mask):
    # FlexAttention has no backward pass on a CPU.
    rows = long_rows()
    *qkv, dout = random_qkv(rows, head_dim=16, dtype=np.float32)
    expected = dense_gradients(*qkv, reference.visibility(*rows.tokens, mask=mask), dout)
    leaves = [torch.tensor(x, device="cuda", requires_grad=True) for x in qkv]
    blocks = block_mask_of(rows, mask, device="cuda")
    out = torch.compile(flex_attention)(*(x.transpose(1, 2) for x in leaves), block_mask=blocks).transpose(
        1, 2
    )
    out.backward(torch.tensor(dout, device="cuda"))
    for got, wanted in zip((out.detach(), *(x.grad for x in leaves)), expected, strict=True):
        np.testing.assert_allclose(got.cpu(), wanted, atol=1e-4)
