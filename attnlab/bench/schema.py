"""What a benchmark record must look like, checked entry by entry so that an error can name the place."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

__all__ = ["RecordError", "check_record"]


class RecordError(ValueError):
    """A benchmark record that cannot be trusted, and where in it the fault lies."""


_RECORD = ("schema", "created", "command", "environment", "warmup", "rows", "targets")
_ENVIRONMENT = ("cpu", "os", "python", "packages", "gpus", "commit")
_ROW = (
    "technique",
    "case",
    "variant",
    "metric",
    "unit",
    "value",
    "params",
    "samples",
    "loops",
    "formula",
    "baseline",
)
_TARGET = ("name", "relation", "bound", "unit", "measured", "text", "met")


def check_record(content: Mapping[str, Any]) -> None:
    """Check a record's content, without its digest.

    Raises
    ------
    RecordError
        Naming the first place that is wrong, such as ``rows[3].samples[0]``.
    """
    _check_keys(content, _RECORD, "the record")
    _check_created(content["created"])
    _check_text(content["command"], "command")
    _check_environment(content["environment"])
    _check_count(content["warmup"], "warmup", least=0)
    for i, row in enumerate(_list(content["rows"], "rows")):
        _check_row(row, f"rows[{i}]")
    for i, target in enumerate(_list(content["targets"], "targets")):
        _check_target(target, f"targets[{i}]")


def _check_created(value: Any) -> None:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.utcoffset() != timedelta(0):
        raise RecordError(
            f"created: got {value!r}, expected a time in UTC such as '2026-01-31T12:00:00+00:00'"
        )


def _check_environment(value: Any) -> None:
    # Later versions may describe more; what readers rely on must be there.
    environment = _mapping(value, "environment")
    for key in _ENVIRONMENT:
        if key not in environment:
            raise RecordError(f"environment: {key!r} is missing")


def _check_row(row: Any, place: str) -> None:
    _check_keys(_mapping(row, place), _ROW, place)
    for key in ("technique", "case", "variant", "metric"):
        _check_text(row[key], f"{place}.{key}")
    _check_type(row["unit"], str, f"{place}.unit", "a string")
    _check_number(row["value"], f"{place}.value")
    for key, value in _mapping(row["params"], f"{place}.params").items():
        if not isinstance(value, (str, int, float)):
            raise RecordError(
                f"{place}.params.{key}: got {value!r}, expected a string, a number or a boolean"
            )
    if row["samples"] is not None:
        samples = _list(row["samples"], f"{place}.samples")
        if not samples:
            raise RecordError(f"{place}.samples: got none, expected at least one, or null")
        for i, sample in enumerate(samples):
            _check_number(sample, f"{place}.samples[{i}]")
        if row["value"] != statistics.median(samples):
            raise RecordError(f"{place}.value: got {row['value']!r}, expected the median of its samples")
    if row["loops"] is not None:
        _check_count(row["loops"], f"{place}.loops", least=1)
    if row["formula"] is not None:
        _check_number(row["formula"], f"{place}.formula")
    if row["baseline"] is not None:
        _check_text(row["baseline"], f"{place}.baseline")


def _check_target(target: Any, place: str) -> None:
    _check_keys(_mapping(target, place), _TARGET, place)
    _check_text(target["name"], f"{place}.name")
    _check_type(target["unit"], str, f"{place}.unit", "a string")
    _check_type(target["text"], str, f"{place}.text", "a string")
    if target["relation"] not in ("<=", ">="):
        raise RecordError(f"{place}.relation: got {target['relation']!r}, expected '<=' or '>='")
    _check_number(target["bound"], f"{place}.bound")
    measured, bound = target["measured"], target["bound"]
    met = None
    if measured is not None:
        _check_number(measured, f"{place}.measured")
        met = measured <= bound if target["relation"] == "<=" else measured >= bound
    if target["met"] is not met:
        raise RecordError(
            f"{place}.met: got {target['met']!r}, expected {met!r} from the measured value and the bound"
        )


def _check_keys(value: Any, keys: Sequence[str], place: str) -> None:
    missing = [key for key in keys if key not in value]
    unknown = [key for key in value if key not in keys]
    if missing or unknown:
        parts = [
            f"{name} {', '.join(map(repr, found))}"
            for name, found in (("lacks", missing), ("has an unknown", unknown))
            if found
        ]
        raise RecordError(f"{place} {' and '.join(parts)}")


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    _check_type(value, Mapping, place, "an object")
    return value


def _list(value: Any, place: str) -> Sequence[Any]:
    _check_type(value, (list, tuple), place, "a list")
    return value


def _check_type(value: Any, kind: Any, place: str, expected: str) -> None:
    if not isinstance(value, kind):
        raise RecordError(f"{place}: got {value!r}, expected {expected}")


def _check_text(value: Any, place: str) -> None:
    if not isinstance(value, str) or not value:
        raise RecordError(f"{place}: got {value!r}, expected text")


def _check_number(value: Any, place: str) -> None:
    # Python counts True as an int, JSON does not.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise RecordError(f"{place}: got {value!r}, expected a finite number")


def _check_count(value: Any, place: str, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RecordError(f"{place}: got {value!r}, expected a whole number of at least {least}")
