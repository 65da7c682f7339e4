"""Cases of the Triton kernel over a ring; `test_ring_triton.py` runs them, in a process of its own."""

from __future__ import annotations

import itertools

import pytest
import torch
from triton_interpreter import DEVICE

from attnlab.ring import laws, reference
from attnlab.ring.cache import RingCache
from attnlab.ring.triton import ring_attention

TILES = (16, 16)


def ring(window: int, capacity: int, *, kv_heads: int = 1, head_dim: int = 8, batch: int = 1, **options):
    return RingCache(batch, kv_heads, head_dim, capacity, window=window, device=DEVICE, **options)


def attend(cache: RingCache, q: torch.Tensor, *, padding: bool = False, **options):
    return ring_attention(
        q,
        cache.k,
        cache.v,
        window=cache.window,
        written=cache.position,
        highest=cache.highest,
        padding=cache.padding if padding else None,
        return_lse=True,
        **({"tiles": TILES} | options),
    )


def draw(rng: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=rng).to(DEVICE)


def check(got, expected) -> None:
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b.to(a.dtype), atol=2e-6, rtol=0)


def poison(cache: RingCache, rows: int) -> None:
    """NaN in each slot that no one of the newest `rows` queries may see."""
    seen = torch.zeros(cache.capacity, dtype=torch.bool)
    for first, end in laws.runs(
        laws.oldest_visible(cache.position - rows + 1, cache.window), cache.position, cache.capacity
    ):
        seen[first:end] = True
    hidden = (~seen).to(DEVICE) | cache.padding
    for x in (cache.k, cache.v):
        x.masked_fill_(hidden[:, None, :, None], torch.nan)


def test_chunks_equal_the_reference_over_several_wraps_and_read_nothing_else():
    rng = torch.Generator().manual_seed(0)
    window, capacity = 21, 64
    tokens = 2 * capacity + 30
    q, k, v = draw(rng, 1, 6, tokens, 8), draw(rng, 1, 2, tokens, 8), draw(rng, 1, 2, tokens, 8)
    expected = reference.sliding_window_attention(q, k, v, window=window, return_lse=True)
    cache = ring(window, capacity, kv_heads=2)
    starts = [0]
    while starts[-1] < tokens:
        starts.append(min(tokens, starts[-1] + int(torch.randint(1, 28, (), generator=rng))))
    for start, stop in itertools.pairwise(starts):
        cache.append(k[:, :, start:stop], v[:, :, start:stop])
        poison(cache, stop - start)
        got = attend(cache, q[:, :, start:stop], splits=1)
        check(got, [x[:, :, start:stop] for x in expected])


@pytest.mark.parametrize("padding", [False, True])
def test_decoding_equals_the_cache_at_every_position_over_wraps(padding):
    rng = torch.Generator().manual_seed(1)
    window, capacity, group = 17, 48, 3
    cache = ring(window, capacity)
    for step in range(capacity + 20 if padding else 2 * capacity + 5):
        k, v, q = draw(rng, 1, 1, 1, 8), draw(rng, 1, 1, 1, 8), draw(rng, 1, group, 1, 8)
        hide = (torch.rand(1, 1, generator=rng) < 0.4).to(DEVICE) if padding else None
        cache.append(k, v, hide)
        got = attend(cache, q, padding=padding, splits=1 + step % 3)
        check(got, cache.attend(q, return_lse=True))


@pytest.mark.parametrize("splits", [1, 2, 5, 9])
def test_any_number_of_splits_gives_the_same(splits):
    rng = torch.Generator().manual_seed(2)
    cache = ring(60, 96, kv_heads=2, head_dim=5, batch=2)  # up to five tiles, some of which split no further
    for _ in range(6):
        cache.append(draw(rng, 2, 2, 20, 5), draw(rng, 2, 2, 20, 5))
    q = draw(rng, 2, 4, 3, 5)
    check(attend(cache, q, splits=splits), cache.attend(q, return_lse=True))


@pytest.mark.parametrize("splits", [1, 3])
def test_a_row_that_sees_only_padding_is_zero_and_minus_infinity(splits):
    rng = torch.Generator().manual_seed(3)
    cache = ring(20, 64, batch=2)
    hide = torch.zeros(2, 30, dtype=torch.bool, device=DEVICE)
    hide[1, 4:] = True  # of the second sequence, only the oldest tokens are none
    cache.append(draw(rng, 2, 1, 30, 8), draw(rng, 2, 1, 30, 8), hide)
    q = draw(rng, 2, 2, 10, 8)
    expected = cache.attend(q, return_lse=True)
    assert (expected[1][1, :, 4:] == -torch.inf).all()
    poison(cache, 10)
    out, lse = attend(cache, q, padding=True, splits=splits)
    check((out, lse), expected)
    assert (out[1, :, 4:] == 0).all() and not out.isnan().any()


