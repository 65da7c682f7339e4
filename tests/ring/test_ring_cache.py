"""RingCache against dense attention in float64, a deque, and its own laws one off."""

from __future__ import annotations

import io
from collections import deque

import numpy as np
import pytest
import torch

from attnlab.ring import RingCache, laws

B, HKV, D = 2, 2, 5
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-13, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def draw(rng, *shape, dtype=torch.float32):
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


def make(capacity=12, window=5, *, kv_heads=HKV, head_dim=D, dtype=torch.float32, batch=B):
    return RingCache(batch, kv_heads, head_dim, capacity, window=window, dtype=dtype)


def dense(q, k, v, window, padding=None):
    """The last rows of q over all keys, float64: softmax over p - W < k <= p, not padded."""
    q, k, v = (x.double() for x in (q, k, v))
    rows, keys = q.shape[2], k.shape[2]
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    p, at = torch.arange(keys - rows, keys)[:, None], torch.arange(keys)
    seen = ((at <= p) & (at > p - window)).expand(q.shape[0], 1, rows, keys)
    if padding is not None:
        seen = seen & ~padding[:, None, None, :]
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf)
    lse = scores.logsumexp(-1)
    out = torch.where(seen.any(-1, keepdim=True), scores.softmax(-1), 0.0) @ v
    return out, lse


def assert_attends(cache, q, k, v, padding=None, dtype=torch.float32):
    out, lse = cache.attend(q, return_lse=True)
    want_out, want_lse = dense(q, k, v, cache.window, padding)
    assert out.dtype == dtype and out.shape == q.shape
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(out.double(), want_out, rtol=0, atol=TOLERANCE[dtype])
    torch.testing.assert_close(lse.double(), want_lse, rtol=1e-6, atol=TOLERANCE[dtype])
    assert torch.equal(cache.attend(q), out)


def snapshot(cache):
    return {name: x.clone() if torch.is_tensor(x) else x for name, x in cache.state_dict().items()}


def assert_same_state(cache, before):
    for name, value in cache.state_dict().items():
        same = torch.equal(value, before[name]) if torch.is_tensor(value) else value == before[name]
        assert same, name


@pytest.mark.parametrize("capacity, window", [(12, 5), (7, 7), (9, 1), (1, 1)])
def test_slots_are_the_last_rows_over_many_wraps(capacity, window):
    rng = np.random.default_rng(capacity)
    cache = make(capacity, window)
    rows: deque = deque(maxlen=capacity)
    while cache.position < 12 * capacity:
        chunk = int(rng.integers(0, capacity - window + 2))
        k, v = draw(rng, B, HKV, chunk, D), draw(rng, B, HKV, chunk, D)
        pad = torch.from_numpy(rng.random((B, chunk)) < 0.3)
        cache.append(k, v, pad)
        rows.extend((k[:, :, i], v[:, :, i], pad[:, i]) for i in range(chunk))
        held = laws.position_of_slot(np.arange(capacity), cache.position, capacity)
        for slot, position in enumerate(held):
            if position < 0:
                assert not cache.k[:, :, slot].any()
                continue
            k_row, v_row, pad_row = rows[position - cache.position]
            assert torch.equal(cache.k[:, :, slot], k_row)
            assert torch.equal(cache.v[:, :, slot], v_row)
            assert torch.equal(cache.padding[:, slot], pad_row)
    assert cache.position == cache.highest


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_decode_equals_dense_at_every_position(dtype):
    rng = np.random.default_rng(1)
    capacity, window, heads = 8, 6, 4
    cache = make(capacity, window, dtype=dtype)
    tokens = 11 * capacity
    k, v = (draw(rng, B, HKV, tokens, D, dtype=dtype) for _ in "kv")
    q = draw(rng, B, heads, tokens, D, dtype=dtype)
    for t in range(tokens):
        cache.append(k[:, :, t : t + 1], v[:, :, t : t + 1])
        assert_attends(cache, q[:, :, t : t + 1], k[:, :, : t + 1], v[:, :, : t + 1], dtype=dtype)


