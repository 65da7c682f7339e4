"""The inputs of the exercises in `attnlab.exercises.ring_more`, each with its right answer.

Right answers come from the definition of a window, key by key, or from the cache law.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from attnlab.exercises.check import Case
from attnlab.exercises.ring_cases import join
from attnlab.show.picture import Picture


def _no_picture(answer: Any) -> list[Picture]:
    return []


def window_case(position: int, window: int, note: str = "") -> Case:
    """Ask for the keys that a query sees."""
    expected = [key for key in range(position + 1) if position - window < key]
    words = f"position = {position} and window = {window}"
    return Case((position, window), expected, words, _no_picture, note)


def window_cases() -> list[Case]:
    """Choose cases for `keys_seen`."""
    return [
        window_case(5, 4, "The query's own key is one of the 4."),
        window_case(3, 4, "The whole window has just been filled, and nothing has left it."),
        window_case(4, 4, "This is the first query that does not see key 0."),
        window_case(1, 4, "There are fewer keys than the window has room for."),
        window_case(0, 3),
        window_case(7, 1, "The window is the query's own key."),
        window_case(0, 1),
        window_case(20, 16),
    ]


window_inputs = st.builds(window_case, st.integers(0, 40), st.integers(1, 12))


def padding_case(flags: list[int], window: int, note: str = "") -> Case:
    """Ask for the keys that the newest token of a padded prompt attends to."""
    padded = np.array(flags, bool)
    expected = [key for key, flag in enumerate(flags) if key >= len(flags) - window and not flag]
    words = f"padded = {join(flags)} (1 is True) and window = {window}"
    return Case((padded, window), expected, words, _no_picture, note)


def padding_cases() -> list[Case]:
    """Choose cases for `keys_attended`."""
    return [
        padding_case([1, 1, 1, 1, 1, 0, 0, 0], 5, "Positions 3 and 4 lie in the window and hold padding."),
        padding_case([0, 0, 0, 0, 0, 0], 4, "There is no padding."),
        padding_case([1, 1, 0, 0, 0], 3, "The padding has left the window."),
        padding_case([1, 0, 0], 8, "The prompt is shorter than the window."),
        padding_case(
            [0, 0, 1, 0, 1, 0], 4, "Padding takes up room in the window, whether it is seen or not."
        ),
        padding_case([0, 0, 0, 1, 1], 3, "The newest token is padding itself."),
        padding_case([1, 1, 1], 2, "There is only padding, and nothing to attend to."),
        padding_case([1, 0], 1),
        padding_case([0], 1),
    ]


padding_inputs = st.builds(
    padding_case, st.lists(st.integers(0, 1), min_size=1, max_size=14), st.integers(1, 12)
)


def chunk_case(tokens: int, window: int, capacity: int, note: str = "") -> Case:
    """Ask for the largest chunks in which so many tokens can enter a ring that has long been full."""
    largest = capacity - window + 1
    expected = [min(largest, tokens - start) for start in range(0, tokens, largest)]
    words = f"tokens = {tokens}, window = {window} and capacity = {capacity}"
    return Case((tokens, window, capacity), expected, words, _no_picture, note)


def chunk_cases() -> list[Case]:
    """Choose cases for `safe_chunks`."""
    return [
        chunk_case(
            20,
            4,
            8,
            "A chunk of 8 takes every slot of this ring, and its first query still sees 3 older keys.",
        ),
        chunk_case(12, 4, 8, "The last chunk takes what is left."),
        chunk_case(10, 6, 10, "Larger chunks lose keys, and smaller ones are not needed."),
        chunk_case(3, 4, 8, "All tokens fit in one chunk."),
        chunk_case(5, 4, 8, "W + 1 tokens are as many as two windows of room allow."),
        chunk_case(6, 4, 8),
        chunk_case(4, 5, 5, "With no slot to spare, tokens enter one at a time."),
        chunk_case(7, 1, 3, "A query that sees only itself needs nothing from before."),
        chunk_case(0, 4, 8, "Nothing arrives."),
    ]


@st.composite
def _chunk_input(draw: Any) -> Case:
    window = draw(st.integers(1, 8))
    return chunk_case(draw(st.integers(0, 40)), window, window + draw(st.integers(0, 10)))


chunk_inputs = _chunk_input()
