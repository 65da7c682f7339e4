"""The inputs of the exercises on ring buffers, each with its right answer and its picture.

Right answers come from `attnlab.ring.laws`, or from a plain simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from attnlab.exercises.check import Case
from attnlab.exercises.ring_strip import Strip, strips
from attnlab.ring import laws
from attnlab.show.picture import Picture

capacities = st.integers(1, 12)


def plain(values: Any) -> list[int]:
    """The whole numbers of a list or an array, as Python's own."""
    return [int(value) for value in values]


def join(values: Sequence[object]) -> str:
    """Write values with spaces between them."""
    return " ".join(map(str, values)) if len(values) else "none"


def positions_case(slots: list[int], written: int, capacity: int, note: str = "") -> Case:
    """Ask which position each of these slots holds."""
    array = np.array(slots, np.int64)
    expected = plain(laws.position_of_slot(array, written, capacity))
    words = f"slots {join(slots)}, written = {written:,} and capacity = {capacity:,}"
    draw = partial(_draw_answer, "slot", slots, "position", expected)
    return Case((array, written, capacity), expected, words, draw, note)


def positions_cases() -> list[Case]:
    """Choose cases for `position_of_slot`."""
    return [
        positions_case([0, 1, 2, 3, 4], 7, 5),
        positions_case([0, 1, 2, 3, 4], 5, 5, "The ring is full, and nothing has been written over."),
        positions_case([0, 1, 2, 3, 4], 6, 5, "One token has been written over."),
        positions_case([0, 1, 2, 3, 4], 3, 5, "Two slots have not been reached yet."),
        positions_case([0, 1, 2], 0, 3, "Nothing has been written."),
        positions_case([0], 9, 1, "There is one slot."),
        positions_case([3, 0, 3], 11, 4, "Slots may be asked for in any order, and more than once."),
        positions_case([], 4, 4, "No slot is asked for."),
        positions_case([7, 2591, 0], 1_000_003, 2592),
    ]


@st.composite
def _positions_input(draw: Any) -> Case:
    capacity = draw(capacities)
    slots = draw(st.lists(st.integers(0, capacity - 1), max_size=8))
    return positions_case(slots, draw(st.integers(0, 60)), capacity)


positions_inputs = _positions_input()


def capacity_case(capacity: int, window: int, chunks: list[int], note: str = "") -> Case:
    """Ask whether a ring has slots enough for chunks of these sizes, which come in any order."""
    expected = capacity >= window - 1 + max(chunks)
    words = f"capacity = {capacity}, window = {window} and chunks of {join(chunks)}"
    draw = partial(_draw_capacity, capacity, window, max(chunks))
    return Case((capacity, window, chunks), expected, words, draw, note)


def capacity_cases() -> list[Case]:
    """Choose cases for `capacity_suffices`."""
    return [
        capacity_case(8, 5, [1, 4]),
        capacity_case(7, 5, [1, 4], "The first query of a chunk of 4 still sees 4 keys from before it."),
        capacity_case(8, 4, [8], "Two windows of room are not enough for a chunk of two windows."),
        capacity_case(8, 4, [4], "Two windows of room are enough for a chunk of one."),
        capacity_case(5, 5, [1], "Single steps need the window and no more."),
        capacity_case(4, 5, [1]),
        capacity_case(3, 1, [3], "A query that sees only itself needs nothing from before."),
        capacity_case(9, 4, [2, 7, 1], "The largest chunk need not come last."),
        capacity_case(2559, 2048, [512]),
        capacity_case(2558, 2048, [512]),
    ]


capacity_inputs = st.builds(
    capacity_case, st.integers(1, 16), st.integers(1, 9), st.lists(st.integers(1, 9), min_size=1, max_size=4)
)


def slots_case(position: int, written: int, window: int, note: str = "") -> Case:
    """Ask for the slots of a ring of W that the query at `position` may read."""
    held = laws.position_of_slot(np.arange(window), written, window)
    expected = plain(np.flatnonzero((held >= 0) & (held <= position) & (held > position - window)))
    words = f"position = {position}, written = {written} and window = {window}"
    return Case((position, written, window), expected, words, partial(_draw_slots, held, expected), note)


def slots_cases() -> list[Case]:
    """Choose cases for `visible_slots`."""
    return [
        slots_case(3, 6, 5, "Slot 0 holds position 5, which lies ahead of the query."),
        slots_case(3, 4, 5, "The ring has not wrapped yet, and slot 4 was never written."),
        slots_case(6, 7, 5, "The newest query sees the whole ring."),
        slots_case(7, 9, 4),
        slots_case(1, 6, 4, "All that this query saw has been overwritten: nothing is left to read."),
        slots_case(9, 12, 5, "A prompt of 12 was written in one call; slots 0 and 1 hold what came last."),
        slots_case(0, 1, 4),
        slots_case(9, 10, 1, "The ring is one slot."),
        slots_case(8, 9, 1),
    ]


