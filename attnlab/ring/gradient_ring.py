"""Exact gradients through bounded memory: a sweep from the last segment to the first with W - 1 rows in hand.

Cut a sequence into segments. A key at position p is seen by the queries p to p + W - 1, so its dK and dV are
finished when the query at p has been swept, if the sweep goes from last to first. At any time only W - 1 rows
of dK and dV are unfinished::

    a - W + 1 ... a - 1 | a .......... b - 1 | b ...
                        | swept now          | swept before
    keys and values read: a - W + 1 to b - 1, handed in again
    finished:             dQ, dK, dV of a to b - 1
    carried:              dK, dV of a - W + 1 to a - 1, unfinished

The unfinished rows lie in a ring: position p in slot p mod (W - 1). When p is finished it leaves its slot,
and the position W - 1 before it moves in. Whatever the sweep needs besides is handed in for each segment,
read from where it was kept or computed anew (`attnlab.ring.segment_attention.segment_forward`). So what is
held does not depend on the length of the sequence, and no gradient is left out.

Cutting the graph at each segment instead is Transformer-XL (Dai et al. 2019,
https://arxiv.org/abs/1901.02860); `attnlab.ring.truncation` shows what that loses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from . import laws
from .checks import check_tensor
from .rows import WORK_DTYPE
from .segment_attention import first_key, segment_backward

__all__ = ["GradientRing", "Segment", "Sweep", "Swept", "cut"]


class Segment(NamedTuple):
    """What sweeping a segment needs: its rows of q, out, lse and dout; k and v with W - 1 rows before."""

    q: Float[Tensor, "batch q_heads tokens head_dim"]
    k: Float[Tensor, "batch kv_heads keys head_dim"]
    v: Float[Tensor, "batch kv_heads keys head_dim"]
    out: Float[Tensor, "batch q_heads tokens head_dim"]
    lse: Float[Tensor, "batch q_heads tokens"]
    dout: Float[Tensor, "batch q_heads tokens head_dim"]


@dataclass(frozen=True)
class Sweep:
    """What happened when one segment was swept. Ranges of positions are half-open.

    Attributes
    ----------
    start, stop : int
        The segment, whose dQ, dK and dV are now finished.
    first_key : int
        The oldest position whose key and value were read.
    carried_in, carried_out : (int, int)
        Positions whose unfinished dK and dV were in the ring before, and are in it now.
    held_bytes : int
        Bytes of the ring: the same for every segment.
    """

    start: int
    stop: int
    first_key: int
    carried_in: tuple[int, int]
    carried_out: tuple[int, int]
    held_bytes: int


class Swept(NamedTuple):
    """One step of `GradientRing.sweep`: what happened, and the finished gradients of the segment's rows."""

    event: Sweep
    dq: Float[Tensor, "batch q_heads tokens head_dim"]
    dk: Float[Tensor, "batch kv_heads tokens head_dim"]
    dv: Float[Tensor, "batch kv_heads tokens head_dim"]


def cut(tokens: int, segment_size: int) -> list[tuple[int, int]]:
    """Cut positions 0 to ``tokens - 1`` into segments ``(start, stop)``; the last may be shorter.

    Raises
    ------
    TypeError, ValueError
        If an argument is no int, or ``tokens < 0`` or ``segment_size < 1``.
    """
    tokens, size = laws.whole("tokens", tokens), laws.whole("segment_size", segment_size, least=1)
    return [(start, min(start + size, tokens)) for start in range(0, tokens, size)]


