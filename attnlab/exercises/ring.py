"""Exercises on ring buffers: two laws, two bugs that shipped, and a decoder that guesses and takes back.

Each is called with the reader's function, ``check_positions(position_of_slot)``, and
``check_positions.hints`` holds its hints.
"""

from __future__ import annotations

from attnlab.exercises import ring_cases as cases
from attnlab.exercises.check import Exercise
from attnlab.exercises.result import Hints

__all__ = ["check_capacity", "check_positions", "check_rollback", "check_rolling", "check_slots"]

check_positions = Exercise(
    name="position_of_slot",
    level="fill in",
    task=(
        "Token p is written to slot p mod C. Write position_of_slot(slots, written, capacity): with n "
        "tokens written, which position does each of these slots hold now? A formula is enough, and no loop "
        "is needed."
    ),
    returns="the position that each slot holds, and -1 for a slot that was never written",
    hints=Hints(
        [
            "The newest token is at position n - 1. How many tokens ago was a slot written, if it is one to "
            "the left of the newest token's slot? And if it is one to the right?",
            "That number of tokens lies between 0 and C - 1, and it falls by one with each slot to the "
            "right. Python's `%` brings any integer into that range.",
            "`back = (written - 1 - slots) % capacity`. What is n - 1 - back in a slot that was never "
            "written?",
        ]
    ),
    cases=cases.positions_cases,
    inputs=cases.positions_inputs,
)

check_capacity = Exercise(
    name="capacity_suffices",
    level="fill in",
    task=(
        "A chunk is written to the ring whole; then its queries look back, each at W keys, its own "
        "included. Write capacity_suffices(capacity, window, chunks): can an endless stream of chunks of "
        "these sizes, in any order, be served from so many slots, with every key still there when its last "
        "query comes?"
    ),
    returns="True if no key is ever overwritten too soon, and False otherwise",
    hints=Hints(
        [
            "Which query of a chunk looks back furthest, and how far before the chunk does it look?",
            "When that query looks, the whole chunk has been written. How many different tokens must lie in "
            "the ring at that moment?",
            "W - 1 keys from before the chunk, and the chunk. Sizes may come in any order, so the largest "
            "counts.",
        ]
    ),
    cases=cases.capacity_cases,
    inputs=cases.capacity_inputs,
)

check_slots = Exercise(
    name="visible_slots",
    level="find the bug",
    task=(
        "Repair slots_as_positions(position, written, window) as visible_slots: which slots of a ring of W "
        "may the query at `position` read, after n tokens were written? Those that hold one of the W keys "
        "up to its own."
    ),
    returns="a list of slots, lowest first",
    hints=Hints(
        [
            "Run the check on `slots_as_positions` itself. The picture shows which position lies in each "
            "slot. Which of those that were read lie ahead of the query?",
            "The function compares `slots` with `position`. Are they counted from the same place once the "
            "ring has wrapped?",
            "Find the position that each slot holds, as in the first exercise, and compare that with the "
            "query's. A slot that was never written is at -1.",
        ]
    ),
    cases=cases.slots_cases,
    inputs=cases.slots_inputs,
)

check_rolling = Exercise(
    name="rolling_rows",
    level="find the bug",
    task=(
        "A cache without a ring shifts its W rows to the left to make room. Repair roll_too_early(tokens, "
        "window) as rolling_rows, which lists the position in each row after so many single steps."
    ),
    returns="a list of W positions, oldest first, and -1 in rows that were never written",
    hints=Hints(
        [
            "Run the check on `roll_too_early` itself. At which number of tokens is it wrong for the first "
            "time, and how many rows were free just before?",
            "The token at position W - 1 still finds a free row. Which is the first that does not?",
            "One comparison has to change. Positions count from 0, so W tokens fit before anything has to "
            "leave.",
        ]
    ),
    cases=cases.rolling_cases,
    inputs=cases.rolling_inputs,
)

check_rollback = Exercise(
    name="positions_after",
    level="open",
    task=(
        "A decoder writes guesses (+k: k tokens at once) and takes back those that were wrong (-k: the last "
        "k). The ring has been full for long. The window is 2 or more. Write positions_after(steps, "
        "written, window, capacity): the number of tokens after each step. A step after which some query "
        "would miss a key is not taken: for +k that is the first of the k, for -k the next token that will "
        "come. Nothing ever restores an overwritten key."
    ),
    returns="a list with the position after each step, unchanged by a step that is not taken",
    hints=Hints(
        [
            "Taking back moves a pointer and no key. Which slots were overwritten depends on how far "
            "the pointer has ever been.",
            "Keep two numbers: the position n, and h, the largest n there has been. The slots hold the "
            "tokens from h - C on. Which is the oldest key that the next query, at p, will ask for?",
            "+k is safe if the cache law holds for a chunk of k. Going back to p is safe if `p - window "
            "+ 1 >= highest - capacity`. Update `highest` only when a step is taken.",
        ]
    ),
    cases=cases.rollback_cases,
    inputs=cases.rollback_inputs,
)
