"""How a technique hands in its measurements.

A technique is a room, ``attnlab/<technique>/``, that has a module ``attnlab/bench/<technique>.py``. There is
no list of them: the module's presence is its registration. The module offers two functions::

    def cases(quick: bool) -> list[Case]: ...            # what to measure; with small sizes when quick
    def targets(rows: Sequence[Row]) -> list[Target]: ...  # what was promised, read off this technique's rows

and a case is a name and a function that measures and appends rows to the `Report` it is given::

    def lengths(report: Report) -> None:
        ids = packed_ids(131_072)
        ways = {"through the mask": lambda: by_mask(ids), "change points": lambda: by_change_points(ids)}
        report.time(ways, params={"T": ids.size}, baseline="through the mask")
        for name, way in ways.items():
            report.peak(name, numpy_peak(way), params={"T": ids.size}, baseline="through the mask")

    def cases(quick: bool) -> list[Case]:
        return [Case("lengths", lengths)]
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import attnlab
import attnlab.bench
from attnlab.bench.memory import Peak, XlaMemory
from attnlab.bench.rows import PEAK, TIME, XLA_FLOPS, XLA_TEMP, Number, Param, Row
from attnlab.bench.timing import Timing, measure

__all__ = ["WARMUP", "Case", "Report", "load", "techniques"]

# Untimed calls before each timing. The record states one number for the whole run, so no case has its own.
WARMUP = 3

# Rounds of each timing. An odd number makes the median one of the samples.
REPEATS = 21
QUICK_REPEATS = 7


class Report:
    """Collects the rows of one case.

    Attributes
    ----------
    technique, case : str
        What the rows are filed under.
    quick : bool
        Whether this is a quick run; timings then take fewer rounds.
    rows : list of Row
        Everything reported so far.
    """

    def __init__(self, technique: str, case: str, *, quick: bool) -> None:
        self.technique = technique
        self.case = case
        self.quick = quick
        self.rows: list[Row] = []

    def add(
        self,
        variant: str,
        metric: str,
        value: Number,
        unit: str,
        *,
        params: Mapping[str, Param] | None = None,
        formula: Number | None = None,
        baseline: str | None = None,
        samples: Sequence[Number] | None = None,
        loops: int | None = None,
    ) -> Row:
        """Append one row and return it. The arguments are the attributes of `Row`.

        Raises
        ------
        ValueError
            For a value that is not a finite number, or a row that repeats an earlier one's variant, params
            and metric, which would make both ambiguous.
        """
        if not math.isfinite(value):
            raise ValueError(f"value: got {value} for {metric!r} of {variant!r}, expected a finite number")
        params = dict(params or {})
        for row in self.rows:
            if (row.variant, row.metric, row.params) == (variant, metric, params):
                raise ValueError(f"{metric!r} of {variant!r} at {params} was reported twice")
        row = Row(
            technique=self.technique,
            case=self.case,
            variant=variant,
            metric=metric,
            unit=unit,
            value=value,
            params=params,
            samples=None if samples is None else list(samples),
            loops=loops,
            formula=formula,
            # A variant is not compared with itself.
            baseline=None if baseline == variant else baseline,
        )
        self.rows.append(row)
        return row

    def time(
        self,
        fns: Mapping[str, Callable[[], Any]],
        *,
        params: Mapping[str, Param] | None = None,
        baseline: str | None = None,
        repeats: int | None = None,
        **options: Any,
    ) -> Timing:
        """Time the functions together and append one row for each.

        Parameters
        ----------
        fns
            Functions of no arguments, by the name of their variant.
        params
            As in `Row`.
        baseline
            Which of ``fns`` the others are compared with.
        repeats
            Rounds; by default 21, or 7 in a quick run. Worth lowering where one call takes seconds.
        **options
            Anything else that `attnlab.bench.timing.measure` takes, except ``warmup``.
        """
        if baseline is not None and baseline not in fns:
            raise ValueError(f"baseline: got {baseline!r}, expected one of {', '.join(map(repr, fns))}")
        if repeats is None:
            repeats = QUICK_REPEATS if self.quick else REPEATS
        timing = measure(fns, warmup=WARMUP, repeats=repeats, **options)
        for name in fns:
            samples, loops = timing.samples[name], timing.loops[name]
            median = timing.median(name)
            self.add(name, TIME, median, "s", params=params, baseline=baseline, samples=samples, loops=loops)
        return timing

    def peak(
        self,
        variant: str,
        peak: Peak,
        *,
        params: Mapping[str, Param] | None = None,
        formula: Number | None = None,
        baseline: str | None = None,
    ) -> Row:
        """Append a measured peak, in bytes."""
        return self.add(
            variant, PEAK, peak.peak_bytes, "B", params=params, formula=formula, baseline=baseline
        )

    def xla(
        self,
        variant: str,
        planned: XlaMemory,
        *,
        params: Mapping[str, Param] | None = None,
        temp_formula: Number | None = None,
        flops_formula: Number | None = None,
        baseline: str | None = None,
    ) -> None:
        """Append XLA's planned temporaries and, where the backend counts them, its FLOPs."""
        self.add(
            variant,
            XLA_TEMP,
            planned.temp_bytes,
            "B",
            params=params,
            formula=temp_formula,
            baseline=baseline,
        )
        if planned.flops is not None:
            self.add(
                variant,
                XLA_FLOPS,
                planned.flops,
                "FLOP",
                params=params,
                formula=flops_formula,
                baseline=baseline,
            )


@dataclass(frozen=True)
class Case:
    """One thing to measure: a name that is unique within the technique, and a function that reports rows."""

    name: str
    run: Callable[[Report], object]


def techniques() -> list[str]:
    """Names of the techniques that can be measured, sorted: rooms with a module of the same name here."""
    rooms = {module.name for module in pkgutil.iter_modules(attnlab.__path__) if module.ispkg}
    measured = {module.name for module in pkgutil.iter_modules(attnlab.bench.__path__)}
    return sorted(rooms & measured)


def load(technique: str) -> ModuleType:
    """Import a technique's benchmark module.

    Raises
    ------
    ValueError
        For a name that `techniques` does not list.
    TypeError
        When the module lacks ``cases`` or ``targets``.
    ImportError
        When the module needs something that is not installed.
    """
    known = techniques()
    if technique not in known:
        raise ValueError(f"technique: got {technique!r}, expected one of {', '.join(known) or '(none yet)'}")
    module = importlib.import_module(f"attnlab.bench.{technique}")
    for name in ("cases", "targets"):
        if not callable(getattr(module, name, None)):
            raise TypeError(f"attnlab.bench.{technique} has no function {name}()")
    return module
