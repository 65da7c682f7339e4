# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] slideshow={"slide_type": "slide"}
# # 03 · Tiles
#
# *Which parts of the score matrix need computing, and in what order?*
#
# Attention scores every query against every key. With a **sliding window** a query may look only at the last W keys,
# its own included, so for a long sequence most scores are computed to be thrown away. A **kernel**, the program that a
# device runs for one operation, does not work score by score, though. It works on **tiles**: squares of the score
# matrix, small enough for the fast memory of one core. So the question is not which scores are needed but which tiles
# are, and a tile can be needed in part. The next cell counts them for one head of a long sequence.

# %% slideshow={"slide_type": "fragment"}
from attnlab.ring.tiled import window_mask
from attnlab.tiles import tile_map

S, W, T = 32_768, 1_024, 128
long = tile_map(window_mask(W, causal=True), S, S, T)
print(f"S = {S:,} tokens, a window of {W:,} keys, tiles of {T} x {T}:")
print(f"  the score matrix in float32: {4 * S * S / 2**30:.0f} GiB for each head")
print(f"  {long.kinds.size:,} tiles in all")
print(f"  {long.n_visited:,} tiles hold a score that is needed ({long.n_visited / long.kinds.size:.1%})")
print(f"  {long.n_edge:,} of those need a mask at all ({long.n_edge / long.n_visited:.0%})")

# %% [markdown] slideshow={"slide_type": "subslide"}
# In this notebook we compute those tiles and no others, and get what full attention with a mask gives. Three things
# have to be found out. How can a softmax be taken over a row of which only pieces are ever seen? What does each way of
# skipping save, in arithmetic, in bytes and in time? And does it matter which tile comes first? (To the result, no. To
# the number of bytes that are moved, very much.)
#
# **You need** to know attention, its softmax and its causal mask, and some torch; and notebook 02 for one short part of
# section 7. No GPU.
#
# **It runs** from top to bottom in under 90 seconds on a laptop with two cores. Everything is measured on the CPU;
# section 9 says how to record a run on a GPU, and shows one if it is there.

# %% slideshow={"slide_type": "skip"}
import itertools
from functools import partial

import numpy as np
import torch

from attnlab.attention import merge_mlo, normalise, partial_attention
from attnlab.ring import TileOrder, reference, strided, tiled
from attnlab.ring.two_level import Counters, TwoLevelMap, two_level_attention, two_level_map
from attnlab.show import (
    explore,
    merge_picture,
    schedule,
    schedule_explorer_picture,
    schedule_replay,
    show_source,
    two_level_explorer_picture,
    window_picture,
)
from attnlab.tiles import EDGE, SKIP

# Small tiles are not worth waking a second core for, and one core is easier to reason about.
torch.set_num_threads(1)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 1 · The picture
#
# Here are 48 tokens and a window of 20 keys, cut into tiles of 4 x 4. The scores that are needed form a band. It has
# two borders, and they are of different kinds: on the right the **diagonal**, beyond which keys lie in the future, and
# on the left the window's **far edge**, beyond which they are too old. A tile is **dense** if the band covers it,
# **skip** if the band misses it, and **edge** if one of the two borders runs through it. Look at the triangles in the
# edge tiles: on the two borders they point in opposite directions, and a tile on either border is partly wasted.

# %% slideshow={"slide_type": "subslide"}
small = tile_map(window_mask(20, causal=True), 48, 48, 4)
window_picture(small, title="A causal window of 20 keys, in tiles of 4 x 4")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The pale part of an edge tile is computed and masked away: a kernel multiplies whole tiles. A dense tile needs no
# mask, so nothing in it is compared with anything. A skip tile is not even loaded.
#
# Two functions have made this picture, and come back below. `window_mask` is the rule of the window: which key each
# query sees. `tile_map` cuts a mask into tiles and stores their kinds in an array, `kinds`: 0 for skip, 1 for edge, 2
# for dense.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 2 · Back of the envelope
#
# Take the long sequence from the top: S = 32,768, W = 1,024, T = 128. How many tiles does one row of tiles visit? What
# share of the computed scores is visible? And what do both become with T = 64?
#
# <details><summary>The answer, worked</summary>
#
# The queries of one tile are T neighbours. The oldest key that the first of them sees lies W - 1 tokens back, and the
# newest key that the last of them sees is T - 1 tokens ahead of the first. Together they reach over W - 1 + T keys.
# When T divides W these lie in W / T + 1 tiles: 1,024 / 128 + 1 = 9, of which the first is cut by the far edge and the
# last by the diagonal. That leaves 7 dense ones.
#
# Each query sees W keys, and (W / T + 1) T = W + T scores are computed for it. So W / (W + T) is useful: 1,024 / 1,152,
# or 89 %. With T = 64 a row visits 17 tiles, of which again only two are edges, and 94 % is useful. Small tiles waste
# less, and there are more of them to manage.
# </details>

