"""Which bytes attention reads from a cache, and in which order: the ring's layout against a token-major one.

In the ring, [B, H_kv, C, D], one head's rows lie one after the other, so its window is read in at most two
ascending runs. A cache laid out token by token, [B, C, H_kv, D], puts the other heads' rows between them, and
every row is a run of its own. The addresses come from the strides of real tensors and the slots from
`attnlab.ring.laws`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from attnlab.ring import laws
from attnlab.ring.cache import RingCache

__all__ = ["LINE_BYTES", "Trace", "address_trace"]

LINE_BYTES = 64
_DTYPES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}


@dataclass(frozen=True)
class Trace:
    """What is read of one of the two tensors, K or V, for one sequence; they are laid out alike.

    Attributes
    ----------
    layout : str
    rows : tuple of (int, int)
        First byte, and byte after the last, of every row in reading order, counted from the first byte of
        the tensor.
    row_bytes : int
        Of these, what a row uses: a row of the ring may end in padding.
    """

    layout: str
    rows: tuple[tuple[int, int], ...]
    row_bytes: int

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """The rows in reading order, with those that follow on one another joined."""
        joined: list[tuple[int, int]] = list(self.rows[:1])
        for (_, end), row in pairwise(self.rows):
            if row[0] == end:
                joined[-1] = joined[-1][0], row[1]
            else:
                joined.append(row)
        return tuple(joined)

    @property
    def n_runs(self) -> int:
        """How often reading jumps to another place, the first included."""
        return len(self.runs)

    @property
    def bytes_per_run(self) -> float:
        """Bytes that are read in a row, on average."""
        return sum(stop - start for start, stop in self.rows) / self.n_runs

    @property
    def lines_touched(self) -> int:
        """Cache lines of 64 bytes in which a used byte lies."""
        lines = {
            line
            for start, _ in self.rows
            for line in range(start // LINE_BYTES, (start + self.row_bytes - 1) // LINE_BYTES + 1)
        }
        return len(lines)

    @property
    def lines_used(self) -> int:
        """Cache lines that the used bytes would fill if they lay together."""
        return -(-len(self.rows) * self.row_bytes // LINE_BYTES)

    def __str__(self) -> str:
        return (
            f"{self.layout}: {len(self.rows):,} rows in {self.n_runs:,} "
            f"{'run' if self.n_runs == 1 else 'runs'}, {self.bytes_per_run:,.0f} bytes per run; "
            f"{self.lines_touched:,} cache lines touched, {self.lines_used:,} would do."
        )


def address_trace(
    layout: Literal["ring", "token-major"],
    *,
    num_kv_heads: int,
    head_dim: int,
    capacity: int,
    window: int,
    position: int,
    rows: int = 1,
    head: int | None = None,
    bytes_per_element: int = 4,
) -> Trace:
    """The rows that attention reads for the queries at ``position`` to ``position + rows - 1``.

    Parameters
    ----------
    layout : {"ring", "token-major"}
        [B, H_kv, C, D] with rows padded to cache lines, as `RingCache` has it, or [B, C, H_kv, D].
    num_kv_heads, head_dim, capacity : int
    window : int
        W: a query at p sees the keys ``p - W < k <= p``, its own included.
    position : int
        Of the first query: 1 query is a decode step, more are a chunk of prefill.
    rows : int
        Queries.
    head : int, optional
        One key/value head; all of them, one after the other, if not given.
    bytes_per_element : {2, 4, 8}

    Raises
    ------
    TypeError, ValueError
        If an argument is not whole or out of range, or the chunk breaks the cache law.
    """
    rows, position = laws.whole("rows", rows, least=1), laws.whole("position", position)
    if bytes_per_element not in _DTYPES:
        raise ValueError(f"bytes_per_element must be 2, 4 or 8; got {bytes_per_element!r}")
    laws.check_cache(capacity, window, rows)
    storage = _storage(layout, num_kv_heads, head_dim, capacity, _DTYPES[bytes_per_element])
    if head is not None and laws.whole("head", head) >= num_kv_heads:
        raise ValueError(f"head must be less than num_kv_heads, {num_kv_heads}; got {head}")

    stop = position + rows
    slots = [
        slot
        for first, end in laws.runs(laws.oldest_visible(position + 1, window), stop, capacity)
        for slot in range(first, end)
    ]
    heads = range(num_kv_heads) if head is None else (head,)
    starts = [
        (h * storage.stride(1) + slot * storage.stride(2)) * bytes_per_element
        for h in heads
        for slot in slots
    ]
    row_bytes = head_dim * bytes_per_element
    # Padding belongs to its row: it lies in a cache line of that row, and no other data does.
    extent = storage.stride(2) * bytes_per_element if layout == "ring" else row_bytes
    return Trace(layout, tuple((start, start + extent) for start in starts), row_bytes)


def _storage(layout: str, num_kv_heads: int, head_dim: int, capacity: int, dtype: torch.dtype) -> Tensor:
    """The keys of an empty cache as [B, H_kv, C, D]: strides without memory, on torch's device "meta"."""
    if layout == "ring":
        return RingCache(1, num_kv_heads, head_dim, capacity, window=1, dtype=dtype, device="meta").k
    if layout == "token-major":
        return torch.empty(1, capacity, num_kv_heads, head_dim, dtype=dtype, device="meta").transpose(1, 2)
    raise ValueError(f"layout must be 'ring' or 'token-major'; got {layout!r}")
