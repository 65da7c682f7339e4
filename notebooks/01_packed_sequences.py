# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] slideshow={"slide_type": "slide"}
# # 01 · Packed sequences
#
# *How long is each sequence in this row, and where does it start?*
#
# Sequences have different lengths, and a batch of them padded to the longest is mostly padding. A common cure is to
# lay several sequences end to end in one row of T tokens, and to mark every token with the number of the sequence it
# belongs to: its **segment id**. This is called **packing**. A fused attention kernel does not want one id for every
# token, though. It wants two short lists: how long each segment is (`seqlens`) and where it starts (`offsets`).
#
# A widely used library found those two lists by building the attention mask, a table with one entry for every pair
# of tokens, and reading the lists off it. The next cell says how large that table is for a long row.

# %% slideshow={"slide_type": "fragment"}
T, S = 131_072, 16
print(f"T = {T:,} tokens, S = {S} segments: the table has {T * T:,} entries.")
print(f"The answer it holds is {S} lengths and {S + 1} offsets: {S + (S + 1)} numbers.")

# %% [markdown] slideshow={"slide_type": "subslide"}
# (There are 17 offsets and not 16 because the kernels' interface has one more slot than segments. It stays unused
# here and holds -1.)
#
# In this notebook we first do the same, on eight tokens, so that it can be checked by hand. Then we ask what the table
# told us that the row of ids had not, and find the answer in one pass over the ids. At the end the lists are handed on
# to attention itself, and it gives what dense attention gives.
#
# **You need** to know what an attention mask is, and some NumPy. No GPU.
#
# **It runs** from top to bottom in under 90 seconds on a laptop with two cores. A GPU makes no difference here,
# because everything is measured on the CPU; section 8 says how to record a run on a GPU.

# %% slideshow={"slide_type": "skip"}
import numpy as np

from attnlab.segments import numpy as segments_numpy
from attnlab.segments import positions, reference
from attnlab.show import explore, mask_picture, show_source
from attnlab.show.packed_row import ROWS, packed_row_picture

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 1 · The picture
#
# Below is one row of 32 tokens. Five sequences stand in it, and four tokens of padding, which carry the id 0 and are
# hatched. Above the ids stand the offsets: the index of the first token of each segment. Below them stand the lengths.
# Under them is the mask those ids mean: a filled cell says that the query token of its row may attend to the key token
# of its column. Look for the empty rows in it. They belong to padding, which sees nothing and is seen by nothing.

# %% slideshow={"slide_type": "subslide"}
packed_row_picture(with_tiles=False)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The mask is a row of triangles along the diagonal, and a triangle is known as soon as its corner and its side are.
# That is all that the two lists say.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 2 · Back of the envelope
#
# Take T = 131,072 tokens and store the table of ids as 32-bit integers. How many bytes is that? How many bytes are
# the ids themselves? If memory moves at 10 GB/s, how long does it take to write the one, and to read the other?
#
# <details><summary>The answer, worked</summary>
#
# The table has T² = 2³⁴ entries of 4 bytes, which is 2³⁶ bytes = 64 GiB. Writing it once at 10 GB/s takes about seven
# seconds, if it fits in memory at all. The ids are 4 T bytes = 512 KiB. Reading them takes about fifty microseconds.
# The ratio of the two is T = 131,072.
#
# </details>

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 3 · The reference
#
# The reference follows the definition to the letter. Write out the mask; multiply it by the ids; take the maximum of
# every row. A query that may attend to some key has its own id as the maximum; such a token is called **visible**
# here. A query that may attend to nothing has 0. For keys, take the maximum of every column instead.
#
# Queries and keys may be different rows. They differ in cross-attention, and wherever only part of the keys is at
# hand: with a cache, or when several devices share a long row. Both rows then use the same ids.
#
# `mask` names one of three rules for tokens of the same segment. With `"padding"` every query sees every key. With
# `"causal"` a query sees the keys at its own position and before. With `"bottom_right_causal"` both sides count their
# positions from the end of their run, so that the last query sees the last key, whatever the lengths.

# %% slideshow={"slide_type": "subslide"}
show_source(reference.visibility)