# %% slideshow={"slide_type": "fragment"}
for side in (64, 128, 256):
    tiles = tile_map(window_mask(W, causal=True), S, S, side)
    last = np.bincount(tiles.kinds[-1], minlength=3)
    print(f"T = {side:3}: the last row visits {last[1:].sum():2} tiles, {last[EDGE]} of them edges;", end=" ")
    print(f"useful {tiles.useful:.1%}, formula {W / (W + side):.1%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The formula is that of a row far from the start. The first rows see less and visit less, and in a long sequence they
# hardly count.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 3 · The reference
#
# The reference computes all S x S scores in float64, replaces those outside the window by minus infinity, and takes one
# softmax along each row. Keys and values are repeated where several query heads share them. This is full attention with
# a mask, and every way below must equal it, in its output and in its gradients. Here is what it does with q, k and v,
# each [batch, heads, tokens, D].

# %% slideshow={"slide_type": "subslide"}
show_source(reference.sliding_window_attention, lines=(36, 45))

# %% [markdown] slideshow={"slide_type": "subslide"}
# On eight tokens it can be checked by hand. If all scores are equal, attention is a mean. Let the window be four keys
# and the value of each token its own position: then token 7 must give the mean of 4, 5, 6 and 7, and token 1 that of 0
# and 1.

# %% slideshow={"slide_type": "fragment"}
zeros, place = torch.zeros(1, 1, 8, 1), torch.arange(8.0).reshape(1, 1, 8, 1)
print(reference.sliding_window_attention(zeros, zeros, place, window=4).flatten().tolist())

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### A softmax in pieces
#
# Now cut the keys into tiles. A softmax divides by a sum over the whole row, and a tile knows only its own part. What
# one query has to carry from tile to tile is three things: the largest score so far, **m**; the sum of
# exp(score - m), **l**; and the same sum with each term multiplied by its value, **O**. The output is O / l, and the
# division waits until the last tile. For one part of the keys:

# %% slideshow={"slide_type": "subslide"}
show_source(partial_attention, lines=(18, 24))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Two such triples were taken with different m. To add them, bring both to the larger one: a sum that was taken relative
# to m_a is multiplied by exp(m_a - m). That is the whole of the **online softmax**. A part in which nothing is visible
# is (-inf, 0, 0); `_finite` replaces a maximum of -inf by 0, so that -inf minus -inf, which is NaN, never occurs.

# %% slideshow={"slide_type": "subslide"}
show_source(merge_mlo)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Eight keys in two tiles of four. The scores are logarithms, so that the weights exp(score) are the whole numbers
# below, which add up to 24. Work out m, l and O of each tile on paper before you look: in the first tile m = log 4, so
# l is (1 + 2 + 1 + 4) / 4 = 2.

# %% slideshow={"slide_type": "fragment"}
weights = np.array([1.0, 2, 1, 4, 8, 4, 2, 2])
values = np.array([4.0, 0, 4, 4, 1, 2, 0, 4])
query, keys = np.ones((1, 1)), np.log(weights)[:, None]
a, b = (partial_attention(query, keys[i : i + 4], values[i : i + 4, None], scale=1.0) for i in (0, 4))
for name, part in {"first tile": a, "second tile": b, "merged": merge_mlo(a, b)}.items():
    m, total, o, out = (x.item() for x in (*part, normalise(*part)[0]))
    print(f"{name:12} m = log {np.exp(m):.0f}   l = {total:.0f}   O = {o:.0f}   O / l = {out:g}")
print(f"over all keys at once: {values @ weights:.0f} / {weights.sum():.0f} = {values @ weights / 24:g}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Look at the last column. The two tiles by themselves say 3 and 1.5, and the answer is 2. It is neither their sum nor
# their mean, because the second tile carries twice the weight of the first: l times exp(m) is 16 there against 8. This
# project began with a README that promised attention in tiles, and the code under it took a softmax in each tile and
# added up the results, with no merge:

# %% slideshow={"slide_type": "fragment"}
alone = [normalise(*part)[0][0, 0] for part in (a, b)]
print(f"softmax in each tile, added: {sum(alone):g}; averaged: {sum(alone) / 2:g}; right: 2")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The weights of each tile add up to 1, so all of them add up to the number of tiles. Averaging mends that and stays
# wrong. The information that is missing is how much each tile weighs, and that is what m and l are for.
#
# The merge does not care about order or grouping: it is **associative** and commutative. Below, one query meets five
# tiles of keys. Move the slider through the 120 orders. The rows in between change. The last row stays the same, up to
# rounding; it is compared with full attention, over all keys at once.

# %% slideshow={"slide_type": "subslide"}
explore(merge_picture, permutation=(0, 119))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 4 · Rung by rung
#
# We climb from the obvious way to a GPU kernel, one change at a time. Each step is a rung.
#
# ### Rung 1: full attention with a mask
#
# The obvious way hands torch's `scaled_dot_product_attention` (**SDPA** from here on) a Boolean mask of S x S entries.
# It is a **fused** kernel: one call for the whole of attention, which works tile by tile inside and stores no scores.
# But it knows nothing of the mask's shape, so it computes every tile.

# %% slideshow={"slide_type": "fragment"}
tokens, window, tile = 1024, 128, 64
generator = torch.Generator().manual_seed(0)
q, k, v = (torch.randn(1, 4, tokens, 64, generator=generator) for _ in range(3))
tiles = tile_map(window_mask(window, causal=True), tokens, tokens, tile)
sdpa = torch.nn.functional.scaled_dot_product_attention
sdpa_masked = partial(sdpa, attn_mask=torch.tensor(tiles.mask.dense(tokens, tokens)))
print(f"{tokens} tokens, window {window}, tiles of {tile}: {tiles.n_dense} dense,", end=" ")
print(f"{tiles.n_edge} edge and {tiles.n_skip} skip, of {tiles.kinds.size}.")

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Rung 2: tiles, and the merge
#
# Now the tiles are ours. The function below goes through rows of tiles and merges as it goes. It is told which tiles to
# visit and in which to apply the mask; here it visits every tile and masks every tile. The merge is that of section 3,
# in torch, without the guard against NaN in hidden values.

# %% slideshow={"slide_type": "subslide"}
show_source(tiled._merge)


# %% slideshow={"slide_type": "subslide"}
def in_tiles(q, k, v, tiles, visit, masked):
    """Attend tile by tile to the tiles in `visit`; compare positions in those of `masked`."""
    out, tile = [], tiles.block_q
    for i in range(len(visit)):
        rows, state = slice(i * tile, (i + 1) * tile), None
        for j in np.flatnonzero(visit[i]):
            columns = slice(j * tile, (j + 1) * tile)
            scores = q[:, :, rows] @ k[:, :, columns].mT * q.shape[-1] ** -0.5
            if masked[i, j]:
                p, n = (torch.arange(part.start, part.stop) for part in (rows, columns))
                visible = tiles.mask(0, 0, p[:, None], n)  # of batch entry 0 and head 0, as of all others
                scores = torch.where(visible, scores, -torch.inf)
            state = tiled._merge(state, scores, v[:, :, columns])
        _, total, o = state
        out.append(o / total)
    return torch.cat(out, dim=2)


everything = np.ones_like(tiles.kinds, dtype=bool)
all_tiles = partial(in_tiles, tiles=tiles, visit=everything, masked=everything)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Rung 3: do not load what nobody sees
#
# One change: visit only what is not `SKIP`. Does that spare the load, or only hide the result? There is a way to find
# out. Write NaN into the first 64 keys and values, which form one tile, and count the queries whose output it reaches.
# Where a key is hidden, `in_tiles` replaces the NaN in its score by minus infinity; it is the hidden *values* that get
# through, since 0 times NaN is NaN.

# %% slideshow={"slide_type": "fragment"}
visited = tiles.kinds != SKIP
skipping = partial(in_tiles, tiles=tiles, visit=visited, masked=everything)
poisoned = [x.clone() for x in (k, v)]
for x in poisoned:
    x[:, :, :tile] = torch.nan
for name, way in {
    "SDPA with a mask": sdpa_masked,
    "every tile, masked": all_tiles,
    "skipping": skipping,
}.items():
    reached = way(q, *poisoned).isnan().any(dim=(0, 1, 3)).nonzero()
    print(f"{name:18} NaN in {len(reached):4} queries of {tokens}, the last of them number {reached.max()}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# When every tile is computed, the mask gives hidden keys the weight 0, and the NaN reaches every query all the same.
# With skipping it stops after query 191. Those are the three rows of tiles that load this tile of keys. The last query
# that truly sees a poisoned key is number 190, so query 191 is hit by an entry that is hidden from it: it shares an
# edge tile with neighbours that see it. A skipped tile is not read. A masked entry is.

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Rung 4: a mask only where there is an edge
#
# One change again: compare positions in edge tiles only. `attnlab.ring.tiled` is this rung with an account book. A
# generator, `walk`, says what happens, as a list of events; the attention below does what the events say and holds
# nothing else. So the events are what ran, and we can count them. An event is *load*, *compute*, *merge*, *store* or
# *skip*, with the tile and the bytes it moves. In the code, `chip` holds the current tiles of Q, K and V, `on_chip` the
# running (m, l, O), and i and j number the query and key tile. Here is what it does on a *compute* and on a *merge*.

# %% slideshow={"slide_type": "subslide"}
show_source(tiled.sliding_window_attention, lines=(67, 74))

# %% slideshow={"slide_type": "fragment"}
events = []
tiled.sliding_window_attention(q, k, v, window=window, tile_size=tile, events=events)
computed = [tiles.kinds[e.q_tile, e.k_tile] for e in events if e.kind == "compute"]
print(f"rung 2: {everything.sum()} tiles computed, {everything.sum()} masked")
print(f"rung 3: {visited.sum()} tiles computed, {visited.sum()} masked")
print(f"rung 4: {len(computed)} tiles computed by the events, {computed.count(EDGE)} of them are edges")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Two of the three tiles of a row are edges here, because the window is only two tiles long. In the long sequence at the
# top it was two of nine.
#
# `in_tiles` does the same if it is told to mask only the edges. All four rungs so far must give what the reference
# gives, up to the rounding of float32.

# %% slideshow={"slide_type": "fragment"}
edge_masks = partial(in_tiles, tiles=tiles, visit=visited, masked=tiles.kinds == EDGE)
exact = reference.sliding_window_attention(q, k, v, window=window)
rungs = {
    "1 SDPA, mask": sdpa_masked,
    "2 every tile": all_tiles,
    "3 skipping": skipping,
    "4 edge masks": edge_masks,
}
for name, way in rungs.items():
    error = (way(q, k, v) - exact).abs().max()
    print(f"{name:13} largest difference from the reference below 2e-6: {bool(error < 2e-6)}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Rung 5: two levels
#
# Large tiles make large matrix products and a short list of work. Small tiles waste little. Both can be had. Schedule
# by large blocks of side `block_size`. Take a dense block whole, and cut only an edge block into tiles of side
# `tile_size`, each of them dense, edge or skip in its turn. `visits` lists the pieces.
#
# FlexAttention, torch's compiled attention for masks given as a rule, calls these blocks full, partial and empty; it
# has no second level.

# %% slideshow={"slide_type": "subslide"}
show_source(TwoLevelMap.visits)

# %% [markdown] slideshow={"slide_type": "subslide"}
# What is computed is what small tiles alone would compute, in fewer pieces. How many fewer depends on the window: a
# block can only be dense if the window is at least two blocks long. Here are the window of the rungs above, which is
# just two blocks long, and one of eight blocks.

# %% slideshow={"slide_type": "fragment"}
for w in (128, 512):
    mask = window_mask(w, causal=True)
    large, fine = (tile_map(mask, tokens, tokens, side) for side in (64, 32))
    both = two_level_map(mask, tokens, tokens, 64, 32)
    print(f"W = {w}:  blocks of 64 alone {large.n_visited:3} pieces, {large.useful:.0%} useful;", end="  ")
    print(f"tiles of 32 alone {fine.n_visited:3}, {fine.useful:.0%};", end="  ")
    print(f"two levels {len(list(both.visits())):3}, {both.useful:.0%}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Move the window and the two sizes below. Watch the useful part, and what is left to visit.

# %% slideshow={"slide_type": "subslide"}
explore(
    partial(two_level_explorer_picture, window=512, block=256, tile=64, tokens=1024),
    window=(1, 1024),
    block=[64, 128, 256, 512],
    tile=[16, 32, 64],
    labels={"block": "block size", "tile": "tile size"},
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Rung 6: overlapping views, and one call for many blocks
#
# In **eager** torch (run call by call, not compiled) every tile costs several calls, and each call has a price of its
# own. The kernel behind SDPA is fast, if only it could be told of the band. It can. Cut the queries into blocks of T.
# Block number i needs the keys of one stretch, W - 1 + T long, and the next block needs the same stretch moved on by T.
# These stretches overlap, and a **view** can say so: `as_strided` lays many of them side by side as a batch, without
# copying a key. Below, x is [heads, tokens, D]; in the code `heads` and `tokens` are the distances in memory from one
# head, or token, to the next. `step` is T and `length` is W - 1 + T.

# %% slideshow={"slide_type": "subslide"}
show_source(strided._blocks)

# %% [markdown] slideshow={"slide_type": "subslide"}
# All blocks inside the sequence have the same shape and the same small mask, T x (W - 1 + T), so all of them go to one
# call of the fused kernel. What is left are the ends: the first W queries see a plain causal triangle, which the kernel
# knows without a mask, and the last few may not fill a block.
#
# The backward pass stores no weights either; it computes them again. A weight is exp(score - LSE), with **LSE** = m +
# log l, the log-sum-exp of its row, kept from the forward pass: one number for each query. A block holds whole rows, so
# with its LSE, its output and the incoming gradient it can work alone. A key belongs to several stretches, and so its
# gradients are added up: of every c-th block at once, with c so large that these do not overlap.

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Rung 7: a kernel
#
# On a GPU the walk itself becomes a kernel. One program takes one tile of queries; its (m, l, O) stays in registers
# while keys stream past, and its tiles fall into three loops: masked at the far edge, unmasked in the middle, masked at
# the diagonal. Here is the inside of these loops in the Triton kernel, from the scores on. `EDGE` is known when the
# kernel is compiled, so the middle loop is compiled without what stands under it, and contains no comparison. (`PADDED`
# is for batches with padding, and is false here.) Two tricks, both used in FlashAttention-2's kernels: exponentials are
# powers of two (`scale` carries the factor log2 e), and O is divided by l once, at the very end.

# %% slideshow={"slide_type": "subslide"} tags=["nbval-ignore-output"]
from importlib import import_module
from importlib.util import find_spec

from IPython.display import display

if find_spec("triton") is None:
    print("Triton is not installed here; see attnlab/ring/triton_forward.py.")
else:
    display(show_source(import_module("attnlab.ring.triton_forward")._attend_tile, lines=(48, 72)))

# %% [markdown] slideshow={"slide_type": "subslide"}
# Without a GPU the tests run these kernels through Triton's interpreter, and Pallas kernels through its interpret mode.
# That shows that they are right. It says nothing of how fast they are. `attnlab/ring/pallas_kernel.py` is this kernel
# for JAX; on a CPU take `attnlab/ring/jax_window.py`, which is rung 6 with `dynamic_slice` in place of views.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 5 · Do they agree?
#
# The paths of the library against the float64 reference, forward and gradient: windows of one key, of one less and one
# more than a tile, as long as the sequence and longer; lengths that tiles do not divide; windows to both sides; query
# heads that share key heads. The walk runs in both orders, and once with its tiles in a random order. (JAX and Pallas
# run on three of the cases, because each new shape is compiled anew. The Triton kernel is tested through its
# interpreter, in the package's tests.)

# %% slideshow={"slide_type": "skip"}
import jax
import jax.numpy as jnp

from attnlab.ring import jax_window, pallas


def random_tiles(q, k, v, *, window, causal):
    """Walk over the tiles in an order drawn at random."""
    visits = np.argwhere(tile_map(window_mask(window, causal), q.shape[2], q.shape[2], 16).kinds)
    shuffled = np.random.default_rng(1).permutation(visits).tolist()
    return tiled.sliding_window_attention(
        q, k, v, window=window, causal=causal, tile_size=16, visits=shuffled
    )


def torch_results(way, given, dout):
    """The output and the three gradients, as float64."""
    given = [x.clone().requires_grad_() for x in given]
    out = way(*given)
    return [x.detach().double() for x in (out, *torch.autograd.grad(out, given, dout.to(out.dtype)))]


def jax_results(way, given, dout):
    """The same of a JAX function."""
    out, back = jax.vjp(way, *(jnp.asarray(x.numpy()) for x in given))
    return [torch.tensor(np.asarray(x)).double() for x in (out, *back(jnp.asarray(dout.numpy())))]


# %% slideshow={"slide_type": "subslide"}
walk_in = partial(tiled.sliding_window_attention, tile_size=16)
paths = {
    "walk, Q-major": walk_in,
    "walk, K-major": partial(walk_in, order=TileOrder.K_MAJOR),
    "walk, random order": random_tiles,
    "two levels": partial(two_level_attention, block_size=32, tile_size=8),
    "overlapping views": strided.sliding_window_attention,
    "JAX blocks": jax_window.sliding_window_attention,
    "Pallas, interpreted": partial(pallas.sliding_window_attention, tile_size=16),
}
# Tokens and window, each with a causal window and one to both sides; and those of them that JAX runs.
cases = list(itertools.product([(1, 1), (48, 1), (53, 15), (64, 17), (64, 64), (53, 70)], (True, False)))
few = [((53, 15), False), ((64, 17), True), ((53, 70), True)]

# %% slideshow={"slide_type": "subslide"}
worst = dict.fromkeys(paths, (0.0, 0.0))  # of the output, and of the gradients
for case in cases:
    (length, width), causal = case
    rule = {"window": width, "causal": causal}
    *given, dout = (torch.randn(2, h, length, 16, generator=generator) for h in (4, 2, 2, 4))
    full = partial(reference.sliding_window_attention, **rule)
    exact = torch_results(full, [x.double() for x in given], dout.double())
    for name, way in paths.items():
        in_jax = name.startswith(("JAX", "Pallas"))
        if not in_jax or case in few:
            got = (jax_results if in_jax else torch_results)(partial(way, **rule), given, dout)
            far = [float((x - y).abs().max()) for x, y in zip(got, exact, strict=True)]
            worst[name] = max(worst[name][0], far[0]), max(worst[name][1], *far[1:])
bad = [name for name, (out, gradient) in worst.items() if out > 2e-6 or gradient > 1e-5]
print(f"{len(cases)} cases. Outputs within 2e-6 and gradients within 1e-5: {not bad}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The largest differences, which depend on the processor in their last digit:

# %% slideshow={"slide_type": "fragment"} tags=["nbval-ignore-output"]
for name, (out, gradient) in worst.items():
    print(f"{name:20} output {out:.0e}   gradient {gradient:.0e}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# FlexAttention takes the same tiles. Its `BlockMask` lists for each row of tiles which to visit, and which of those are
# full. Ours is made from W and T alone; torch's own `create_block_mask` evaluates the rule for every pair.

# %% slideshow={"slide_type": "fragment"}
from torch.nn.attention.flex_attention import create_block_mask

ours = tiles.block_mask()
torchs = create_block_mask(ours.mask_mod, None, None, tokens, tokens, device="cpu", BLOCK_SIZE=tile)
fields = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
print(
    "BlockMask equal to torch's own:", all(torch.equal(getattr(ours, f), getattr(torchs, f)) for f in fields)
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 6 · The explorer
#
# Imagine a chip that has room for one tile of each tensor. What it needs next it must load from memory, and what does
# not fit it must write back. Below, the real walk is replayed over the map of section 1, one step for each visited
# tile. The four boxes are what lies on the chip: a green one was kept from the step before or begins here, a red one
# was just loaded. Under them stand the bytes moved so far, in this order of tiles and in another one, which comes next.
# At the bottom is the running (m, l, O) of one query of the current row of tiles.
#
# This order is called **Q-major**: queries are the outer loop. Watch Q: it is loaded once for each row and stays, while
# K and V are loaded again at every step. Click on the picture and hold the right arrow.

# %% slideshow={"slide_type": "subslide"}
schedule_replay(schedule(small, "Q-major"))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The replay needs no running Python. The explorer does, and lets you choose the order, the window and the tile. Three
# things to try:
#
# 1. It begins **K-major**: keys are the outer loop. Now K and V stay and Q streams past. But a query tile has to leave
#    before its last key has come, so its unfinished (m, l, O) travels out and back again and again. That is the bar that
#    was empty before. Switch the order, and compare the totals.
# 2. Make the window small. The bars of the two orders come closer, because a query tile meets few key tiles, so its
#    (m, l, O) travels less often.
# 3. Make the tile large. There are fewer steps and fewer loads, and more pale waste.

# %% slideshow={"slide_type": "subslide"}
explore(
    partial(schedule_explorer_picture, order="K-major", window=512, progress=58, tokens=1536),
    order=["Q-major", "K-major"],
    window=(1, 1536),
    block=[64, 128, 256],
    progress=(0, 100),
    labels={"block": "tile side", "progress": "progress, %"},
)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 7 · Which order?
#
# The picture counts events. The same bytes follow from a formula, since what happens at each tile is known: the outer
# side crosses once for each row (or column) of tiles, the inner side once for each visited tile. Let N tiles be
# visited.
#
# - Forward, Q-major: all of Q and O cross once, and a tile of K and one of V for each of the N visited tiles.
# - Forward, K-major: all of K, V and O cross once, and a tile of Q for each of the N visited tiles. The unfinished
#   (m, l, O), T (D + 2) numbers in float32, goes out and comes back for every visit of a query tile but one.
# - Backward, the query side brings Q, the gradient of the output and two numbers for each query; the key side brings K
#   and V. And there are more sums that may have to travel: dQ on the side of the queries, dK and dV on that of the keys.
#
# Here are both, for one head of the long sequence from the top, in bfloat16 with D = 128.

# %% slideshow={"slide_type": "fragment"}
from attnlab.ring.traffic import advise, backward_traffic, forward_traffic, walk_backward

layout = {"head_dim": 128, "bytes_per_element": 2}
passes = {"forward": (forward_traffic, tiled.walk), "backward": (backward_traffic, walk_backward)}
for (name, (formula, walk)), order in itertools.product(passes.items(), TileOrder):
    by_formula = formula(long, order, **layout).bytes
    counted = sum(event.bytes for event in walk(long, order, **layout))
    print(
        f"{name:8} {order.name:8} {by_formula / 2**20:7,.0f} MiB; counted, the same: {counted == by_formula}"
    )
advice = advise(long, **layout)
print(advice.sentence)

# %% [markdown] slideshow={"slide_type": "subslide"}
# So the answer differs between the passes, and the reason is one rule: **keep on the chip the side with more unfinished
# sums.** Forward only queries have one, (m, l, O). Backward queries have dQ and keys have dK and dV, so for one query
# head to a key head the keys stay. (The next part has a case that turns this over.) FlashAttention-2 has these loops:
# its forward pass has queries outside, its backward pass keys. The first FlashAttention had keys outside in both.
#
# The README of section 3 gave another rule: Q-major when query tiles outnumber key tiles. It sounds plausible, and it
# counts tiles where it should count trips.
#
# The model is simple on purpose. A real chip has caches. What has to fit, if nothing is to cross twice, is the outer
# tile with its sums, and every inner tile (with its sums, if it has any) from its first visit to its last: here that is
# all that lies within one window. If this fits, the order is free:

# %% slideshow={"slide_type": "fragment"}
for choice in (advice.forward, advice.backward):
    needs = choice.q_major_needs / 1024, choice.k_major_needs / 1024
    print(f"{choice.which:8} needs on chip: Q-major {needs[0]:5,.0f} KiB, K-major {needs[1]:5,.0f} KiB")
for kib in (400, 4_000):
    print(f"{kib:,} KiB on chip: {advise(long, **layout, on_chip_bytes=kib * 1024).sentence}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Heads that share keys
#
# With **grouped queries** several query heads read one head of keys and values. A kernel that handles `head_tile_size`
# of them together loads each tile of K and V once for all. Eight query heads to a key head, first by the formula, then
# counted in a run of the two-level path on short data. The number need not divide the heads: three at a time are three
# passes, of 3, 3 and 2. Look at the last line as well: with two heads handled together (or more) the query side has at
# least as many sums as the key side, and more to load, and Q-major wins backward too.

# %% slideshow={"slide_type": "fragment"}
grouped = [torch.randn(1, heads, 256, 16, generator=generator) for heads in (8, 1, 1)]
for together in (1, 2, 3, 8):
    moved = forward_traffic(long, TileOrder.Q_MAJOR, **layout, query_heads=8, head_tile_size=together)
    counters = Counters()
    two_level_attention(
        *grouped, window=64, block_size=64, tile_size=16, head_tile_size=together, counters=counters
    )
    print(f"{together} together: K and V {2 * moved.k.bytes / 2**20:6,.0f} MiB,", end=" ")
    print(f"all {moved.bytes / 2**20:6,.0f} MiB; loads in the short run: {counters.kv_loads}")
print(advise(long, **layout, query_heads=8, head_tile_size=2).sentence)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Rows that lie together
#
# Bytes are also cheaper when they lie side by side. The ring buffer of notebook 02 keeps the rows of one head together,
# [batch, heads, slots, head_dim]. A cache that stores token after token, [batch, slots, heads, head_dim], puts the
# other heads' rows in between. The picture shows the keys that two heads read for one query with 12 keys in its window,
# in both layouts, from the first read at the top to the last. A *run* is a stretch read without a jump; a *cache line*,
# 64 bytes here, is what memory delivers at once, and one row is exactly that long.

# %% slideshow={"slide_type": "subslide"}
from attnlab.ring.trace import address_trace
from attnlab.show import address_picture

cache = {"num_kv_heads": 2, "head_dim": 16, "capacity": 16, "window": 12, "position": 20}
traces = {name: address_trace(name, **cache) for name in ("ring", "token-major")}
address_picture({name: trace.runs for name, trace in traces.items()}, total_bytes=2 * 16 * 16 * 4)

# %% slideshow={"slide_type": "fragment"}
for trace in traces.values():
    print(trace)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The ring has two runs for each head, because the window passes the end of the storage once. The number of cache lines
# is the same in both layouts here; what differs is how often reading has to jump.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 8 · Memory
#
# What does each rung allocate? The **peak** is the most that lives at any moment of a forward pass, above the inputs.
# *Kept* is what is still there when a forward pass has recorded its graph for training: its output, and what the
# backward pass will need. There are H = 4 heads of D = 64 numbers in float32 and a window of 128. Beside each measured
# number stands a formula. It counts the largest part only: one float64 table of scores for the reference, of which two
# live at once; for rungs 2 to 5 the kept weights, without the states of the merges. The last two columns divide by the
# same for 512 tokens. What holds a table of S x S grows by nearly 4, what is linear in S by 2.

# %% slideshow={"slide_type": "subslide"}
from attnlab.bench.memory import torch_peak


def ladder(tokens, window=128, tile=64):
    """All rungs for one length, by name."""
    tiles = tile_map(window_mask(window, causal=True), tokens, tokens, tile)
    every, visit, edge = np.ones_like(tiles.kinds, bool), tiles.kinds != SKIP, tiles.kinds == EDGE
    return {
        "reference": partial(reference.sliding_window_attention, window=window),
        "1 SDPA, mask": partial(sdpa, attn_mask=torch.tensor(tiles.mask.dense(tokens, tokens))),
        "2 every tile": partial(in_tiles, tiles=tiles, visit=every, masked=every),
        "3 skipping": partial(in_tiles, tiles=tiles, visit=visit, masked=every),
        "4 edge masks": partial(in_tiles, tiles=tiles, visit=visit, masked=edge),
        "5 two levels": partial(two_level_attention, window=window, block_size=64, tile_size=32),
        "6 views": partial(strided.sliding_window_attention, window=window, block_size=32),
    }


# %% slideshow={"slide_type": "fragment"}
def formulas(S, W=128, T=64, H=4, D=64):
    """The largest part of the peak, and of what is kept, in bytes."""
    out, near, fine = 4 * H * S * D, 4 * H * S * (W + T), 4 * H * S * (W + 32)
    tables = {"reference": (8 * H * S * S, 8 * H * S * S), "1 SDPA, mask": (4 * S * S + out,) * 2}
    tables |= {"2 every tile": (2 * out, 4 * H * S * S), "3 skipping": (2 * out, near)}
    return tables | {
        "4 edge masks": (2 * out, near),
        "5 two levels": (4 * out, fine),
        "6 views": (2 * out, out),
    }


half, whole = ladder(512), ladder(1024)
print("MiB             peak:              kept:             1,024 tokens over 512:")
print("                measured formula   measured formula  peak  kept")
for name, (peak, kept) in formulas(1024).items():
    found = []
    for length, rung in ((512, half[name]), (1024, whole[name])):
        given = [torch.zeros(1, 4, length, 64) for _ in range(3)]
        found.append(torch_peak(rung, *given).peak_bytes / 2**20)
        found.append(torch_peak(rung, *(x.requires_grad_() for x in given)).kept_bytes / 2**20)
    print(f"{name:15}{found[2]:9.2f} {peak / 2**20:7.2f}  {found[3]:9.2f} {kept / 2**20:7.2f}", end="")
    print(f"  {found[2] / found[0]:4.1f}x {found[3] / found[1]:4.1f}x")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Read it from above. The reference has two tables of H S² numbers alive at once, and smaller ones beside them. SDPA
# stores no scores, but its mask becomes one table of S² numbers. Rung 2 has a small peak, because each tile is
# forgotten as soon as it is merged; yet for training autograd keeps the weights of every tile, and the table is back.
# Skipping makes that linear in S. Rung 6 keeps its output and one number for each query, and computes the weights
# again. (What a fused kernel allocates for itself, while it runs, is not seen by this measurement.)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 9 · Time
#
# All rungs on this machine now, on one core: medians of interleaved runs at 1,024 tokens, a window of 128, 4 heads of
# 64 dimensions. The ratio is the median over rounds of the two times of one round, so it need not be the ratio of the
# medians. Rung 4 is timed as `in_tiles` with edge masks. Before you look, guess which of rungs 3 and 4 is faster, and
# by how much.

# %% slideshow={"slide_type": "fragment"} tags=["nbval-ignore-output"]
from attnlab.bench.case import Report

timed = Report("ring", "timed here", quick=True)
with torch.no_grad():
    calls = {name: partial(way, q, k, v) for name, way in whole.items()}
    timing = timed.time(calls, params={"S": 1024, "W": 128}, baseline="1 SDPA, mask")
for name in calls:
    ratio = timing.ratio(name, "1 SDPA, mask")
    print(f"{name:14} {timing.median(name) * 1e3:8.2f} ms   {ratio:6.2f} x the time of rung 1")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Skipping is what pays: it leaves 45 tiles of 256. The mask costs little beside the product of a tile, on a CPU. An
# eager walk over tiles is slow all the same, for a reason that has nothing to do with the idea: each tile is a dozen
# calls or more, and every call has its price, however small its tile. The second level makes 105 pieces of 45 tiles,
# and is slower still: its gain is for long windows, and for programs in which a piece costs no call. Where the loop is
# inside one call, as in rung 6, less work becomes less time.
#
# Where does the time of a call go? The next cell runs the walk with a clock between its events.

# %% slideshow={"slide_type": "fragment"} tags=["nbval-ignore-output"]
from attnlab.ring.phases import profile

print(profile(q, k, v, window=128, tile_size=64))

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Where it gains least
#
# Rung 6 against plain causal SDPA, which computes the whole triangle and needs no mask. Watch both ends. When the
# window is as long as the sequence it hides nothing, both sides make the same call, and a draw is the best there is. At
# W = 1 rung 6 gains most, but far less than it might: a query needs one key, its block of 32 queries still brings
# 32 keys. The column *useful* says what share of the computed scores is visible.

# %% slideshow={"slide_type": "fragment"} tags=["nbval-ignore-output"]
widths = (1, 8, 32, 128, 512, 1024)
views = partial(strided.sliding_window_attention, q, k, v, block_size=32)
calls = {f"W = {w}": partial(views, window=w) for w in widths}
calls["causal"] = partial(sdpa, q, k, v, is_causal=True)
with torch.no_grad():
    timing = Report("ring", "windows", quick=True).time(calls)
for w in widths:
    blocks = f"useful {w / (w + 31):4.0%}" if w < 1024 else "plain causal"
    print(f"W = {w:5}: {timing.ratio('causal', f'W = {w}'):5.2f} times as fast as causal SDPA   {blocks}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Under the roof
#
# Is rung 6 as fast as this machine allows? A **roofline** answers with two limits. A core does so many multiplications
# and additions a second (**FLOPs**), and memory brings so many bytes. A computation that does few FLOPs for each byte
# is held by the slope on the left, one that does many by the flat roof. Both limits are measured here, with a large
# matrix product and with a large copy. FLOPs are those that a way computes, needed or not. Bytes are the inputs and the
# output once; for rung 1 the mask too; for rung 4, timed as `in_tiles` with edge masks, those that the walk counts for
# the same tiles.

# %% slideshow={"slide_type": "subslide"} tags=["nbval-ignore-output"]
from attnlab.show import RooflinePoint, roofline_picture

big, source = torch.randn(768, 768), torch.zeros(2**23)
target = torch.empty_like(source)
with torch.no_grad():
    limits = Report("ring", "limits", quick=True).time(
        {"product": lambda: big @ big, "copy": lambda: target.copy_(source)}
    )


def flops(entries, heads=4, head_dim=64):
    """Two products, each a multiplication and an addition."""
    return heads * entries * head_dim * 2 * 2


peak = 2 * 768**3 / limits.median("product")
copied = 2 * 4 * 2**23 / limits.median("copy")
pairs = {"1 SDPA, mask": 1024**2, "4 edge masks": tiles.n_visited * 64**2, "6 views": 1024 * (128 + 31)}
once = 4 * 4 * 1024 * 64 * 4
moved = {
    "1 SDPA, mask": once + 4 * 1024**2,
    "4 edge masks": 4 * sum(e.bytes for e in events),
    "6 views": once,
}
seconds = {row.variant: row.value for row in timed.rows if row.metric == "time"}
points = [
    RooflinePoint(name, flops(n) / moved[name], flops(n) / seconds[name], role)
    for (name, n), role in zip(pairs.items(), ("muted", "edge", "better"), strict=True)
]
roofline_picture(peak, {"copy in memory": copied}, points, title="Three rungs under the roof of one core")

# %% [markdown] slideshow={"slide_type": "subslide"}
# All three lie far to the right, where on most machines arithmetic is the limit and not memory. Being high up is not
# the same as being fast. Rung 1 does its FLOPs at a good rate, and most of them are for scores that are thrown away.
# Rung 6 does fewer, at a lower rate. Likely reasons are its smaller products and the mask that is added to every block.

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Recorded
#
# Larger sizes, with all cores, from a recorded run of `attnlab bench ring`. In the forward runs the window is an eighth
# of the sequence; the training runs below vary it. The rivals are SDPA over the whole causal triangle, SDPA with the
# window as a Boolean mask (while its table fits), and FlexAttention, compiled, with the `BlockMask` of section 5.
# `attnlab` is what `sliding_window_attention` takes on a CPU: the overlapping views of rung 6.

# %% slideshow={"slide_type": "fragment"}
from attnlab.bench import ring as bench
from attnlab.bench.query import select
from attnlab.bench.record import load_records, read_record
from attnlab.bench.rows import PEAK
from attnlab.datasets import path, root
from attnlab.show.results import result_curves

recorded = read_record(path("cpu/ring.json"))
environment = recorded.environment
print(f"Recorded {recorded.created[:10]} on {environment['cpu']['model']},")
print(f"{environment['cpu']['cores_usable']} cores, with torch {environment['packages']['torch']}, by:")
print(recorded.command)

# %% slideshow={"slide_type": "subslide"}
prefill = [row for row in recorded.rows if row.case.startswith(bench.FORWARD)]
WAYS = {"SDPA, causal full": "muted", "SDPA, boolean mask": "edge"}
WAYS |= {"FlexAttention, compiled": "seg4", "attnlab": "better"}
result_curves(
    prefill,
    over="S",
    metric="time",
    roles=WAYS,
    names={"attnlab": "overlapping views", "SDPA, boolean mask": "SDPA, mask"},
    title="One forward pass, S / W = 8 (recorded)",
    sentence="Both ways that know the band stay below both that do not.",
    x_label="tokens",
    y_label="time of a forward pass",
    x_unit="tokens",
    y_unit="seconds",
    log_x=True,
    log_y=True,
).picture()

# %% [markdown] slideshow={"slide_type": "subslide"}
# The same in numbers, with the time that FlexAttention takes to compile apart: a compiled kernel is paid for once in
# each process and for each new shape, and the views need no compiler.

# %% slideshow={"slide_type": "fragment"}
for row in prefill:
    if row.metric == "time":
        print(f"S = {row.params['S']:>6,}   {row.variant:24} {row.value * 1e3:9,.1f} ms")
    elif row.metric == "compile seconds":
        print(f"S = {row.params['S']:>6,}   {'compiling FlexAttention':24} {row.value:9.1f} s")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Forward and backward together, with the peak memory of both. FlexAttention is missing, because it has no backward pass
# on a CPU.

# %% slideshow={"slide_type": "fragment"}
training = [row for row in recorded.rows if row.case.startswith(bench.BOTH)]
for row in select(training, metric="time"):
    size = {"S": row.params["S"], "W": row.params["W"]}
    peak = next((r.value for r in select(training, variant=row.variant, metric=PEAK, **size)), 0)
    print(f"S = {size['S']:,}, W = {size['W']:>5,}   {row.variant:20} {row.value * 1e3:9,.0f} ms", end="")
    print(f"   peak {peak / 2**20:7.1f} MiB" if peak else "")

# %% slideshow={"slide_type": "fragment"}
from attnlab.bench.units import human

for target in recorded.targets:
    if "decode" not in target.name and target.measured is not None:
        promise, found = human(target.bound, target.unit), human(target.measured, target.unit)
        kept = "met    " if target.met else "NOT met"
        print(f"{kept} {target.name}: {target.relation} {promise}, found {found}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# These are the promises that the path was built to keep, and what the recorded run found; where it says NOT met, the
# promise is not kept yet. *Prefill* is one forward pass over a whole prompt; "beside" a rival means how many times as
# fast as the rival. On a machine with a GPU, `python -m attnlab bench ring --json data/gpu/NAME.json` makes a record,
# and the next cell prints its times.

# %% slideshow={"slide_type": "fragment"}
gpu_records = [
    r for r in load_records(root() / "gpu").values() if any(row.technique == "ring" for row in r.rows)
]
print(f"GPU records found for this technique: {len(gpu_records)}.")
for record in gpu_records:
    print(record.environment["gpus"][0]["name"], record.created[:10])
    for row in record.rows:
        if row.case.startswith(bench.FORWARD) and row.metric == "time":
            print(f"  {row.case:38} {row.variant:24} {row.value * 1e3:9,.2f} ms")

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Which sizes?
#
# How large should a block be? The model of section 7 knows bytes, and nothing of caches, vector units or the price of a
# call, so in the end it is measured. `python -m attnlab tune ring` times every candidate beside the default, and keeps
# a winner only if it beats the default by more than a tenth, for this machine and this version of torch. From then on
# `sliding_window_attention` uses it. Here is the same for one small setting; nothing is kept.

# %% slideshow={"slide_type": "fragment"} tags=["nbval-ignore-output"]
import io

from attnlab.bench import ring_tune as tune

print(tune.table(tune.tune(quick=True, chosen=[tune.Setting("forward", 128, 64)], err=io.StringIO())))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 10 · Exercises
#
# Each check runs your own function, on inputs chosen to be difficult and on many drawn at random, and shows the first
# that breaks it. Solutions are in [solutions/03_tiles.ipynb](solutions/03_tiles.ipynb).

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Fill in
#
# Skip, edge or dense, from the corners alone: say what each key tile is to one row of query tiles. The window is
# causal. A tile that the end of the sequence cuts off counts as an edge. No table of entries is allowed; the check
# measures the memory that your function takes.

# %% slideshow={"slide_type": "fragment"}
from attnlab.exercises.tiles import check_attend, check_blocks, check_kinds, check_merge


def kinds_of_row(row, tile, tokens, window):
    """List 0 (skip), 1 (edge) or 2 (dense) for each key tile of one row of query tiles."""
    ...  # your code here


check_kinds(kinds_of_row)

# %% slideshow={"slide_type": "skip"}
check_kinds.hints

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Find the bug
#
# This is what the first code of this project did, and section 3 says what is wrong with it. Run
# `check_attend(softmax_in_each_tile)` to see the input that breaks it; then write it correctly. Carry (m, l, O) with
# you.

# %% slideshow={"slide_type": "subslide"}
from attnlab.exercises.tiles_bugs import merge_from_nothing, softmax_in_each_tile

show_source(softmax_in_each_tile)


# %% slideshow={"slide_type": "fragment"}
def attend_in_tiles(scores, values, tile):
    """Attend with one query over all its keys, one tile at a time; float64 [D]."""
    ...  # your code here


check_attend(attend_in_tiles)

# %% slideshow={"slide_type": "skip"}
check_attend.hints

# %% [markdown] slideshow={"slide_type": "subslide"}
# The next one does merge, and keys may be hidden now: their score is -inf. It has no symptom until some query sees
# nothing in its first tile. Rows in which everything is hidden have given NaN in code that shipped (pull request 412 of
# lablup/mlxcel mends such a case).

# %% slideshow={"slide_type": "subslide"}
show_source(merge_from_nothing)


# %% slideshow={"slide_type": "fragment"}
def merge_in_tiles(scores, values, tile):
    """The same with hidden keys; 0 for a query that sees nothing at all."""
    ...  # your code here


check_merge(merge_in_tiles)

# %% slideshow={"slide_type": "skip"}
check_merge.hints

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Open
#
# Tiles need not be square. Given what fits on the chip, choose the two sides of a tile and the order that move the
# fewest bytes in a forward pass. The chip holds a tile each of Q, K, V and O, 2 (block_q + block_kv) rows, and at most
# `most_rows`. A number has 2 bytes. In a tie take the smaller block_q, then the smaller block_kv, then Q-major. Then
# look at what you found: which side wants to be long, and why? (Without `print` the answer also draws the tiles.)


# %% slideshow={"slide_type": "fragment"}
def best_blocks(tokens, window, head_dim, sizes, most_rows):
    """Choose block_q and block_kv out of `sizes`, and 0 for Q-major or 1 for K-major."""
    ...  # your code here


print(check_blocks(best_blocks))

# %% slideshow={"slide_type": "skip"}
check_blocks.hints

# %% [markdown] slideshow={"slide_type": "subslide"}
# Without a check, for an evening: let every second row of tiles run from right to left. Where two rows meet at the same
# key tile, a chip could keep that tile. At how many turns does this happen, for a short window and for the full causal
# triangle? (`walk` takes the order in `visits`, but loads K and V at each visit; write your own count.)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 11 · What to remember
#
# - A causal window leaves W / T + 1 tiles to a row (if T divides W), whatever the length of the sequence. Two of them are
#   edges.
# - A softmax can be taken in pieces, in any order, if every piece says how much it weighs: (m, l, O).
# - A masked entry is computed and loaded. A skipped tile is neither, and NaN can tell the two apart.
# - Order changes no result. It changes what travels: keep on the chip the side with more unfinished
#   sums: queries forward; keys backward, or queries there too if two or more query heads are handled together.
# - What autograd keeps is decided by what you compute again. One number for each query, the LSE, replaces a table.
# - Less work becomes less time only if it is still done in few calls.
#
# **Terms.** *Sliding window*: each query sees the last W keys, its own included. *Tile*: a square of the score matrix
# that is handled at once. *Dense, edge, skip*: all visible, visible in part, not visible. *Diagonal, far edge*: the two
# borders of a causal window. *Online softmax*: a softmax taken piece by piece. *(m, l, O)*: largest score, sum of
# exp(score - m), and that sum over values. *Merge*: two such triples made one. *LSE*: log-sum-exp of a row, m + log l.
# *Q-major, K-major*: whether the outer loop runs over queries or over keys. *Two levels*: blocks to schedule by, tiles
# to refine their edges. *View*: a tensor that reads another's memory without a copy. *Grouped queries*: several query
# heads to one head of keys and values. *SDPA*: torch's `scaled_dot_product_attention`. *BlockMask*: FlexAttention's
# list of tiles to visit. *Kernel*: the program that a device runs for one operation. *Fused*: one call for the whole of
# attention, which stores no scores. *Roofline*: the two limits of a machine, arithmetic and bytes. *FLOP*: one
# multiplication or addition. *Eager*: run call by call, not compiled.
#
# **Papers and code.**
#
# - M. Milakov, N. Gimelshein, *Online normalizer calculation for softmax*, 2018,
#   [arXiv 1805.02867](https://arxiv.org/abs/1805.02867): m and l in one pass. M. N. Rabe, C. Staats, *Self-attention does
#   not need O(n²) memory*, 2021, [arXiv 2112.05682](https://arxiv.org/abs/2112.05682): O carried along.
# - T. Dao et al., *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135), and T. Dao,
#   *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691): the tiles, the recomputation from the
#   LSE, and the loop orders.
# - J. Dong et al., *Flex Attention*, 2024, [arXiv 2412.05496](https://arxiv.org/abs/2412.05496): full, partial and empty
#   blocks.
# - T. Dao, D. Haziza, F. Massa, G. Sizov, [*Flash-Decoding*](https://pytorch.org/blog/flash-decoding/), 2023: one query,
#   its keys dealt out to many programs, and the same merge. `attnlab/ring/triton_decode.py` does this.
# - S. Williams, A. Waterman, D. Patterson, *Roofline*, Communications of the ACM 52(4), 2009.
# - Triton's [tutorial on fused attention](https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html),
#   whose turns our kernel takes.
#
# Before: [02 · Ring buffers](02_ring_buffers.ipynb). The ring holds the keys of the window, and the tiles of this
# notebook are how they are read.
