"""Three more exercises on ring buffers, each on a bug that shipped: a window, padding, and a chunk too large.

Each is called with the reader's function, ``check_window(keys_seen)``, and ``check_window.hints`` holds its
hints. They answer in a sentence, without a picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnlab.exercises import ring_more_cases as cases
from attnlab.exercises.check import Exercise
from attnlab.exercises.result import Hints, Result

__all__ = ["SentenceExercise", "check_chunk", "check_padding", "check_window"]


@dataclass(frozen=True, repr=False)
class SentenceExercise(Exercise):
    """An exercise whose inputs are small enough to be understood from the sentence alone."""

    def __call__(self, fn: Any) -> Result:
        """Run `fn` as `Exercise` does, and leave the picture out."""
        found = super().__call__(fn)
        return Result(found.passed, found.sentence)


check_window = SentenceExercise(
    name="keys_seen",
    level="find the bug",
    task=(
        "A window of W shows W keys, the query's own included. Repair window_and_one(position, window) as "
        "keys_seen: the positions that the query at `position` sees."
    ),
    returns="a list of positions, oldest first",
    hints=Hints(
        [
            "Run the check on `window_and_one` itself, and count the keys that it gave.",
            "From a to b, both included, there are b - a + 1 positions. Which a gives W of them?",
        ]
    ),
    cases=cases.window_cases,
    inputs=cases.window_inputs,
)

check_padding = SentenceExercise(
    name="keys_attended",
    level="find the bug",
    task=(
        "Padding in a prompt takes a slot and a position like any token, and is never attended to. Repair "
        "padding_takes_room(padded, window) as keys_attended: the positions that the newest token attends "
        "to. `padded` is an array, True where the prompt holds padding."
    ),
    returns="a list of positions, oldest first",
    hints=Hints(
        [
            "Run the check on `padding_takes_room` itself. Which of the positions that it gave hold padding?",
            "The window is the last W positions, padded or not. Take it first, and leave out the padding "
            "after that. Who does it the other way round looks too far back.",
        ]
    ),
    cases=cases.padding_cases,
    inputs=cases.padding_inputs,
)

check_chunk = SentenceExercise(
    name="safe_chunks",
    level="find the bug",
    task=(
        "A ring of C slots has long been full, and more tokens arrive. Each chunk of them is written whole, "
        "and then its queries look back, each at W keys, its own included. Repair chunks_that_fill_the_ring("
        "tokens, window, capacity) as safe_chunks: the sizes of the chunks, each as large as it can be "
        "without any query missing a key. W is at most C."
    ),
    returns="a list of sizes that add up to the number of tokens",
    hints=Hints(
        [
            "Which query of a chunk looks back furthest, and how many keys from before the chunk does it "
            "see?",
            "Those W - 1 keys and the whole chunk must lie in the ring together. That is the cache law: how "
            "many tokens does it leave for a chunk?",
        ]
    ),
    cases=cases.chunk_cases,
    inputs=cases.chunk_inputs,
)
