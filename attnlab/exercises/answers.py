"""What was given beside what was expected, in words."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["describe", "say", "wrong_kind", "wrong_values"]

_MOST_NUMBERS = 24


def say(value: Any) -> str:
    """Write an expected value or an answer of its kind: ``2 1 0``, ``True``, ``an empty list``."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    numbers = [str(int(number)) for number in value]
    if not numbers:
        return "an empty list"
    more = f" ... ({len(numbers):,} numbers)" if len(numbers) > _MOST_NUMBERS else ""
    return " ".join(numbers[:_MOST_NUMBERS]) + more


def describe(value: Any) -> str:
    """Say what sort of thing a value is, without anything that changes from run to run."""
    if value is None or value is Ellipsis:
        return repr(value)
    if isinstance(value, np.ndarray):
        return f"{_article(str(value.dtype))} array of shape {list(value.shape)}"
    name = _article(type(value).__name__)
    return f"{value!r}, {name}" if type(value) in (bool, int, float) else name


def wrong_kind(answer: Any, expected: Any) -> str:
    """Say in which way an answer is not even of the kind expected; empty if it is.

    An array must be an array of the same dtype and shape. Where a list of ints is expected a tuple or an
    array does as well, and where a bool is expected, NumPy's.
    """
    if isinstance(expected, bool):
        fits, wanted = isinstance(answer, bool | np.bool_), "a bool"
    elif isinstance(expected, np.ndarray):
        fits = isinstance(answer, np.ndarray)
        fits = fits and answer.dtype == expected.dtype and answer.shape == expected.shape
        wanted = describe(expected)
    else:
        fits, wanted = _is_ints(answer), "a list of ints"
    return "" if fits else f"gave {describe(answer)}, expected {wanted}: {say(expected)}"


def wrong_values(answer: Any, expected: Any) -> str:
    """Say where an answer of the right kind differs from what was expected; empty if it does not."""
    if isinstance(expected, bool):
        same = bool(answer) == expected
    else:
        given, wanted = [int(x) for x in answer], [int(x) for x in expected]
        same = given == wanted
        if not same and min(len(given), len(wanted)) > _MOST_NUMBERS:
            i = next((i for i, (a, b) in enumerate(zip(given, wanted, strict=False)) if a != b), None)
            if i is not None:
                return f"gave {given[i]} at index {i}, expected {wanted[i]} there"
    return "" if same else f"gave {say(answer)}, expected {say(expected)}"


def _is_ints(answer: Any) -> bool:
    if isinstance(answer, np.ndarray):
        return answer.ndim == 1 and (answer.size == 0 or np.issubdtype(answer.dtype, np.integer))
    return isinstance(answer, list | tuple) and all(
        isinstance(x, int | np.integer) and not isinstance(x, bool) for x in answer
    )


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
