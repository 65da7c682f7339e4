"""The directory of changes against a plain list of them, around the block sizes 32 and 1024."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.segments import rank_select

FEW, MOST = 12, 96  # changes asked for


@partial(jax.jit, static_argnames="ranks")
def find_all(ids, positions, ranks=MOST):
    def reader(row):
        return lambda i: row.at[i].get(mode="clip", wrap_negative_indices=False)

    directory = rank_select.build(ids)
    index, blocks = rank_select.select(directory, reader(ids), jnp.arange(ranks, dtype=jnp.int32))
    rising = rank_select.all_increase(ids, positions, directory, reader(ids), reader(positions), blocks)
    return directory, index, blocks, rising


def row_with(tokens: int, changes: np.ndarray) -> np.ndarray:
    """Ids 1, 2, 1, 2, ... that change after each of the given tokens."""
    step = np.zeros(tokens, np.int32)
    step[changes + 1] = 1
    return 1 + step.cumsum(dtype=np.int32) % 2


def samples(tokens: int) -> list[np.ndarray]:
    pairs = tokens - 1
    few, many = (np.random.default_rng(tokens).permutation(pairs)[:n] for n in (5, MOST))
    at_edges = np.array(
        [i for edge in (32, 64, 1024, 2048) for i in (edge - 2, edge - 1, edge) if i < pairs], int
    )
    ends = np.array([0, pairs - 1])[: min(pairs, 2)]
    front, back = np.arange(pairs)[:FEW], np.arange(pairs)[-MOST:]
    return [np.sort(x) for x in (np.empty(0, int), few, many, at_edges, np.unique(ends), front, back)]


@pytest.mark.parametrize("tokens", [1, 2, 32, 33, 65, 1024, 1025, 1026, 2049])
def test_every_change_is_found(tokens):
    for changes in samples(tokens):
        ids = row_with(tokens, changes)
        directory, index, blocks, _ = find_all(ids, np.arange(tokens, dtype=np.int32))
        assert int(directory.coarse[-1]) == len(changes)
        assert directory.fine.dtype == jnp.uint8
        assert directory.fine.nbytes == -(-tokens // 1024) * 32
        np.testing.assert_array_equal(
            directory.fine, np.bincount(changes // 32, minlength=directory.fine.size), "per 32 tokens"
        )
        np.testing.assert_array_equal(index[: len(changes)], changes)
        np.testing.assert_array_equal(blocks[: len(changes)], changes // 32 * 32)


# With room for few changes only the blocks that hold one are looked at closely; with room for many, all are.
@pytest.mark.parametrize("ranks", [FEW, MOST])
@pytest.mark.parametrize("tokens", [2, 33, 1025, 2041])
def test_every_position_that_does_not_increase_is_noticed(tokens, ranks):
    for changes in samples(tokens):
        if len(changes) > ranks:
            continue
        ids = row_with(tokens, changes)
        free = np.arange(tokens, dtype=np.int32)
        # At a change the position may fall; at any other pair of tokens it may not even stay.
        for change in changes:
            free[change + 1 :] -= free[change + 1]
        assert find_all(ids, free, ranks)[3]
        inside = np.setdiff1d(np.arange(tokens - 1), changes)
        picked = np.random.default_rng(0).permutation(inside)[:20]
        for i in {*picked, *inside[:1], *inside[-1:], *(inside[inside % 32 == 31][:3])}:
            stuck = free.copy()
            stuck[i + 1 :] -= stuck[i + 1] - stuck[i]
            assert not find_all(ids, stuck, ranks)[3], i
            padded = np.where(ids == ids[i], 0, ids).astype(np.int32)
            assert find_all(padded, stuck, ranks)[3], i  # padding may have any position