def test_the_sizes_of_tiles_follow_the_laws_unless_given():
    rng = torch.Generator().manual_seed(4)
    cache = ring(33, 112)  # 16 divides the capacity, and 32 does not
    cache.append(draw(rng, 1, 1, 50, 8), draw(rng, 1, 1, 50, 8))
    q = draw(rng, 1, 1, 2, 8)
    check(attend(cache, q, tiles=None), cache.attend(q, return_lse=True))
    with pytest.raises(ValueError, match="tile law: capacity % tile_size == 0"):
        attend(cache, q, tiles=(16, 32))


def test_after_a_rollback_as_long_as_the_law_allows():
    rng = torch.Generator().manual_seed(5)
    cache = ring(17, 64)
    for _ in range(5):
        cache.append(draw(rng, 1, 1, 20, 8), draw(rng, 1, 1, 20, 8))
    cache.rollback(40)
    q = draw(rng, 1, 1, 4, 8)
    check(attend(cache, q), cache.attend(q, return_lse=True))
    with pytest.raises(ValueError, match="attend law"):
        attend(cache, draw(rng, 1, 1, 9, 8))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_right_to_its_own_rounding(dtype):
    rng = torch.Generator().manual_seed(6)
    cache = ring(20, 64, dtype=dtype)
    cache.append(*(draw(rng, 1, 1, 40, 8).to(dtype) for _ in "kv"))
    q = draw(rng, 1, 2, 3, 8).to(dtype)
    (out, lse), (expected, lse_expected) = attend(cache, q, splits=2), cache.attend(q, return_lse=True)
    assert out.dtype == dtype and lse.dtype == torch.float32
    assert (out - expected).abs().max() < 4 * torch.finfo(dtype).eps * expected.abs().max()
    torch.testing.assert_close(lse, lse_expected, atol=1e-4, rtol=0)


def test_no_rows_and_no_gradient():
    cache = ring(5, 48)
    cache.append(*torch.ones(2, 1, 1, 3, 8, device=DEVICE))
    out, lse = attend(cache, torch.ones(1, 2, 0, 8, device=DEVICE))
    assert out.shape == (1, 2, 0, 8) and lse.shape == (1, 2, 0)
    assert not attend(cache, torch.ones(1, 2, 1, 8, device=DEVICE, requires_grad=True))[0].requires_grad


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (dict(q=[1.0]), TypeError, "q must be a torch Tensor"),
        (dict(q=torch.ones(2, 1, 8)), ValueError, "q must have shape"),
        (dict(q=torch.ones(1, 3, 1, 8)), ValueError, "q must have a multiple of the 2 heads of k, got 3"),
        (dict(q=torch.ones(1, 2, 6, 8)), ValueError, "q must have at most one row per token written, 5"),
        (dict(k=torch.ones(1, 2, 48, 8).half()), TypeError, "k must have dtype torch.float32"),
        (dict(v=torch.ones(1, 2, 47, 8)), ValueError, r"v must have shape \[1, 2, 48, 8\]"),
        (dict(padding=torch.ones(1, 48)), TypeError, "padding must be a bool Tensor, got torch.float32"),
        (dict(padding=torch.ones(1, 4).bool()), ValueError, r"padding must have shape \[1, 48\]"),
        (dict(window=0), ValueError, "window must be at least 1"),
        (dict(written=2.0), TypeError, "written must be an int"),
        (dict(highest=4), ValueError, "highest must be at least 5"),
        (dict(splits=0), ValueError, "splits must be at least 1"),
        (dict(splits=129), ValueError, "splits must be 1 to 128"),
        (dict(window=40), ValueError, "tile law"),
    ],
)
def test_bad_input_names_the_argument(bad, error, message):
    good = dict(q=torch.ones(1, 2, 1, 8), k=torch.ones(1, 2, 48, 8), v=torch.ones(1, 2, 48, 8))
    arguments = good | dict(window=5, written=5) | bad
    arguments = {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}
    with pytest.raises(error, match=message):
        ring_attention(**arguments)
