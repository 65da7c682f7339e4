"""Dropout by coordinates: the published generator, its statistics, the same mask however it is cut."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.ring.dropout import keep_mask, philox


# From tests/kat_vectors of Random123, https://github.com/DEShawResearch/random123
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(counter, key, expected):
    words = philox(tuple(torch.tensor(word) for word in counter), key)
    assert tuple(int(word) for word in words) == expected


def test_philox_broadcasts_as_if_every_counter_were_written_out():
    rng = torch.Generator().manual_seed(0)
    shapes = ((5,), (4, 1), (4, 5), (3, 1, 1))
    counter = tuple(torch.randint(2**32, shape, generator=rng) for shape in shapes)
    whole = tuple(torch.broadcast_tensors(*counter))
    for a, b in zip(philox(counter, (1, 2)), philox(whole, (1, 2)), strict=True):
        assert torch.equal(a, b)


def one(seed: int, b: int, h: int, q: int, k: int, p: float) -> bool:
    """The definition, one weight at a time, in Python's integers."""
    c = [k // 4 % 2**32, q % 2**32, (q >> 32) * 2**16 + (k // 4 >> 32), b * 2**16 + h]
    key = [seed % 2**32, seed >> 32]
    for _ in range(10):
        x, y = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(y >> 32) ^ c[1] ^ key[0], y % 2**32, (x >> 32) ^ c[3] ^ key[1], x % 2**32]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return c[k % 4] >= round(p * 2**32)


positions = st.lists(st.integers(0, 50) | st.integers(0, 2**48 - 1), max_size=5)
indices = st.lists(st.integers(0, 3) | st.integers(0, 2**16 - 1), max_size=3)


@settings(max_examples=60)
@given(st.integers(0, 2**64 - 1), indices, indices, positions, positions, st.floats(0, 1, exclude_max=True))
def test_every_weight_is_decided_by_its_own_coordinates(seed, batch, heads, queries, keys, p):
    sides = [torch.tensor(x, dtype=torch.int64) for x in (batch, heads, queries, keys)]
    kept = keep_mask(seed, *sides, p)
    assert kept.dtype == torch.bool
    expected = [[[[one(seed, b, h, q, k, p) for k in keys] for q in queries] for h in heads] for b in batch]
    assert kept.tolist() == torch.tensor(expected).reshape(kept.shape).bool().tolist()


@settings(max_examples=15)
@given(
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    st.integers(5, 15),
    st.integers(5, 15),
    st.randoms(use_true_random=False),
)
def test_chunks_tiles_and_shuffles_are_cut_from_one_table(q_first, k_first, q_step, k_step, random):
    queries, keys = range(q_first, q_first + 20), range(k_first, k_first + 25)
    whole = keep_mask(7, range(2), range(3), queries, keys, 0.4)
    strips = []
    for i in range(0, 20, q_step):
        tiles = [
            keep_mask(7, range(2), range(3), queries[i : i + q_step], keys[j : j + k_step], 0.4)
            for j in range(0, 25, k_step)
        ]
        strips.append(torch.cat(tiles, dim=3))
    assert torch.equal(torch.cat(strips, dim=2), whole)

    order = random.sample(range(25), 25)
    shuffled = torch.tensor([keys[j] for j in order])
    assert torch.equal(keep_mask(7, range(2), range(3), queries, shuffled, 0.4), whole[..., order])
    assert torch.equal(keep_mask(7, range(1, -1, -1), range(2, 3), queries, keys, 0.4), whole.flip(0)[:, 2:])


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("start", [0, 2**40])
def test_the_share_dropped_is_p(p, start):
    kept = keep_mask(11, range(4), range(4), range(start, start + 128), range(start, start + 128), p)
    n = kept.numel()
    assert abs(int((~kept).sum()) - n * p) < 5 * math.sqrt(n * p * (1 - p))


def test_the_share_dropped_is_p_along_every_coordinate():
    """Chi-square of the counts in each batch entry, head, row and column, and in each of the four words."""
    p, shape = 0.3, (16, 16, 64, 64)
    dropped = ~keep_mask(5, *(range(n) for n in shape), p)
    cuts = [dropped.transpose(0, axis).flatten(1) for axis in range(4)]
    cuts.append(dropped.unflatten(3, (-1, 4)).movedim(4, 0).flatten(1))
    for cut in cuts:
        groups, n = cut.shape
        chi_square = ((cut.sum(dim=1) - n * p) ** 2 / (n * p * (1 - p))).sum().item()
        assert abs(chi_square - groups) < 5 * math.sqrt(2 * groups)


