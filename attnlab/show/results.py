"""Curves of a benchmark run: one line for each way that was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.bench.query import select
from attnlab.bench.rows import Row
from attnlab.show import Curve, Curves, curve_figure

__all__ = ["result_curves"]


def result_curves(
    rows: Sequence[Row],
    *,
    over: str,
    metric: str,
    roles: Mapping[str, str],
    names: Mapping[str, str] | None = None,
    bounds: Sequence[Curve] = (),
    wanted: Mapping[str, Any] | None = None,
    **figure: Any,
) -> Curves:
    """Plot a metric of a run against one of its parameters.

    Parameters
    ----------
    rows
        Rows of a run; several that agree in variant and parameters count once.
    over : str
        The parameter on the x axis, such as ``"T"``.
    metric : str
        The metric on the y axis, as the rows name it.
    roles
        Colour of each variant that is drawn, by its name, in the order of the lines.
    names
        What to call a variant in the figure, where that differs.
    bounds
        Further lines, for instance a limit.
    wanted
        What else the rows must match, as `attnlab.bench.query.select` takes it.
    **figure
        Passed on to `attnlab.show.curve_figure`.

    Raises
    ------
    ValueError
        If a variant has no such rows.
    """
    curves = []
    for variant, role in roles.items():
        found = select(rows, variant=variant, metric=metric, **(wanted or {}))
        points = dict(sorted((row.params[over], row.value) for row in found if over in row.params))
        if not points:
            raise ValueError(f"roles: the run has no {metric!r} of {variant!r} over {over!r}")
        name = (names or {}).get(variant, variant)
        curves.append(Curve(name, list(points), list(points.values()), role=role, points=True))
    return curve_figure([*curves, *bounds], **figure)
