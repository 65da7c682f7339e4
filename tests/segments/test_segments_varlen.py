"""From a layout to varlen attention (torch): the arguments, then output and gradients against dense ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from dense_gradients import dense_gradients
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from segment_paths import NATIVE, layout_of

from attnlab.exercises.rows import Rows, packed_rows, shapes
from attnlab.segments import MASKS, SegmentLayout, reference
from attnlab.segments.varlen import varlen_arguments, varlen_attention

masks = st.sampled_from(MASKS)
some_tokens = shapes(min_batch=1, min_tokens=1)


def torch_layout(rows: Rows, mask: str) -> SegmentLayout:
    return SegmentLayout(*map(torch.tensor, layout_of("torch", rows, mask)))


def arguments_of(rows: Rows, mask: str):
    tokens = dict(q_tokens=rows.segment_ids_q.shape[1], kv_tokens=rows.segment_ids_kv.shape[1])
    return varlen_arguments(torch_layout(rows, mask), **tokens, mask=mask)


def random_qkv(rows: Rows, heads: int = 2, head_dim: int = 3) -> list[np.ndarray]:
    """q, k, v and a gradient of the output."""
    rng = np.random.default_rng(0)
    q, kv = rows.segment_ids_q.shape, rows.segment_ids_kv.shape
    return [rng.standard_normal((*shape, heads, head_dim)) for shape in (q, kv, kv, q)]


def test_dense_gradients_are_those_of_autograd():
    # What the tests of all three libraries compare with, checked once against torch's own differentiation.
    rng = np.random.default_rng(1)
    q, k, v, dout = (rng.standard_normal((2, n, 2, 3)) for n in (4, 5, 5, 4))
    seen = rng.random((2, 4, 5)) < 0.6
    seen[:, :, 0] = True  # every query sees a key, since autograd has no answer for one that does not
    expected = dense_gradients(q, k, v, seen, dout)
    leaves = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    scores = torch.einsum("bihd,bjhd->bhij", *leaves[:2]) / 3**0.5
    weights = scores.masked_fill(~torch.tensor(seen)[:, None], -torch.inf).softmax(dim=-1)
    out = torch.einsum("bhij,bjhd->bihd", weights, leaves[2])
    out.backward(torch.tensor(dout))
    for got, wanted in zip((out.detach(), *(x.grad for x in leaves)), expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-12)


def test_arguments_of_a_row_that_can_be_checked_by_hand():
    ids_q, ids_kv = (
        np.array([[1, 1, 1, 0, 2, 2, 3, 3]], np.int32),
        np.array([[1, 1, 0, 2, 2, 2, 2, 3]], np.int32),
    )
    pos_q, pos_kv = (
        np.array([[0, 1, 2, 0, 0, 1, 0, 1]], np.int32),
        np.array([[0, 1, 0, 0, 1, 2, 3, 0]], np.int32),
    )
    twice = Rows(*(np.repeat(x, 2, axis=0) for x in (ids_q, ids_kv, pos_q, pos_kv)), 3)
    out = arguments_of(twice, "bottom_right_causal")
    assert out.cu_seqlens_q.tolist() == [0, 2, 4, 5, 7, 9, 10]
    assert out.cu_seqlens_k.tolist() == [0, 2, 6, 7, 9, 13, 14]
    assert (out.max_seqlen_q, out.max_seqlen_k, out.causal) == (2, 4, True)
    assert out.indices_q.tolist() == [1, 2, 4, 5, 7, 9, 10, 12, 13, 15]
    assert out.indices_k.tolist() == [0, 1, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15]
    assert [x.dtype for x in out if isinstance(x, torch.Tensor)] == [torch.int32] * 2 + [torch.int64] * 2
    assert arguments_of(twice, "padding").causal is False


@given(packed_rows(some_tokens, from_zero=True), masks)
def test_arguments_gather_the_visible_tokens_segment_by_segment(rows, mask):
    assume(mask != "causal")
    out, seen = arguments_of(rows, mask), reference.visibility(*rows.tokens, mask=mask)
    for indices, cu_seqlens, longest, ids, visible in (
        (out.indices_q, out.cu_seqlens_q, out.max_seqlen_q, rows.segment_ids_q, seen.any(axis=2)),
        (out.indices_k, out.cu_seqlens_k, out.max_seqlen_k, rows.segment_ids_kv, seen.any(axis=1)),
    ):
        np.testing.assert_array_equal(indices, np.flatnonzero(visible))
        # A row and an id together name a segment; each stretch holds one, and no two stretches hold the same.
        names = (np.arange(len(ids))[:, None] * 100 + ids).reshape(-1)[indices.numpy()]
        edges = cu_seqlens.tolist()
        stretches = [names[a:b] for a, b in pairwise(edges)]
        assert (edges[0], edges[-1]) == (0, len(indices))
        assert all(len(set(stretch)) == 1 for stretch in stretches)
        assert len({stretch[0] for stretch in stretches}) == len(stretches)
        assert longest == max(map(len, stretches), default=0)


@settings(max_examples=60)
@given(st.data(), masks)
def test_output_and_gradients_are_those_of_dense_attention(data, mask):
    rows = data.draw(packed_rows(some_tokens, from_zero=True, equal_sides=mask == "causal"))
    *qkv, dout = random_qkv(rows)
    expected = dense_gradients(*qkv, reference.visibility(*rows.tokens, mask=mask), dout)
    leaves = [torch.tensor(x, requires_grad=True) for x in qkv]
    out = varlen_attention(*leaves, arguments_of(rows, mask))
    if out.requires_grad:  # not where no token at all is visible
        out.backward(torch.tensor(dout))
    gradients = [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]
    for got, wanted in zip((out.detach(), *gradients), expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-12)


@given(packed_rows(some_tokens, from_zero=True))
def test_causal_raises_just_where_lengths_differ(rows):
    layout = layout_of("reference", rows, "causal")
    if (layout.q_seqlens == layout.kv_seqlens).all():
        out = varlen_attention(*map(torch.tensor, random_qkv(rows)[:3]), arguments_of(rows, "causal"))
        *qkv, dout = random_qkv(rows)
        expected = dense_gradients(*qkv, reference.visibility(*rows.tokens, mask="causal"), dout).out
        np.testing.assert_allclose(out, expected, atol=1e-12)
    else:
        with pytest.raises(ValueError, match="^mask 'causal' needs as many keys as queries in every segment"):
            arguments_of(rows, "causal")


def test_causal_says_which_lengths_differ():
    ids_q, ids_kv = np.array([[1, 1, 2, 2, 2]], np.int32), np.array([[1, 1, 2]], np.int32)
    pos_q, pos_kv = np.array([[0, 1, 0, 1, 2]], np.int32), np.array([[0, 1, 0]], np.int32)
    with pytest.raises(ValueError, match="one has 3 queries and 1 keys"):
        arguments_of(Rows(ids_q, ids_kv, pos_q, pos_kv, 2), "causal")


@pytest.mark.parametrize("mask", MASKS)
def test_rows_that_are_not_valid_are_refused_by_number(mask):
    ids = np.array([[1, 1, 2], [1, 0, 1], [2, 2, 2], [2, 1, 1]], np.int32)
    pos = np.array([[0, 1, 0], [0, 0, 2], [0, 1, 2], [0, 0, 1]], np.int32)
    with pytest.raises(ValueError, match=r"^layout must be valid in every row; rows \[1, 3\] are not"):
        arguments_of(Rows(ids, ids, pos, pos, 2), mask)


@pytest.mark.parametrize("mask", MASKS)
def test_where_nothing_is_visible_the_output_is_zero(mask):
    ids, pos = np.zeros((2, 4), np.int32), np.zeros((2, 4), np.int32)
    rows = Rows(ids, ids, pos, pos, 3)
    out = arguments_of(rows, mask)
    assert (out.cu_seqlens_q.tolist(), out.max_seqlen_q, out.indices_q.tolist()) == ([0], 0, [])
    q, k, v = (torch.tensor(x) for x in random_qkv(rows)[:3])
    assert not varlen_attention(q, k, v, out).any()


def test_what_padding_holds_does_not_matter():
    ids, pos = np.array([[1, 1, 0, 2]], np.int32), np.array([[0, 1, 0, 0]], np.int32)
    rows = Rows(ids, ids, pos, pos, 2)
    q, k, v = (torch.tensor(x) for x in random_qkv(rows)[:3])
    expected = varlen_attention(q, k, v, arguments_of(rows, "causal"))
    for x in (q, k, v):
        x[:, 2] = torch.nan
    torch.testing.assert_close(varlen_attention(q, k, v, arguments_of(rows, "causal")), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("mask", MASKS)
def test_the_kernel_on_cuda_takes_these_arguments(mask):
    from torch.nn.attention.varlen import varlen_attn

    ids = np.array([[1] * 40 + [0] * 8 + [2] * 80, [0] * 3 + [1] * 61 + [3] * 64], np.int32)
    pos = np.zeros_like(ids)
    for row, line in enumerate(ids):
        for start, stop in reference.runs(line):
            pos[row, start:stop] = np.arange(stop - start)
    rows = Rows(ids, ids, pos, pos, 3)
    layout = SegmentLayout(*(x.cuda() for x in torch_layout(rows, mask)))
    out = varlen_arguments(layout, q_tokens=128, kv_tokens=128, mask=mask)
    q, k, v = (NATIVE["torch"](x).cuda().bfloat16() for x in random_qkv(rows, head_dim=64)[:3])
    packed = [x.flatten(0, 1)[i] for x, i in ((q, out.indices_q), (k, out.indices_k), (v, out.indices_k))]
    cu_seqlens = out.cu_seqlens_q, out.cu_seqlens_k, out.max_seqlen_q, out.max_seqlen_k
    kernel = varlen_attn(*packed, *cu_seqlens, window_size=(-1, 0 if out.causal else -1))
    expected = varlen_attention(q.float(), k.float(), v.float(), out).flatten(0, 1)[out.indices_q]
    torch.testing.assert_close(kernel.float(), expected, atol=0.02, rtol=0.02)
