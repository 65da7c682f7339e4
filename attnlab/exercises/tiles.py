"""Exercises on tiles: classify them by their corners, merge them without losing a row, choose their size.

Each is called with the reader's function, ``check_kinds(kinds_of_row)``, and ``check_kinds.hints`` holds its
hints.
"""

from __future__ import annotations

from attnlab.exercises import tiles_cases as cases
from attnlab.exercises.check import Exercise
from attnlab.exercises.result import Hints
from attnlab.exercises.tiles_numbers import NumberExercise

__all__ = ["check_attend", "check_blocks", "check_kinds", "check_merge"]

check_kinds = Exercise(
    name="kinds_of_row",
    level="fill in",
    task=(
        "Query p sees the keys p - W < k <= p. Write kinds_of_row(row, tile, tokens, window): for each key "
        "tile, from left to right, what this row of query tiles finds there. 0 is skip: nothing is visible. "
        "2 is dense: all tile * tile entries are visible. 1 is edge: anything between, and a tile with "
        "visible entries that the end of the sequence cuts off. Neither a table of entries nor one of "
        "queries by tiles is allowed."
    ),
    returns="a list with 0, 1 or 2 for each key tile",
    hints=Hints(
        [
            "Along a row of the mask the visible keys are one run, and the run moves to the right by one "
            "with each query. So the first and the last query of a tile decide.",
            "A tile has something visible if its oldest key is not ahead of the last query, and its newest "
            "key is not too old for the first query. When is everything visible? Swap the corners.",
            "With q0, q1 and k0, k1 the first and last positions of a tile: visible if `k0 <= q1` and `k1 > "
            "q0 - window`; all visible if `k1 <= q0` and `k0 > q1 - window`. Clip q1 and k1 to the "
            "sequence, and let a tile that was clipped not be dense.",
        ]
    ),
    cases=cases.kinds_cases,
    inputs=cases.kinds_inputs,
)

check_attend = NumberExercise(
    name="attend_in_tiles",
    level="find the bug",
    task=(
        "Repair softmax_in_each_tile(scores, values, tile) as attend_in_tiles: the output of one query, "
        "softmax over all its keys, computed one tile at a time."
    ),
    returns="a float64 array, the average of the values by softmax of the scores",
    hints=Hints(
        [
            "Run the check on `softmax_in_each_tile` itself. How much do the weights of one tile add up to "
            "there, and how much do all weights together?",
            "Divide once, at the end. For that, the weights of all tiles must be on one scale, and each "
            "tile took off its own maximum.",
            "Carry m, l and O along: the largest score so far, the sum of exp(score - m), and the same sum "
            "over values. When m grows by a tile, multiply l and O by exp(old m - new m) before adding to "
            "them.",
        ]
    ),
    cases=cases.attend_cases,
    inputs=cases.attend_inputs,
    exact=cases.attend,
)

check_merge = NumberExercise(
    name="merge_in_tiles",
    level="find the bug",
    task=(
        "merge_from_nothing(scores, values, tile) carries (m, l, O) along. Hidden keys have the score -inf. "
        "Repair it as merge_in_tiles: also where the query sees nothing in a tile, and 0 where it sees "
        "nothing at all."
    ),
    returns="a float64 array, the average of the values by softmax of the scores, or 0 if all is hidden",
    hints=Hints(
        [
            "Run the check on `merge_from_nothing` itself. Follow `larger` through a tile in which "
            "everything is hidden. What is subtracted from what?",
            "-inf - -inf is not a number, and once it is in O it stays. A row that has seen nothing may "
            "take off any finite number instead of its maximum.",
            "`safe = 0.0 if larger == -np.inf else larger`, and subtract that: exp(-inf - 0) is 0, as it "
            "should be. At the end l is 0 if nothing was seen, and then there is nothing to divide.",
        ]
    ),
    cases=cases.merge_cases,
    inputs=cases.merge_inputs,
    exact=cases.attend,
)

check_blocks = Exercise(
    name="best_blocks",
    level="open",
    task=(
        "A forward pass under a causal window visits tiles of block_q queries by block_kv keys, Q-major or "
        "K-major. The chip holds one tile each of Q, K, V and O: 2 * (block_q + block_kv) rows, and at most "
        "most_rows. Write best_blocks(tokens, window, head_dim, sizes, most_rows): the two blocks, out of "
        "sizes, and the order that move the fewest bytes, with 2 bytes for each number. Anything in attnlab "
        "may be used. Where bytes are equal, take the smaller block_q, then the smaller block_kv, then "
        "Q-major."
    ),
    returns="a list of three numbers: block_q, block_kv, and 0 for Q-major or 1 for K-major",
    hints=Hints(
        [
            "The two sides are not alike. In each order, which tiles are loaded once, and which again and "
            "again? Which side should then be large?",
            "`attnlab.tiles.tile_map` takes a pair (block_q, block_kv), and the map it returns can count "
            "what it moves.",
            "`tile_map(causal() & sliding_window(window), tokens, tokens, (q, kv)).traffic(order, head_dim, "
            "2).bytes`, with `order` q or k. `min` over tuples that begin with the bytes settles ties as "
            "well.",
        ]
    ),
    cases=cases.blocks_cases,
    inputs=cases.blocks_inputs,
)
