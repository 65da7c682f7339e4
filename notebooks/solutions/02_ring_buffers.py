# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Solutions to 02 · Ring buffers
#
# One solution for each exercise of notebook 02, why it works, and its check. There are others: a check knows nothing
# of how a function finds its answer, only what it returns and whether it leaves its input alone. The notebook runs in
# well under a minute on a laptop CPU.

# %%
import numpy as np

from attnlab.exercises.ring import (
    check_capacity,
    check_positions,
    check_rollback,
    check_rolling,
    check_slots,
)
from attnlab.exercises.ring_bugs import (
    chunks_that_fill_the_ring,
    padding_takes_room,
    roll_too_early,
    slots_as_positions,
    window_and_one,
)
from attnlab.exercises.ring_more import check_chunk, check_padding, check_window
from attnlab.show import show_source

# %% [markdown]
# ## Fill in: the position in a slot
#
# Token p is written to slot p mod C. Say which position each slot holds after n tokens.


# %%
def position_of_slot(slots, written, capacity):
    newest = written - 1
    back = (newest - slots) % capacity
    return np.maximum(newest - back, -1)


check_positions(position_of_slot)

# %% [markdown]
# The newest token is at n - 1. Going from its slot to the left, each slot was written one token earlier; at slot 0
# the walk goes on at the right end. So the number of tokens that lie between, `back`, is the distance between the two
# slots around the ring, and the remainder of a division is just that distance: it lies between 0 and C - 1 whatever
# the sign of what is divided. In NumPy and in Python it does; in C and on most chips the remainder takes the sign of
# the dividend, and C has to be added first.
#
# In the first round some slots have not been reached. The formula then goes back to before the beginning and gives a
# negative position, and all of those become -1.

# %% [markdown]
# ## Fill in: the cache law
#
# Say whether a ring of C slots can serve an endless stream of chunks whose sizes are given, in any order.


# %%
def capacity_suffices(capacity, window, chunks):
    return capacity >= window - 1 + max(chunks)


check_capacity(capacity_suffices)

# %% [markdown]
# A chunk is written whole, and then its queries look back. Its first query sees itself and the W - 1 keys before the
# chunk. At that moment those keys and the whole chunk must lie in the ring, W - 1 + ch different tokens, and they are
# neighbours in the sequence, so no two of them share a slot exactly if there are at least so many slots. Later
# queries of the chunk look back less far. As sizes may come in any order, the largest decides.
#
# For single steps, ch = 1, the law asks for W slots. Two windows of room, a common choice, serve chunks of up to W +
# 1 tokens. A runner that gave such a ring chunks of two windows lost the keys that the first W - 1 queries of each
# chunk still saw.

# %% [markdown]
# ## Find the bug: slots taken for positions
#
# Find out which slots `slots_as_positions` reads that it should not, and repair it. First let the check say what is
# wrong.

# %%
show_source(slots_as_positions)

# %%
check_slots(slots_as_positions)

# %% [markdown]
# The prompt had six tokens and the ring has five slots, so the last token lies in slot 0, over the first. The query
# at position 3 compares the number of the slot, 0, with its own position, 3, and reads what lies two tokens ahead of
# it. A model that is trained to predict the next token must not see it.


# %%
def visible_slots(position, written, window):
    held = position_of_slot(np.arange(window), written, window)
    return np.flatnonzero((held >= 0) & (held <= position))


check_slots(visible_slots)

# %% [markdown]
# A slot has no place in time. What counts is the position that it holds, and the first exercise gives that. Slots
# that were never written are left out. That a key is not too old needs no test here: a ring of W slots holds nothing
# older than W tokens before the newest, and no query comes after that. In a ring with more slots than the window it
# would.
#
# The repaired function no longer looks into the future, and it still cannot give the query what it should see,
# because that has been overwritten. Only the cache law prevents this: either more slots, or a prompt taken in
# chunks. The library in which this bug was found now refuses a prompt that is longer than the window; `RingCache`
# refuses a chunk that breaks the law.

# %% [markdown]
# ## Find the bug: wrong from the step that fills the window
#
# `roll_too_early` keeps the last W tokens by shifting rows. Find the step at which it goes wrong.

