"""The mask itself: a rule that every library can run, its key intervals, and the signs that combine masks.

`attnlab.masks` makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import and_, or_
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from attnlab import intervals
from attnlab.intervals import check_whole

MaskMod = Callable[[Any, Any, Any, Any], Any]
Place = Callable[[np.ndarray], Any]
Lengths = tuple[int | None, int | None]

_OR, _AND, _ATOM = 1, 2, 3  # how tightly a name binds, for the brackets in combined names


@dataclass(frozen=True, eq=False, repr=False)
class Mask:
    """Which key each query may see; made by the functions of `attnlab.masks` and by ``&``, ``|`` and ``~``.

    Attributes
    ----------
    name : str
        Readable, for titles and messages, such as ``"causal & window(768)"``.
    bind : callable
        Takes a function that turns a NumPy array into an array of the library at work, and returns the rule
        ``(b, h, q_idx, kv_idx) -> bool`` with such arrays inside. Only `document` holds any.
    rows : callable or None
        ``(q_len, kv_len)`` to key intervals (see `attnlab.intervals`), or to None where they are not a small
        form. None if the mask has no such form at all.
    lengths : (int or None, int or None)
        The query and key lengths that the mask was built for; None where it fits any.
    """

    name: str
    bind: Callable[[Place], MaskMod]
    rows: Callable[[int, int], Int64[np.ndarray, "q_len k 2"] | None] | None = None
    lengths: Lengths = (None, None)
    rank: int = _ATOM

    def __call__(self, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        """May query ``q_idx`` see key ``kv_idx``? Both are integers, or arrays of one library that broadcast.

        FlexAttention takes a mask as it is; on an accelerator give it `mask_mod`, whose ids lie there.
        """
        # Read off the index, so that neither torch nor JAX is imported before it is in use.
        library = type(q_idx).__module__.partition(".")[0]
        if library == "torch":
            return self.mask_mod(q_idx.device)(b, h, q_idx, kv_idx)
        if library in ("jax", "jaxlib"):
            from jax.numpy import asarray

            return self.bind(asarray)(b, h, q_idx, kv_idx)
        return self.bind(np.asarray)(b, h, q_idx, kv_idx)

    def mask_mod(self, device: Any = None) -> MaskMod:
        """The rule as a plain function for FlexAttention, compiled or not, with its arrays on a device.

        Parameters
        ----------
        device : torch.device, str or None
            None means torch's default device.
        """
        import torch

        return self.bind(lambda ids: torch.as_tensor(ids, device=device))

    def dense(self, q_len: int, kv_len: int) -> Bool[np.ndarray, "{q_len} {kv_len}"]:
        """The whole table of booleans, O(q_len * kv_len): for small examples, and to compare with."""
        self.check_lengths(q_len, kv_len)
        return self.dense_rows(0, q_len, kv_len)

    def dense_rows(self, start: int, stop: int, kv_len: int) -> Bool[np.ndarray, "rows {kv_len}"]:
        """The dense rows of the queries ``start <= q < stop``; lengths are not checked."""
        shape = (stop - start, kv_len)
        seen = np.asarray(self(0, 0, np.arange(start, stop)[:, None], np.arange(kv_len)[None, :]))
        if seen.dtype != np.bool_:
            raise TypeError(f"mask {self.name!r} must give booleans, got dtype {seen.dtype}")
        try:
            return np.broadcast_to(seen, shape).copy()
        except ValueError:
            raise ValueError(f"mask {self.name!r} must give shape {shape}, got {seen.shape}") from None

    def intervals(self, q_len: int, kv_len: int) -> Int64[np.ndarray, "{q_len} k 2"] | None:
        """The keys each query sees, as sorted disjoint intervals ``[lo, hi)``, in O(q_len * K).

        Returns
        -------
        int64 array [q_len, K, 2], or None
            K is the most intervals any row needs; other rows end in empty intervals ``(kv_len, kv_len)``.
            None if the mask contains a `predicate`, or a `document` with an id in more than 16 runs of keys.

        Raises
        ------
        ValueError
            If the mask was built for other lengths, or a length is out of range.
        """
        self.check_lengths(q_len, kv_len)
        return None if self.rows is None else self.rows(q_len, kv_len)

    def check_lengths(self, q_len: int, kv_len: int) -> None:
        """Raise ValueError unless the mask can be drawn for ``q_len`` queries and ``kv_len`` keys."""
        for name, value, built in zip(("q_len", "kv_len"), (q_len, kv_len), self.lengths, strict=True):
            check_whole(name, value)
            if built is not None and value != built:
                raise ValueError(f"{name} must be {built}, as mask {self.name!r} was built for, got {value}")

    def __and__(self, other: Mask) -> Mask:
        """Both masks allow the pair."""
        return _combine(" & ", _AND, (self, other), and_, intervals.intersection)

    def __or__(self, other: Mask) -> Mask:
        """At least one of the masks allows the pair."""
        return _combine(" | ", _OR, (self, other), or_, intervals.union)

    def __invert__(self) -> Mask:
        """The mask does not allow the pair. So ``~document`` lets padding see, since `document` hides it."""
        # Python integers compare to a bool, and ~True is -2; "xor True" is right for every type.
        return _combine("~", _ATOM, (self,), lambda allowed: allowed ^ True, intervals.complement)

    def __repr__(self) -> str:
        return f"Mask({self.name})"


def _combine(
    sign: str, rank: int, masks: tuple[Mask, ...], op: Callable[..., Any], op_rows: Callable[..., Any]
) -> Mask:
    if not all(isinstance(mask, Mask) for mask in masks):
        return NotImplemented
    names = [mask.name if mask.rank >= rank else f"({mask.name})" for mask in masks]
    name = sign.join(names) if len(names) > 1 else sign + names[0]
    q_lens, kv_lens = ({n for m in masks if (n := m.lengths[side]) is not None} for side in (0, 1))
    for what, built in (("queries", q_lens), ("keys", kv_lens)):
        if len(built) > 1:
            raise ValueError(f"masks in {name!r} do not fit together: built for {sorted(built)} {what}")

    def bind(place: Place) -> MaskMod:
        rules = [mask.bind(place) for mask in masks]
        return lambda b, h, q_idx, kv_idx: op(*[rule(b, h, q_idx, kv_idx) for rule in rules])

    def rows(q_len: int, kv_len: int) -> Int64[np.ndarray, "q_len k 2"] | None:
        seen = [mask.intervals(q_len, kv_len) for mask in masks]
        return None if any(spans is None for spans in seen) else op_rows(*seen, kv_len)

    return Mask(name, bind, rows, (max(q_lens, default=None), max(kv_lens, default=None)), rank)