@pytest.mark.parametrize("heads, kv_heads", [(3, 3), (6, 2), (5, 1)])
def test_chunks_of_any_size_equal_dense(heads, kv_heads):
    rng = np.random.default_rng(heads)
    cache = make(13, 6, kv_heads=kv_heads)
    k, v = draw(rng, B, kv_heads, 180, D), draw(rng, B, kv_heads, 180, D)
    q = draw(rng, B, heads, 180, D)
    padding = torch.from_numpy(rng.random((B, 180)) < 0.5)
    start = 0
    while start < 160:
        stop = start + int(rng.integers(1, 13 - 6 + 2))
        new = slice(start, stop)
        cache.append(k[:, :, new], v[:, :, new], padding[:, new])
        assert_attends(cache, q[:, :, new], k[:, :, :stop], v[:, :, :stop], padding[:, :stop])
        start = stop


def test_a_long_chunk_is_handled_in_blocks_of_queries():
    rng = np.random.default_rng(3)
    cache = make(600, 50)
    k, v = draw(rng, B, HKV, 700, D), draw(rng, B, HKV, 700, D)
    q = draw(rng, B, HKV, 300, D)
    cache.append(k[:, :, :400], v[:, :, :400])
    cache.append(k[:, :, 400:], v[:, :, 400:])
    assert_attends(cache, q, k, v)


def test_one_window_is_at_most_two_ascending_runs():
    cache = make(12, 5)
    for t in range(40):
        cache.append(torch.full((B, HKV, 1, D), float(t)), torch.zeros(B, HKV, 1, D))
        runs = laws.runs(laws.oldest_visible(cache.position, cache.window), cache.position, cache.capacity)
        read = [cache.k[0, 0, slot, 0].item() for first, end in runs for slot in range(first, end)]
        assert len(runs) <= 2
        assert read == list(range(max(0, t - 4), t + 1))


def test_visible_is_oldest_first_and_a_copy():
    rng = np.random.default_rng(4)
    cache = make(12, 5)
    assert cache.visible().k.shape == (B, HKV, 0, D)
    k, v = draw(rng, B, HKV, 30, D), draw(rng, B, HKV, 30, D)
    padding = torch.from_numpy(rng.random((B, 30)) < 0.5)
    for t in range(30):
        cache.append(k[:, :, t : t + 1], v[:, :, t : t + 1], padding[:, t : t + 1])
        seen = cache.visible()
        rows = slice(max(0, t - 4), t + 1)
        assert seen.positions.tolist() == list(range(30))[rows]
        assert torch.equal(seen.k, k[:, :, rows]) and torch.equal(seen.v, v[:, :, rows])
        assert torch.equal(seen.padding, padding[:, rows])
    before = snapshot(cache)
    for copy in seen:
        copy.zero_()
    assert_same_state(cache, before)


def test_padded_rows_equal_unpadded_rows():
    rng = np.random.default_rng(5)
    total, lengths = 60, (60, 41)
    k, v, q = (draw(rng, B, HKV, total, D) for _ in "kvq")
    padding = torch.arange(total) < total - torch.tensor(lengths)[:, None]  # on the left
    k[padding[:, None].expand(B, HKV, total)] = torch.nan  # whatever a padded row holds must not matter
    v[padding[:, None].expand(B, HKV, total)] = torch.nan
    padded, alone = make(12, 5), [make(12, 5, batch=1) for _ in lengths]
    for start in range(0, total, 4):
        new = slice(start, start + 4)
        padded.append(k[:, :, new], v[:, :, new], padding[:, new])
        out, lse = padded.attend(q[:, :, new], return_lse=True)
        for row, cache in enumerate(alone):
            own = ~padding[row, new]
            assert (out[row][:, ~own] == 0).all() and (lse[row][:, ~own] == -torch.inf).all()
            if own.any():
                cache.append(*(x[row : row + 1, :, new][:, :, own] for x in (k, v)))
                want = cache.attend(q[row : row + 1, :, new][:, :, own])
                torch.testing.assert_close(out[row : row + 1][:, :, own], want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 3])
