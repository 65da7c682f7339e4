"""Six bugs that shipped in key/value caches of real projects, each as a short function.

Each says what a query finds in a cache for sliding-window attention, or attends to it, and each is right on
short inputs: `tests/ring/test_ring_wild_bugs.py` holds the case that exposes it. Every one is an exercise, in
`attnlab.exercises.ring`, `ring_more` or, for rows that see nothing, `tiles`. `chunks_that_fill_the_ring` is
the last bug once more, from the side of the caller. W, ``window``, counts the keys that a query sees, its own
included.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

__all__ = [
    "chunk_larger_than_window",
    "chunks_that_fill_the_ring",
    "padding_takes_room",
    "roll_too_early",
    "slots_as_positions",
    "softmax_of_nothing",
    "window_and_one",
]


def slots_as_positions(position: int, written: int, window: int) -> Int64[np.ndarray, " seen"]:
    """List the slots of a ring of W that the query at `position` may read, lowest first. It has a bug.

    The mask is a causal one cut to the length of the ring, so slots are compared as if they were positions
    (Lightning-AI/litgpt issue 2182). A prompt longer than the ring has by then overwritten its own beginning.

    Parameters
    ----------
    position : int
        Of the query.
    written : int
        Tokens written so far; token p went to slot p mod W.
    window : int
        W.
    """
    slots = np.arange(min(written, window))
    return slots[slots <= position]


def roll_too_early(tokens: int, window: int) -> Int64[np.ndarray, " window"]:
    """List what lies in a cache of W rows that is shifted left when it is full, oldest first. It has a bug.

    The shift is due when the token at position W arrives, and comes one step sooner, with the token that
    fills the last free row (huggingface/transformers issue 37574). Positions stand for keys, -1 for a row
    that was never written.

    Parameters
    ----------
    tokens : int
        Tokens that have arrived, one at a time.
    window : int
        W.
    """
    rows = np.full(window, -1)
    for position in range(tokens):
        if position >= window - 1:
            rows = np.roll(rows, -1)
        rows[min(position, window - 1)] = position
    return rows


def window_and_one(position: int, window: int) -> Int64[np.ndarray, " seen"]:
    """List the keys that a query sees, oldest first. It has a bug.

    The window is taken as the keys before the query, to which its own is added: W + 1 of them. FlashAttention
    counts so, and transformers handed it the window unchanged (huggingface/transformers pull request 40163);
    elsewhere a mask was built so, beside a cache that kept W rows (ml-explore/mlx-lm pull request 390).

    Parameters
    ----------
    position : int
        Of the query.
    window : int
        W.
    """
    return np.arange(max(0, position - window), position + 1)


def padding_takes_room(padded: Bool[np.ndarray, " tokens"], window: int) -> Int64[np.ndarray, " seen"]:
    """List the tokens of a prompt that lie in a cache of W rows and are attended to. It has a bug.

    Prompts of one batch are padded to one length, and the padding is stored as if it were text
    (ml-explore/mlx-lm issue 439): no bit tells a row of padding from a real one.

    Parameters
    ----------
    padded : bool [T]
        True where the prompt holds padding.
    window : int
        W.
    """
    return np.arange(max(0, padded.size - window), padded.size)


def softmax_of_nothing(
    scores: Float[np.ndarray, "rows keys"], values: Float[np.ndarray, "keys head_dim"]
) -> Float64[np.ndarray, "rows head_dim"]:
    """Attend: softmax over the keys, -inf where one is hidden. It has a bug.

    A row in which every key is hidden has the maximum -inf, and -inf - -inf is not a number. Prompts longer
    than the window left such rows behind (lablup/mlxcel pull request 412).

    Parameters
    ----------
    scores : float [L, n]
    values : float [n, D]
    """
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return (weights / weights.sum(axis=1, keepdims=True)) @ values


def chunk_larger_than_window(
    chunks: Sequence[int], window: int, capacity: int
) -> list[Int64[np.ndarray, " seen"]]:
    """List the keys that each query finds in a ring, chunk by chunk, oldest first. It has a bug.

    A chunk is written whole and then read. With two windows of room, a chunk larger than the window writes
    over keys that its own first queries still see (pytorch/executorch pull request 20346): the mask knows
    positions, so nothing wrong is read, but what was overwritten is missing.

    Parameters
    ----------
    chunks : sequence of int
        Tokens of each call.
    window, capacity : int
        W and C.
    """
    ring = np.full(capacity, -1)
    found, written = [], 0
    for size in chunks:
        positions = np.arange(written, written + size)
        for position in positions:
            ring[position % capacity] = position
        written += size
        held = np.sort(ring[ring >= 0])
        found += [held[(held <= p) & (held > p - window)] for p in positions]
    return found


def chunks_that_fill_the_ring(tokens: int, window: int, capacity: int) -> list[int]:
    """List the sizes of the chunks in which tokens enter a ring that has long been full. It has a bug.

    A chunk may be as large as the ring, which is what the caller of `chunk_larger_than_window` relied on
    (pytorch/executorch pull request 20346).

    Parameters
    ----------
    tokens : int
        Tokens that arrive.
    window, capacity : int
        W and C.
    """
    return [min(capacity, tokens - start) for start in range(0, tokens, capacity)]
