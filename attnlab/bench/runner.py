"""Runs the cases of techniques, prints what they measured, and gathers it in a record."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field

from attnlab.bench.case import WARMUP, Case, Report, load
from attnlab.bench.environment import describe
from attnlab.bench.progress import Progress, Stream
from attnlab.bench.record import Record, new_record
from attnlab.bench.rows import Row, Target
from attnlab.bench.table import rows_table, targets_table

__all__ = ["Failure", "Run", "run"]


@dataclass(frozen=True)
class Failure:
    """A case, or a whole technique, that could not be measured.

    Attributes
    ----------
    name : str
        ``"technique / case"``, or what else failed of a technique.
    error : Exception
        Why.
    """

    name: str
    error: Exception


@dataclass
class Run:
    """What a run yielded.

    Attributes
    ----------
    rows : list of Row
        What was measured, of the cases that succeeded: a case that failed half way contributes nothing.
    targets : list of Target
        What was promised.
    failures : list of Failure
        What could not be measured.
    """

    rows: list[Row] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def record(self, command: str) -> Record:
        """Gather the rows and targets with this machine's description."""
        return new_record(command, describe(), WARMUP, self.rows, self.targets)


def run(
    techniques: Sequence[str], *, quick: bool = False, out: Stream | None = None, err: Stream | None = None
) -> Run:
    """Measure techniques; print a table per case as it ends, then the targets, then what failed.

    A case that fails is reported with its traceback, and the others run all the same.

    Parameters
    ----------
    techniques
        Names as `attnlab.bench.case.techniques` lists them.
    quick
        Small sizes and few rounds, to see that everything runs.
    out, err
        Where the tables and the progress go; standard output and standard error by default.
    """
    out = sys.stdout if out is None else out
    err = sys.stderr if err is None else err
    result = Run()
    work: list[tuple[str, list[Case]]] = []
    for technique in techniques:
        try:
            work.append((technique, _cases(technique, quick)))
        except Exception as error:
            _fail(result, f"{technique}: its cases could not be loaded", error, err)

    progress = Progress(sum(len(cases) for _, cases in work), err)
    for technique, cases in work:
        rows: list[Row] = []
        for case in cases:
            name = f"{technique} / {case.name}"
            report = Report(technique, case.name, quick=quick)
            progress.start(name)
            try:
                case.run(report)
                if not report.rows:
                    raise ValueError("the case reported no rows")
            except Exception as error:
                progress.finish(name, "failed")
                _fail(result, name, error, err)
                continue
            progress.finish(name, "measured")
            rows += report.rows
            print(f"{name}\n{rows_table(report.rows)}\n", file=out, flush=True)
        result.rows += rows
        try:
            result.targets += load(technique).targets(rows)
        except Exception as error:
            _fail(result, f"{technique}: its targets could not be judged", error, err)

    if result.targets:
        print(f"Targets\n{targets_table(result.targets)}\n", file=out)
    if result.failures:
        lines = "".join(f"\n  {f.name}: {type(f.error).__name__}: {f.error}" for f in result.failures)
        print(f"Not measured: {len(result.failures)}{lines}", file=out)
    return result


def _cases(technique: str, quick: bool) -> list[Case]:
    cases: list[Case] = load(technique).cases(quick)
    names = [case.name for case in cases]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ValueError(f"cases: the names {sorted(repeated)} occur more than once, expected unique names")
    return cases


def _fail(result: Run, name: str, error: Exception, err: Stream) -> None:
    result.failures.append(Failure(name, error))
    err.write(f"{name}\n")
    traceback.print_exception(error, file=err)
    err.flush()
