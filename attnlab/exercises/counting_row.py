"""A row that counts how often it is read, for exercises in which most of a row must stay unread."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from jaxtyping import Int32

__all__ = ["CountingRow", "TooManyReads"]


class TooManyReads(Exception):
    """A function went on reading long after it had used up what it was allowed.

    The message stands after "your function".
    """


class CountingRow:
    """A row of ids that hands out one token at a time: ``len(row)`` is free, ``row[i]`` costs one read.

    Parameters
    ----------
    ids : int32 [T]
        The tokens.
    most_reads : int
        Reads allowed. A row does not refuse the next one, so that a report can tell how many there were.

    Attributes
    ----------
    reads : int
        Reads so far.
    """

    def __init__(self, ids: Int32[np.ndarray, "tokens"], most_reads: int) -> None:
        self._ids = ids
        self.most_reads = most_reads
        self.reads = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: Any) -> int:
        if isinstance(index, slice):
            raise TypeError("this row is read one token at a time, row[i]; got a slice")
        i = operator.index(index)
        if not -len(self) <= i < len(self):
            raise IndexError(f"index {i} is outside a row of {len(self)} tokens")
        self.reads += 1
        # A search that never ends must not hang a notebook.
        if self.reads > 2 * len(self) + self.most_reads:
            allowed = f"{self.most_reads:,} are allowed"
            raise TooManyReads(f"was stopped after {self.reads:,} reads of {len(self):,} tokens; {allowed}")
        return int(self._ids[i])
