"""Exercises whose answers are real numbers, which are compared up to rounding and shown with four digits.

`attnlab.exercises.check` compares whole numbers and booleans, exactly. Here the reader's function is wrapped
in one that does the comparing, and speaks up itself where an answer is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
from jaxtyping import Float64

from attnlab.exercises.answers import describe
from attnlab.exercises.check import Exercise
from attnlab.exercises.counting_row import TooManyReads
from attnlab.exercises.result import Result

__all__ = ["NumberExercise", "whole"]


class _Wrong(TooManyReads):
    """Stops a check as too many reads do: with a message of its own, to stand after "your function"."""


def whole(values: Float64[np.ndarray, " numbers"]) -> list[int]:
    """Return what a `Case` of a `NumberExercise` expects: in its first case these numbers are whole."""
    return [int(value) for value in np.round(values)]


@dataclass(frozen=True, repr=False)
class NumberExercise(Exercise):
    """An exercise that is answered with an array of real numbers.

    Attributes
    ----------
    exact : callable
        Takes the arguments of a case and returns the right answer, float64 [n]. The case itself expects these
        numbers by `whole`; in the first case that loses nothing, since it is shown as an example.
    """

    exact: Callable[..., np.ndarray]

    def __call__(self, fn: Any) -> Result:
        """Run `fn` as `Exercise` does; numbers within 1e-6 of the right ones, relatively, are right."""
        if not callable(fn):
            return super().__call__(fn)

        @wraps(fn)
        def compared(*arguments: Any) -> Any:
            right = self.exact(*arguments)
            try:
                answer = fn(*arguments)
            except NotImplementedError:
                raise
            except Exception as error:
                message = (str(error).splitlines() or [""])[0]
                said = type(error).__name__ + (f" ({message})" if message else "")
                raise _Wrong(f"raised {said}, expected {_say(right)}") from error
            if answer is None or answer is Ellipsis:
                return answer
            if not _fits(answer, right):
                raise _Wrong(f"gave {describe(answer)}, expected {describe(right)}: {_say(right)}")
            if not np.allclose(answer, right, rtol=1e-6, atol=1e-9):
                raise _Wrong(f"gave {_say(answer)}, expected {_say(right)}")
            return whole(right)

        return super().__call__(compared)


def _fits(answer: Any, right: np.ndarray) -> bool:
    real = isinstance(answer, np.ndarray) and np.issubdtype(answer.dtype, np.floating)
    return real and answer.shape == right.shape


def _say(values: np.ndarray) -> str:
    return " ".join(f"{value + 0.0:.4g}" for value in values)