# %% [markdown] slideshow={"slide_type": "subslide"}
# From the visible ids, lengths are counts, and starts are the places where a visible id follows a different one. The
# two calls named `check_` stand at the door of every path; `trusted` looks for corrupt rows, of which more in section 6.

# %% slideshow={"slide_type": "subslide"}
show_source(reference.seqlens_and_offsets)

# %% slideshow={"slide_type": "subslide"}
show_source(reference.starts)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Here are eight tokens: a segment of three, one padding token, a segment of two, one of one, and one more padding
# token. The positions count from 0 inside each segment. You can check every number by hand.

# %% slideshow={"slide_type": "fragment"}
ids = np.array([[1, 1, 1, 0, 2, 2, 3, 0]], np.int32)
pos = positions(ids)
layout = reference.seqlens_and_offsets(ids, ids, pos, pos, mask="causal", max_segments=4)
print("ids      ", ids[0])
print("positions", pos[0])
print("seqlens  ", layout.q_seqlens[0])
print("offsets  ", layout.q_offsets[0])

# %% [markdown] slideshow={"slide_type": "subslide"}
# There is room for four segments, and the row has three, so the last length is 0 and the last two offsets are unused.
# Here is the mask. Look at the framed row: query token 5 is the second token of segment 2, and the filled cells of its
# row are the two tokens of that segment.