def test_nan_in_unseen_slots_changes_nothing(rows):
    rng = np.random.default_rng(6)
    for written in range(rows, 40):
        cache = make(12, 5)
        for start in range(0, written, 3):
            size = min(3, written - start)
            cache.append(draw(rng, B, HKV, size, D), draw(rng, B, HKV, size, D))
        q = draw(rng, B, HKV, rows, D)
        clean = cache.attend(q, return_lse=True)
        held = laws.position_of_slot(np.arange(12), written, 12)
        unseen = torch.from_numpy(held <= written - rows - 5) | torch.from_numpy(held < 0)
        assert unseen.any()
        cache.k[:, :, unseen] = torch.nan
        cache.v[:, :, unseen] = torch.nan
        for got, want in zip(cache.attend(q, return_lse=True), clean, strict=True):
            assert torch.equal(got, want)


def test_everything_padded_gives_zero_and_minus_infinity():
    cache = make()
    x = torch.ones(B, HKV, 3, D)
    cache.append(x, x, torch.ones(B, 3, dtype=torch.bool))
    out, lse = cache.attend(x, return_lse=True)
    assert (out == 0).all() and (lse == -torch.inf).all()


@pytest.mark.parametrize("written", [0, 3])
def test_no_rows_give_no_rows(written):
    cache = RingCache(2, 1, 4, 8, window=3)
    cache.append(torch.ones(2, 1, written, 4), torch.ones(2, 1, written, 4))
    out, lse = cache.attend(torch.ones(2, 2, 0, 4), return_lse=True)
    assert out.shape == (2, 2, 0, 4)
    assert lse.shape == (2, 2, 0)


def test_no_graph_is_recorded():
    cache = make()
    x = torch.ones(B, HKV, 3, D, requires_grad=True)
    cache.append(x * 2, x * 3)
    assert not cache.attend(x).requires_grad
    assert not any(t.requires_grad for t in (cache.k, cache.v, *cache.visible()))


def test_a_cache_made_in_inference_mode_works_outside_it():
    with torch.inference_mode():
        cache = make()
        cache.append(*torch.ones(2, B, HKV, 1, D))
    cache.append(*torch.ones(2, B, HKV, 1, D))
    assert cache.position == 2


