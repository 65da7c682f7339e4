"""Exercises on packed sequences: count lengths, find two bugs that shipped, find starts by reading little.

Each is called with the reader's function, ``check_lengths(lengths)``, and ``check_lengths.hints`` holds its
hints.
"""

from __future__ import annotations

from attnlab.exercises import segments_cases as cases
from attnlab.exercises.check import Exercise
from attnlab.exercises.result import Hints

__all__ = ["check_lengths", "check_offsets", "check_starts", "check_valid"]

check_lengths = Exercise(
    name="lengths",
    level="fill in",
    task=(
        "Write lengths(segment_ids, max_segments): how many tokens of each id 1..S one row holds, for the "
        "price of a few passes over the row. A table of tokens by tokens, or of tokens by ids, is too large."
    ),
    returns="an int32 array of max_segments entries, the number of tokens of id s at index s - 1",
    hints=Hints(
        [
            "Counting does not care about order. Keep one counter for each id, and look at each token once.",
            "Padding is an id like any other until the end: give it a counter too, and throw that away.",
            "`np.bincount` counts. Look up what its argument `minlength` is for, and which dtype it returns.",
        ]
    ),
    cases=cases.lengths_cases,
    inputs=cases.lengths_inputs,
)

check_offsets = Exercise(
    name="offsets",
    level="find the bug",
    task=(
        "Repair offsets_keep_trimmed(segment_ids, visible, max_segments). A kernel pairs the k-th start with "
        "the k-th length that is not 0, and lengths count visible tokens only."
    ),
    returns=(
        "an int32 array of max_segments + 1 entries: where the first visible token of each segment that has "
        "one stands, in order of appearance, then -1"
    ),
    hints=Hints(
        [
            "Run the check on `offsets_keep_trimmed` itself. In the picture, which bracket is the first to "
            "be wrong, and at whose start does it stand?",
            "The lengths are counted on the tokens that are visible. On which tokens are the starts found?",
            "A token that takes no part is as good as padding. `np.where` can make it so, before all else.",
        ]
    ),
    cases=cases.offsets_cases,
    inputs=cases.offsets_inputs,
)

check_valid = Exercise(
    name="row_is_valid",
    level="find the bug",
    task=(
        "lengths_trust_order gives numbers for any row, also for one whose lengths and starts do not belong "
        "together. Write row_is_valid(segment_ids, max_segments), which tells: ids lie in 1..S, each id is "
        "one run, and ids increase from left to right. Padding may stand before, between and after segments."
    ),
    returns="True where lengths and starts can be trusted, and False where they cannot",
    hints=Hints(
        [
            "Write down the id of each run from left to right, leaving padding out. What does that list look "
            "like for a good row, for a hole `1 1 0 1`, for a repeat `1 2 1`, and for `2 1`?",
            "A hole and a repeat both put an id into the list a second time. Can a list in which every entry "
            "is larger than the one before hold an id twice?",
            "A run begins where a token differs from the one before it and is not 0. Compare the ids at "
            "those places with their neighbours, and the largest with `max_segments`.",
        ]
    ),
    cases=cases.valid_cases,
    inputs=cases.valid_inputs,
)

check_starts = Exercise(
    name="starts_from_sorted",
    level="open",
    task=(
        "Ids increase along the row, and padding stands only at its tail. Write starts_from_sorted(row, "
        "max_segments), which finds all starts and reads O(S log T) tokens. The row counts: len(row) is "
        "free, and row[i] is one read."
    ),
    returns="a list with the start of each segment that occurs, in order of appearance",
    hints=Hints(
        [
            "The segment with id s starts at the first token whose id is at least s. What lies between two "
            "such places need not be read.",
            "Padding is 0, but it stands behind the largest id. As what should a search count it, for the "
            "row to be sorted?",
            "Keep two bounds, `low` and `high`, and halve what lies between; `bisect.bisect_left` with a "
            "`key` does that too. At the place you find, check whether id s occurs at all.",
        ]
    ),
    cases=cases.starts_cases,
    inputs=cases.starts_inputs,
)
