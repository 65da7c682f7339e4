"""How a quantity is written on an axis, and where a logarithmic axis puts its ticks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from attnlab.show.numeric import Number

__all__ = ["UNITS", "Unit"]


def _short(value: Number) -> str:
    """Three significant digits, without an exponent and without trailing zeros."""
    if value >= 1000:
        return f"{value:,.0f}"
    digits = max(2 - math.floor(math.log10(abs(value))), 0) if value else 0
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _count(value: Number) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return _short(value) if value >= 0 else f"−{_short(-value)}"
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    mantissa = value / 10**exponent
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if math.isclose(mantissa, 1) else f"{_short(mantissa)} × 10{raised}"


def _bytes(value: Number) -> str:
    step = 0
    while abs(value) >= 1024 and step < 5:
        value, step = value / 1024, step + 1
    if value == 0:
        return "0"
    return f"{_short(value)} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[step]}"


def _seconds(value: Number) -> str:
    for limit, factor, name in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1, 1e3, "ms")):
        if 0 < value < limit * (1 - 1e-9):
            return f"{_short(value * factor)} {name}"
    return f"{_short(value)} s" if value else "0"


def _tokens(value: Number) -> str:
    for size, name in ((2**20, "M"), (2**10, "k")):
        if value >= size:
            return f"{_short(value / size)}{name}"
    return _short(value)


@dataclass(frozen=True)
class Unit:
    """How one kind of quantity is written.

    Attributes
    ----------
    write : callable
        From a value to text.
    base : int
        Ticks of a logarithmic axis are powers of this base.
    strides : tuple of int
        Exponents between neighbouring ticks that read well, the finest first.
    """

    write: Callable[[Number], str]
    base: int
    strides: tuple[int, ...]

    def log_ticks(self, low: Number, high: Number, most: int) -> list[Number]:
        """Return at most ``most`` ticks for a logarithmic axis from ``low`` to ``high``."""
        first = math.ceil(math.log(low, self.base) - 1e-9)
        last = math.floor(math.log(high, self.base) + 1e-9)
        for stride in self.strides:
            exponents = [e for e in range(first, last + 1) if e % stride == 0]
            if len(exponents) <= most:
                break
        return [float(self.base) ** e for e in exponents]


UNITS: dict[str, Unit] = {
    "count": Unit(_count, 10, (1, 2, 3, 6, 12)),
    "bytes": Unit(_bytes, 2, (1, 2, 5, 10, 20)),
    "seconds": Unit(_seconds, 10, (1, 2, 3, 6)),
    "tokens": Unit(_tokens, 2, (1, 2, 5, 10)),
}
"""``count`` writes 10⁵ or 1,024, ``bytes`` 32 MiB, ``seconds`` 1.5 ms, ``tokens`` 128k (1k is 1,024)."""
