"""The packed-row explorer: ids, mask, tiles, lengths and offsets of one row, and how it breaks."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from attnlab.segments.checks import MaskKind
from attnlab.segments.mask import packed_mask
from attnlab.segments.numpy import positions, seqlens_and_offsets
from attnlab.segments.packing import skewed_lengths
from attnlab.show.mask_picture import mask_picture
from attnlab.show.picture import Picture, beside, stack
from attnlab.show.segment_picture import segment_picture
from attnlab.show.tile_picture import tile_picture
from attnlab.tiles import tile_map

__all__ = ["ROWS", "PackedRow", "packed_row", "packed_row_picture"]

TOKENS, TILE = 32, 4

ROWS = {
    "self-attention": "Queries and keys are the same row.",
    "fewer keys": "The key row keeps about half of every segment, and nothing of the second one.",
    "one segment too many": "The row holds one segment more than max_segments allows.",
    "a hole": "A padding token stands in the middle of the longest segment.",
    "a repeat": "The first id comes back at the end of the row.",
}
"""What can be done to the row, and what each choice means."""


class PackedRow(NamedTuple):
    """One row of queries and one of keys, int32 [T], and how many segments the layout may hold."""

    segment_ids_q: np.ndarray
    segment_ids_kv: np.ndarray
    max_segments: int


def packed_row(segments: int, padding: int, row: str = "self-attention", *, seed: int = 6) -> PackedRow:
    """Build a row of 32 tokens.

    Parameters
    ----------
    segments : int
        How many sequences to pack, 1 to 8.
    padding : int
        How many padding tokens to put behind the segments, in turn, 0 to 12.
    row : str
        One of `ROWS`.
    seed : int
        Of the lengths.

    Raises
    ------
    ValueError
        If a number is out of range or `row` is not in `ROWS`.
    """
    for name, value, least, most in (("segments", segments, 1, 8), ("padding", padding, 0, 12)):
        if not least <= value <= most:
            raise ValueError(f"{name} must be between {least} and {most}; got {value}")
    if row not in ROWS:
        raise ValueError(f"row must be one of {', '.join(map(repr, ROWS))}; got {row!r}")
    lengths = skewed_lengths(segments, TOKENS - padding, seed=seed, spread=0.6)
    gaps = np.full(segments, padding // segments) + (np.arange(segments) >= segments - padding % segments)
    names = np.stack([np.arange(1, segments + 1), np.zeros(segments, int)], axis=1).ravel()
    ids = np.repeat(names, np.stack([lengths, gaps], axis=1).ravel()).astype(np.int32)
    keys = ids.copy()
    if row == "fewer keys":
        keep = [0 if s == 2 else -(-n // 2) for s, n in enumerate(lengths, 1)]
        kept = np.repeat(np.arange(1, segments + 1), keep)
        keys = np.concatenate([kept, np.zeros(TOKENS - kept.size, int)]).astype(np.int32)
    if row == "a hole":
        longest = int(lengths.argmax()) + 1
        ids[np.flatnonzero(ids == longest)[lengths.max() // 2]] = 0
        keys = ids.copy()
    if row == "a repeat":
        ids[-2:] = 1
        keys = ids.copy()
    return PackedRow(ids, keys, max(segments - 1, 1) if row == "one segment too many" else segments)


def packed_row_picture(
    segments: int = 5,
    padding: int = 4,
    mask: MaskKind = "causal",
    window: int = 0,
    row: str = "self-attention",
    *,
    with_tiles: bool = True,
) -> Picture:
    """Draw a packed row of 32 tokens with what `attnlab.segments` finds in it.

    Parameters
    ----------
    segments, padding, row
        As `packed_row`.
    mask : "padding", "causal" or "bottom_right_causal"
    window : int
        Positions of the past that a query sees, its own included; 0 means all.
    with_tiles : bool
        Whether to draw the mask in tiles, too.

    Returns
    -------
    Picture
    """
    ids_q, ids_kv, max_segments = packed_row(segments, padding, row)
    pos_q, pos_kv = positions(ids_q[None])[0], positions(ids_kv[None])[0]
    layout = seqlens_and_offsets(
        ids_q[None], ids_kv[None], pos_q[None], pos_kv[None], mask=mask, max_segments=max_segments
    )
    valid = bool(layout.valid[0])
    rule = packed_mask(ids_q, ids_kv, pos_q, pos_kv, mask=mask, window=window or None)
    tiles = tile_map(rule, TOKENS, TOKENS, TILE)
    same = row != "fewer keys"
    rows = [
        segment_picture(
            ids_q, layout.q_seqlens[0], layout.q_offsets[0],
            title="queries and keys" if same else "queries", invalid=not valid, panel=True,
        )
    ]  # fmt: skip
    if not same:
        rows.append(
            segment_picture(ids_kv, layout.kv_seqlens[0], layout.kv_offsets[0], title="keys", panel=True)
        )
    dense = rule.dense(TOKENS, TOKENS)
    matrices = mask_picture(
        dense, segment_ids_q=ids_q, segment_ids_kv=ids_kv, title="the mask", side=320, panel=True
    )
    if with_tiles:
        (plot,) = matrices.plots
        draw = partial(tile_picture, tiles, title=f"in tiles of {TILE} x {TILE}", side=320, panel=True)
        matrices = beside(matrices, draw(above=plot.y - draw().plots[0].y), gap=24)
    seen = f"{int(layout.q_seqlens.sum())} of {TOKENS} queries and {int(layout.kv_seqlens.sum())} keys"
    seen += " take part"
    if not valid:
        seen = "The layout is marked invalid, and its numbers mean nothing"
    sentence = f"{ROWS[row]} {seen}."
    if with_tiles:
        sentence += f" {tiles.n_visited} of {tiles.kinds.size} tiles are visited, {tiles.n_skip} are skipped."
    heading = f"Packed row · {_plural(segments, 'segment')} in {TOKENS} tokens · {mask.replace('_', ' ')}"
    heading += f" · window {window}" if window else ""
    return stack(*rows, matrices, title=heading, sentence=sentence)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
