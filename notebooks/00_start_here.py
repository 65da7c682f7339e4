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
# Attention compares every token with every other, and so its cost grows with the square of their number. That
# sentence is true of the definition and false of most computations done with it. Masks are mostly empty. Padding is
# not data. Old keys are never looked at again. A matrix of positions repeats itself. Each notebook on this shelf takes
# one such fact, starts from code so short that it is obviously right, and ends with code that is fast, and at every
# step shows that the two still agree.
#
# The code is in the package `attnlab`, which you can read and borrow. The notebooks hold the story. What is shown as
# source here is the package's own source, printed from the files that run.
#
# **You need** to know what attention is: queries, keys, values, a softmax, a mask. You do not need a GPU.
#
# **It runs** in under half a minute on a laptop.

# %% slideshow={"slide_type": "slide"}
from attnlab.show.shelf import shelf_picture

shelf_picture()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 1 · The shelf
#
# | notebook | question | state |
# |---|---|---|
# | 00 start here | what is this, and will it run? | you are reading it |
# | [01 packed sequences](01_packed_sequences.ipynb) | how long is each sequence in this row, and where does it start? | ready |
# | 02 ring buffers | how does a cache of fixed size serve a stream without end? | not written yet |
# | 03 tiles | which parts of the score matrix need computing at all? | not written yet |
# | 04 relative positions | why multiply by a matrix of zeros and a one? | not written yet |
# | 05 a speech encoder | what does it cost to never look at padding? | not written yet |
# | 06 many devices | who holds which keys, and who waits? | not written yet |
# | 07 everything together | what is left when all four are used at once? | not written yet |
#
# The notebooks can be read in any order; each says at the top what it takes for granted.
#
# **If you are a student**, open 01 and run it cell by cell. Before you unfold an answer, write down your own. The
# exercises at the end check your function on rows made to break it, and show you the row that did.
#
# **If you are preparing a lecture**, every figure and explorer is one cell, and cells carry slide tags: *View, Cell
# Toolbar* or any nbconvert slide theme will find them. Pictures follow light and dark themes, and their text is large
# enough to project.
#
# **If you came for one function**, read the package: each technique is one folder, and each folder has a `reference.py`
# that says what is meant and a `numpy.py`, `torch.py` and `jax.py` that do it fast, under one signature.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 2 · What this machine can run
#
# The next cell asks the package's doctor. Whatever is missing, the notebooks still run: they say what was left out, and
# show a recorded result where there is one. The same list comes from `python -m attnlab doctor` in a terminal.

# %% tags=["nbval-ignore-output"]
from attnlab import doctor

print(doctor.as_text(doctor.checks()))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 3 · How the pictures work
#
# There are two kinds of moving picture here.
#
# An **explorer** has sliders and buttons above a picture. Python redraws it as you move them, so the notebook must be
# running. Click a slider and use the arrow keys; hold them down to sweep. Under the picture stands one sentence
# that says the same in words, also for a screen reader, and it changes along.
#
# Try it on masks. A mask says which key each query may see. On the left is the mask entry by entry, on the right the
# same mask cut into tiles. A fused attention kernel works tile by tile: it computes a **dense** tile without looking
# at the mask, applies the mask inside an **edge** tile, and never loads a **skip** tile. Make the window small and
# watch how many tiles are left. Then change the tile size and see what that does to the edge tiles.

# %%
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


# %% slideshow={"slide_type": "slide"}
explore(
    draw,
    mask=["full", "causal", "causal window", "prefix", "padding", "two documents"],
    size=(1, TOKENS),
    tile=[2, 4, 8, 16],
    labels={"size": "window, prefix or length", "tile": "tile side"},
)

# %% [markdown] slideshow={"slide_type": "slide"}
# A **replay** steps through something that happened. All its steps are stored with the page, so it moves without
# Python, on a web page too. Click on it: the left and right arrows step, space plays and pauses, Home and End jump.
#
# This one visits the tiles of a small causal window in the order in which a kernel would, one row of tiles after
# another. Notebook 03 will look at what has to be loaded at each step, and what another order changes.

# %% slideshow={"slide_type": "slide"}
from attnlab.show import Frame, Svg, replay

window = tile_map(causal() & sliding_window(12), TOKENS, TOKENS, 8)
base = tile_picture(window, title=None)
frames = []
for step, (q, k) in enumerate(window.order("q"), start=1):
    overlay = Svg(*base.size)
    overlay.rect(*base.plots[0].box(q, k), stroke="now", stroke_width=4)
    say = f"Step {step} of {window.n_visited}: query tile {q} meets key tile {k}."
    frames.append(Frame(overlay.inner(), say))
replay(base, frames, "The tiles of a causal window, visited row by row")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 4 · What you can rely on
#
# **Every fast path equals a reference.** The reference is short, in NumPy or in float64. The tests compare each
# optimised path with it on random and on adversarial input, forward and gradient.
#
# **Every number is measured.** A time printed here was taken on the machine that ran the cell, or is labelled as
# recorded, with the machine and the library versions it was recorded on. `python -m attnlab bench` repeats any of them.
# No time is typed into the text.
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
