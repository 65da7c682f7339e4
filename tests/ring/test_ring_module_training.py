"""Gradients through the module: one graph, a graph over segments, and one that is cut."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ring_calls import close, cut, dense, inputs, model

W = 6


def leaves(length, **sizes):
    return [x.requires_grad_() for x in inputs(length, **sizes)]


def gradients(out, tensors, seed=9):
    rng = torch.Generator().manual_seed(seed)
    weight = torch.randn(out.shape, generator=rng, dtype=torch.float64)
    return torch.autograd.grad((out.double() * weight).sum(), tensors, retain_graph=True)


def in_segments(ring, q, k, v, lengths, *, cutting=False, **options):
    """Outputs of segments that the state joins."""
    state, parts = None, []
    for t in cut(lengths):
        out, state = ring(q[:, :, t], k[:, :, t], v[:, :, t], True, buffer_state=state, **options)
        parts.append(out)
        if cutting:
            state.detach()
    return torch.cat(parts, dim=2), state


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(0, 11), min_size=1, max_size=6),
    window=st.integers(1, 9),
    weights=st.booleans(),
)
def test_one_graph_over_any_segments_has_the_references_gradients(lengths, window, weights):
    q, k, v = leaves(sum(lengths))
    want, table = dense(q, k, v, window=window)
    ring = model(buffer_size=window)
    out, state = in_segments(ring, q, k, v, lengths)
    close(out, want)
    assert state.carries_graph == (window > 1 and sum(lengths) > 0)
    for got, expected in zip(gradients(out, [q, k, v]), gradients(want, [q, k, v]), strict=True):
        close(got, expected, 1e-11)
    if weights:
        _, _, shown = ring(q, k, v, True, output_attentions=True)
        for got, expected in zip(gradients(shown, [q, k]), gradients(table, [q, k]), strict=True):
            close(got, expected, 1e-11)


def test_padding_and_masks_keep_the_gradient_exact_over_segments():
    q, k, v = leaves(20)
    padding = torch.zeros(2, 20, dtype=torch.bool)
    padding[0, 4:7] = padding[1, :9] = True
    want, _ = dense(q, k, v, padding=padding)
    ring, state, parts = model(), None, []
    for t in cut([8, 3, 9]):
        out, state = ring(
            q[:, :, t], k[:, :, t], v[:, :, t], True, key_padding_mask=padding[:, t], buffer_state=state
        )
        parts.append(out)
    for got, expected in zip(
        gradients(torch.cat(parts, dim=2), [q, k, v]), gradients(want, [q, k, v]), strict=True
    ):
        close(got, expected, 1e-11)


def test_an_additive_mask_takes_a_gradient():
    q, k, v = inputs(12)
    bias = torch.randn(4, 12, 12, dtype=torch.float64)[None].requires_grad_()
    out, _ = model()(q, k, v, att_mask=bias)  # nothing else asks for a graph
    (got,) = gradients(out, [bias])
    (want,) = gradients(dense(q, k, v, mask=bias)[0], [bias])
    close(got, want, 1e-11)


@pytest.mark.parametrize("lengths", [[10, 10, 10], [7, 1, 2, 14, 6]])
def test_a_cut_loses_only_the_last_rows_of_k_and_v_before_it(lengths):
    """Transformer-XL: dQ is exact; dK and dV of a row lack what later segments that see it would give."""
    q, k, v = leaves(30)
    want, _ = dense(q, k, v)
    out, state = in_segments(model(), q, k, v, lengths, cutting=True)
    close(out, want)
    assert not state.carries_graph
    (dq, dk, dv), (exact_q, exact_k, exact_v) = gradients(out, [q, k, v]), gradients(want, [q, k, v])
    close(dq, exact_q, 1e-11)
    # A row is cut off from a query if it is in the query's window and in an earlier segment.
    touched = torch.zeros(30, dtype=torch.bool)
    for t in cut(lengths)[:-1]:
        last = slice(max(t.start, t.stop - (W - 1)), t.stop)
        touched[last] = True
    for got, exact in ((dk, exact_k), (dv, exact_v)):
        close(got[:, :, ~touched], exact[:, :, ~touched], 1e-11)
        assert (got - exact).abs().amax(dim=(0, 1, 3))[touched].min() > 1e-6


def test_a_cut_gives_exactly_the_gradient_of_each_segment_by_itself():
    q, k, v = leaves(24)
    lengths = [9, 8, 7]
    out, _ = in_segments(model(), q, k, v, lengths, cutting=True)
    parts = []
    for t in cut(lengths):
        first = max(0, t.start - W + 1)
        k_all, v_all = (torch.cat([x[:, :, first : t.start].detach(), x[:, :, t]], dim=2) for x in (k, v))
        parts.append(dense(q[:, :, t], k_all, v_all, position=t.start, first_key=first)[0])
    want = torch.cat(parts, dim=2)
    for got, expected in zip(gradients(out, [q, k, v]), gradients(want, [q, k, v]), strict=True):
        close(got, expected, 1e-11)


def test_decoding_goes_on_from_a_segment_that_was_trained_on():
    q, k, v = leaves(40)
    want, _ = dense(q, k, v)
    ring = model()
    first, *rest = cut([23] + [1] * 17)
    out, state = ring(q[:, :, first], k[:, :, first], v[:, :, first], requires_grad=True)
    held = state.cache.visible()
    assert held.positions.tolist() == list(range(17, 23)) and torch.equal(held.k, k.detach()[:, :, 17:23])
    for t in rest:
        step = ring(q[:, :, t], k[:, :, t], v[:, :, t], False, is_decoder=True, buffer_state=state)
        assert not step.requires_grad and not state.carries_graph
        close(step, want.detach()[:, :, t])
    gradients(out, [q, k, v])  # what was written later has not disturbed the graph


def test_writing_over_the_ring_does_not_disturb_a_graph_that_has_read_it():
    q, k, v = leaves(60)
    want, _ = dense(q, k, v)
    ring = model()
    a, b, c = cut([9, 3, 48])
    _, state = ring(q[:, :, a], k[:, :, a], v[:, :, a], False)
    out, _ = ring(q[:, :, b], k[:, :, b], v[:, :, b], True, buffer_state=state)
    ring(q[:, :, c], k[:, :, c], v[:, :, c], False, buffer_state=state)
    close(out, want[:, :, b])
    got, *_ = gradients(out, [q, k, v])
    expected, *_ = gradients(want[:, :, b], [q, k, v])
    close(got, expected, 1e-11)


def test_a_graph_is_recorded_where_asked_or_where_autograd_would():
    plain, wanting = inputs(5), leaves(5)
    ring = model()
    for tensors, asked, expected in [
        (plain, None, False), (wanting, None, True), (wanting, False, False), (wanting, True, True),
        ([plain[0], wanting[1], plain[2]], None, True), (plain, True, False),
    ]:  # fmt: skip
        out, state = ring(*tensors, asked)
        assert (out.requires_grad, state.carries_graph) == (expected, expected)
    with torch.no_grad():
        out, state = ring(*wanting, True)
    assert not out.requires_grad and not state.carries_graph
    _, state = ring(*wanting)
    out, _ = ring(*plain, buffer_state=state)  # the state's tokens ask for it
    assert out.requires_grad


def test_a_clone_shares_the_graph_and_branches():
    q, k, v = leaves(18)
    ring = model()
    first, rest = cut([10, 8])
    _, state = ring(q[:, :, first], k[:, :, first], v[:, :, first], True)
    branch = state.clone()
    outs = [
        ring(q[:, :, rest], k[:, :, rest], v[:, :, rest], True, buffer_state=each)[0]
        for each in (state, branch)
    ]
    want = gradients(dense(q, k, v)[0][:, :, 10:], [q, k, v])
    for out in outs:
        for got, expected in zip(gradients(out, [q, k, v]), want, strict=True):
            close(got, expected, 1e-11)


def test_gradcheck_through_two_segments():
    q, k, v = leaves(7, batch=1, heads=2, kv_heads=1, dim=2)
    ring = model(num_heads=2, num_kv_heads=1, head_dim=2, buffer_size=3)
    assert torch.autograd.gradcheck(lambda q, k, v: in_segments(ring, q, k, v, [3, 4])[0], (q, k, v))


def test_one_graph_saves_memory_linear_in_the_length():
    """Without masks, the state keeps W - 1 rows and autograd keeps O(n * d): no row of weights."""
    ring = model(head_dim=4, buffer_size=256, prefill_size=64)
    saved = {}
    for length in (512, 1024):
        q, k, v = leaves(length, batch=1, dim=4)
        total = set()

        def note(x, total=total):
            total.add((x.untyped_storage().data_ptr(), x.untyped_storage().nbytes()))
            return x

        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            _graph = in_segments(ring, q, k, v, [length // 2, length // 2])
        saved[length] = sum(size for _, size in total)
    assert saved[1024] < 2.2 * saved[512]
    assert saved[1024] < 8 * 1024 * 256 * 4  # one row of weights per query and head would be this
