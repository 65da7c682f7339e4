"""The state of the functional ring, and what is asked of it before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from . import laws
from .jax_checks import check_array


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["k", "v", "padding", "position", "highest", "valid"],
    meta_fields=["window"],
)
@dataclass(frozen=True, eq=False)
class RingState:
    """Keys and values in slots that are used again, as a pytree: it goes through jit, scan, vmap and grad.

    Nothing here changes a state; `attnlab.ring.jax.append` and `rollback` return the next one. XLA writes
    into the old one's memory if it was donated, and in the carry of a loop.

    Attributes
    ----------
    k, v : [B, H_kv, C, D]
        In slot order: token p is in slot p mod C. Rows are not padded to cache lines; XLA owns the layout.
    padding : bool [B, C]
        True in the slots of padded tokens.
    position : int32 []
        n, the tokens written, which is also the position of the next one. At most 2**31 - 1.
    highest : int32 []
        h, the largest n there has been: a rollback does not lower it.
    valid : bool []
        False once a traced call has broken a law, and from then on: `attend` then gives NaN.
    window : int
        W, keys visible to a query, its own included. Static: another window compiles anew.
    """

    k: Any
    v: Any
    padding: Any
    position: Any
    highest: Any
    valid: Any
    window: int

    @property
    def capacity(self) -> int:
        """C, the number of slots."""
        return self.k.shape[2]


def pointers(state: RingState) -> tuple[int, int] | None:
    """Position and highest as ints, or None while the state is traced and has no numbers yet.

    Raises
    ------
    TypeError
        For something that is no RingState.
    ValueError
        If the state is known to be invalid.
    """
    if not isinstance(state, RingState):
        raise TypeError(f"state must be a RingState; got {type(state).__name__}")
    if any(isinstance(x, jax.core.Tracer) for x in (state.position, state.highest, state.valid)):
        return None
    if not state.valid:
        raise ValueError("state must be valid; a law was broken in a traced call that led to this one")
    return int(state.position), int(state.highest)


def check_queries(state: RingState, q: Any) -> Any:
    """Check what `attend` is given: raise, or under trace return whether the law holds, bool [].

    Raises
    ------
    TypeError
        For something that is no RingState or no JAX array, or another dtype.
    ValueError
        For another shape, more rows than slots, and, where the numbers are known, an invalid state, more rows
        than tokens or a broken attend law.
    """
    known = pointers(state)
    batch, kv_heads, capacity, head_dim = state.k.shape
    check_array("q", q, (batch, None, None, head_dim), state.k.dtype)
    heads, length = q.shape[1:3]
    if heads == 0 or heads % kv_heads:
        raise ValueError(f"q must have a multiple of num_kv_heads, {kv_heads}, as its heads; got {heads}")
    if length > capacity:
        raise ValueError(f"q must have at most one row per slot, {capacity}; got {length}")
    if known is None:
        oldest = jnp.maximum(0, state.position - length - state.window + 1)
        return state.valid & (length <= state.position) & (oldest >= state.highest - capacity)
    written, highest = known
    if length > written:
        raise ValueError(f"q must have at most one row per token written, {written}; got {length}")
    laws.check_attend(written, length, highest, state.window, capacity)
    return None
