"""The decoder's own outputs, kept so that its next input is already there: the right shift as a pointer.

A decoder is fed its own outputs one step late: its input at t is its output at t - 1, and at 0 a start row.
The usual way writes this down twice, as outputs and as a padded and cut copy of them. Here there is one row
more than there are outputs, and both are windows on the same rows::

    rows       [ start ][ out 0 ][ out 1 ][ out 2 ]
    inputs     [  in 0     in 1     in 2    in 3  ]      first row: the pointer minus one
    outputs             [ out 0    out 1    out 2 ]

So the shift moves no byte. `right_shift` does it for a whole sequence, as teacher forcing needs it, and
`FeedbackBuffer` for a sequence without end, in a ring of C + 1 rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from . import laws
from .checks import check_tensor
from .rows import WORK_DTYPE

__all__ = ["FeedbackBuffer", "right_shift"]


def right_shift(
    rows: Float[Tensor, "batch rows dim"],
) -> tuple[Float[Tensor, "batch steps dim"], Float[Tensor, "batch steps dim"]]:
    """Inputs and outputs of a decoder under teacher forcing, from a sequence stored after its start row.

    Parameters
    ----------
    rows : floating [B, L + 1, dim]
        The start row and then the L outputs.

    Returns
    -------
    inputs, outputs : [B, L, dim]
        Views of `rows`, one row apart: no byte is moved, and gradients of both reach `rows`.

    Raises
    ------
    TypeError
        If `rows` is no floating tensor.
    ValueError
        If it has other than three axes, or no row at all.
    """
    if not isinstance(rows, Tensor) or not rows.is_floating_point():
        came = rows.dtype if isinstance(rows, Tensor) else type(rows).__name__
        raise TypeError(f"rows must be a floating torch Tensor; got {came}")
    if rows.ndim != 3 or rows.shape[1] == 0:
        raise ValueError(f"rows must have shape [batch, 1 + outputs, dim]; got {list(rows.shape)}")
    return rows[:, :-1], rows[:, 1:]


class FeedbackBuffer:
    """The last C outputs of a decoder and the row before them, in a ring that is written in place.

    Step t reads ``inputs(t, t + 1)``, computes, and appends its output, which thereby is the input of step
    t + 1. What is read are views, valid until the ring writes over them, and nothing here is recorded for
    autograd: training uses `right_shift`.

    Parameters
    ----------
    batch_size, capacity, dim : int
        B, C and the width of a row. The storage is [B, C + 1, dim], is allocated once and never moves.
    start : floating [dim] or [B, dim], optional
        The input of step 0, copied; zeros if not given.
    dtype : torch.dtype
        float32, float64, float16 or bfloat16.
    device : torch.device, str or None
        None means torch's default device.

    Raises
    ------
    TypeError
        For a number that is no int, or another dtype.
    ValueError
        For a number below 1, or a start row of another shape or device.
    """

    def __init__(
        self,
        batch_size: int,
        capacity: int,
        dim: int,
        *,
        start: Float[Tensor, "*batch dim"] | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ):
        batch = laws.whole("batch_size", batch_size, least=1)
        self._capacity = laws.whole("capacity", capacity, least=1)
        dim = laws.whole("dim", dim, least=1)
        if dtype not in WORK_DTYPE:
            raise TypeError(f"dtype must be one of {', '.join(map(str, WORK_DTYPE))}; got {dtype!r}")
        # A tensor made in inference mode could not be written to outside it.
        with torch.inference_mode(False), torch.no_grad():
            self._rows = torch.zeros(batch, self._capacity + 1, dim, dtype=dtype, device=device)
            if start is not None:
                shared = isinstance(start, Tensor) and start.ndim == 1
                check_tensor("start", start, (dim,) if shared else (batch, dim), self._rows)
                self._rows[:, 0] = start
        self._written = self._highest = 0

    @property
    def position(self) -> int:
        """The outputs written, n, which is also the next step."""
        return self._written

    @property
    def highest(self) -> int:
        """The most outputs that were ever written, h: rollbacks do not lower it."""
        return self._highest

    @property
    def capacity(self) -> int:
        """C: how many of the newest outputs, and of the inputs that led to them, can be read."""
        return self._capacity

    @torch.no_grad()
    def append(self, outputs: Float[Tensor, "batch steps dim"]) -> None:
        """Write the outputs of the next steps, in place and without a graph.

        Parameters
        ----------
        outputs : [B, L, dim], the buffer's dtype and device
            L is at most C; 0 is allowed.

        Raises
        ------
        TypeError
            For something that is no tensor, or another dtype.
        ValueError
            For another shape or device, or L > C. Then nothing was written.
        """
        batch, _, dim = self._rows.shape
        check_tensor("outputs", outputs, (batch, None, dim), self._rows)
        length = outputs.shape[1]
        if length > self._capacity:
            raise ValueError(f"outputs must be at most the capacity, {self._capacity} steps; got {length}")
        done = 0
        # Output t lies in row t + 1 of the sequence, because the start row is row 0.
        for run in self._runs(self._written + 1, self._written + 1 + length):
            run.copy_(outputs[:, done : done + run.shape[1]])
            done += run.shape[1]
        self._written += length
        self._highest = max(self._highest, self._written)

    def outputs(self, first: int, stop: int) -> tuple[Float[Tensor, "batch run dim"], ...]:
        """The outputs of the steps ``first <= t < stop``, oldest first, where they lie.

        Returns
        -------
        tuple of [B, length, dim]
            Views of the storage: one, or two where the steps pass the end of the ring, or none if there are
            no steps. ``torch.cat(runs, dim=1)`` copies them into one tensor. They show what is written later.

        Raises
        ------
        TypeError
            If a step is no int.
        ValueError
            If ``stop`` is before ``first`` or after `position`, or ``first`` is before `highest` - C.
        """
        self._check_steps(first, stop, self._written)
        return self._runs(first + 1, stop + 1)

    def inputs(self, first: int, stop: int) -> tuple[Float[Tensor, "batch run dim"], ...]:
        """The inputs of the steps ``first <= t < stop``: the outputs one step earlier, the start row at 0.

        The step after the last output has an input too, so ``stop`` may be `position` + 1. Otherwise as
        `outputs`; where neither passes the end of the ring, the two begin one row apart.

        Raises
        ------
        TypeError
            If a step is no int.
        ValueError
            If ``stop`` is before ``first`` or after `position` + 1, or ``first`` is before `highest` - C.
        """
        self._check_steps(first, stop, self._written + 1)
        return self._runs(first, stop)

    def rollback(self, r: int) -> None:
        """Take back the last `r` outputs; the next ones are written over them.

        Raises
        ------
        TypeError, ValueError
            If `r` is no int, is negative or more than the outputs written, or if all rollbacks together go
            back more than C steps from `highest`, where the input of the next step is gone.
        """
        if laws.whole("r", r) > self._written:
            raise ValueError(f"r must be at most the outputs written, {self._written}; got {r}")
        self._check_next(self._written - r, self._highest)
        self._written -= r

    def state_dict(self) -> dict[str, Any]:
        """Copy the whole state: the pointers and the rows, in the order of the ring."""
        return {"position": self._written, "highest": self._highest, "rows": self._rows.clone()}

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state that `state_dict` made, copying into the storage that is here, from any device.

        Raises
        ------
        TypeError
            For entries of another kind or dtype.
        ValueError
            For missing or unknown entries, rows of another shape, or pointers that could not be. Then nothing
            has changed.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"state_dict must be a mapping; got {type(state_dict).__name__}")
        if set(state_dict) != {"position", "highest", "rows"}:
            raise ValueError(
                f"state_dict must have the entries position, highest, rows; got {list(state_dict)}"
            )
        highest = laws.whole("state_dict['highest']", state_dict["highest"])
        written = laws.whole("state_dict['position']", state_dict["position"])
        if written > highest:
            raise ValueError(f"state_dict['position'] must be at most 'highest', {highest}; got {written}")
        rows = state_dict["rows"]
        check_tensor("state_dict['rows']", rows, tuple(self._rows.shape), self._rows, anywhere=True)
        self._check_next(written, highest)
        self._rows.copy_(rows)
        self._written, self._highest = written, highest

    def _runs(self, first_row: int, stop_row: int) -> tuple[Tensor, ...]:
        slots = laws.runs(first_row, stop_row, self._capacity + 1)
        return tuple(self._rows[:, first:end] for first, end in slots)

    def _check_steps(self, first: int, stop: int, most: int) -> None:
        laws.whole("stop", stop, least=laws.whole("first", first))
        if stop > most:
            raise ValueError(f"stop must be at most {most}, with {self._written} outputs written; got {stop}")
        if first < self._highest - self._capacity:
            raise ValueError(
                f"first must be at least highest - capacity, {self._highest - self._capacity}: older steps "
                f"are overwritten; got {first}"
            )

    def _check_next(self, position: int, highest: int) -> None:
        """Feedback law, ``position >= highest - capacity``: the row before the next output is still there."""
        if position < highest - self._capacity:
            raise ValueError(
                f"feedback law: position >= highest - capacity; got position {position}, highest {highest} "
                f"and capacity {self._capacity}, and {position} < {highest - self._capacity}"
            )
