# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] slideshow={"slide_type": "slide"}
# # 00 · Start here
#
# *What is on this shelf, will it run on my machine, and how do the pictures work?*
#
# Attention compares every token with every other, and so its cost grows with the square of their number. That is true
# of the definition, but often it is more than has to be paid. Many masks are largely empty. Padding is not data. With a
# sliding window, old keys are never looked at again. A matrix of positions repeats itself. Each notebook on this shelf
# takes such a fact, starts from code so short that it is right by inspection, and ends with code that is fast; at every
# step it shows that the two still agree.
#
# The code is in the package `attnlab`, which you can read and borrow. The notebooks hold the story. What is shown as
# source here is the package's own source, printed from the files that run.
#
# **You need** to know what attention is: queries, keys, values, a softmax, a mask. You do not need a GPU.
#
# **It runs** in under half a minute on a laptop.

# %% slideshow={"slide_type": "subslide"}
from attnlab.show.shelf import shelf_picture

shelf_picture()

# %% [markdown] slideshow={"slide_type": "subslide"}
# From left to right. Several sequences in one row are described by where each begins and how long it is, which spares a
# table of all pairs. When a query sees only the last W keys, a ring of fixed size can hold them, and most tiles of the
# score matrix are empty. The distance between two tokens, cut off at some reach, takes few values (here one shade
# each), so its encoding is looked up and not multiplied out. And utterances of unequal length, padded to the longest
# above and packed below, cost what their frames cost.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 1 · The shelf
#
# | notebook | question | state |
# |---|---|---|
# | 00 start here | what is this, and will it run? | you are reading it |
# | [01 packed sequences](01_packed_sequences.ipynb) | how long is each sequence in this row, and where does it start? | ready |
# | [02 ring buffers](02_ring_buffers.ipynb) | how does a cache of fixed size serve a stream that does not end? | ready |
# | [03 tiles](03_tiles.ipynb) | which parts of the score matrix need computing, and in what order? | ready |
# | 04 relative positions | why multiply by a matrix of zeros and a one? | not written yet |
# | 05 a speech encoder | what does it cost to never look at padding? | not written yet |
# | 06 many devices | who holds which keys, and who waits? | not written yet |
# | 07 everything together | what is left when all of them are used at once? | not written yet |
#
# The notebooks can be read in any order; each says at the top what it takes for granted.
#
# **If you are a student**, open 01 and run it cell by cell. Before you unfold an answer, write down your own. The
# exercises at the end check your function on rows made to break it, and show you the row that did.
#
# **If you are preparing a lecture**, every figure and explorer is one cell, and cells carry slide tags. JupyterLab shows
# the tag of a cell under the gear in the right sidebar, as *Slide Type*, and
# `jupyter nbconvert --to slides notebooks/01_packed_sequences.ipynb` makes slides of them. Pictures follow light and
# dark themes.
#
# **If you came for one function**, read the package: each technique is one folder, and each folder has a `reference.py`
# that says what is meant, and files beside it, named after what they run on, that do it fast under one signature.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 2 · What this machine can run
#
# The next cell asks the package's doctor. *Limited* means that something works in part, *missing* that it is not
# there; each such line says what follows from it. The notebooks need torch, JAX and JupyterLab, which `make lab`
# installs. Without a GPU, a compiler or Triton (a language for GPU kernels) they still run, and say what was left out.
# The same list comes from `python -m attnlab doctor` in a terminal.

# %% slideshow={"slide_type": "fragment"} tags=["nbval-ignore-output"]
from attnlab import doctor

print(doctor.as_text(doctor.checks()))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 3 · How the pictures work
#
# There are two kinds of moving picture here.
#
# An **explorer** has sliders and buttons above a picture. Python redraws it as you move them, so the notebook must be
# running. Click a slider and use the arrow keys; hold them down to sweep. Under the title stands one sentence that says
# the same in words, also for a screen reader, and it changes with the picture.
#
# Try it on masks. A mask says which key each query may see. On the left is the mask entry by entry, on the right the
# same mask cut into tiles. A fused attention kernel (attention computed in one go on the device, without storing the
# scores) works tile by tile: it computes a **dense** tile without looking at the mask, applies the mask inside an
# **edge** tile, and never loads a **skip** tile.
#
# The first slider sets what a mask needs: how many keys a window shows, how many keys a prefix shows to every query,
# or how many keys are real and not padding. *Two documents* are two sequences in one row, each with its own window. In
# *full* and *causal* the first slider does nothing. Make the window small and watch how many tiles are left. Then
# change the tile side and see what that does to the edge tiles.