def test_neighbours_in_every_coordinate_are_independent():
    p = 0.5
    signs = 1.0 - 2.0 * keep_mask(3, range(8), range(8), range(64), range(64), p)
    other = 1.0 - 2.0 * keep_mask(4, range(8), range(8), range(64), range(64), p)
    products = [signs * other]
    for axis in range(4):
        for apart in (1, 2, 3, 4, 5):
            n = signs.shape[axis] - apart
            products.append(signs.narrow(axis, 0, n) * signs.narrow(axis, apart, n))
    for rows, columns in ((0, 1), (2, 3)):  # a weight and its mirror image, each such pair once
        size = signs.shape[rows]
        above = torch.triu_indices(size, size, offset=1)
        mirrored = signs * signs.transpose(rows, columns)
        products.append(mirrored.movedim((rows, columns), (0, 1))[above[0], above[1]])
    for product in products:
        assert abs(product.sum().item()) < 5 * math.sqrt(product.numel())


def test_large_positions_and_seeds_do_not_alias_small_ones():
    def table(seed=0, b=0, q=0, k=0):
        return keep_mask(seed, range(b, b + 1), range(1), range(q, q + 32), range(k, k + 64), 0.5)

    near = table()
    for far in (
        table(seed=2**32), table(b=1), table(q=2**32), table(k=2**34), table(q=2**40), table(k=2**40)
    ):  # fmt: skip
        assert 0.4 < (near == far).double().mean() < 0.6


def test_nothing_is_dropped_at_0_and_almost_everything_just_below_1():
    sides = (range(2), range(2), range(50), range(50))
    assert keep_mask(0, *sides, 0.0).all()
    assert not keep_mask(0, *sides, 1 - 2**-40).any()
    assert 0 < keep_mask(0, *sides, 0.99).double().mean() < 0.02


def test_empty_index_sets_give_empty_masks():
    assert keep_mask(0, range(2), range(3), range(0), range(5), 0.5).shape == (2, 3, 0, 5)
    assert keep_mask(0, range(0), range(3), range(4), range(0), 0.5).shape == (0, 3, 4, 0)
    assert keep_mask(0, range(2), range(0), range(4), torch.empty(0).long(), 0.0).shape == (2, 0, 4, 0)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (dict(seed=-1), ValueError, "seed must be at least 0; got -1"),
        (dict(seed=2**64), ValueError, "seed must be below 2"),
        (dict(seed=1.0), TypeError, "seed must be an int; got float"),
        (dict(p=1.0), ValueError, "p must be at least 0 and below 1; got 1.0"),
        (dict(p=-0.1), ValueError, "p must be at least 0"),
        (dict(p=math.nan), ValueError, "p must be at least 0 and below 1; got nan"),
        (dict(p="half"), TypeError, "p must be a float; got str"),
        (dict(batch=[0]), TypeError, "batch must be a range or a tensor of integers; got list"),
        (dict(heads=torch.zeros(2)), TypeError, "heads must be .* got torch.float32"),
        (dict(heads=range(2**16 + 1)), ValueError, "heads must lie from 0 to 65535; got 0 to 65536"),
        (dict(q_positions=torch.zeros(2, 2).long()), ValueError, r"q_positions .*got shape \[2, 2\]"),
        (dict(q_positions=range(-1, 3)), ValueError, "q_positions must lie .*got -1 to 2"),
        (dict(k_positions=torch.tensor([2**48])), ValueError, "k_positions must lie from 0 to 2814"),
        (dict(k_positions=torch.tensor([True])), TypeError, "k_positions must .*got torch.bool"),
    ],
)
def test_bad_input_names_the_argument(bad, error, message):
    good = dict(
        seed=0, batch=range(1), heads=range(2), q_positions=range(3), k_positions=range(4), p=0.5
    )  # fmt: skip
    with pytest.raises(error, match=message):
        keep_mask(**(good | bad))
