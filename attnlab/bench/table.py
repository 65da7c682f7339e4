"""Plain-text tables of rows and of targets."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.bench.query import baseline_of, ratio
from attnlab.bench.rows import Param, Row, Target
from attnlab.bench.timing import interquartile_range
from attnlab.bench.units import human, human_ratio

__all__ = ["align", "rows_table", "targets_table"]


def align(header: Sequence[str], lines: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Lay out columns under a header, two spaces apart; columns named in ``right`` are right-aligned.

    Raises
    ------
    ValueError
        When a line has another number of cells than the header.
    """
    for line in lines:
        if len(line) != len(header):
            raise ValueError(f"lines: got {len(line)} cells in {list(line)}, expected {len(header)}")
    table = [list(header), *map(list, lines)]
    widths = [max(len(line[i]) for line in table) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(header, line, widths, strict=True)
        ).rstrip()
        for line in table
    )


def rows_table(rows: Sequence[Row]) -> str:
    """Lay out the rows of one case. A column that would be empty, or that no row needs, is left out.

    The spread is the inter-quartile range of the samples. The last column compares with the baseline, by
    paired rounds where there are any.
    """
    names = list(dict.fromkeys(name for row in rows for name in row.params))
    lines = []
    for row in rows:
        spread = ""
        if row.samples is not None and len(row.samples) > 1:
            spread = human(interquartile_range(row.samples), row.unit)
        formula = "" if row.formula is None else human(row.formula, row.unit)
        against = ratio(row, baseline_of(row, rows))
        compared = "" if against is None else human_ratio(against, row.unit, str(row.baseline))
        params = [_param(row.params[name]) if name in row.params else "" for name in names]
        lines.append(
            [*params, row.variant, row.metric, human(row.value, row.unit), spread, formula, compared]
        )
    header = [*names, "variant", "metric", "value", "spread", "by formula", "against the baseline"]
    kept = [i for i in range(len(header)) if any(line[i] for line in lines)]
    right = {*names, "value", "spread", "by formula"}
    return align([header[i] for i in kept], [[line[i] for i in kept] for line in lines], tuple(right))


def targets_table(targets: Sequence[Target]) -> str:
    """Lay out targets with what was measured and whether they are met."""
    said = {True: "met", False: "not met", None: "not measured in this run"}
    lines = [
        [
            target.name,
            target.text or f"{target.relation} {human(target.bound, target.unit)}",
            "" if target.measured is None else human(target.measured, target.unit),
            said[target.met],
        ]
        for target in targets
    ]
    return align(["target", "promised", "measured", ""], lines, ("promised", "measured"))


def _param(value: Param) -> str:
    if isinstance(value, bool) or isinstance(value, str):
        return str(value)
    return human(value, "")