def test_storage_never_moves_in_a_hundred_thousand_steps():
    cache = make(96, 32, batch=1)
    state = cache.state_dict()
    where = [x.data_ptr() for x in (cache.k, cache.v, cache.padding)]
    size = cache.storage_bytes
    token, chunk = (torch.ones(1, HKV, n, D) for n in (1, 65))
    for step in range(100_000):
        cache.append(token, token)
        if step % 1000 == 999:
            cache.append(chunk, chunk)
            cache.attend(chunk)
            cache.rollback(3)
    assert cache.position == 100_000 + 100 * (65 - 3)
    cache.load_state_dict(state)
    assert [x.data_ptr() for x in (cache.k, cache.v, cache.padding)] == where
    assert cache.storage_bytes == size


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("head_dim", [1, 5, 16, 33, 64])
def test_rows_are_cache_lines_and_the_footprint_is_fixed(dtype, head_dim):
    cache = make(7, 3, head_dim=head_dim, dtype=dtype)
    per_line = 64 // dtype.itemsize
    padded = -(-head_dim // per_line) * per_line
    for x in (cache.k, cache.v):
        assert x.shape == (B, HKV, 7, head_dim) and x.dtype == dtype
        assert x.stride() == (HKV * 7 * padded, 7 * padded, padded, 1)
        assert x.stride(2) * dtype.itemsize % 64 == 0
        assert x.data_ptr() % 64 == 0
    assert cache.storage_bytes == 2 * B * HKV * 7 * padded * dtype.itemsize
    assert cache.storage_bytes == sum(x.untyped_storage().nbytes() for x in (cache.k, cache.v))


@pytest.mark.gpu
def test_rows_are_aligned_to_128_bytes_on_cuda():
    cache = RingCache(B, HKV, 5, 12, window=5, dtype=torch.bfloat16, device="cuda")
    rng = np.random.default_rng(7)
    for x in (cache.k, cache.v):
        assert x.stride(2) * 2 == 128 and x.data_ptr() % 128 == 0
    k, v, q = (draw(rng, B, HKV, 20, 5, dtype=torch.bfloat16) for _ in "kvq")
    for start in range(0, 20, 5):
        cache.append(k[:, :, start : start + 5].cuda(), v[:, :, start : start + 5].cuda())
    out = cache.attend(q[:, :, -4:].cuda()).cpu()
    torch.testing.assert_close(out.double(), dense(q[:, :, -4:], k, v, 5)[0], rtol=0, atol=1e-2)


def filled(written, capacity=12, window=5, rng=None):
    """A cache with `written` tokens, and the tokens."""
    rng = rng or np.random.default_rng(8)
    cache = make(capacity, window)
    k, v = draw(rng, B, HKV, written, D), draw(rng, B, HKV, written, D)
    for t in range(written):
        cache.append(k[:, :, t : t + 1], v[:, :, t : t + 1])
    return cache, k, v


@pytest.mark.parametrize("written", [0, 3, 40])
def test_cache_law_one_off_writes_nothing(written):
    cache, _, _ = filled(written)
    most = cache.capacity - cache.window + 1
    before = snapshot(cache)
    x = torch.ones(B, HKV, most + 1, D)
    with pytest.raises(ValueError, match="cache law: .*capacity 12, window 5 and chunk 9"):
        cache.append(x, x)
    assert_same_state(cache, before)
    cache.append(x[:, :, 1:], x[:, :, 1:])
    assert cache.position == written + most


def test_a_capacity_below_the_window_is_refused():
    make(5, 5)
    with pytest.raises(ValueError, match="cache law"):
        make(4, 5)


def test_rollback_law_one_off_changes_nothing():
    cache, k, v = filled(40)
    most = cache.capacity - cache.window + 1
    before = snapshot(cache)
    with pytest.raises(ValueError, match="rollback law"):
        cache.rollback(most + 1)
    assert_same_state(cache, before)
    cache.rollback(most)
    assert (cache.position, cache.highest) == (40 - most, 40)
    # The next token finds its window, and what comes after the old end too.
    rng = np.random.default_rng(9)
    new_k, new_v = draw(rng, B, HKV, 30, D), draw(rng, B, HKV, 30, D)
    k, v = (torch.cat([old[:, :, : 40 - most], new], 2) for old, new in ((k, new_k), (v, new_v)))
    for t in range(30):
        cache.append(new_k[:, :, t : t + 1], new_v[:, :, t : t + 1])
        stop = 40 - most + t + 1
        assert_attends(cache, draw(rng, B, 2 * HKV, 1, D), k[:, :, :stop], v[:, :, :stop])


def test_repeated_rollbacks_are_counted_from_the_highest():
    cache, _, _ = filled(40)
    most = cache.capacity - cache.window + 1  # 8
    x = torch.ones(B, HKV, 2, D)
    cache.rollback(5)
    cache.append(x, x)  # 3 below the highest
    cache.rollback(most - 3)
    before = snapshot(cache)
    with pytest.raises(ValueError, match="rollback law: .*highest 40"):
        cache.rollback(1)
    assert_same_state(cache, before)


def test_attend_law_one_off_changes_nothing():
    cache, k, v = filled(40)
    most = cache.capacity - cache.window + 1
    q = draw(np.random.default_rng(10), B, HKV, most + 1, D)
    before = snapshot(cache)
    with pytest.raises(ValueError, match="attend law: .*rows 9"):
        cache.attend(q)
    assert_same_state(cache, before)
    assert_attends(cache, q[:, :, 1:], k, v)


def test_after_the_longest_rollback_the_last_token_is_out_of_reach_but_the_next_is_not():
    cache, k, v = filled(40)
    cache.rollback(cache.capacity - cache.window + 1)
    q = torch.ones(B, HKV, 1, D)
    for call in (lambda: cache.attend(q), cache.visible):
        with pytest.raises(ValueError, match="attend law"):
            call()
    stop = cache.position + 1
    cache.append(k[:, :, stop - 1 : stop], v[:, :, stop - 1 : stop])
    assert_attends(cache, q, k[:, :, :stop], v[:, :, :stop])
    assert cache.visible().positions.tolist() == list(range(stop - 5, stop))


def test_a_rolled_back_padding_bit_does_not_linger():
    cache, k, v = filled(20)
    x = draw(np.random.default_rng(11), B, HKV, 3, D)
    cache.append(x, x, torch.ones(B, 3, dtype=torch.bool))
    cache.rollback(3)
    cache.append(x, x)
    assert_attends(cache, x, torch.cat([k, x], 2), torch.cat([v, x], 2))


@pytest.mark.parametrize("rolled_back", [0, 4])
def test_saved_in_the_middle_and_continued_elsewhere(rolled_back):
    rng = np.random.default_rng(12)
    cache, _, _ = filled(30, rng=rng)
    cache.append(*draw(rng, 2, B, HKV, 3, D), torch.tensor([[True, False, False], [False, True, True]]))
    cache.rollback(rolled_back)
    file = io.BytesIO()
    torch.save(cache.state_dict(), file)
    file.seek(0)
    other = make()
    other.load_state_dict(torch.load(file, weights_only=True))
    assert (other.position, other.highest) == (33 - rolled_back, 33)
    for _ in range(25):
        k, v, q = draw(rng, 3, B, HKV, 2, D)
        for each in (cache, other):
            each.append(k, v)
        for got, want in zip(other.attend(q, return_lse=True), cache.attend(q, return_lse=True), strict=True):
            assert torch.equal(got, want)
    assert_same_state(other, snapshot(cache))


def test_a_saved_state_is_a_copy():
    cache, _, _ = filled(20)
    state = cache.state_dict()
    before = snapshot(cache)
    cache.append(*torch.ones(2, B, HKV, 3, D))
    cache.load_state_dict(state)
    assert_same_state(cache, before)
    assert (cache.k.data_ptr(), cache.v.data_ptr()) != (state["k"].data_ptr(), state["v"].data_ptr())


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"window": 4}, ValueError, r"state_dict\['window'\] must be the cache's, 5; got 4"),
        ({"position": 21}, ValueError, r"state_dict\['position'\] must be at most"),
        ({"position": 5}, ValueError, "rollback law"),
        ({"position": -1}, ValueError, r"state_dict\['position'\]"),
        ({"highest": 20.0}, TypeError, r"state_dict\['highest'\]"),
        ({"k": torch.zeros(B, HKV, 13, D)}, ValueError, r"state_dict\['k'\] must have shape"),
        ({"v": torch.zeros(B, HKV, 12, D).double()}, TypeError, r"state_dict\['v'\] must have dtype"),
        ({"k": None}, TypeError, r"state_dict\['k'\] must be a torch Tensor"),
        ({"padding": torch.zeros(B, 12)}, TypeError, r"state_dict\['padding'\] must have dtype torch.bool"),
        ({"extra": 1}, ValueError, "state_dict must have the entries"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change, error, message):
    cache, _, _ = filled(20)
    state = {**cache.state_dict(), **change}
    state["k"] = state["k"] + 1 if "k" not in change else state["k"]
    before = snapshot(cache)
    with pytest.raises(error, match=message):
        cache.load_state_dict(state)
    assert_same_state(cache, before)


