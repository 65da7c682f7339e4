"""What the functional ring refuses: by raising where numbers are known, by `valid` and NaN under trace."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention import dense_attention
from attnlab.ring import jax as ring

B, HKV, D = 1, 2, 4
CAPACITY, WINDOW = 12, 5
MOST = CAPACITY - WINDOW + 1

attend = jax.jit(ring.attend, static_argnames="return_lse")


def rows(n, heads=HKV):
    return jnp.ones((B, heads, n, D))


def filled(written):
    state = ring.init(B, HKV, D, CAPACITY, window=WINDOW)
    for start in range(0, written, 4):
        state = ring.append(state, rows(min(4, written - start)), rows(min(4, written - start)))
    return state


def is_nan(state, q):
    return all(bool(jnp.isnan(x).all()) for x in attend(state, q, return_lse=True))


@pytest.mark.parametrize("jit", [False, True])
def test_cache_law_one_off_raises_while_it_is_traced(jit):
    state = filled(20)
    append = jax.jit(ring.append) if jit else ring.append
    with pytest.raises(ValueError, match="cache law: .*capacity 12, window 5 and chunk 9"):
        append(state, rows(MOST + 1), rows(MOST + 1))
    assert append(state, rows(MOST), rows(MOST)).position == 20 + MOST
    with pytest.raises(ValueError, match="cache law"):
        ring.init(B, HKV, D, 4, window=5)


def test_rollback_law_one_off():
    state = filled(20)
    with pytest.raises(ValueError, match="rollback law"):
        ring.rollback(state, MOST + 1)
    with pytest.raises(ValueError, match="rollback law"):
        ring.rollback(state, jnp.int32(MOST + 1))
    with pytest.raises(ValueError, match="at most capacity - window [+] 1 tokens, 8"):
        jax.jit(ring.rollback, static_argnums=1)(state, MOST + 1)
    after = jax.jit(ring.rollback)(state, jnp.int32(MOST))
    assert after.valid and (after.position, after.highest) == (20 - MOST, 20)
    # Counted from the highest, over all rollbacks together.
    with pytest.raises(ValueError, match="rollback law: .*highest 20"):
        ring.rollback(after, 1)


@pytest.mark.parametrize("written, r", [(20, MOST + 1), (3, 4), (20, -1), (20, -(2**31)), (20, 2**31 - 1)])
def test_a_refused_rollback_under_trace_spoils_the_state_for_good(written, r):
    state = jax.jit(ring.rollback)(filled(written), jnp.int32(r))
    assert not state.valid and state.position == written
    assert is_nan(state, rows(1))
    state = jax.jit(ring.append)(state, rows(1), rows(1))
    assert not state.valid and is_nan(state, rows(1))
    for call in (
        lambda: ring.append(state, rows(1), rows(1)),
        lambda: ring.attend(state, rows(1)),
        lambda: ring.rollback(state, 0),
    ):
        with pytest.raises(ValueError, match="state must be valid"):
            call()


def test_attend_law_one_off():
    state = filled(20)
    with pytest.raises(ValueError, match="attend law: .*rows 9"):
        ring.attend(state, rows(MOST + 1))
    assert is_nan(state, rows(MOST + 1))
    assert not is_nan(state, rows(MOST))
    back = ring.rollback(state, MOST)  # the last token is out of reach, but the next is not
    assert back.valid and is_nan(back, rows(1))
    with pytest.raises(ValueError, match="attend law"):
        ring.attend(back, rows(1))
    assert not is_nan(ring.append(back, rows(1), rows(1)), rows(1))


def test_more_rows_than_tokens():
    state = filled(3)
    with pytest.raises(ValueError, match="at most one row per token written, 3; got 4"):
        ring.attend(state, rows(4))
    assert is_nan(state, rows(4)) and not is_nan(state, rows(3))
    with pytest.raises(ValueError, match="at most one row per slot, 12; got 13"):
        attend(state, rows(13))


def test_positions_end_at_the_largest_int32():
    limit = 2**31 - 1
    near = jnp.int32(limit - 3)
    state = replace(filled(20), position=near, highest=near)
    k, v, q = jnp.asarray(np.random.default_rng(0).standard_normal((3, B, HKV, 20, D)), jnp.float32)
    state = replace(state, position=near - 17, highest=near - 17)
    for start in (0, 4, 8, 12, 16):
        state = ring.append(state, k[:, :, start : start + 4], v[:, :, start : start + 4])
    assert state.valid and state.position == limit
    want, _ = dense_attention(*(np.asarray(x)[:, :, -n:] for x, n in ((q, 1), (k, WINDOW), (v, WINDOW))))
    np.testing.assert_allclose(ring.attend(state, q[:, :, -1:]), want, atol=2e-6)
    with pytest.raises(ValueError, match="position must be at most 2147483647"):
        ring.append(state, rows(1), rows(1))
    after = jax.jit(ring.append)(state, rows(1), rows(1))
    assert not after.valid and after.position == limit and is_nan(after, rows(1))
    assert ring.append(state, rows(0), rows(0)).valid


@pytest.mark.parametrize("window", [1, WINDOW])
def test_no_rows_at_all(window):
    state = ring.append(ring.init(B, HKV, D, CAPACITY, window=window), rows(3), rows(3))
    out, lse = ring.attend(state, rows(0), return_lse=True)
    assert out.shape == (B, HKV, 0, D) and lse.shape == (B, HKV, 0)
    assert ring.append(state, rows(0), rows(0)).position == 3


@pytest.mark.unchecked
def test_bad_input_is_refused_by_name():
    state = filled(3)
    half, one = rows(1).astype(jnp.bfloat16), rows(1)
    short = jnp.ones((B, 2), jnp.bool_)
    refused = [
        (TypeError, "state must be a RingState", lambda: ring.append(one, one, one)),
        (TypeError, "state must be a RingState", lambda: ring.attend(None, one)),
        (TypeError, "k must be a JAX array; got ndarray", lambda: ring.append(state, np.ones(1), one)),
        (TypeError, "k must have dtype float32; got bfloat16", lambda: ring.append(state, half, one)),
        (ValueError, "v must have shape", lambda: ring.append(state, one, rows(2))),
        (ValueError, "k must have shape", lambda: ring.append(state, one[0], one)),
        (ValueError, "key_padding_mask must have shape", lambda: ring.append(state, one, one, short)),
        (TypeError, "key_padding_mask must have dtype bool", lambda: ring.append(state, one, one, one)),
        (ValueError, "q must have a multiple of num_kv_heads, 2", lambda: ring.attend(state, rows(1, 3))),
        (TypeError, "q must have dtype", lambda: ring.attend(state, half)),
        (TypeError, "r must be an int", lambda: ring.rollback(state, 1.0)),
        (ValueError, "r must be at least 0", lambda: ring.rollback(state, -1)),
        (ValueError, "r must be at most the tokens written, 3", lambda: ring.rollback(state, 4)),
        (TypeError, "r must have dtype int32", lambda: ring.rollback(state, jnp.float32(1))),
        (ValueError, "r must have shape", lambda: ring.rollback(state, jnp.ones(1, jnp.int32))),
        (TypeError, "capacity must be an int", lambda: ring.init(1, 1, 4, 12.0, window=5)),
        (ValueError, "head_dim must be at least 1", lambda: ring.init(1, 1, 0, 12, window=5)),
        (TypeError, "dtype must be one of", lambda: ring.init(1, 1, 4, 12, window=5, dtype=jnp.int32)),
        (TypeError, "dtype must be one of", lambda: ring.init(1, 1, 4, 12, window=5, dtype=None)),
        (TypeError, "needs jax_enable_x64", lambda: ring.init(1, 1, 4, 12, window=5, dtype=jnp.float64)),
    ]
    for error, message, call in refused:
        with pytest.raises(error, match=message):
            call()