# %% slideshow={"slide_type": "subslide"}
table = reference.visibility(ids, ids, pos, pos, mask="causal")[0]
mask_picture(
    table,
    segment_ids_q=ids[0],
    highlight_row=5,
    highlight_label="row 5: maximum is id 2",
    title="The mask of eight tokens",
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Now compare the row maxima with what we started from.

# %% slideshow={"slide_type": "fragment"}
row_maxima = (table * ids[0][:, None]).max(axis=1)
print("row maxima of mask x ids:", row_maxima)
print("the ids we started from: ", ids[0])

# %% [markdown] slideshow={"slide_type": "subslide"}
# They are the same eight numbers. The table of 64 entries recovered what was already there. All that it can add is to
# set some ids to 0, where a token has no partner on the other side. That can happen only when queries and keys are
# different rows.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 4 · Climbing down from T²
#
# ### Rung 1: count the ids, and drop the padding bucket
#
# The pull request that removed the table began like this: work out which tokens are visible, move them to the front of
# the row (**compaction**), count how often each id occurs, and look for places where the id changes. A review noted
# that the move was idle. Counting does not care about order, and padding falls into bucket 0, which is thrown away.

# %% slideshow={"slide_type": "subslide"}
from attnlab.segments import jax_rungs

show_source(jax_rungs.by_counting)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The two calls are explained by their last lines. `_read_off` counts with `bincount` and drops bucket 0.
# `_visible_ids` does the one thing that the table did: a query is visible if it stands at or after the oldest key of
# its segment, a key if it stands at or before the newest query. Both bounds are one number for each segment;
# `segment_max` and `segment_min` take the extreme of the values that share an id.

# %% slideshow={"slide_type": "subslide"}
show_source(jax_rungs._visible_ids)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Rung 2: one-hot over segments
#
# `bincount`, `segment_max` and `segment_min` **scatter**: they add into places that the data choose. On accelerators
# that is often slow, so what was merged in the end compares every token with every segment instead. That gives a table
# of T x S zeros and ones, a **one-hot** table. There is no scatter and no sort, and the memory is O(T S).

# %% slideshow={"slide_type": "subslide"}
show_source(jax_rungs.by_one_hot)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Rung 3: look only at the changes
#
# Segments are runs: within one, neighbouring ids are equal. So everything about a row is said by the places where
# neighbours differ, and a row with S segments has at most 2 S of those, counting the padding between them. NumPy finds
# them with one comparison of the ids and `flatnonzero`. From there on, arrays have one entry for each run.
#
# In the source below, read down to the line that begins with `row, column`, and then the last five lines. What lies
# between decides whether the row can be trusted; for that the positions are compared once, too.

# %% slideshow={"slide_type": "subslide"}
show_source(segments_numpy._runs)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Which of these tokens are visible? A segment's positions increase, so the visible queries are a tail of the run and
# the visible keys are a head of it. The function below says how many leading positions of a run are at most `bound`.
# Bisection finds that, and most often not even bisection is needed: n increasing integers whose last less whose first
# is n - 1 are consecutive, and then a subtraction finds the place.

# %% slideshow={"slide_type": "subslide"}
show_source(segments_numpy._count_up_to)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Rung 4: the same where shapes are static
#
# `flatnonzero` returns as many numbers as it finds, and a compiler such as XLA must know how many in advance: its
# shapes are **static**. Asking for "the first 2 S" is allowed, but the answer then involves a running count for every
# token: T numbers in memory again.
#
# The way out is a **directory**, known from succinct data structures as rank/select. Count the changes in each block of
# 32 tokens. A count of at most 32 fits in one byte, so T tokens leave T / 32 bytes behind. Add up 32 counts at a time,
# and keep a running total. That is the directory.

# %% slideshow={"slide_type": "subslide"}
from attnlab.segments import rank_select

show_source(rank_select.build)

# %% [markdown] slideshow={"slide_type": "subslide"}
# To find change number k, counted from 0, bisect the running totals, which names a block of 1,024 tokens. Then descend
# by halves through its 32 counts: add up the left half; if that holds the change we want, stay there, and if not, go
# right and take its changes off k. Five halvings name a block of 32 tokens, and five more name the token.

# %% slideshow={"slide_type": "subslide"}
show_source(rank_select.descend)

# %% slideshow={"slide_type": "subslide"}
show_source(rank_select.select)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Step through one such search. The row has 8,192 tokens, and the steps are those of the functions above: the picture
# calls them, and counts what they read. Look at the number of entries read when the change is found.

# %% slideshow={"slide_type": "subslide"}
from attnlab.segments.packing import skewed_lengths
from attnlab.show.search import search_replay

lengths = skewed_lengths(12, 8000, seed=4)
long_row = np.zeros(8192, np.int32)
long_row[: lengths.sum()] = np.repeat(np.arange(1, 13), lengths)
search = search_replay(long_row, k=6)
search

# %% slideshow={"slide_type": "fragment"}
print(search.frame(-1).sentence)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The ids were read once to build the directory (and the positions once, to see whether they increase). After that each
# of the 2 S lookups reads 31 counts and 31 pairs of tokens, whatever T is; only the bisection grows, by one step each
# time T doubles.
#
# The same idea runs in torch, with a running count of changes and `searchsorted`. It needs O(T) memory, but it never
# waits for the device: nothing calls `.item()`, and `torch.compile(fullgraph=True)` accepts it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 5 · Do they agree?
#
# Every path is run against the reference, under all three masks, on rows drawn at random and on edge cases: an empty
# row, one token, nothing but padding, queries and keys of different segments, positions with gaps, and positions close
# to the largest 32-bit integer. One stretch comes from `data/packed_rows`, where many short and a few long lengths were
# drawn from a log-normal distribution. Lengths and offsets are compared. The tests of this package do the same with
# many more rows.

# %% slideshow={"slide_type": "skip"}
import jax.numpy as jnp
import torch

from attnlab.datasets import load_npz
from attnlab.segments import jax as segments_jax
from attnlab.segments import torch as segments_torch
from attnlab.segments.packing import skewed_lengths

rng = np.random.default_rng(0)


def packed(tokens, segments, padding=8):
    """One row of ids with skewed lengths, padding at the tail."""
    sizes = skewed_lengths(segments, tokens - padding, seed=int(rng.integers(1000)))
    return np.pad(np.repeat(np.arange(1, segments + 1, dtype=np.int32), sizes), (0, padding))[None]


documents = load_npz("packed_rows/rows.npz")["segment_ids_4096"][:1, -1024:]
rows = {
    "a random pair": (packed(1024, 5), packed(1024, 5)),
    "documents": (documents, documents),
    "nothing but padding": (np.zeros((1, 1024), np.int32),) * 2,
    "one token": (np.ones((1, 1), np.int32),) * 2,
    "an empty row": (np.zeros((1, 0), np.int32), packed(1024, 3)),
    "no keys for segment 2": (packed(1024, 3), np.repeat(np.array([[1, 3]], np.int32), 512, axis=1)),
}
moves = {
    "as they are": lambda p: p,
    "with gaps": lambda p: 3 * p,
    "near 2**31": lambda p: p + np.int32(2**31 - 1 - p.max(initial=0)),
}
paths = {
    "NumPy": (segments_numpy.seqlens_and_offsets, np.asarray),
    "torch": (segments_torch.seqlens_and_offsets, torch.from_numpy),
    "JAX": (segments_jax.seqlens_and_offsets, jnp.asarray),
    "by_compaction": (jax_rungs.by_compaction, jnp.asarray),
    "by_counting": (jax_rungs.by_counting, jnp.asarray),
    "by_one_hot": (jax_rungs.by_one_hot, jnp.asarray),
}

worst = dict.fromkeys(paths, 0)
compared = 0
for ids_q, ids_kv in rows.values():
    for move in moves.values():
        inputs = [
            x.astype(np.int32) for x in (ids_q, ids_kv, move(positions(ids_q)), move(positions(ids_kv)))
        ]
        for mask in ("padding", "causal", "bottom_right_causal"):
            expected = reference.seqlens_and_offsets(*inputs, mask=mask, max_segments=32)
            compared += 1
            for name, (way, put) in paths.items():
                got = way(*map(put, inputs), mask=mask, max_segments=32)
                for a, b in zip(got[:4], expected[:4], strict=True):
                    worst[name] = max(worst[name], int(np.abs(np.asarray(a) - b).max(initial=0)))

print(f"{compared} comparisons for each path; largest difference:")
for name, difference in worst.items():
    print(f"  {name:14} {difference}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 6 · The explorer
#
# Move the controls and watch ids, mask, tiles, lengths and offsets change together. On the right the mask is cut into
# tiles of 4 x 4, the unit in which a fused kernel works: it skips those that hold nothing. Three things to try:
#
# 1. Give a sliding window a size. The mask and the tiles change; the lengths and offsets do not. In self-attention
#    every query still sees itself. With *fewer keys* a narrow window can leave a query without any; the layout counts
#    it all the same, because a window is the kernel's affair.
# 2. Choose *fewer keys* under `bottom_right_causal`. Some queries lose all their keys. They stay in the row and
#    disappear from the lengths, and each offset moves to the first query that is left. The second segment loses all
#    of them, and so it contributes neither a length nor an offset.
# 3. Break the row. Each of the last three choices is a mistake that a data pipeline can make. Take *a repeat*: the
#    second run of id 1 overwrote the first, and the tokens at the left have neither length nor offset. Another path
#    may go wrong in another way. What all paths agree on is that the layout says `valid = False`.

# %% slideshow={"slide_type": "subslide"}
explore(
    packed_row_picture,
    segments=(1, 8),
    padding=(0, 12),
    window=(0, 12),
    mask=["padding", "causal", "bottom_right_causal"],
    row=list(ROWS),
    labels={"window": "window (0: none)"},
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# Why the flag matters: to a kernel a broken row looks like any other. It will attend, quietly, over the wrong tokens.
# It has been reported: a packer put more segments into a row than the code downstream had room for, which could crash,
# or corrupt the data without a word ([grain 1000](https://github.com/google/grain/issues/1000),
# [maxtext 2774](https://github.com/AI-Hypercomputer/maxtext/pull/2774)). NumPy could raise an error here; torch and JAX
# may not look at values without waiting for the device, so all paths return a flag.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 7 · Memory
#
# XLA, the compiler behind JAX, plans all its scratch memory before it runs, and will say how much without allocating
# any of it. So we can ask for the plan of the T x T table at a length where this machine could not run it. First, at
# T = 131,072 and S = 16, the plan next to a formula of its largest parts: one 32-bit table of T x T; two one-hot tables
# of T x S; and for rank/select, on each side, one byte of count and one byte that says whether positions increase, for
# every 32 tokens. The formulas leave out what is small at this size: a few numbers for each lookup, of which there are
# 2 S, and in the table's case a second, smaller copy.

# %% slideshow={"slide_type": "fragment"}
from attnlab.bench import segments as bench
from attnlab.bench.case import Report

report = Report("segments", "planned here", quick=True)
bench.plan(report, tokens=131_072, segments=16)
for row in report.rows:
    if row.metric == "XLA temporaries":
        formula = f"formula {row.formula:>18,.0f}" if row.formula else ""
        print(f"{row.variant:12} {row.value:>18,.0f} bytes   {formula}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The plan depends on the version of JAX. Next comes a recorded run of `attnlab bench segments`, which asked the same
# question at more lengths. Drag the slider.

# %% slideshow={"slide_type": "fragment"}
from attnlab.bench.record import read_record
from attnlab.datasets import path
from attnlab.show import Curve, log2
from attnlab.show.results import result_curves

recorded = read_record(path("cpu/segments.json"))
environment = recorded.environment
print(f"Recorded {recorded.created[:10]} on {environment['cpu']['model']},")
print(f"{environment['cpu']['cores_usable']} cores, with jax {environment['packages']['jax']}, by:")
print(recorded.command)

# %% slideshow={"slide_type": "subslide"}
WAYS = {"T x T mask": "muted", "one-hot": "edge", "counting": "seg4", "rank/select": "better"}
lengths_measured = [4096 * 2**i for i in range(9)]
scratch = result_curves(
    recorded.rows,
    over="T",
    metric="XLA temporaries",
    wanted={"case": "planned, over row length"},
    roles=WAYS,
    bounds=[Curve("the ids", lengths_measured, [8 * t for t in lengths_measured], role="ink", dashed=True)],
    title="Scratch memory against row length (recorded)",
    sentence="The table grows with T squared, the others with T. Rank/select stays below the ids.",
    x_label="tokens in the row",
    y_label="planned scratch",
    x_unit="tokens",
    y_unit="bytes",
    log_x=True,
    log_y=True,
    y_range=(1e3, 1e13),
    height=440,
)
explore(lambda tokens=131_072: scratch.with_cursor(tokens), tokens=log2(4096, 2**20), labels={"tokens": "T"})

# %% [markdown] slideshow={"slide_type": "subslide"}
# The dashed line is the size of the ids themselves, query row and key row together. With 16 segments the directory
# stays far below it. Over the number of segments, at T = 131,072, one-hot grows in proportion. Rank/select grows too,
# because each of its 2 S lookups has some scratch of its own. Counting stays where it was. (The table does not depend on
# S; it would lie far above this figure.)

# %% slideshow={"slide_type": "subslide"}
over_segments = result_curves(
    recorded.rows,
    over="S",
    metric="XLA temporaries",
    wanted={"case": "planned, over segments"},
    roles={name: role for name, role in WAYS.items() if name != "T x T mask"},
    title="Scratch memory against segments, T = 128k (recorded)",
    sentence="One-hot grows with S. Rank/select grows too, from much lower. Counting does not.",
    x_label="segments in the row",
    y_label="planned scratch",
    x_unit="tokens",
    y_unit="bytes",
    log_x=True,
    log_y=True,
)
over_segments.picture()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 8 · Time
#
# Measured on this machine now: medians of interleaved runs at T = 131,072 and S = 16. The **read floor** is the time of
# one pass over both rows of ids, which no way that looks at every id can beat.

# %% slideshow={"slide_type": "fragment"} tags=["nbval-ignore-output"]
timed = Report("segments", "timed here", quick=True)
bench.time_ways(timed, tokens=131_072, segments=16)
floor = next(row.value for row in timed.rows if row.variant == "read floor")
for row in timed.rows:
    if row.metric == "time":
        print(f"{row.variant:14} {row.value * 1e6:10,.0f} us   {row.value / floor:8.1f} x the read floor")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The same from the recorded run, for 16 and for 1,024 segments.

# %% slideshow={"slide_type": "fragment"}
print("recorded medians          T = 4,096   T = 131,072   T = 131,072")
print("                             S = 16        S = 16     S = 1,024")
sizes = ("4,096, S = 16", "131,072, S = 16", "131,072, S = 1024")
columns = [
    {
        row.variant: row.value
        for row in recorded.rows
        if row.case == f"time, T = {size}" and row.metric == "time"
    }
    for size in sizes
]
for variant in columns[0]:
    cells = [f"{column[variant] * 1e6:,.0f} us" if variant in column else "-" for column in columns]
    print(f"{variant:14} {cells[0]:>20} {cells[1]:>13} {cells[2]:>13}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The table is missing at T = 131,072 because it does not fit.
#
# **Where the fancy way loses.** Compare the lines of NumPy and rank/select. On a CPU, with no compiler in the way, plain
# change points are hard to beat: the two stay close in every column, and with 1,024 segments NumPy is ahead, because
# 2 S searches of a hundred reads each are real work, while NumPy's comparisons run at memory speed. Eager torch makes a
# dozen passes over T, each a call of its own. One-hot, which replaced counting for the sake of accelerators, loses to it
# here in time and in memory. And on short rows the difference hardly matters, so long as there is no table. The
# directory earns its place where it was needed: in a compiled program, with static shapes, and with little memory to
# spare.

# %% slideshow={"slide_type": "fragment"}
for target in recorded.targets:
    print(f"{'met' if target.met else 'NOT met':8} {target.name}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# These are the promises that the technique was built to keep, as the recorded run found them. No GPU run has been
# recorded yet. On a machine with one, `python -m attnlab bench segments --json data/gpu/NAME.json` makes a record, and
# the next cell prints its times.

# %% slideshow={"slide_type": "fragment"}
from attnlab.bench.record import load_records
from attnlab.datasets import root

gpu_records = [
    r for r in load_records(root() / "gpu").values() if any(row.technique == "segments" for row in r.rows)
]
print(f"GPU records found for this technique: {len(gpu_records)}.")
for record in gpu_records:
    print(record.environment["gpus"][0]["name"], record.created[:10])
    for row in record.rows:
        if row.case.startswith("time") and row.metric == "time":
            print(f"  {row.case:30} {row.variant:14} {row.value * 1e6:10,.0f} us")

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### What a promise is worth
#
# So far nothing was promised about the row, so every token had to be read once. If ids are known to increase, with
# padding only at the tail and positions counting from 0, each start can be bisected: O(S log T), and most of the row is
# never read. And whoever packed the row knew the lengths all along. If the segments stand back to back from token 0
# (which those of section 1 do not), that is O(S), and the row is not read at all. The line to look at is the one with
# `cumulative_sum`.

# %% slideshow={"slide_type": "subslide"}
from attnlab.segments import promises

show_source(promises.from_lengths)

# %% slideshow={"slide_type": "fragment"}
for row in recorded.rows:
    if row.case == "promises" and row.params["T"] == 1_048_576:
        print(f"T = 1,048,576, {row.variant:17} {row.value * 1e6:8,.0f} us (recorded)")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The cheapest way to find the layout is not to lose it. If the packer is your own code, have it return the lengths.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 9 · From the layout to attention
#
# The lists are only useful if attention computed with them is the attention the mask means. Three consumers:
#
# - **Varlen kernels** take all sequences back to back, and `cu_seqlens`, the running totals of their lengths.
# - **FlexAttention** takes a `BlockMask`: which tiles to visit, and a rule for those that are visible in part. It is
#   made from the ids, in O(T log T) and the number of tiles, where torch's own `create_block_mask` evaluates the rule
#   for every pair.
# - **`jax.nn.dot_product_attention`** takes one batch entry for each segment, with its length.
#
# Take one packed row of 256 tokens, two heads of 16 dimensions, and a causal mask. First dense attention in float64:
# the answer all others must give.

# %% slideshow={"slide_type": "fragment"}
from attnlab.attention import dense_attention
from attnlab.segments.mask import packed_mask

ids = packed(256, 6)
pos = positions(ids)
q, k, v = rng.standard_normal((3, 1, 256, 2, 16)).astype(np.float32)
visible = packed_mask(ids[0], ids[0], pos[0], pos[0], mask="causal").dense(256, 256)
dense, _ = dense_attention(*(x[0].swapaxes(0, 1) for x in (q, k, v)), visible)


def error(name, out):
    """Print the largest difference from dense attention."""
    print(f"{name}: largest difference {np.abs(np.asarray(out)[0].swapaxes(0, 1) - dense).max():.0e}")


# %% [markdown] slideshow={"slide_type": "subslide"}
# Varlen attention: gather the visible tokens, and attend between consecutive entries of `cu_seqlens`. The kernels
# need a GPU; here a loop over the segments stands in for them, and takes the same arguments.

# %% slideshow={"slide_type": "fragment"}
from attnlab.segments.varlen import varlen_arguments, varlen_attention

ids_t, pos_t = torch.from_numpy(ids), torch.from_numpy(pos)
layout = segments_torch.seqlens_and_offsets(ids_t, ids_t, pos_t, pos_t, mask="causal", max_segments=8)
arguments = varlen_arguments(layout, q_tokens=256, kv_tokens=256, mask="causal")
print("cu_seqlens:", arguments.cu_seqlens_q.tolist())
error("varlen", varlen_attention(*map(torch.from_numpy, (q, k, v)), arguments))

# %% [markdown] slideshow={"slide_type": "subslide"}
# FlexAttention: on a CPU it must be compiled, which takes some seconds and needs a C++ compiler, so here we compare the
# `BlockMask` itself. The tests run the compiled kernel too.

# %% slideshow={"slide_type": "fragment"}
from torch.nn.attention.flex_attention import create_block_mask

from attnlab.segments.flex import block_mask

ours = block_mask(ids_t, ids_t, pos_t, pos_t, mask="causal", block_size=32)
torchs = create_block_mask(ours.mask_mod, 1, None, 256, 256, device="cpu", BLOCK_SIZE=32)
fields = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
same = all(torch.equal(getattr(ours, f), getattr(torchs, f)) for f in fields)
print(
    f"FlexAttention: BlockMask equal to torch's own: {same}. {ours.sparsity():.0f}% of the tiles are skipped."
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# JAX: one batch entry for each segment, with room for the longest.

# %% slideshow={"slide_type": "fragment"}
from attnlab.segments.dot_product import dot_product_arguments, dot_product_attention

ids_j, pos_j = jnp.asarray(ids), jnp.asarray(pos)
layout = segments_jax.seqlens_and_offsets(ids_j, ids_j, pos_j, pos_j, mask="causal", max_segments=8)
room = int(layout.q_seqlens.max())
arguments = dot_product_arguments(layout, q_tokens=256, kv_tokens=256, max_seqlen_q=room, max_seqlen_kv=room)
error(
    "jax.nn.dot_product_attention",
    dot_product_attention(*map(jnp.asarray, (q, k, v)), arguments, mask="causal"),
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A trap sits here. FlashAttention, from version 2.1 on, lines up the last query with the last key when it is told
# `causal=True`. For self-attention that is what we mean. For a segment with more queries than keys it is a different
# mask. `varlen_arguments` refuses that with an error, because the numbers would be right and the mask wrong.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 10 · Exercises
#
# Each check runs your own function, on rows chosen to be difficult and on many drawn at random, and shows the first
# row that breaks it. Solutions are in [solutions/01_packed_sequences.ipynb](solutions/01_packed_sequences.ipynb).

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Fill in
#
# Write `lengths`: how many tokens of each id one row holds. Neither a table of tokens by tokens nor one of tokens by
# ids is allowed; the check measures the memory your function takes.

# %% slideshow={"slide_type": "fragment"}
from attnlab.exercises.segments import check_lengths, check_offsets, check_starts, check_valid


def lengths(segment_ids, max_segments):
    """Count the tokens of each id 1..max_segments in one row; int32 [max_segments]."""
    ...  # your code here


check_lengths(lengths)

# %% slideshow={"slide_type": "skip"}
check_lengths.hints

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Find the bug
#
# A short version of a mistake from a real library. The function returns where the visible part of each segment starts.
# `visible` says of each token whether it takes part. Lengths are counted elsewhere, and correctly, on visible tokens;
# the k-th start is meant to stand beside the k-th length that is not 0. Run the check, read off the picture which start
# stands beside the wrong length, and repair the function.

# %% slideshow={"slide_type": "subslide"}
from attnlab.exercises.segments_bugs import lengths_trust_order, offsets_keep_trimmed

show_source(offsets_keep_trimmed)

# %% slideshow={"slide_type": "fragment"}
check_offsets(offsets_keep_trimmed)


# %% slideshow={"slide_type": "fragment"}
def offsets(segment_ids, visible, max_segments):
    """List where the visible part of each segment starts, in order, then -1; int32 [max_segments + 1]."""
    ...  # your code here


check_offsets(offsets)

# %% slideshow={"slide_type": "skip"}
check_offsets.hints

# %% [markdown] slideshow={"slide_type": "subslide"}
# And this one counts whatever it is given. Write the function that says whether it should have been called at all.

# %% slideshow={"slide_type": "subslide"}
show_source(lengths_trust_order)


# %% slideshow={"slide_type": "fragment"}
def row_is_valid(segment_ids, max_segments):
    """Return True if ids lie in 1..max_segments, each is one run, and they increase; 0 may stand anywhere."""
    ...  # your code here


check_valid(row_is_valid)

# %% slideshow={"slide_type": "skip"}
check_valid.hints

# %% [markdown] slideshow={"slide_type": "subslide"}
# ### Open
#
# Suppose that ids increase and that padding stands only at the tail. Find all the starts, but read no more than
# O(S log T) tokens. The row counts how often you look: `len(row)` is free, `row[i]` is one read, slices are not offered,
# and the last row has a million tokens.


# %% slideshow={"slide_type": "fragment"}
def starts_from_sorted(row, max_segments):
    """List the start of each segment that occurs, in order of appearance."""
    ...  # your code here


check_starts(starts_from_sorted)

# %% slideshow={"slide_type": "skip"}
check_starts.hints

# %% [markdown] slideshow={"slide_type": "subslide"}
# Without a check, for an evening: scan the row block by block and write the changes of each block straight into 2 S
# slots, so that memory beyond the ids becomes O(S). What does XLA make of it? Or change the blocks in
# `attnlab/segments/rank_select.py` to 64 tokens, and let `attnlab bench segments` say what that does.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## 11 · What to remember
#
# - A table that is built from a row cannot know more than the row does. Ask what it adds, and compute that.
# - Segments are runs, and runs are known by their ends. Work on ends, not on tokens.
# - Counting does not care about order, and padding is a bucket like any other.
# - Where shapes are static, a small directory replaces a list of unknown length.
# - Bad input deserves an answer of its own. Two lists that do not belong together look like any other two lists.
# - Whoever packed the row had the lengths. Keep them.
#
# **Terms.** *Packing*: several sequences in one row. *Segment id*: which sequence a token belongs to; 0 is padding.
# *seqlens*, *offsets*: length and start of each segment. *Run*: neighbouring tokens with one id. *Visible*: allowed to
# attend to, or be attended by, some token of the other side. *Fused kernel*: attention computed in one go on the
# device, tile by tile, without storing the scores. *cu_seqlens*: running totals of lengths. *Varlen attention*:
# attention over sequences laid back to back. *BlockMask*: FlexAttention's list of tiles to visit. *Scatter*: writing
# to places that the data choose. *One-hot*: a row of zeros with a single one. *Static shape*: a size known when the
# program is compiled. *Eager*: run call by call, not compiled. *Directory, rank/select*: counts that tell how many marks
# precede a place, and where mark number k is.
#
# **Papers and code.**
#
# - NVIDIA TransformerEngine, [pull request 2522](https://github.com/NVIDIA/TransformerEngine/pull/2522): from the mask
#   to O(T S). Rungs 1 and 2 follow it; rungs 3 and 4 are our own.
# - G. Jacobson, *Space-efficient static trees and graphs*, FOCS 1989: rank and select.
# - M. M. Krell, M. Kosec, S. P. Perez, A. Fitzgibbon, *Efficient sequence packing without cross-contamination*,
#   [arXiv 2107.02027](https://arxiv.org/abs/2107.02027).
# - T. Dao, *FlashAttention-2*, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691); J. Dong et al., *Flex Attention*,
#   [arXiv 2412.05496](https://arxiv.org/abs/2412.05496).