@pytest.mark.unchecked
def test_a_state_that_is_no_mapping_or_lacks_an_entry_is_refused():
    cache = make()
    with pytest.raises(TypeError, match="state_dict must be a mapping; got list"):
        cache.load_state_dict([])
    with pytest.raises(ValueError, match="state_dict must have the entries"):
        cache.load_state_dict({})


GOOD = torch.zeros(B, HKV, 2, D)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda c: c.append(GOOD.numpy(), GOOD), TypeError, "^k must be a torch Tensor; got ndarray"),
        (lambda c: c.append(GOOD.double(), GOOD), TypeError, "^k must have dtype torch.float32; got torch.f"),
        (lambda c: c.append(GOOD, GOOD.half()), TypeError, "^v must have dtype"),
        (
            lambda c: c.append(GOOD[0], GOOD),
            ValueError,
            r"^k must have shape \[2, 2, any, 5\]; got \[2, 2, 5\]",
        ),
        (lambda c: c.append(GOOD, GOOD[:, :, :1]), ValueError, r"^v must have shape \[2, 2, 2, 5\]"),
        (lambda c: c.append(GOOD.to("meta"), GOOD), ValueError, "^k must be on cpu; got meta"),
        (lambda c: c.append(GOOD, GOOD, torch.zeros(B, 2)), TypeError, "^key_padding_mask must have dtype"),
        (
            lambda c: c.append(GOOD, GOOD, torch.zeros(B, 3, dtype=torch.bool)),
            ValueError,
            "^key_padding_mask",
        ),
        (lambda c: c.append(GOOD, GOOD, [[True]]), TypeError, "^key_padding_mask must be a torch Tensor"),
        (lambda c: c.attend(None), TypeError, "^q must be a torch Tensor"),
        (lambda c: c.attend(GOOD.bfloat16()), TypeError, "^q must have dtype"),
        (lambda c: c.attend(GOOD[..., :3]), ValueError, r"^q must have shape \[2, any, any, 5\]"),
        (
            lambda c: c.attend(torch.zeros(B, 3, 1, D)),
            ValueError,
            "^q must have a multiple of num_kv_heads, 2",
        ),
        (
            lambda c: c.attend(torch.zeros(B, 0, 1, D)),
            ValueError,
            "^q must have a multiple of num_kv_heads, 2",
        ),
        (lambda c: c.attend(torch.zeros(B, HKV, 4, D)), ValueError, "^q must have at most one row per token"),
        (lambda c: c.attend(GOOD.to("meta")), ValueError, "^q must be on cpu; got meta"),
        (lambda c: c.rollback(4), ValueError, "^r must be at most the tokens written, 3; got 4"),
        (lambda c: c.rollback(-1), ValueError, "^r must be at least 0"),
        (lambda c: c.rollback(1.0), TypeError, "^r must be an int"),
    ],
)
def test_bad_input_names_the_argument_and_changes_nothing(call, error, message):
    cache, _, _ = filled(3)
    before = snapshot(cache)
    with pytest.raises(error, match=message):
        call(cache)
    assert_same_state(cache, before)


@pytest.mark.unchecked
@pytest.mark.parametrize("name", ["batch_size", "num_kv_heads", "head_dim", "capacity", "window"])
def test_bad_sizes_name_the_argument(name):
    sizes = dict(batch_size=1, num_kv_heads=1, head_dim=1, capacity=4, window=2)
    with pytest.raises(ValueError, match=f"^{name} must be at least 1; got 0"):
        RingCache(**{**sizes, name: 0})
    with pytest.raises(TypeError, match=f"^{name} must be an int; got float"):
        RingCache(**{**sizes, name: 2.0})
    with pytest.raises(TypeError, match="^dtype must be one of torch.float16"):
        RingCache(**sizes, dtype=torch.int32)
