"""The replayed search is the package's own: it ends where the change is, and reads little."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.show.search import search_replay, steps


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from([40, 1024, 3000]))
def test_the_search_ends_at_the_change(seed, tokens):
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(1, tokens), rng.integers(1, 200, tokens - 1))[:tokens].astype(np.int32)
    changes = np.flatnonzero(ids[1:] != ids[:-1])
    if not changes.size:
        return
    k = int(rng.integers(changes.size))
    trail = list(steps(ids, k))
    assert trail[-1].low == changes[k] and trail[-1].high == changes[k] + 1
    scale = {0: 1024, 1: 32, 2: 1}
    for step in trail:
        assert step.low * scale[step.level] <= changes[k] < step.high * scale[step.level]
        assert step.rank == k - np.count_nonzero(changes < step.low * scale[step.level])


def test_it_reads_two_descents_and_a_bisection():
    ids = np.repeat(np.arange(1, 9, dtype=np.int32), 512)
    blocks = ids.size // 1024
    assert list(steps(ids, 3))[-1].read == blocks.bit_length() + 31 + 2 * 31


def test_every_step_is_a_frame_with_a_sentence():
    ids = np.repeat(np.arange(1, 9, dtype=np.int32), 300)
    replayed = search_replay(ids, 2)
    sentences = [replayed.frame(i).sentence for i in range(len(list(steps(ids, 2))))]
    assert len(set(sentences)) == len(sentences)
    assert sentences[-1].startswith("Found: the id changes after token 899.")


@pytest.mark.unchecked
@pytest.mark.parametrize("k", [-1, 7])
def test_a_change_that_is_not_there_is_named(k):
    with pytest.raises(ValueError, match="k must be between 0 and 6"):
        search_replay(np.repeat(np.arange(1, 9, dtype=np.int32), 300), k)
