"""Picking rows out of a run, for targets, tables and notebooks."""

from __future__ import annotations

from collections.abc import Iterable

from attnlab.bench.rows import Param, Row
from attnlab.bench.timing import paired_ratio

__all__ = ["baseline_of", "one", "ratio", "select"]


def select(
    rows: Iterable[Row],
    *,
    technique: str | None = None,
    case: str | None = None,
    variant: str | None = None,
    metric: str | None = None,
    **params: Param,
) -> list[Row]:
    """Rows that match everything given, in their order; further keywords are compared with params."""
    wanted = {"technique": technique, "case": case, "variant": variant, "metric": metric}
    fixed = {name: value for name, value in wanted.items() if value is not None}
    return [
        row
        for row in rows
        if all(getattr(row, name) == value for name, value in fixed.items())
        and all(name in row.params and row.params[name] == value for name, value in params.items())
    ]


def one(rows: Iterable[Row], **wanted: Param) -> Row | None:
    """The only row that matches, or None when none does. Takes what `select` takes.

    Raises
    ------
    ValueError
        When several rows match, which means that the question was not precise enough.
    """
    found = select(rows, **wanted)  # type: ignore[arg-type]
    if len(found) > 1:
        raise ValueError(f"rows: {len(found)} match {wanted}, expected at most one")
    return found[0] if found else None


def ratio(a: Row | None, b: Row | None) -> float | None:
    """How many times as large ``a`` is as ``b``; None when either is missing or ``b`` is zero.

    Where both hold samples of the same rounds (timings), it is the median of the paired ratios.

    Raises
    ------
    ValueError
        When the two are not in the same unit.
    """
    if a is None or b is None:
        return None
    if a.unit != b.unit:
        raise ValueError(f"rows: got units {a.unit!r} and {b.unit!r}, expected the same")
    if a.samples and b.samples and len(a.samples) == len(b.samples) and _same_rounds(a, b):
        return paired_ratio(a.samples, b.samples)
    return a.value / b.value if b.value else None


def baseline_of(row: Row, rows: Iterable[Row]) -> Row | None:
    """The row that ``row`` is compared with: its baseline variant at the same case, params and metric."""
    if row.baseline is None:
        return None
    for other in rows:
        if other.variant == row.baseline and _same_rounds(row, other) and other.metric == row.metric:
            return other
    return None


def _same_rounds(a: Row, b: Row) -> bool:
    """Variants are timed together within one case at one setting, and only there are their rounds pairs."""
    return (a.technique, a.case, dict(a.params)) == (b.technique, b.case, dict(b.params))