# %%
show_source(roll_too_early)

# %%
check_rolling(roll_too_early)


# %%
def rolling_rows(tokens, window):
    rows = np.full(window, -1)
    for position in range(tokens):
        if position >= window:
            rows = np.roll(rows, -1)
        rows[min(position, window - 1)] = position
    return rows


check_rolling(rolling_rows)

# %% [markdown]
# The token at position W - 1 is the W-th, and it still finds a free row. Shifting then throws out a key that is
# visible, and moves the free row into the middle, where it is attended to as if it were a key. The free row travels
# to the left with every step, and only when it has left, W - 1 steps later, is the cache right again. A test that
# looks at short sequences, or at long ones, sees nothing.
#
# One comparison was too early by one. Whoever counts tokens has W of them, whoever counts positions has W - 1, and a
# test of the step at which the two meet costs one line.

# %% [markdown]
# ## Find the bug: W or W + 1
#
# `window_and_one` counts the keys before the query and adds the query's own. Let a query see W keys in all.

# %%
check_window(window_and_one)


# %%
def keys_seen(position, window):
    return list(range(max(0, position - window + 1), position + 1))


check_window(keys_seen)

# %% [markdown]
# From a to b, both included, there are b - a + 1 positions. Where a library counts how far a query looks back, as
# FlashAttention does, W keys are a distance of W - 1. One key too many is hard to notice: the output changes little,
# and up to the W-th token not at all. A cache of W rows then no longer holds what such a mask asks for.

# %% [markdown]
# ## Find the bug: padding in the ring
#
# `padding_takes_room` lists what lies in the window, and some of it is padding. List what is attended to.

# %%
check_padding(padding_takes_room)


# %%
def keys_attended(padded, window):
    first = max(0, len(padded) - window)
    return first + np.flatnonzero(~padded[first:])


check_padding(keys_attended)

# %% [markdown]
# Padding keeps its slot and its position, so that all rows of a batch move in step, and one bit in each slot says
# that nobody may attend to it. The order matters: first the window, then the bits. A query that skipped padding and
# looked further back until it had W keys would see tokens that have left the window. If all of the window is padding,
# the list is empty, and attention must give 0 there and not NaN.

# %% [markdown]
# ## Find the bug: a chunk larger than the window
#
# `chunks_that_fill_the_ring` feeds a full ring with chunks as large as the ring. Make them as large as is safe.

# %%
check_chunk(chunks_that_fill_the_ring)


# %%
def safe_chunks(tokens, window, capacity):
    largest = capacity - (window - 1)
    whole, rest = divmod(tokens, largest)
    return [largest] * whole + [rest] * (rest > 0)


check_chunk(safe_chunks)

# %% [markdown]
# The cache law, C >= W - 1 + ch, solved for ch. With two windows of room a chunk may have W + 1 tokens; where this
# was found, chunks had 2W, and the repair gives them W. Nothing fails loudly when a chunk is too large, for the mask
# compares positions and never lets a query read a wrong key. The key is just not there.

# %% [markdown]
# ## Open: guess, and take back
#
# A decoder writes several guesses at once and takes back those that were wrong. Say after each step where it stands,
# and leave out the steps that would lose a key.


# %%
def positions_after(steps, written, window, capacity):
    position = highest = written
    positions = []
    for step in steps:
        after = position + step
        if step > 0:
            safe = capacity >= window - 1 + step
        else:
            safe = after - window + 1 >= highest - capacity
        if safe:
            position = after
            highest = max(highest, position)
        positions.append(position)
    return positions


check_rollback(positions_after)

# %% [markdown]
# Taking back moves the pointers, and no key is moved or erased. What was overwritten stays overwritten. With h the most
# tokens there have ever been, and not the present number, the slots hold the positions h - C to h - 1. With p tokens
# left, the next query stands at p and sees keys from p - W + 1 on. Both together are the rollback law,
# p - W + 1 >= h - C.
#
# Counted from h, no more than C - W + 1 tokens can be taken back, in however many steps; and no more than C - W + 1
# can be written at once. That is the budget of a guessing decoder, and one number, h, which the ring must also keep
# when it is saved and loaded, is what makes it safe. `RingCache.rollback` counts in the same way.
