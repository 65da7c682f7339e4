"""A mask as a matrix: which query token sees which key token."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from attnlab.show.card import MARGIN, open_card
from attnlab.show.grid import Grid
from attnlab.show.numeric import Number
from attnlab.show.outline import corner_count, outline
from attnlab.show.palette import segment_colour
from attnlab.show.picture import Picture
from attnlab.show.segment_strip import SegmentStrip
from attnlab.show.svg import Svg, number
from attnlab.show.text_width import text_width
from attnlab.show.token_axes import TICK, TokenAxes

__all__ = ["mask_picture"]

# A corner costs about four characters, so this keeps a picture under 12 kB.
_MOST_CORNERS = 2400
_SHADES = 4
_LARGEST_CELL = 40.0


def mask_picture(
    mask: Bool[np.ndarray, "q_len kv_len"],
    *,
    title: str | None = "the mask",
    sentence: str | None = None,
    segment_ids_q: Int[np.ndarray, " q_len"] | None = None,
    segment_ids_kv: Int[np.ndarray, " kv_len"] | None = None,
    highlight_row: int | None = None,
    highlight_label: str | None = None,
    x_label: str = "key token",
    y_label: str = "query token",
    side: Number = 380,
    panel: bool = False,
) -> Picture:
    """Draw a mask; True means that the query token of the row sees the key token of the column.

    Short sequences are drawn cell by cell. A mask with more detail than a screen resolves is drawn in squares
    of several tokens, shaded by the share of their pairs that is visible, and the picture says so.

    Parameters
    ----------
    mask
        The visible pairs.
    title
        Title of the picture; None leaves the header out.
    sentence
        What to say instead of the count of visible pairs.
    segment_ids_q, segment_ids_kv
        Segment of each token, 0 for padding. Pairs take the colour of their query's segment. Keys default to
        the queries' ids when the mask is square.
    highlight_row
        A query token whose row is outlined.
    highlight_label
        Words beside that row; "row 17" by default.
    x_label, y_label
        Names of the axes.
    side
        Length of the longer side of the matrix, in pixels.
    panel
        A smaller title and no sentence, for a part of a larger picture.

    Returns
    -------
    Picture
        Its only plot is a `Grid` with one cell for each pair.

    Raises
    ------
    TypeError
        If ``mask`` is not Boolean or the ids are not integers.
    ValueError
        If a shape does not fit or ``highlight_row`` lies outside the mask.
    """
    mask = np.asarray(mask)
    if mask.dtype != np.bool_:
        raise TypeError(f"mask must be Boolean, got {mask.dtype}")
    if mask.ndim != 2 or 0 in mask.shape:
        raise ValueError(f"mask must have shape [q_len, kv_len], neither of them 0, got {mask.shape}")
    q_len, kv_len = mask.shape
    if segment_ids_q is None and segment_ids_kv is not None:
        raise ValueError("segment_ids_q must be given with segment_ids_kv, got None")
    if segment_ids_q is not None and segment_ids_kv is None:
        segment_ids_kv = segment_ids_q
    ids_q = None if segment_ids_q is None else _ids(segment_ids_q, q_len, "segment_ids_q")
    ids_kv = None if segment_ids_kv is None else _ids(segment_ids_kv, kv_len, "segment_ids_kv")
    if highlight_row is not None and not 0 <= highlight_row < q_len:
        raise ValueError(f"highlight_row must be in [0, {q_len}), got {highlight_row}")
    if sentence is None:
        sentence = _count(mask)

    cell = min(side / max(mask.shape), _LARGEST_CELL)
    # A mask with few queries for many keys keeps rows tall enough to see.
    axes = TokenAxes(
        q_len,
        kv_len,
        width=max(cell * kv_len, 60),
        height=max(cell * q_len, 60 if q_len > 1 else 24),
        above=30 if ids_q is not None else 4,
        aside=9 if ids_q is not None else 0,
        x_label=x_label,
        y_label=y_label,
    )
    block = _block_size(mask, ids_q)
    note = f"Each square is {block} × {block} pairs; its shade is the share visible." if block > 1 else ""
    label = highlight_label or (f"row {highlight_row:,}" if highlight_row is not None else "")
    beside = 12 + text_width(label, TICK) if label else 0
    width = MARGIN + max(
        axes.right, axes.left + axes.width + beside, text_width(note, TICK) + MARGIN, 0 if panel else 470
    )
    body = axes.body_height + (24 if note else 0)
    canvas, top = open_card(width, body, title=title, sentence=sentence, panel=panel)
    grid = Grid(
        axes.left,
        top + axes.top,
        axes.width,
        axes.height,
        axes.width / kv_len,
        axes.height / q_len,
    )
    _draw_pairs(canvas, grid, mask, ids_q, block)
    _draw_lines(canvas, grid, axes)
    if ids_q is not None and ids_kv is not None:
        keys = SegmentStrip(ids_kv, grid.cell_width)
        keys.draw_names(canvas, grid.x, grid.y - 14)
        keys.draw_bar(canvas, grid.x, grid.y - 9, 5)
        SegmentStrip(ids_q, grid.cell_height).draw_bar(canvas, grid.x - 9, grid.y, 5, upright=True)
    axes.draw(canvas, top)
    if highlight_row is not None:
        y, height = grid.y + highlight_row * grid.cell_height, grid.cell_height
        canvas.rect(
            grid.x - 2, y - 1, grid.width + 4, max(height, 2) + 2, stroke="now", stroke_width=2, radius=2
        )
        canvas.text(grid.x + grid.width + 12, y + height / 2 + 4.5, label, size=TICK, fill="now-text")
    if note:
        canvas.text(MARGIN, top + body - 2, note, size=TICK, fill="quiet")
    return Picture(canvas.render(title=title or "", sentence=sentence), sentence, (grid,))


def _ids(ids: np.ndarray, length: int, name: str) -> np.ndarray:
    ids = np.asarray(ids)
    if not np.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"{name} must be integers, got {ids.dtype}")
    if ids.shape != (length,):
        raise ValueError(f"{name} must have shape ({length},), as the mask has, got {ids.shape}")
    if ids.min() < 0:
        raise ValueError(f"{name} must not be negative, got {ids.min()}")
    return ids


def _count(mask: np.ndarray) -> str:
    visible = int(np.count_nonzero(mask))
    if visible == mask.size:
        return f"All {mask.size:,} pairs are visible." if visible > 1 else "The only pair is visible."
    verb = "is" if visible == 1 else "are"
    return f"{visible:,} of {mask.size:,} pairs {verb} visible ({visible / mask.size:.1%})."


def _block_size(mask: np.ndarray, ids: np.ndarray | None) -> int:
    """Return the side of the squares that are drawn as one: 1 where every pair can be drawn."""
    if max(mask.shape) <= 1024 and _corners(mask, ids) <= _MOST_CORNERS:
        return 1
    block = 2
    while (
        max(mask.shape) / block > 128
        or sum(corner_count(layer) for _, _, layer in _layers(mask, ids, block)) > _MOST_CORNERS
    ):
        block *= 2
    return block


def _corners(mask: np.ndarray, ids: np.ndarray | None) -> int:
    return sum(corner_count(layer) for _, _, layer in _layers(mask, ids, 1))


def _layers(mask: np.ndarray, ids: np.ndarray | None, block: int) -> list[tuple[str, Number, np.ndarray]]:
    """Split a mask into layers of one colour role and one opacity each."""
    if ids is None:
        roles = {"dense": mask}
    else:
        wanted: dict[str, list[int]] = {}
        for segment in np.unique(ids[mask.any(axis=1)]):
            wanted.setdefault(segment_colour(int(segment)) if segment else "muted", []).append(int(segment))
        roles = {role: mask & np.isin(ids, segments)[:, None] for role, segments in wanted.items()}
    if block == 1:
        return [(role, 1.0, part) for role, part in roles.items()]
    counts = {role: _pool(part, block) for role, part in roles.items()}
    whole = _pool(np.ones_like(mask), block)
    total = sum(counts.values(), np.zeros_like(whole))
    # A square in which several segments meet takes the colour of the one with most pairs, shaded by all of
    # them.
    winner = np.argmax(np.stack(list(counts.values())), axis=0) if counts else whole
    shade = np.ceil(_SHADES * total / whole).astype(int)
    shade[(shade == _SHADES) & (total < whole)] = _SHADES - 1
    return [
        (role, level / _SHADES, (shade == level) & (winner == i))
        for i, role in enumerate(counts)
        for level in range(1, _SHADES + 1)
        if ((shade == level) & (winner == i)).any()
    ]


def _pool(part: np.ndarray, block: int) -> np.ndarray:
    rows = np.add.reduceat(part, np.arange(0, part.shape[0], block), axis=0, dtype=np.int64)
    return np.add.reduceat(rows, np.arange(0, part.shape[1], block), axis=1)


def _draw_pairs(canvas: Svg, grid: Grid, mask: np.ndarray, ids: np.ndarray | None, block: int) -> None:
    canvas.rect(grid.x, grid.y, grid.width, grid.height, fill="skip")
    scale = f"scale({grid.cell_width * block:.5g} {grid.cell_height * block:.5g})"
    # The last square of a ragged mask reaches past its end and is cut there.
    canvas.raw(
        f'<svg x="{number(grid.x)}" y="{number(grid.y)}" width="{number(grid.width)}" '
        f'height="{number(grid.height)}"><g transform="{scale}">'
    )
    for role, opacity, layer in _layers(mask, ids, block):
        canvas.path(outline(layer), fill=role, opacity=opacity)
    canvas.raw("</g></svg>")


def _draw_lines(canvas: Svg, grid: Grid, axes: TokenAxes) -> None:
    """Separate cells that are large enough; otherwise draw a line at each tick."""
    each = min(grid.cell_width, grid.cell_height) >= 6
    columns = range(1, axes.kv_len) if each else [c for c in axes.columns if 0 < c < axes.kv_len]
    rows = range(1, axes.q_len) if each else [r for r in axes.rows if 0 < r < axes.q_len]
    d = "".join(
        f"M{number(grid.x + c * grid.cell_width)} {number(grid.y)}v{number(grid.height)}" for c in columns
    )
    d += "".join(
        f"M{number(grid.x)} {number(grid.y + r * grid.cell_height)}h{number(grid.width)}" for r in rows
    )
    if d:
        canvas.path(d, stroke="paper", stroke_width=0.8 if each else 1.2)