class GradientRing:
    """The unfinished dK and dV of a reverse sweep: 2 * B * H_kv * (W - 1) * D numbers, whatever the length.

    Parameters
    ----------
    batch_size, num_kv_heads, head_dim : int
        B, H_kv and D.
    window : int
        W: a query at p sees the keys p - W < k <= p, W of them with its own.
    dtype : torch.dtype
        Of what is handed in and out: float32, float64, float16 or bfloat16. The ring sums in float32, or in
        float64 if that is the dtype.
    device : torch.device, str or None
        None means torch's default device.

    Raises
    ------
    TypeError
        For a number that is no int, or another dtype.
    ValueError
        For a number below 1.
    """

    def __init__(
        self,
        batch_size: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        window: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ):
        sizes = {"batch_size": batch_size, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
        batch, heads, dim = (laws.whole(name, size, least=1) for name, size in sizes.items())
        self._window = laws.whole("window", window, least=1)
        if dtype not in WORK_DTYPE:
            raise TypeError(f"dtype must be one of {', '.join(map(str, WORK_DTYPE))}; got {dtype!r}")
        # A tensor made in inference mode could not be written to outside it.
        with torch.inference_mode(False):
            shape = (batch, heads, self._window - 1, dim)
            self._dk = torch.zeros(shape, dtype=WORK_DTYPE[dtype], device=device)
            self._dv = torch.zeros_like(self._dk)
            self._like = self._dk.new_empty(0, dtype=dtype)
        self._start: int | None = None

    @property
    def start(self) -> int | None:
        """From here on all is finished; None before the first segment, 0 at the end of the sweep."""
        return self._start

    @property
    def window(self) -> int:
        """Keys visible to a query, its own included."""
        return self._window

    @property
    def held_bytes(self) -> int:
        """Bytes of dK and dV in the ring: all that is kept between segments."""
        return self._dk.nbytes + self._dv.nbytes

    @property
    def carried(self) -> tuple[int, int]:
        """The positions ``(first, stop)`` whose unfinished dK and dV lie in the ring: at most W - 1."""
        stop = self._start or 0
        return first_key(stop, self._window), stop

    @torch.no_grad()
    def backward(
        self,
        q: Float[Tensor, "batch q_heads tokens head_dim"],
        k: Float[Tensor, "batch kv_heads keys head_dim"],
        v: Float[Tensor, "batch kv_heads keys head_dim"],
        out: Float[Tensor, "batch q_heads tokens head_dim"],
        lse: Float[Tensor, "batch q_heads tokens"],
        dout: Float[Tensor, "batch q_heads tokens head_dim"],
        start: int,
    ) -> tuple[
        Float[Tensor, "batch q_heads tokens head_dim"],
        Float[Tensor, "batch kv_heads tokens head_dim"],
        Float[Tensor, "batch kv_heads tokens head_dim"],
    ]:
        """Sweep one segment, the positions a = `start` to b - 1; the next one must stop at a.

        Parameters
        ----------
        q, out, dout : [B, Hq, b - a, D], the ring's dtype and device
            Query head h reads key head ``h // (Hq / H_kv)``; scores are scaled by ``1 / sqrt(D)``.
        k, v : [B, H_kv, b - first, D]
            Of the positions ``first = max(0, a - W + 1)`` to b - 1.
        lse : float32, or float64 in a float64 ring, [B, Hq, b - a]
            Log-sum-exp of the scores, from the forward pass.
        start : int
            a. The first call says by its rows where the sequence ends.

        Returns
        -------
        dq, dk, dv : the ring's dtype
            Finished, of the positions a to b - 1.

        Raises
        ------
        TypeError
            For something that is no tensor, another dtype, or a start that is no int.
        ValueError
            For another shape or device, an empty segment, a segment that does not stop where the last one
            began, or one after position 0 has been reached. Then nothing has changed.
        """
        start = laws.whole("start", start)
        stop = self._check(q, k, v, out, lse, dout, start)
        first, size = first_key(start, self._window), self._window - 1
        dq, dk, dv = segment_backward(q, k, v, out, lse, dout, start, window=self._window)
        for ring, share in ((self._dk, dk), (self._dv, dv)):
            # Rows that are finished leave the ring before the rows that are not take their slots.
            for rows, slots in _slots(max(self.carried[0], start), max(self.carried[1], start), size):
                share[:, :, rows.start - first : rows.stop - first] += ring[:, :, slots]
                ring[:, :, slots] = 0
            for rows, slots in _slots(first, start, size):
                ring[:, :, slots] += share[:, :, rows.start - first : rows.stop - first]
        self._start = start
        own = slice(start - first, stop - first)
        # Copies, so that who keeps them does not keep the rows before `start` too.
        return dq, *(x[:, :, own].to(q.dtype, copy=True) for x in (dk, dv))

    def sweep(
        self, load_segment: Callable[[int, int, int], Segment], segments: Sequence[tuple[int, int]]
    ) -> Iterator[Swept]:
        """Sweep `segments` from the last to the first; nothing of a segment is kept once it was yielded.

        Parameters
        ----------
        load_segment : callable
            ``load_segment(first_key, start, stop)`` hands in the `Segment` with the rows ``start`` to
            ``stop - 1``, and k and v from ``first_key`` on.
        segments : sequence of (int, int)
            ``(start, stop)``, ascending from position 0 and without gaps, as `cut` makes them.

        Yields
        ------
        Swept

        Raises
        ------
        TypeError, ValueError
            If the segments are out of order, overlap or leave gaps, and as `backward` does.
        """
        edges = [0, *(stop for _, stop in segments)]
        if [start for start, _ in segments] != edges[:-1] or any(a >= b for a, b in pairwise(edges)):
            raise ValueError(
                f"segments must follow one another from position 0 without gaps; got {list(segments)}"
            )
        for start, stop in reversed(segments):
            first, before = first_key(start, self._window), self.carried
            gradients = self.backward(*load_segment(first, start, stop), start)
            yield Swept(Sweep(start, stop, first, before, self.carried, self.held_bytes), *gradients)
            del gradients  # or they would live on beside those of the next segment

    def _check(
        self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dout: Tensor, start: int
    ) -> int:
        """Return where the segment stops, or raise."""
        batch, kv_heads, _, dim = self._dk.shape
        check_tensor("q", q, (batch, None, None, dim), self._like)
        q_heads, tokens = q.shape[1:3]
        if q_heads == 0 or q_heads % kv_heads:
            raise ValueError(
                f"q must have a multiple of num_kv_heads, {kv_heads}, as its heads; got {q_heads}"
            )
        if tokens == 0:
            raise ValueError("q must have at least one row; got an empty segment")
        stop = start + tokens
        if self._start == 0:
            raise ValueError("the sweep has reached position 0; another one needs another GradientRing")
        if self._start not in (None, stop):
            raise ValueError(
                f"segments must come from last to first without gaps, so the next one must stop at "
                f"{self._start}; got positions {start} to {stop - 1}, which stop at {stop}"
            )
        keys = stop - first_key(start, self._window)
        for name, x in (("k", k), ("v", v)):
            check_tensor(name, x, (batch, kv_heads, keys, dim), self._like)
        for name, x in (("out", out), ("dout", dout)):
            check_tensor(name, x, tuple(q.shape), self._like)
        check_tensor("lse", lse, tuple(q.shape[:3]), self._dk)
        return stop


def _slots(start: int, stop: int, capacity: int) -> Iterator[tuple[slice, slice]]:
    """The positions from `start` to `stop`, at most `capacity`, cut where the ring ends, and their slots."""
    for first, end in laws.runs(start, stop, capacity) if start < stop else ():
        yield slice(start, start + end - first), slice(first, end)
        start += end - first
