"""What a reader can turn: short specs, checked values, and the widget for each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

__all__ = ["Control", "log2", "read_control"]

# Few short options lie side by side; more go into a list.
_MOST_BUTTONS, _MOST_LETTERS = 5, 44


@dataclass(frozen=True)
class log2:
    """A slider over the powers of two from ``low`` to ``high``, both powers of two themselves."""

    low: int
    high: int

    def __post_init__(self) -> None:
        for name, value in (("low", self.low), ("high", self.high)):
            if not isinstance(value, int) or value < 1 or value & (value - 1):
                raise ValueError(f"{name} must be a power of two, got {value!r}")
        if self.low >= self.high:
            raise ValueError(f"low must be below high, got {self.low} and {self.high}")


@dataclass(frozen=True)
class Control:
    """One thing to turn.

    Attributes
    ----------
    name : str
        The argument of the drawing function.
    label : str
        What the reader sees.
    kind : str
        ``integer`` or ``real`` (a slider), ``power`` (a slider over options), ``choice`` or ``switch``.
    initial
        The first value.
    low, high, step : float
        Range of a slider.
    options : tuple
        Values of a choice.
    """

    name: str
    label: str
    kind: str
    initial: Any
    low: Any = None
    high: Any = None
    step: Any = None
    options: tuple[Any, ...] = ()

    def check(self, value: Any) -> Any:
        """Return a value fit for the control; ValueError or TypeError if it is none."""
        if self.kind == "switch":
            if not isinstance(value, bool):
                raise TypeError(f"{self.name} must be True or False, got {value!r}")
            return value
        if self.kind in ("choice", "power"):
            if value not in self.options:
                raise ValueError(f"{self.name} must be one of {list(self.options)}, got {value!r}")
            return value
        whole = self.kind == "integer"
        fits: bool = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
        if not fits:
            raise TypeError(f"{self.name} must be {'an integer' if whole else 'a number'}, got {value!r}")
        if not self.low <= value <= self.high:
            raise ValueError(f"{self.name} must be in [{self.low}, {self.high}], got {value!r}")
        return int(value) if whole else float(value)

    def widget(self, value: Any) -> Any:
        """Return an ipywidgets widget that holds ``value``."""
        import ipywidgets as w

        style = {"description_width": "initial"}
        common = {"description": self.label, "style": style, "value": value}
        wide = w.Layout(width="330px")
        if self.kind == "switch":
            return w.Checkbox(**common, indent=False)
        if self.kind == "integer":
            ends = {"min": self.low, "max": self.high, "step": self.step}
            return w.IntSlider(**common, **ends, readout_format=",d", layout=wide)
        if self.kind == "real":
            return w.FloatSlider(**common, min=self.low, max=self.high, step=self.step, layout=wide)
        options = [(f"{o:,}" if isinstance(o, int) else str(o), o) for o in self.options]
        if self.kind == "power":
            return w.SelectionSlider(**common, options=options, layout=wide)
        letters = sum(len(text) for text, _ in options)
        if len(options) <= _MOST_BUTTONS and letters <= _MOST_LETTERS:
            # A button is as wide as its words.
            return w.ToggleButtons(**{**common, "style": {**style, "button_width": "auto"}}, options=options)
        return w.Dropdown(**common, options=options, layout=wide)


def read_control(name: str, spec: Any, label: str, default: Any) -> Control:
    """Turn a spec, as `attnlab.show.explorer.explore` describes them, into a control.

    ``default`` is the drawing function's own default, or None where it has none.
    """
    control = _read(name, spec, label)
    return control if default is None else _with_initial(control, default)


def _with_initial(control: Control, default: Any) -> Control:
    return replace(control, initial=control.check(default))


def _read(name: str, spec: Any, label: str) -> Control:
    if isinstance(spec, bool):
        return Control(name, label, "switch", spec)
    if isinstance(spec, log2):
        options = tuple(2**e for e in range(spec.low.bit_length() - 1, spec.high.bit_length()))
        return Control(name, label, "power", options[0], options=options)
    numbers = isinstance(spec, tuple | list) and all(
        isinstance(s, Real) and not isinstance(s, bool) for s in spec
    )
    if isinstance(spec, tuple) and numbers and len(spec) in (2, 3):
        return _slider(name, spec, label)
    if isinstance(spec, tuple | list) and spec and (numbers or all(isinstance(s, str) for s in spec)):
        if len(set(spec)) < len(spec):
            raise ValueError(f"{name}: options must differ, got {list(spec)}")
        return Control(name, label, "choice", spec[0], options=tuple(spec))
    raise TypeError(
        f"{name} must be (low, high), (low, high, step), log2(low, high), a list of options or a bool, "
        f"got {spec!r}"
    )


def _slider(name: str, spec: tuple[Any, ...], label: str) -> Control:
    integers = all(isinstance(s, Integral) for s in spec)
    low, high = spec[:2]
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"{name}: low must be below high, got {low} and {high}")
    step = spec[2] if len(spec) == 3 else 1 if integers else (high - low) / 100
    if not step > 0:
        raise ValueError(f"{name}: step must be positive, got {step}")
    return Control(name, label, "integer" if integers else "real", low, low=low, high=high, step=step)
