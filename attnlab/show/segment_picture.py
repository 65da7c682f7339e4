"""A packed row, with the lengths and starts that were found for it decoded back into brackets.

The picture computes no layout. It draws the ids, and over them what the given numbers claim: a wrong number
gives a bracket in the wrong place.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from attnlab.show.card import MARGIN, open_card
from attnlab.show.numeric import Number
from attnlab.show.picture import Picture
from attnlab.show.segment_row import LABEL, Claim, SegmentRow
from attnlab.show.segment_strip import SegmentStrip
from attnlab.show.svg import Svg, number
from attnlab.show.text_width import text_width

__all__ = ["segment_picture"]

_ROW_WIDTH, _LARGEST_CELL = 840.0, 30.0
_MOST_RUNS, _SHOWN_RUNS = 96, 24
_BANNER = "valid = False: these numbers cannot be trusted"


def segment_picture(
    segment_ids: Int[np.ndarray, " tokens"],
    seqlens: Int[np.ndarray, " segments"],
    offsets: Int[np.ndarray, " starts"],
    *,
    title: str | None = "Packed row",
    sentence: str | None = None,
    invalid: bool = False,
    panel: bool = False,
) -> Picture:
    """Draw one packed row with its segment lengths and starts.

    Up to 64 tokens are drawn as cells with their ids, longer rows as bars in proportion.

    Parameters
    ----------
    segment_ids
        The id of each token; 0 is padding.
    seqlens
        Visible tokens of each segment by id, 0 where a bucket is unused.
    offsets
        Start of each segment in order of appearance, -1 where unused. The k-th start belongs to the k-th
        length that is not 0.
    title
        Title of the picture; None leaves the header out.
    sentence
        What to say instead of the count of tokens.
    invalid
        The layout said ``valid = False``: the picture says so in a banner and draws the brackets dashed.
    panel
        A smaller title and no sentence, for a part of a larger picture.

    Raises
    ------
    TypeError
        If an array does not hold integers.
    ValueError
        If an array is not one-dimensional, the row is empty, or an id or a length is negative.
    """
    ids = _row(segment_ids, "segment_ids")
    lengths, starts = _row(seqlens, "seqlens"), _row(offsets, "offsets")
    if len(ids) == 0:
        raise ValueError("segment_ids must hold at least one token, got none")
    for name, values in (("segment_ids", ids), ("seqlens", lengths)):
        if (values < 0).any():
            raise ValueError(f"{name} must not be negative, got {values.min()}")
    shown = sentence or (_claim(ids, lengths) if invalid else _count(ids, lengths, starts))
    full = f"{_BANNER}. {shown}" if invalid else shown

    tokens, note = _part(ids)
    used = np.flatnonzero(lengths)
    claims = [
        Claim(int(s) + 1, int(o), int(lengths[s])) for s, o in zip(used, starts[starts >= 0], strict=False)
    ]
    x = MARGIN + text_width("seqlens", LABEL) + 16
    row = SegmentRow(
        SegmentStrip(ids[:tokens], min(_LARGEST_CELL, _ROW_WIDTH / tokens)),
        [int(start) for start in starts if 0 <= start < tokens],
        [claim for claim in claims if claim.start < tokens],
        x,
    )
    out = [f"{n:,} {name}" for n, name in zip(row.left_out, ("starts", "lengths"), strict=True) if n]
    if out:
        note += f" {' and '.join(out)} not written for want of room."
    end = f"T = {len(ids):,}" if tokens == len(ids) else "and so on"
    width = max(row.right + 12 + text_width(end, LABEL) + MARGIN, 0 if panel else 470)
    banner, below = 48 if invalid else 0, 24 if note else 0
    canvas, top = open_card(width, banner + row.height + below, title=title, sentence=shown, panel=panel)
    if invalid:
        _draw_banner(canvas, MARGIN, top, width - 2 * MARGIN)
    row.draw(canvas, top + banner, doubtful=invalid)
    canvas.text(row.right + 12, top + banner + row.above + 22, end, size=LABEL, fill="quiet")
    if note:
        canvas.text(x, top + banner + row.height + below - 4, note.strip(), size=13, fill="quiet")
    return Picture(canvas.render(title=title or "", sentence=full), full)


def _part(ids: np.ndarray) -> tuple[int, str]:
    """Return how many tokens to draw, and a note where a row of very many segments is cut short."""
    cuts = np.flatnonzero(np.diff(ids)) + 1
    if len(cuts) < _MOST_RUNS:
        return len(ids), ""
    tokens = int(cuts[_SHOWN_RUNS - 1])
    return (
        tokens,
        f"Shown: the first {tokens:,} of {len(ids):,} tokens, {_SHOWN_RUNS} of {len(cuts) + 1:,} runs.",
    )


def _row(values: np.ndarray, name: str) -> np.ndarray:
    values = np.asarray(values)
    if not np.issubdtype(values.dtype, np.integer):
        raise TypeError(f"{name} must be integers, got {values.dtype}")
    if values.ndim != 1:
        raise ValueError(f"{name} must be one row, got shape {values.shape}")
    return values.astype(np.int64)


def _tokens(count: int) -> str:
    return f"{count:,} token" if count == 1 else f"{count:,} tokens"


def _are(count: int) -> str:
    return "none is" if count == 0 else "1 is" if count == 1 else f"{count:,} are"


def _count(ids: np.ndarray, lengths: np.ndarray, starts: np.ndarray) -> str:
    attend, padding = int(lengths.sum()), int(np.count_nonzero(ids == 0))
    alone = len(ids) - attend - padding
    text = f"{_tokens(attend)} attend{'s' if attend == 1 else ''}, "
    if alone > 0:
        text += f"{alone:,} {'has' if alone == 1 else 'have'} no partner, "
    entries, numbers = len(ids) ** 2, len(lengths) + len(starts)
    return (
        f"{text}{_are(padding)} padding. The mask has {entries:,} entries; {numbers:,} numbers say the same."
    )


def _claim(ids: np.ndarray, lengths: np.ndarray) -> str:
    padding = int(np.count_nonzero(ids == 0))
    said, held = _tokens(int(lengths.sum())), f"{len(ids) - padding:,}"
    verb = "attends" if lengths.sum() == 1 else "attend"
    return f"The numbers say that {said} {verb}; the row holds {held} with an id and {padding:,} of padding."


def _draw_banner(canvas: Svg, x: Number, y: Number, width: Number) -> None:
    canvas.rect(x, y, width, 32, fill="now", opacity=0.1)
    canvas.rect(x, y, 4, 32, fill="now")
    canvas.path(
        f"M{number(x + 24)} {number(y + 8)}l9 16h-18z", stroke="now", stroke_width=1.8, round_ends=True
    )
    canvas.path(
        f"M{number(x + 24)} {number(y + 14)}v4m0 3v.5", stroke="now", stroke_width=1.8, round_ends=True
    )
    canvas.text(x + 42, y + 21, _BANNER, size=LABEL, fill="now-text", bold=True)