@st.composite
def _slots_input(draw: Any) -> Case:
    written = draw(st.integers(1, 40))
    position = draw(st.integers(max(0, written - 12), written - 1))
    return slots_case(position, written, draw(capacities))


slots_inputs = _slots_input()


def rolling_case(tokens: int, window: int, note: str = "") -> Case:
    """Ask what lies in a cache that is shifted, after single steps."""
    kept = list(range(max(0, tokens - window), tokens))
    expected = kept + [-1] * (window - len(kept))
    draw = partial(_draw_answer, "row", list(range(window)), "expected", expected)
    return Case((tokens, window), expected, f"tokens = {tokens} and window = {window}", draw, note)


def rolling_cases() -> list[Case]:
    """Choose cases for `rolling_rows`."""
    return [
        rolling_case(2, 4),
        rolling_case(4, 4, "The token at position 3 fills the last row, and nothing has to leave yet."),
        rolling_case(5, 4, "Now the oldest has to leave."),
        rolling_case(0, 3, "Nothing has arrived."),
        rolling_case(1, 1, "The window is one token."),
        rolling_case(5, 1),
        rolling_case(3, 4),
        rolling_case(23, 8),
    ]


rolling_inputs = st.builds(rolling_case, st.integers(0, 40), st.integers(1, 12))


def rollback_case(steps: list[int], written: int, window: int, capacity: int, note: str = "") -> Case:
    """Ask for the position after each step of a guessing decoder."""
    expected, position, highest = [], written, written
    for step in steps:
        after = position + step
        safe = capacity >= window - 1 + step if step > 0 else after - window + 1 >= highest - capacity
        position = after if safe else position
        highest = max(highest, position)
        expected.append(position)
    said = join([f"{step:+d}" for step in steps])
    words = f"steps {said}, written = {written}, window = {window} and capacity = {capacity}"
    draw = partial(_draw_answer, "step", [f"{step:+d}" for step in steps], "position", expected)
    return Case((steps, written, window, capacity), expected, words, draw, note)


def rollback_cases() -> list[Case]:
    """Choose cases for `positions_after`."""
    return [
        rollback_case([4, -3, 1], 100, 8, 16),
        rollback_case([9, -9, 9], 100, 8, 16, "C - W + 1 tokens can be written at once, and all taken back."),
        rollback_case(
            [10], 100, 8, 16, "A guess of C - W + 2 tokens would fall on keys its first token sees."
        ),
        rollback_case(
            [6, 6, -10], 100, 8, 16, "After two guesses of 6, keys that position 102 sees are gone."
        ),
        rollback_case([6, -5, 3, -4, -2], 100, 8, 16),
        rollback_case(
            [9, -9, 2, -3], 100, 8, 16, "What was overwritten before a rollback does not come back."
        ),
        rollback_case([-9, -1], 100, 8, 16, "Also two small rollbacks may be too much together."),
        rollback_case([1, -1, -1], 50, 6, 6, "With no slot to spare, one token can be taken back, once."),
        rollback_case([], 40, 4, 8, "Nothing happens."),
        rollback_case([5, -6, 5, -1, 5, -9], 64, 4, 12),
    ]


@st.composite
def _rollback_input(draw: Any) -> Case:
    # What the law forbids is lost in fact if the ring has been full for long and a query sees more than its
    # own key, which need not be there yet when a rollback is decided.
    window = draw(st.integers(2, 6))
    capacity = window + draw(st.integers(0, 8))
    step = st.integers(-10, 10).filter(bool)
    return rollback_case(draw(st.lists(step, max_size=8)), draw(st.integers(60, 99)), window, capacity)


rollback_inputs = _rollback_input()


def _draw_answer(
    top: str, cells: Sequence[object], name: str, expected: Sequence[object], answer: Any
) -> list[Picture]:
    rows = [Strip(top, cells), Strip(name, expected)]
    if answer is not None:
        given = plain(answer)
        wrong = [i for i, value in enumerate(given) if i >= len(expected) or value != expected[i]]
        rows.append(Strip("your function", given, wrong))
    return [strips(rows, "What was asked, and what is right")]


def _draw_capacity(capacity: int, window: int, chunk: int, answer: Any) -> list[Picture]:
    first = window - 1
    held = laws.position_of_slot(np.arange(capacity), first + chunk, capacity)
    needed = [i for i, p in enumerate(held.tolist()) if 0 <= p < window]
    rows = [Strip("slot", range(capacity)), Strip("position", [p if p >= 0 else "" for p in held], needed)]
    title = f"After a chunk of {chunk} at position {first}: marked, what is left for its first query"
    return [strips(rows, title)]


def _draw_slots(held: np.ndarray, expected: list[int], answer: Any) -> list[Picture]:
    cells = [p if p >= 0 else "" for p in held.tolist()]
    rows = [Strip("slot", range(len(held))), Strip("expected", cells, expected)]
    if answer is not None:
        rows.append(Strip("your function", cells, plain(answer)))
    return [strips(rows, "The position in each slot: marked, what is read")]
