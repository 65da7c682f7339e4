"""What a benchmark yields: rows of measurements, and targets that are met or not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["PEAK", "TIME", "XLA_FLOPS", "XLA_TEMP", "Number", "Param", "Row", "Target", "at_least", "at_most"]

# Names of metrics that several techniques share, so that a notebook asks for all of them in the same words.
TIME = "time"
PEAK = "peak memory"
XLA_TEMP = "XLA temporaries"
XLA_FLOPS = "XLA FLOPs"

Number = int | float
Param = str | int | float | bool


@dataclass(frozen=True)
class Row:
    """One measured number and what it is about.

    Attributes
    ----------
    technique, case, variant : str
        The room, the case within it, and which of the ways that are compared.
    params : dict
        The sizes and choices measured at, such as ``{"T": 131072, "S": 16}``.
    metric, unit : str
        What was measured and its unit. ``"s"``, ``"B"`` and ``"FLOP"`` are printed with prefixes; any other
        unit is printed as it is, and ``""`` is a bare number.
    value : float or int
        The measurement. For times, the median of `samples`.
    samples : list of float, or None
        Raw samples, in the row's unit.
    loops : int or None
        How many calls each sample is the mean of.
    formula : float, int or None
        The value a closed formula gives for the same quantity.
    baseline : str or None
        The variant that this one is compared with, at the same case, params and metric.
    """

    technique: str
    case: str
    variant: str
    metric: str
    unit: str
    value: Number
    params: Mapping[str, Param] = field(default_factory=dict)
    samples: Sequence[Number] | None = None
    loops: int | None = None
    formula: Number | None = None
    baseline: str | None = None


@dataclass(frozen=True)
class Target:
    """A promise in numbers. Build one with `at_most` or `at_least`.

    Attributes
    ----------
    name : str
        What is promised, such as ``"XLA temporaries, T = 128k, S = 16"``.
    relation : {"<=", ">="}
        How `measured` must stand to `bound`.
    bound : float
        The promise, in `unit`.
    unit : str
        As in `Row`; ``"x"`` for ratios.
    measured : float or None
        None where this run did not measure it, as a quick run may not.
    text : str
        The promise as the table prints it, where the relation and the bound do not say it well; else ``""``.
    """

    name: str
    relation: Literal["<=", ">="]
    bound: Number
    unit: str
    measured: Number | None
    text: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the promise is kept; None where it was not measured."""
        if self.measured is None:
            return None
        return self.measured <= self.bound if self.relation == "<=" else self.measured >= self.bound


def at_most(name: str, measured: Number | None, bound: Number, unit: str, text: str = "") -> Target:
    """Target that is met when ``measured <= bound``."""
    return _target(name, "<=", measured, bound, unit, text)


def at_least(name: str, measured: Number | None, bound: Number, unit: str, text: str = "") -> Target:
    """Target that is met when ``measured >= bound``."""
    return _target(name, ">=", measured, bound, unit, text)


def _target(
    name: str, relation: Literal["<=", ">="], measured: Number | None, bound: Number, unit: str, text: str
) -> Target:
    if not math.isfinite(bound):
        raise ValueError(f"bound: got {bound}, expected a finite number")
    if measured is not None and not math.isfinite(measured):
        raise ValueError(
            f"measured: got {measured}, expected a finite number, or None when it was not measured"
        )
    return Target(name, relation, bound, unit, measured, text)
