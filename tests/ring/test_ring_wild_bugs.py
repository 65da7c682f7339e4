"""Bugs that shipped elsewhere: ours passes the case that exposes each, and the buggy version fails it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnlab.attention import dense_attention
from attnlab.exercises import ring_bugs
from attnlab.masks import causal, sliding_window
from attnlab.ring import RingCache, sliding_window_attention

HEAD_DIM = 8


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def tensor(array):
    return torch.from_numpy(np.ascontiguousarray(array))[None, None]


def ring(window, capacity, batch=1):
    return RingCache(batch, 1, HEAD_DIM, capacity, window=window, dtype=torch.float64)


def by_ring(q, k, v, window, capacity, chunks):
    cache, outs, start = ring(window, capacity), [], 0
    for size in chunks:
        rows = slice(start, start + size)
        cache.append(tensor(k[rows]), tensor(v[rows]))
        outs.append(cache.attend(tensor(q[rows]))[0, 0].numpy())
        start += size
    return np.concatenate(outs)


def over(keys, q, k, v):
    """Attention of one query over the keys that a cache found."""
    return dense_attention(q[None], k[keys], v[keys])[0][0]


def exact(q, k, v, window):
    return dense_attention(q, k, v, causal() & sliding_window(window))[0]


def seen(position, window):
    return np.arange(max(0, position - window + 1), position + 1)


def close(a, b):
    return np.allclose(a, b, rtol=0, atol=1e-9)


def test_a_prefill_longer_than_the_window_is_masked_by_position():
    """litgpt 2182: 12 tokens at once, a window of 5."""
    window, tokens = 5, 12
    q, k, v = normal(3, tokens, HEAD_DIM)
    want = exact(q, k, v, window)
    assert close(by_ring(q, k, v, window, window - 1 + tokens, [tokens]), want)
    fast = sliding_window_attention(tensor(q), tensor(k), tensor(v), window=window)[0, 0].numpy()
    assert close(fast, want)
    with pytest.raises(ValueError, match="cache law"):
        ring(window, window).append(tensor(k), tensor(v))

    # The buggy one reads slots that later tokens have taken, some of which lie ahead of the query.
    held = np.array([10, 11, 7, 8, 9])
    answers = [held[ring_bugs.slots_as_positions(p, tokens, window)] for p in range(tokens)]
    assert any((keys > p).any() for p, keys in enumerate(answers))
    assert not close(over(answers[2], q[2], k, v), want[2])
    # Before the ring wraps there is no difference between slots and positions.
    assert ring_bugs.slots_as_positions(4, 5, window).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("window", [2, 5, 8])
def test_the_step_that_wraps(window):
    """transformers 37574: single steps to the end of the window and past it."""
    tokens = 3 * window
    q, k, v = normal(3, tokens, HEAD_DIM, seed=window)
    want = exact(q, k, v, window)
    assert close(by_ring(q, k, v, window, window, [1] * tokens), want)
    cache = ring(window, window)
    wrong = []
    for n in range(1, tokens + 1):
        cache.append(tensor(k[n - 1 : n]), tensor(v[n - 1 : n]))
        assert cache.visible().positions.tolist() == seen(n - 1, window).tolist()
        rows = ring_bugs.roll_too_early(n, window)
        if not np.array_equal(rows[rows >= 0], seen(n - 1, window)):
            wrong.append(n)
    # Wrong from the step that fills the window, until the row that was lost would have left it anyway.
    assert wrong == list(range(window, 2 * window - 1))


@pytest.mark.parametrize("window", [1, 4, 7])
def test_a_window_of_w_shows_w_keys(window):
    """transformers 40163, mlx-lm 390."""
    tokens = 12
    q, k, v = normal(3, tokens, HEAD_DIM, seed=window)
    want = exact(q, k, v, window)
    assert close(by_ring(q, k, v, window, 2 * window, [1] * tokens), want)
    for impl in ("reference", "tiled", "strided"):
        got = sliding_window_attention(tensor(q), tensor(k), tensor(v), window=window, impl=impl)
        assert close(got[0, 0].numpy(), want)
    got = [over(ring_bugs.window_and_one(p, window), q[p], k, v) for p in range(tokens)]
    right = [close(a, b) for a, b in zip(got, want, strict=True)]
    assert right == [p < window for p in range(tokens)]


def test_padding_is_marked_in_the_ring():
    """mlx-lm 439: two prompts in one batch, one of them padded in front."""
    window, tokens = 6, 9
    padded = np.zeros((2, tokens), bool)
    padded[1, :5] = True
    k, v = normal(2, 2, 1, tokens, HEAD_DIM)
    q = normal(2, 1, 1, HEAD_DIM, seed=1)
    cache = ring(window, 16, batch=2)
    cache.append(*map(torch.from_numpy, (k, v, padded)))
    got = cache.attend(torch.from_numpy(q))[:, 0, 0].numpy()
    for row in range(2):
        keys = [p for p in seen(tokens - 1, window) if not padded[row, p]]
        want = over(keys, q[row, 0, 0], k[row, 0], v[row, 0])
        assert close(got[row], want)
        found = ring_bugs.padding_takes_room(padded[row], window)
        buggy = over(found, q[row, 0, 0], k[row, 0], v[row, 0])
        assert close(buggy, want) == (row == 0)  # the row without padding is right


def test_a_row_that_sees_nothing_gives_zeros():
    """mlxcel 412: a prompt of padding as long as the window."""
    window, tokens = 3, 6
    padded = np.array([[True] * 4 + [False] * 2])
    q, k, v = normal(3, tokens, HEAD_DIM)
    cache = ring(window, 8)
    cache.append(tensor(k), tensor(v), torch.from_numpy(padded))
    got, lse = cache.attend(tensor(q), return_lse=True)
    hidden = ~((causal() & sliding_window(window)).dense(tokens, tokens) & ~padded)
    want, want_lse = dense_attention(q, k, v, ~hidden)
    assert close(got[0, 0].numpy(), want) and not got[0, 0, :4].any()
    assert (lse[0, 0, :4] == -torch.inf).all() and close(lse[0, 0, 4:].numpy(), want_lse[4:])

    scores = np.where(hidden, -np.inf, q @ k.T * HEAD_DIM**-0.5)
    buggy = ring_bugs.softmax_of_nothing(scores, v)
    assert np.isnan(buggy[:4]).all() and close(buggy[4:], want[4:])


def test_a_chunk_larger_than_the_window_keeps_what_its_first_queries_see():
    """executorch 20346: chunks of two windows in a ring of two windows."""
    window, chunks = 4, [8, 8]
    tokens = sum(chunks)
    q, k, v = normal(3, tokens, HEAD_DIM)
    want = exact(q, k, v, window)
    assert close(by_ring(q, k, v, window, window - 1 + max(chunks), chunks), want)
    with pytest.raises(ValueError, match="cache law: .* capacity 8, window 4 and chunk 8, and 8 < 11"):
        ring(window, 2 * window).append(tensor(k[:8]), tensor(v[:8]))

    found = ring_bugs.chunk_larger_than_window(chunks, window, 2 * window)
    wrong = [p for p in range(tokens) if not np.array_equal(found[p], seen(p, window))]
    assert wrong == [8, 9, 10]  # the first W - 1 queries of the second chunk
    assert not close(over(found[8], q[8], k, v), want[8])
    # With a chunk of the window, twice the window is enough.
    found = ring_bugs.chunk_larger_than_window([window] * 4, window, 2 * window)
    assert all(np.array_equal(found[p], seen(p, window)) for p in range(tokens))
