"""One language for masks: which key each query may see.

A mask is a rule over a query position and a key position. The same rule answers for a pair of integers, for
NumPy and JAX arrays, and as a FlexAttention ``mask_mod``; masks combine with ``&``, ``|`` and ``~``.

>>> mask = causal() & sliding_window(2)
>>> mask.name
'causal & window(2)'
>>> mask.dense(4, 4).astype(int)
array([[1, 0, 0, 0],
       [1, 1, 0, 0],
       [0, 1, 1, 0],
       [0, 0, 1, 1]])
>>> mask.intervals(4, 4)[:, 0].tolist()  # the same, as one run of keys [lo, hi) per query
[[0, 1], [0, 2], [1, 3], [2, 4]]

Every rule uses only arithmetic, comparisons and indexing, so one definition serves all libraries. A mask is
the same for every batch entry and head: ``b`` and ``h`` are there for FlexAttention and mean nothing here.

The form of ``mask_mod``, and combining masks, are FlexAttention's (Dong et al. 2024,
https://arxiv.org/abs/2412.05496).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int64, Integer

from attnlab import intervals
from attnlab.intervals import check_ids, check_whole
from attnlab.mask_algebra import Lengths, Mask, MaskMod, Place

__all__ = [
    "MOST_RUNS",
    "Mask",
    "MaskMod",
    "bottom_right_causal",
    "causal",
    "document",
    "full",
    "padding",
    "predicate",
    "prefix",
    "sliding_window",
]

MOST_RUNS = 16  # with more runs of keys for one id, the intervals of `document` are no longer a small form


def _one_run(name: str, rule: MaskMod, bounds: Callable[..., Any], lengths: Lengths = (None, None)) -> Mask:
    """A mask that shows every query one run of keys: ``bounds(q, kv_len)`` gives lo and hi, clipped later."""

    def rows(q_len: int, kv_len: int) -> Int64[np.ndarray, "q_len k 2"]:
        lo, hi = bounds(np.arange(q_len), kv_len)
        return intervals.single(lo, hi, q_len, kv_len)

    return Mask(name, lambda place: rule, rows, lengths)


def full() -> Mask:
    """Every query sees every key."""
    return _one_run(
        "full", lambda b, h, q_idx, kv_idx: (q_idx >= 0) & (kv_idx >= 0), lambda q, kv_len: (0, kv_len)
    )


def causal() -> Mask:
    """Query q sees keys ``k <= q``: both sides count from 0, so the diagonal starts in the top left."""
    return _one_run("causal", lambda b, h, q_idx, kv_idx: kv_idx <= q_idx, lambda q, kv_len: (0, q + 1))


def bottom_right_causal(q_len: int, kv_len: int) -> Mask:
    """Query q sees keys ``k <= q + kv_len - q_len``: the last sees every key, as in decoding with a cache.

    With more queries than keys, the first ``q_len - kv_len`` queries see nothing.

    Parameters
    ----------
    q_len, kv_len : int
        The lengths, 0 or more. The mask fits these lengths only.
    """
    q_len, kv_len = check_whole("q_len", q_len), check_whole("kv_len", kv_len)
    return _one_run(
        "bottom_right_causal",
        lambda b, h, q_idx, kv_idx: kv_idx - kv_len <= q_idx - q_len,
        lambda q, kv_len: (0, q + 1 + kv_len - q_len),
        (q_len, kv_len),
    )


def sliding_window(window: int) -> Mask:
    """Query q sees keys ``k > q - window``: of the past, ``window`` keys, its own included.

    This is the far edge alone and says nothing about keys after the query: the usual causal window is
    ``causal() & sliding_window(W)``. Conventions differ by one: transformers' ``sliding_window=W`` means W
    keys, as here; FlashAttention's ``window_size=(left, 0)``, JAX's ``local_window_size=(left, 0)`` and
    attention-gym see ``left + 1``.

    Parameters
    ----------
    window : int
        Keys visible, the query's own included; 1 or more.
    """
    window = check_whole("window", window, least=1)
    return _one_run(
        f"window({window})",
        lambda b, h, q_idx, kv_idx: kv_idx > q_idx - window,
        lambda q, kv_len: (q - window + 1, kv_len),
    )


def document(
    segment_ids_q: Integer[np.ndarray, " q_len"], segment_ids_kv: Integer[np.ndarray, " kv_len"] | None = None
) -> Mask:
    """A query sees the keys of its own segment. Id 0 is padding: it sees nothing and nothing sees it.

    The ids may come in any order and a segment may be interrupted (``1 2 1``).

    Parameters
    ----------
    segment_ids_q, segment_ids_kv : integer array [q_len], [kv_len]
        Segment of each token, 0 or more. Without ``segment_ids_kv`` the keys carry the queries' ids. The mask
        fits these lengths only, and keeps its own copy.

    Raises
    ------
    TypeError
        If an argument is not a NumPy array of integers.
    ValueError
        If it is not one-dimensional, or an id is negative or above 2**31 - 1.
    """
    ids_q = check_ids("segment_ids_q", segment_ids_q)
    ids_kv = ids_q if segment_ids_kv is None else check_ids("segment_ids_kv", segment_ids_kv)

    def bind(place: Place) -> MaskMod:
        of_q = place(ids_q)
        of_kv = of_q if ids_kv is ids_q else place(ids_kv)
        return lambda b, h, q_idx, kv_idx: (of_q[q_idx] == of_kv[kv_idx]) & (of_q[q_idx] != 0)

    return Mask(
        "document",
        bind,
        lambda q_len, kv_len: intervals.same_id(ids_q, ids_kv, MOST_RUNS),
        (ids_q.size, ids_kv.size),
    )


def prefix(length: int) -> Mask:
    """Keys ``k < length`` are visible to all; ``causal() | prefix(n)`` makes a prefix language model.

    Parameters
    ----------
    length : int
        Keys in the prefix, 0 or more; more than there are keys is the same as all of them.
    """
    return _below("prefix", check_whole("length", length))


def padding(kv_length: int) -> Mask:
    """Only keys ``k < kv_length`` are real; nobody sees the padding after them. The rule is `prefix`'s.

    Parameters
    ----------
    kv_length : int
        Real keys, 0 or more; more than there are keys means that none is padding.
    """
    return _below("padding", check_whole("kv_length", kv_length))


def _below(name: str, length: int) -> Mask:
    return _one_run(
        f"{name}({length})", lambda b, h, q_idx, kv_idx: kv_idx < length, lambda q, kv_len: (0, length)
    )


def predicate(fn: MaskMod, name: str) -> Mask:
    """A rule of your own. It has no interval form, so its tiles are counted from its values, row by row.

    Parameters
    ----------
    fn : callable
        ``fn(b, h, q_idx, kv_idx) -> bool``, of arithmetic, comparisons and indexing, so that it works on the
        arrays of every library. It must not depend on ``b`` or ``h``: this package evaluates it at 0, 0.
    name : str
        What to call it in titles and messages.
    """
    if not callable(fn):
        raise TypeError(f"fn must be callable, got {type(fn).__name__}")
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, got {type(name).__name__}")
    return Mask(name, lambda place: fn)
