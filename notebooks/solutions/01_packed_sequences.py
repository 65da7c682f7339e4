# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Solutions to 01 · Packed sequences
#
# One solution for each exercise of notebook 01, why it works, and its check. There are others: a check knows nothing
# of how a function finds its answer, only what it returns, whether it leaves its input alone, how much memory it takes
# and, in the last exercise, how many tokens it reads. If yours passes, compare it with the one here for length and for
# what it costs. The notebook runs in about ten seconds on a laptop CPU.

# %%
import bisect

import numpy as np

from attnlab.exercises.segments import check_lengths, check_offsets, check_starts, check_valid
from attnlab.exercises.segments_bugs import lengths_trust_order, offsets_keep_trimmed
from attnlab.show import segment_picture, show_source

# %% [markdown]
# ## Fill in: the length of each segment
#
# Count how many tokens of each id 1..S a row holds, with neither a table of tokens by tokens nor one of tokens by ids.


# %%
def lengths(segment_ids, max_segments):
    counts = np.bincount(segment_ids, minlength=max_segments + 1)
    return counts[1:].astype(np.int32)


check_lengths(lengths)

# %% [markdown]
# A count does not depend on order, so nothing has to be moved, sorted or compared: one pass over the row adds 1 to the
# counter of every id it meets. Padding has a counter too, number 0, and the slice drops it. `minlength` matters when
# the highest ids do not occur. Without it the result would be as long as the largest id in the row, and so would
# change its shape from row to row. `bincount` counts in 64-bit integers, and the kernels read 32-bit ones, hence the
# conversion at the end.
#
# The memory is one integer for each id, plus what NumPy needs to convert the row. Comparing every token with every id
# would have given the same numbers and taken S bytes for each token. On the long row of the check that is 2 MiB, and
# the check does not accept it.

# %% [markdown]
# ## Find the bug: a start that outlived its segment
#
# Find out why `offsets_keep_trimmed` shifts segments, and repair it. First let the check say what is wrong with it.

# %%
show_source(offsets_keep_trimmed)

# %%
check_offsets(offsets_keep_trimmed)

# %% [markdown]
# Look at the second bracket from the left in each half. Segment 2 has no visible token, so its length is 0 and a
# kernel skips it, and the next length belongs to segment 3. But the list of starts still holds the start of segment 2,
# and the length of segment 3 meets that. From there on every length meets the start of the segment before its own.


# %%
def offsets(segment_ids, visible, max_segments):
    seen = np.where(visible, segment_ids, 0)
    begins = (np.diff(seen, prepend=0) != 0) & (seen != 0)
    starts = np.flatnonzero(begins)
    offsets = np.full(max_segments + 1, -1, np.int32)
    offsets[: starts.size] = starts
    return offsets


check_offsets(offsets)

# %% [markdown]
# The lengths were counted on visible tokens, and the starts were found on all of them. Two lists that will be paired
# must come from the same row. A token that takes no part is as good as padding, so the first line turns it into
# padding, and the rest of the function stays as it was. The same line also mends a second fault with the same cause: a
# segment that loses tokens in front now starts at its first visible token.

# %% [markdown]
# ## Find the bug: a row that should have been refused
#
# `lengths_trust_order` gives two well-formed lists for any row. Write `row_is_valid`, which tells when they mean
# something.

# %%
show_source(lengths_trust_order)

# %% [markdown]
# Here is what it says of the row 1 1 0 1 with room for two segments: three tokens, the first of them at 0. A kernel
# that believes this attends to the padding at 2 and never sees the token at 3.

# %%
row = np.array([1, 1, 0, 1], np.int32)
segment_picture(row, *lengths_trust_order(row, 2), invalid=True)


# %%
def row_is_valid(segment_ids, max_segments):
    begins = (np.diff(segment_ids, prepend=0) != 0) & (segment_ids != 0)
    run_ids = segment_ids[begins]
    increasing = (np.diff(run_ids) > 0).all()
    return bool(increasing and run_ids.max(initial=0) <= max_segments)


check_valid(row_is_valid)

# %% [markdown]
# `run_ids` lists the id of every run from left to right, padding left out. In a good row it increases. A hole puts the
# same id into it twice in a row, a repeat brings an earlier id back, and a wrong order lets it fall: all three break
# one comparison of neighbours, because a list in which every entry is larger than the one before can hold no id twice.
# What is left is an id above S. As the list increases, its last entry would do, but the maximum with an initial value
# of 0 needs no special case for a row of nothing but padding. If ids increase and the largest is at most S, there are
# at most S of them, so one segment too many needs no test of its own. That was the mistake in the data loaders:
# they packed more segments into a row than the kernel had room for, and nothing between the two looked.

# %% [markdown]
# ## Open: find the starts and leave the row unread
#
# Ids increase, and padding stands only at the tail. Find all starts from O(S log T) tokens.


# %%
def starts_from_sorted(row, max_segments):
    def order(segment_id):
        return segment_id or max_segments + 1

    starts = []
    for segment_id in range(1, max_segments + 1):
        place = bisect.bisect_left(row, segment_id, key=order)
        if place < len(row) and row[place] == segment_id:
            starts.append(place)
    return starts


check_starts(starts_from_sorted)

# %% [markdown]
# The row is almost sorted. Only the padding is out of place, since it is 0 and stands at the end; `order` counts it as
# larger than every id, and then the row is sorted. Segment s starts at the first token whose id is at least s. Bisection
# finds that place by looking at the token in the middle and dropping one half, and so reads about log T tokens, which is
# 20 for a row of a million. If the token it finds has a larger id, or the row ends there, then segment s does not
# occur. This is done once for each id.
#
# The promise is what pays for it. A row that breaks the promise gets a wrong answer and no warning, because the tokens
# that would have told were never read. `attnlab.segments.promises` makes the same trade, and says so in its first
# lines.
