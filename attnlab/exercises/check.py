"""What an exercise is made of: cases chosen by hand, then inputs that hypothesis draws.

An exercise never raises into the notebook. Whatever the reader's function does (return the wrong kind of
thing, raise, change its input, take too much memory), the outcome is a `Result` with a sentence and a
picture. The same function gives the same sentence each time.
"""

from __future__ import annotations

import copy
import inspect
import io
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from attnlab.bench.memory import numpy_peak
from attnlab.bench.units import human
from attnlab.exercises.answers import describe, say, wrong_kind, wrong_values
from attnlab.exercises.counting_row import CountingRow, TooManyReads
from attnlab.exercises.result import Hints, Result, framed
from attnlab.show.picture import Picture

__all__ = ["Case", "Exercise"]

_QUIET = settings(
    max_examples=150,
    phases=(Phase.generate, Phase.shrink),
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=False,
    report_multiple_bugs=False,
    verbosity=Verbosity.quiet,
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Case:
    """One call of the reader's function.

    Attributes
    ----------
    arguments : tuple
        What the function is called with; each call gets a copy. A `CountingRow` among them limits reading.
    expected : ndarray, list of int, or bool
        What it should return.
    words : str
        The arguments in words, to stand after "for".
    draw : callable
        Takes an answer of the right kind, or None, and returns pictures of the case.
    note : str
        A sentence on what makes the case difficult.
    max_bytes : int or None
        The most that NumPy and Python may allocate during the call, by `attnlab.bench.memory.numpy_peak`.
    """

    arguments: tuple[Any, ...]
    expected: Any
    words: str
    draw: Callable[[Any], Sequence[Picture]]
    note: str = ""
    max_bytes: int | None = None


@dataclass(frozen=True)
class Exercise:
    """A task with a check; call it with the function that solves the task.

    Attributes
    ----------
    name : str
        The name that the function should have.
    level : str
        "fill in", "find the bug" or "open".
    task : str
        What to do.
    returns : str
        What the function should return, to stand after "return".
    hints : Hints
        From a nudge to nearly everything; a notebook shows them folded.
    cases : callable
        Makes the cases chosen by hand. The first is the example with which the task is explained.
    inputs : strategy
        Draws further cases.
    """

    name: str
    level: str
    task: str
    returns: str
    hints: Hints
    cases: Callable[[], Sequence[Case]]
    inputs: SearchStrategy[Case]

    def __repr__(self) -> str:
        return f"{self.name} ({self.level}). {self.task}"

    def __call__(self, fn: Any) -> Result:
        """Run `fn` on the cases chosen by hand, then on drawn ones, and stop at the first that breaks it.

        What `fn` prints is not shown, since it is called a few hundred times.
        """
        if not callable(fn):
            handed = f"got {describe(fn)}"
            return Result(False, f"Not yet: hand in the function itself, not what it returns; {handed}.")
        cases = self.cases()
        remark = ""
        for case in cases:
            outcome = _run(fn, case)
            if case is cases[0] and outcome.unsolved:
                return self._unsolved(case)
            if outcome.fault:
                return self._not_yet(outcome)
            remark = outcome.remark or remark
        drawn = _search(fn, self.inputs)
        if drawn is not None:
            return self._not_yet(drawn)
        return Result(True, f"Passed on {len(cases)} chosen inputs and on random ones.{remark}")

    def _unsolved(self, case: Case) -> Result:
        example = f"For {case.words} that is {say(case.expected)}."
        sentence = f"Not solved yet. The function should return {self.returns}. {example}"
        return Result(False, sentence, framed(case.draw(None), f"Exercise · {self.name}", sentence))

    def _not_yet(self, outcome: _Outcome) -> Result:
        case = outcome.case
        note = f" {case.note}" if case.note else ""
        sentence = f"Not yet: for {case.words} your function {outcome.fault}.{note}"
        return Result(False, sentence, framed(case.draw(outcome.answer), f"Exercise · {self.name}", sentence))


@dataclass(frozen=True)
class _Outcome:
    """What became of one case; `answer` is kept if it is of a kind that can be drawn."""

    case: Case
    fault: str = ""
    answer: Any = None
    remark: str = ""
    unsolved: bool = False


def _run(fn: Callable[..., Any], case: Case) -> _Outcome:
    """Call `fn` on a copy of the arguments and look at all that can be wrong with it."""
    arguments = copy.deepcopy(case.arguments)
    peak = 0
    try:
        with redirect_stdout(io.StringIO()):
            answer = fn(*arguments)
            if case.max_bytes is not None:
                peak = numpy_peak(fn, *copy.deepcopy(case.arguments)).peak_bytes
    except TooManyReads as stop:
        return _Outcome(case, str(stop))
    except (Exception, SystemExit) as error:
        fault = f"raised {_say_error(fn, error)}, expected {say(case.expected)}"
        return _Outcome(case, fault, unsolved=isinstance(error, NotImplementedError))
    fault = wrong_kind(answer, case.expected)
    if fault:
        return _Outcome(case, fault, unsolved=answer is None or answer is Ellipsis)
    fault = wrong_values(answer, case.expected)
    fault = fault or _changed(arguments, case.arguments) or _too_much(arguments, peak, case.max_bytes)
    return _Outcome(case, fault, answer, "" if fault else _thrift(arguments, case.max_bytes))


def _search(fn: Callable[..., Any], inputs: SearchStrategy[Case]) -> _Outcome | None:
    """Let hypothesis look for a case that breaks `fn`, and make it small."""
    broken: list[_Outcome] = []

    @_QUIET
    @given(inputs)
    def call(case):
        outcome = _run(fn, case)
        if outcome.fault:
            broken.append(outcome)
            raise _Broken

    with TemporaryDirectory() as folder:
        # hypothesis keeps files of its own, for which the folder of a notebook is no place.
        set_hypothesis_home_dir(folder)
        try:
            call()
        except (_Broken, Flaky):  # Flaky: the function answers differently when it is asked again
            return broken[-1]
        finally:
            set_hypothesis_home_dir(None)
    return None


class _Broken(Exception):
    """Tells hypothesis that a case breaks the function."""


def _changed(arguments: tuple[Any, ...], before: tuple[Any, ...]) -> str:
    pairs = zip(arguments, before, strict=True)
    same = all(np.array_equal(now, then) for now, then in pairs if isinstance(then, np.ndarray))
    return "" if same else "gave the right answer but changed its input, which belongs to the caller"


def _too_much(arguments: tuple[Any, ...], peak: int, max_bytes: int | None) -> str:
    if max_bytes is not None and peak > max_bytes:
        used, allowed = human(peak, "B"), human(max_bytes, "B")
        return f"gave the right answer but took {used} of memory; at most {allowed} is allowed"
    for row in _counting(arguments):
        if row.reads > row.most_reads:
            allowed = f"{row.most_reads:,} are allowed"
            return f"gave the right answer but read {row.reads:,} times from {len(row):,} tokens; {allowed}"
    return ""


def _thrift(arguments: tuple[Any, ...], max_bytes: int | None) -> str:
    """Say within which limits a right answer has kept; empty if there were none."""
    if max_bytes is not None:
        return f" On a long row it kept within {human(max_bytes, 'B')} of memory."
    return "".join(f" It read {row.reads:,} of {len(row):,} tokens." for row in _counting(arguments))


def _counting(arguments: tuple[Any, ...]) -> list[CountingRow]:
    return [argument for argument in arguments if isinstance(argument, CountingRow)]


def _say_error(fn: Callable[..., Any], error: BaseException) -> str:
    """Name an exception, the first line of its message, and the reader's line that it came from."""
    message = (str(error).splitlines() or [""])[0][:200]
    code = getattr(inspect.unwrap(fn), "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.line for frame in frames if code and frame.filename == code.co_filename and frame.line]
    place = f" at `{lines[-1]}`" if lines else ""
    return type(error).__name__ + (f" ({message})" if message else "") + place
