"""Numbers as people read them: three significant digits, prefixes in powers of 1000."""

from __future__ import annotations

__all__ = ["human", "human_ratio"]

_SECONDS = (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0))
_BYTES = (("B", 1.0), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12), ("PB", 1e15))
_FLOP = (("FLOP", 1.0), ("kFLOP", 1e3), ("MFLOP", 1e6), ("GFLOP", 1e9), ("TFLOP", 1e12), ("PFLOP", 1e15))
_SCALES = {"s": _SECONDS, "B": _BYTES, "FLOP": _FLOP}

# What a ratio of two values in a unit means in words: (the first is smaller, the first is larger).
_WORDS = {"s": ("faster", "slower")}


def human(value: int | float, unit: str) -> str:
    """Write a value with its unit.

    ``"s"``, ``"B"`` and ``"FLOP"`` take a prefix: ``65.0 us``, ``18.6 MB``, ``28.9 MFLOP``; a kilobyte, KB,
    is 1000 bytes. ``"x"`` is a ratio: ``23.4x``. In any other unit whole numbers have their thousands
    separated and others have three significant digits.
    """
    if unit == "x":
        return f"{_three_digits(value)}x"
    scales = _SCALES.get(unit)
    if scales is None:
        return f"{_whole_or_three(value)} {unit}".rstrip()
    if value == 0:
        return f"0 {unit}"
    # 999.6 would be printed as 1000, which belongs to the next prefix: the rounded value decides.
    name, scale = scales[0]
    for larger_name, larger_scale in scales[1:]:
        if float(f"{abs(value) / larger_scale:.3g}") < 1:
            break
        name, scale = larger_name, larger_scale
    return f"{_whole_or_three(value) if scale == 1 else _three_digits(value / scale)} {name}"


def human_ratio(ratio: int | float, unit: str, baseline: str) -> str:
    """Say how a value compares with a baseline's, given value / baseline: ``23.4x faster than dense``."""
    if ratio == 0:
        return f"nothing beside {baseline}"
    shown = _three_digits(max(ratio, 1 / ratio))
    if shown == "1.00":
        return f"the same as {baseline}"
    less, more = _WORDS.get(unit, ("less", "more"))
    return f"{shown}x {less if ratio < 1 else more} than {baseline}"


def _whole_or_three(value: int | float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else _three_digits(value)


def _three_digits(value: int | float) -> str:
    """Three significant digits, without an exponent unless the value is tiny."""
    rounded = float(f"{value:.3g}")
    if abs(rounded) >= 100:
        return f"{rounded:,.0f}"
    if abs(rounded) < 1e-3:
        return f"{rounded:.2e}"
    # The exponent tells how many of the three digits lie before the point.
    exponent = int(f"{rounded:e}".partition("e")[2])
    return f"{rounded:.{2 - exponent}f}"
