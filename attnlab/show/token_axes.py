"""The two axes that every mask has: query tokens downwards, key tokens to the right."""

from __future__ import annotations

from dataclasses import dataclass

from attnlab.show.card import MARGIN
from attnlab.show.numeric import Number
from attnlab.show.svg import Svg
from attnlab.show.text_width import text_width

__all__ = ["TICK", "TokenAxes", "tick_positions"]

TICK = 13.0
_NAME = 14.0
_ROUND = (1, 2, 5, 10, 20, 50)


def tick_positions(count: int, pixels: Number, spacing: Number, block: int = 1) -> list[int]:
    """Choose round token indices for the ticks of an axis.

    Parameters
    ----------
    count
        Tokens on the axis.
    pixels
        Length of the axis.
    spacing
        Least distance between two ticks, in pixels.
    block
        Ticks stand at the edges of blocks of this many tokens.

    Returns
    -------
    list of int
        From 0 up. Powers of two apart where the count is itself made of them, as sequence lengths often are.
    """
    if block > 1:
        step = block
        while step * pixels / count < spacing:
            step *= 2
        return list(range(0, count + 1, step))
    binary = count >= 64 and count % 32 == 0
    step, i = 1, 0
    while step * pixels / count < spacing:
        i += 1
        step = 2**i if binary else _ROUND[i % 3] * 10 ** (i // 3)
    return list(range(0, count + (1 if count >= 64 else 0), step))


@dataclass(frozen=True)
class TokenAxes:
    """Place of a mask on its card, and what is written around it.

    Attributes
    ----------
    q_len, kv_len : int
        Tokens on the two axes.
    width, height : float
        Size of the plot, in pixels.
    above : float
        Pixels kept free above the plot.
    aside : float
        Pixels kept free between the query labels and the plot.
    x_label, y_label : str
        Names of the axes.
    block_q, block_kv : int
        Tokens of a tile, where the ticks should stand at tile edges.
    """

    q_len: int
    kv_len: int
    width: Number
    height: Number
    above: Number = 0
    aside: Number = 0
    x_label: str = "key token"
    y_label: str = "query token"
    block_q: int = 1
    block_kv: int = 1

    @property
    def _labels(self) -> Number:
        return max(text_width(f"{tick:,}", TICK) for tick in self.rows)

    @property
    def left(self) -> Number:
        """Where the plot begins, in pixels from the left of the card."""
        return MARGIN + (0 if self._flat else _NAME + 10) + self._labels + 8 + self.aside

    @property
    def top(self) -> Number:
        """Where the plot begins, in pixels from the top of the body."""
        return self.above + (24 if self._flat else 0)

    @property
    def _flat(self) -> bool:
        """Whether the name of the query axis lies above a plot too low for it to stand beside."""
        return text_width(self.y_label, _NAME) > self.height

    @property
    def right(self) -> Number:
        """Where the plot and its last tick label end, in pixels from the left of the card."""
        return self.left + self.width + text_width(f"{self.columns[-1]:,}", TICK) / 2

    @property
    def body_height(self) -> Number:
        """Height of the plot with everything above and below it."""
        return self.top + self.height + 24 + 24

    @property
    def rows(self) -> list[int]:
        """Ticks of the query axis."""
        return tick_positions(self.q_len, self.height, self._spacing, self.block_q)

    @property
    def columns(self) -> list[int]:
        """Ticks of the key axis."""
        return tick_positions(self.kv_len, self.width, self._spacing, self.block_kv)

    @property
    def _spacing(self) -> Number:
        # One spacing for both axes gives a square mask the same ticks both ways.
        return text_width(f"{self.kv_len:,}", TICK) + 14

    def draw(self, canvas: Svg, top: Number) -> None:
        """Write the tick labels and the names of the axes; ``top`` is where the body of the card starts."""
        x, y = self.left, top + self.top
        # A cell that can be told apart is named at its middle, a boundary in a long sequence where it lies.
        down = 0.5 * self.height / self.q_len if self.q_len < 64 and self.block_q == 1 else 0
        along = 0.5 * self.width / self.kv_len if self.kv_len < 64 and self.block_kv == 1 else 0
        edge = x - self.aside - 8
        rows = [(edge, y + t * self.height / self.q_len + down + 4.5, f"{t:,}") for t in self.rows]
        canvas.texts(rows, size=TICK, fill="quiet", anchor="end")
        base = y + self.height + 19
        columns = [(x + t * self.width / self.kv_len + along, base, f"{t:,}") for t in self.columns]
        canvas.texts(columns, size=TICK, fill="quiet", anchor="middle")
        canvas.text(x + self.width / 2, y + self.height + 42, self.x_label, size=_NAME, anchor="middle")
        if self._flat:
            canvas.text(MARGIN, top + 12, self.y_label, size=_NAME)
        else:
            middle = y + self.height / 2
            canvas.text(MARGIN + 12, middle, self.y_label, size=_NAME, anchor="middle", rotate=-90)