# %% slideshow={"slide_type": "subslide"}
import numpy as np

from attnlab.masks import causal, document, full, padding, prefix, sliding_window
from attnlab.show import beside, explore, mask_picture, tile_picture
from attnlab.tiles import tile_map

TOKENS = 48
halves = np.repeat(np.array([1, 2]), TOKENS // 2)


def draw(mask="causal window", size=12, tile=4):
    """Draw one mask, entry by entry and in tiles."""
    rule = {
        "full": full(),
        "causal": causal(),
        "causal window": causal() & sliding_window(size),
        "prefix": causal() | prefix(size),
        "padding": padding(size),
        "two documents": causal() & document(halves) & sliding_window(size),
    }[mask]
    tiles = tile_map(rule, TOKENS, TOKENS, tile)
    left = mask_picture(rule.dense(TOKENS, TOKENS), title="the mask", side=320, panel=True)
    right = tile_picture(tiles, title=f"in tiles of {tile} x {tile}", side=320, panel=True)
    sentence = f"{tiles.n_visited} of {tiles.kinds.size} tiles are visited, {tiles.n_skip} are skipped; "
    sentence += f"{tiles.useful:.0%} of the pairs computed are visible."
    return beside(left, right, title=rule.name, sentence=sentence, gap=24)


# %% slideshow={"slide_type": "subslide"}
explore(
    draw,
    mask=["full", "causal", "causal window", "prefix", "padding", "two documents"],
    size=(1, TOKENS),
    tile=[2, 4, 8, 16],
    labels={"size": "window, prefix or length", "tile": "tile side"},
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Small tiles fit the mask closely, and nearly all that they compute is visible; large tiles are fewer, and compute more
# that is thrown away. A kernel's tile side is a compromise between the two.

# %% [markdown] slideshow={"slide_type": "subslide"}
# A **replay** steps through something that happened. Once its cell has run, it moves without asking Python. Click on
# it: the left and right arrows step, space plays and pauses, Home and End jump.
#
# This one visits the tiles of a small causal window in the order in which a kernel would, one row of tiles after
# another. Notebook 03 will look at what has to be loaded at each step, and what another order changes.

# %% slideshow={"slide_type": "subslide"}
from attnlab.show import Frame, Svg, replay

side = 4
window = tile_map(causal() & sliding_window(12), TOKENS // 2, TOKENS // 2, side)
base = tile_picture(window, title=None)
frames = []
for step, (q, k) in enumerate(window.order("q"), start=1):
    overlay = Svg(*base.size)
    overlay.rect(*base.plots[0].box(q, k), stroke="now", stroke_width=4)
    say = f"Step {step} of {window.n_visited}: queries from token {q * side} meet keys from token {k * side}."
    frames.append(Frame(overlay.inner(), say))
replay(base, frames, "The tiles of a causal window, visited row by row")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 4 · What you can rely on
#
# **Every fast path equals a reference.** The reference is short and in NumPy, with float64 where it computes with real
# numbers. The tests compare each optimised path with it on random and on adversarial input, and where there is a
# gradient, that too.
#
# **Every result is measured.** A time printed here was taken on the machine that ran the cell, or is labelled as
# recorded, with the machine and the library versions it was recorded on. `python -m attnlab bench` repeats any of them.
# What is typed into the text are estimates to be worked by hand, and how long a notebook runs.
#
# **Bad input is answered.** A wrong shape, a wrong dtype or a broken rule meets an error that names the argument. Where
# a compiled function may not look at values, it returns a flag instead.
#
# **It stays put.** Nothing here needs the network once it is installed, and every output that does not depend on time
# or machine is compared with the stored one whenever the tests run.
#
# ## 5 · A few words used everywhere
#
# *Token*: one place in a sequence. *Query*, *key*: a token that looks, a token that is looked at. *Mask*: which query
# may see which key. *Tile*: a rectangle of the mask, as large as a kernel handles at once. *Dense, edge, skip*: a tile
# that is all visible, partly visible, not visible. *Kernel*: a function that runs on an accelerator in one go. *Head
# dimension*: the length of one query or key vector. *Reference*: the code that is right by inspection. *Rung*: one step
# from the reference to the fastest path.
#
# Next: [01 · Packed sequences](01_packed_sequences.ipynb).
