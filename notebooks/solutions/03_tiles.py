# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Solutions to 03 · Tiles
#
# One solution for each exercise of notebook 03, why it works, and its check. There are others: a check knows nothing
# of how a function finds its answer, only what it returns, whether it leaves its input alone and, in the first
# exercise, how much memory it takes. The notebook runs in well under a minute on a laptop CPU.

# %%
from itertools import product

import numpy as np

from attnlab.exercises.tiles import check_attend, check_blocks, check_kinds, check_merge
from attnlab.exercises.tiles_bugs import merge_from_nothing, softmax_in_each_tile
from attnlab.masks import causal, sliding_window
from attnlab.show import show_source
from attnlab.tiles import tile_map

# %% [markdown]
# ## Fill in: skip, edge or dense, from the corners
#
# For one row of tiles under a causal window, say what each tile is, without looking at its entries.


# %%
def kinds_of_row(row, tile, tokens, window):
    q0, q1 = row * tile, min((row + 1) * tile, tokens) - 1
    k0 = np.arange(0, tokens, tile)
    k1 = np.minimum(k0 + tile, tokens) - 1
    some = (k0 <= q1) & (k1 > q0 - window)
    every = (k1 <= q0) & (k0 > q1 - window)
    whole = (q1 - q0 == tile - 1) & (k1 - k0 == tile - 1)
    return np.where(every & whole, 2, some.astype(int)).tolist()


check_kinds(kinds_of_row)

# %% [markdown]
# A pair is hidden for one of two reasons: the key lies ahead of the query, or it is too old for it. The pair in a
# tile that is least likely to lie ahead is the last query with the first key, and the pair least likely to be too old
# is the first query with the last key. If either is hidden, for its reason, then so is all of the tile. If neither
# is, something is visible: the two boundaries of the window run side by side, W keys apart, and a tile that reaches
# past both of them the right way holds a piece of the band between them. For dense the corners change places: the
# pair most likely to lie ahead and the pair most likely to be too old must both be visible.
#
# Two comparisons for each tile take the place of tile × tile entries. A tile that the end of the sequence cuts off
# lacks entries, so a kernel treats it as an edge.

# %% [markdown]
# ## Find the bug: softmax in each tile, and no merge
#
# Find out what is wrong with `softmax_in_each_tile`, and repair it.

# %%
show_source(softmax_in_each_tile)

# %%
check_attend(softmax_in_each_tile)

# %% [markdown]
# Four equal scores should give the mean of four values. The function gives the sum of two means: the weights of each
# tile add up to 1, so all weights add up to the number of tiles. To divide by that number would mend this input and
# no other, since a tile with large scores must count for more than one with small scores.


# %%
def attend_in_tiles(scores, values, tile):
    m, total, out = -np.inf, 0.0, np.zeros(values.shape[1])
    for start in range(0, len(scores), tile):
        part = scores[start : start + tile]
        larger = max(m, part.max())
        shrink, weights = np.exp(m - larger), np.exp(part - larger)
        total = shrink * total + weights.sum()
        out = shrink * out + weights @ values[start : start + tile]
        m = larger
    return out / total


check_attend(attend_in_tiles)

# %% [markdown]
# Three numbers are carried from tile to tile: the largest score so far, and two sums that were taken with that score
# subtracted. When a tile brings a larger one, the sums are brought to the new scale by one factor. Division comes
# once, at the end. In the first tile m is -inf, and exp(-inf - larger) is 0, which is right: there is nothing yet to
# carry over.

# %% [markdown]
# ## Find the bug: a merge that starts from nothing
#
# `merge_from_nothing` is the function above, and keys may be hidden now.

# %%
show_source(merge_from_nothing)

# %%
check_merge(merge_from_nothing)


# %%
def merge_in_tiles(scores, values, tile):
    m, total, out = -np.inf, 0.0, np.zeros(values.shape[1])
    for start in range(0, len(scores), tile):
        part = scores[start : start + tile]
        larger = max(m, part.max())
        safe = 0.0 if larger == -np.inf else larger
        shrink, weights = np.exp(m - safe), np.exp(part - safe)
        total = shrink * total + weights.sum()
        out = shrink * out + weights @ values[start : start + tile]
        m = larger
    return out / total if total > 0 else out


check_merge(merge_in_tiles)

# %% [markdown]
# While a query has seen nothing, its largest score is -inf, and -inf - -inf is not a number. What is subtracted need
# not be the maximum: any finite number gives the same result, and the maximum is chosen only so that nothing
# overflows. With 0 in its place every weight is exp(-inf) = 0, and nothing is added, as it should be.
#
# It happens in ordinary use. The last query of an edge tile may see all of it while the first sees nothing, and a row
# of padding sees nothing anywhere. Such a row has no softmax; the convention here is output 0 and log-sum-exp -inf,
# which is what a merge leaves unchanged. Replacing NaN by 0 at the very end is no cure: in the first case of the
# check it throws away what the second tile had to say.

# %% [markdown]
# ## Open: blocks and order that move the least
#
# Choose the two blocks and the order for a chip on which one tile each of Q, K, V and O must fit.


# %%
def best_blocks(tokens, window, head_dim, sizes, most_rows):
    choices = []
    for block_q, block_kv in product(sizes, sizes):
        if 2 * (block_q + block_kv) <= most_rows:
            tiles = tile_map(causal() & sliding_window(window), tokens, tokens, (block_q, block_kv))
            for place, order in enumerate(("q", "k")):
                moved = tiles.traffic(order, head_dim, bytes_per_element=2).bytes
                choices.append((moved, block_q, block_kv, place))
    return list(min(choices)[1:])


check_blocks(best_blocks)

# %% [markdown]
# In Q-major order each tile of Q and O crosses once, and keys and values are loaded for every row of tiles that sees
# them. A higher tile means fewer such rows, so room on the chip is best spent on block_q; block_kv can be small, and
# a small one also wastes less at the two edges of the window. In K-major order the sides change places, and Q and the
# unfinished (m, l, O) are what travels. As m, l and O are kept in four bytes, and have to leave the chip and come
# back, that is the dearer kind of traffic, and a forward pass keeps queries on the chip wherever it can. Look at the
# cases in which the check expects 1: there the key tile holds everything its queries see, and nothing has to come
# back.
#
# A square tile, which many kernels use, is not the best in this model. Nor is the model the whole of a chip: it says
# nothing of how well a small tile fills the units that multiply.
