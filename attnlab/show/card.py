"""The paper of a picture: its margin, its title in bold, and its sentence under the title."""

from __future__ import annotations

from attnlab.show.numeric import Number
from attnlab.show.svg import Svg
from attnlab.show.text_width import wrap

__all__ = ["MARGIN", "open_card", "sentence_lines"]

MARGIN = 24.0
_TITLE, _SENTENCE, _PANEL = 20.0, 15.0, 16.0
_TITLE_STEP, _SENTENCE_STEP = 27.0, 22.0
_AFTER_HEADER = 16.0


def sentence_lines(sentence: str, width: Number) -> list[str]:
    """Return the lines in which a sentence is written on a card of this width."""
    return wrap(sentence, _SENTENCE, width - 2 * MARGIN)


def open_card(
    width: Number,
    body_height: Number,
    *,
    title: str | None,
    sentence: str,
    panel: bool = False,
    room_for: int = 0,
) -> tuple[Svg, Number]:
    """Begin a picture: return the drawing, its header written, and the y at which the body starts.

    Parameters
    ----------
    width
        Width of the whole card, its margins included, in pixels.
    body_height
        Height of what will be drawn under the header, in pixels.
    title
        The title; None leaves the header out.
    sentence
        Written under the title, in as many lines as it needs.
    panel
        A smaller title and no sentence, for a part of a larger picture.
    room_for
        Leave room for at least this many lines of sentence.
    """
    if title is None:
        return Svg(width, body_height + 2 * MARGIN), MARGIN
    size = _PANEL if panel else _TITLE
    titles = wrap(title, size, width - 2 * MARGIN, bold=True)
    lines = [] if panel else sentence_lines(sentence, width)
    header = len(titles) * _TITLE_STEP
    header += 0 if panel else max(len(lines), room_for) * _SENTENCE_STEP + _AFTER_HEADER
    canvas = Svg(width, header + body_height + 2 * MARGIN)
    for i, line in enumerate(titles):
        canvas.text(MARGIN, MARGIN + 0.8 * size + i * _TITLE_STEP, line, size=size, bold=True)
    if not panel:
        below = MARGIN + len(titles) * _TITLE_STEP + 0.8 * _SENTENCE
        with canvas.group(name="al-sentence"):
            for i in range(max(len(lines), room_for)):
                line = lines[i] if i < len(lines) else ""
                canvas.text(MARGIN, below + i * _SENTENCE_STEP, line, size=_SENTENCE, fill="quiet")
    return canvas, MARGIN + header
