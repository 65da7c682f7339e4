"""The reverse sweep: the gradients of the whole graph, from W - 1 rows and one segment at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.bench.memory import torch_peak
from attnlab.ring import reference
from attnlab.ring.gradient_ring import GradientRing, Segment, Sweep, cut
from attnlab.ring.segment_attention import first_key, segment_backward, segment_forward

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=8)  # of segments, of one token or many
GROUPS = st.sampled_from([(1, 1), (4, 2), (3, 1)])


def random_sequence(tokens: int, heads=(2, 1), head_dim=4, batch=2, dtype=torch.float64):
    """q, k, v and dout."""
    rng = torch.Generator().manual_seed(0)
    q_heads, kv_heads = heads
    return [
        torch.randn((batch, n, tokens, head_dim), generator=rng, dtype=torch.float64).to(dtype)
        for n in (q_heads, kv_heads, kv_heads, q_heads)
    ]


def one_graph(q, k, v, dout, window):
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
    out, lse = reference.sliding_window_attention(*leaves, window=window, return_lse=True)
    return out.detach(), lse.detach(), torch.autograd.grad(out, leaves, dout.double())


def loader(q, k, v, out, lse, dout):
    def load(first: int, start: int, stop: int) -> Segment:
        own, seen = slice(start, stop), slice(first, stop)
        rest = [x[:, :, own] for x in (out, lse, dout)]
        return Segment(q[:, :, own], k[:, :, seen], v[:, :, seen], *rest)

    return load


def edges(lengths: list[int]) -> list[tuple[int, int]]:
    stops = torch.tensor(lengths).cumsum(0).tolist()
    return list(zip([0, *stops], stops, strict=False))


@settings(max_examples=60)
@given(LENGTHS, st.integers(1, 30), GROUPS)
def test_the_sweep_gives_the_gradients_of_the_whole_graph(lengths, window, heads):
    q, k, v, dout = random_sequence(sum(lengths), heads)
    out, lse, expected = one_graph(q, k, v, dout, window)
    ring = GradientRing(2, heads[1], 4, window=window, dtype=torch.float64)
    swept = list(ring.sweep(loader(q, k, v, out, lse, dout), edges(lengths)))
    assert [(step.event.start, step.event.stop) for step in swept] == edges(lengths)[::-1]
    for name, whole in zip(("dq", "dk", "dv"), expected, strict=True):
        got = torch.cat([getattr(step, name) for step in reversed(swept)], dim=2)
        torch.testing.assert_close(got, whole, atol=1e-12, rtol=0)
    assert ring.start == 0 and ring.carried == (0, 0)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1), (torch.float16, 0.01)]
)
@pytest.mark.parametrize("size", [1, 7, 300])
def test_other_dtypes_with_their_own_forward_pass(dtype, tolerance, size):
    q, k, v, dout = random_sequence(300 if size > 1 else 40, (4, 2), dtype=dtype)
    window = 21
    _, _, expected = one_graph(q, k, v, dout, window)
    ring = GradientRing(2, 2, 4, window=window, dtype=dtype)
    segments = cut(q.shape[2], size)
    parts = [
        segment_forward(q[:, :, a:b], *(x[:, :, first_key(a, window) : b] for x in (k, v)), a, window=window)
        for a, b in segments
    ]
    out, lse = (torch.cat(x, dim=2) for x in zip(*parts, strict=True))
    swept = list(ring.sweep(loader(q, k, v, out, lse, dout), segments))
    for name, whole in zip(("dq", "dk", "dv"), expected, strict=True):
        got = torch.cat([getattr(step, name) for step in reversed(swept)], dim=2)
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), whole, atol=tolerance, rtol=0)


def test_sums_of_half_precision_are_kept_in_float32():
    # One number in 256 is lost at each addition to a bfloat16 sum of this size, and none in float32.
    tokens, window = 512, 512
    q, k = (torch.zeros(1, 1, tokens, 1, dtype=torch.bfloat16) for _ in range(2))
    v, dout = (torch.ones(1, 1, tokens, 1, dtype=torch.bfloat16) for _ in range(2))
    out, lse, (_, _, expected) = one_graph(q, k, v, dout, window)
    load = loader(q, k, v, out.bfloat16(), lse.float(), dout)
    swept = list(GradientRing(1, 1, 1, window=window, dtype=torch.bfloat16).sweep(load, cut(tokens, 1)))
    first = swept[-1].dv.double()
    torch.testing.assert_close(first, expected[:, :, :1].bfloat16().double(), atol=0, rtol=0)


@settings(max_examples=40)
@given(LENGTHS, st.integers(1, 30), GROUPS)
def test_a_segment_goes_forward_with_w_minus_1_rows_before_it(lengths, window, heads):
    q, k, v, _ = random_sequence(sum(lengths), heads)
    expected = reference.sliding_window_attention(q, k, v, window=window, return_lse=True)
    for start, stop in edges(lengths):
        keys = slice(max(0, start - window + 1), stop)
        got = segment_forward(q[:, :, start:stop], k[:, :, keys], v[:, :, keys], start, window=window)
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b[:, :, start:stop], atol=1e-12, rtol=0)


def test_a_segment_may_be_longer_than_the_queries_taken_at_a_time():
    q, k, v, dout = random_sequence(300, (2, 1))
    out, lse, expected = one_graph(q, k, v, dout, 150)
    got = segment_backward(q, k, v, out, lse, dout, 0, window=150)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


@given(LENGTHS, st.integers(1, 30))
def test_the_events_say_what_is_carried(lengths, window):
    q, k, v, dout = random_sequence(sum(lengths))
    out, lse, _ = one_graph(q, k, v, dout, window)
    ring = GradientRing(2, 1, 4, window=window, dtype=torch.float64)
    n_bytes = 2 * 2 * 1 * (window - 1) * 4 * 8
    carried = (0, 0)
    for step, (start, stop) in zip(
        ring.sweep(loader(q, k, v, out, lse, dout), edges(lengths)), reversed(edges(lengths)), strict=True
    ):
        oldest = max(0, start - window + 1)
        assert step.event == Sweep(start, stop, oldest, carried, (oldest, start), n_bytes)
        assert step.dq.shape[2] == step.dk.shape[2] == step.dv.shape[2] == stop - start
        carried = step.event.carried_out
        assert ring.carried == carried and carried[1] - carried[0] <= window - 1


def test_memory_does_not_grow_with_the_sequence():
    window, size = 33, 16
    rows = random_sequence(size + window - 1, (4, 2), batch=1, dtype=torch.float32)
    q, k, v, dout = rows

    def sweep(tokens: int) -> None:
        # The same rows stand for every segment: what is measured is what the sweep holds, not the inputs.
        def load(first: int, start: int, stop: int) -> Segment:
            queries, keys = slice(0, stop - start), slice(0, stop - first)
            lse = torch.zeros(1, 4, stop - start)
            own = [x[:, :, queries] for x in (q, q, dout)]
            return Segment(own[0], k[:, :, keys], v[:, :, keys], own[1], lse, own[2])

        ring = GradientRing(1, 2, 4, window=window)
        assert ring.held_bytes == 2 * 1 * 2 * (window - 1) * 4 * 4
        for step in ring.sweep(load, cut(tokens, size)):
            del step

    short, long = (torch_peak(sweep, tokens).peak_bytes for tokens in (10 * size, 80 * size))
    assert short == long


def test_finished_gradients_do_not_keep_the_rows_before_them():
    q, k, v, dout = random_sequence(40)
    out, lse, _ = one_graph(q, k, v, dout, 30)
    load = loader(q, k, v, out, lse, dout)
    for step in GradientRing(2, 1, 4, window=30, dtype=torch.float64).sweep(load, cut(40, 4)):
        for x in (step.dk, step.dv):
            assert x.untyped_storage().nbytes() == x.nbytes == 2 * 1 * 4 * 4 * 8


def test_a_ring_made_in_inference_mode_works_outside():
    with torch.inference_mode():
        ring = GradientRing(2, 1, 4, window=5, dtype=torch.float64)
    q, k, v, dout = random_sequence(9)
    out, lse, expected = one_graph(q, k, v, dout, 5)
    (step,) = ring.sweep(loader(q, k, v, out, lse, dout), [(0, 9)])
    torch.testing.assert_close(step.dk, expected[1], atol=1e-12, rtol=0)


def test_cut():
    assert cut(0, 3) == []
    assert cut(7, 3) == [(0, 3), (3, 6), (6, 7)]


# --- Bad input ---


def swept_to(start: int, window: int = 4) -> tuple[GradientRing, list[torch.Tensor]]:
    """A ring that has swept the positions from `start` to 19, and what the sweep reads."""
    q, k, v, dout = random_sequence(20)
    out, lse, _ = one_graph(q, k, v, dout, window)
    ring = GradientRing(2, 1, 4, window=window, dtype=torch.float64)
    tensors = [q, k, v, out, lse, dout]
    ring.backward(*loader(*tensors)(first_key(start, window), start, 20), start)
    return ring, tensors


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("start", "stop"), [(15, 20), (5, 11), (5, 9), (0, 3)], ids=["again", "overlap", "gap", "wrong order"]
)
def test_segments_out_of_order_are_refused_and_change_nothing(start, stop):
    ring, tensors = swept_to(10)
    with pytest.raises(ValueError, match=f"must stop at 10; got positions {start} to {stop - 1}"):
        ring.backward(*loader(*tensors)(first_key(start, 4), start, stop), start)
    dq, dk, dv = ring.backward(*loader(*tensors)(0, 0, 10), 0)
    _, _, expected = one_graph(tensors[0], tensors[1], tensors[2], tensors[5], 4)
    for a, b in zip((dq, dk, dv), expected, strict=True):
        torch.testing.assert_close(a, b[:, :, :10], atol=1e-12, rtol=0)


@pytest.mark.unchecked
def test_nothing_comes_after_position_0():
    ring, tensors = swept_to(0)
    with pytest.raises(ValueError, match="the sweep has reached position 0"):
        ring.backward(*loader(*tensors)(0, 0, 20), 0)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    "segments",
    [[(0, 3), (4, 6)], [(0, 3), (2, 6)], [(3, 6), (0, 3)], [(1, 6)], [(0, 0), (0, 6)], [(0, 3), (3, 3)]],
)
def test_segments_that_are_no_cut_are_refused(segments):
    ring, tensors = GradientRing(2, 1, 4, window=4, dtype=torch.float64), swept_to(10)[1]
    with pytest.raises(ValueError, match="segments must follow one another from position 0 without gaps"):
        next(ring.sweep(loader(*tensors), segments))


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (dict(q=torch.zeros(2, 2, 0, 4).double()), ValueError, "at least one row"),
        (dict(q=torch.zeros(2, 2, 5, 3).double()), ValueError, "q must have shape"),
        (dict(q=torch.zeros(2, 0, 5, 4).double()), ValueError, "multiple of num_kv_heads"),
        (dict(q=torch.zeros(2, 2, 5, 4)), TypeError, "q must have dtype torch.float64"),
        (dict(k=torch.zeros(2, 1, 7, 4).double()), ValueError, r"k must have shape \[2, 1, 8, 4\]"),
        (dict(v=torch.zeros(2, 1, 5, 4).double()), ValueError, r"v must have shape \[2, 1, 8, 4\]"),
        (dict(out=torch.zeros(2, 2, 4, 4).double()), ValueError, "out must have shape"),
        (dict(dout=None), TypeError, "dout must be a torch Tensor; got NoneType"),
        (dict(lse=torch.zeros(2, 2, 5)), TypeError, "lse must have dtype torch.float64"),
        (dict(start=5.0), TypeError, "start must be an int; got float"),
        (dict(start=-1), ValueError, "start must be at least 0"),
    ],
)
def test_bad_segments_are_named(change, error, words):
    ring, tensors = swept_to(10)
    given_ = dict(zip(Segment._fields, loader(*tensors)(2, 5, 10), strict=True)) | dict(start=5) | change
    with pytest.raises(error, match=words):
        ring.backward(**given_)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (dict(batch_size=0), ValueError, "batch_size must be at least 1"),
        (dict(head_dim=True), TypeError, "head_dim must be an int"),
        (dict(window=0), ValueError, "window must be at least 1"),
        (dict(dtype=torch.int64), TypeError, "dtype must be one of"),
    ],
)
def test_bad_rings_are_named(change, error, words):
    with pytest.raises(error, match=words):
        GradientRing(**(dict(batch_size=2, num_kv_heads=1, head_dim=4, window=4) | change))
