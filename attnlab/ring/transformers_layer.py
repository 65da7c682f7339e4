"""A layer of transformers' cache whose keys and values lie in a `RingCache`.

transformers writes to a cache first and calls the attention function afterwards, with the padding mask. A
ring wants the mask with the keys, and takes a long prompt in chunks. So `RingLayer.update` only hands the new
rows on, marked with the layer they belong to; the attention function calls `RingLayer.attend`, which writes
and reads. Keys arrive with their rotary positions applied: the ring stores them as they are and turns none.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin

from attnlab.ring import laws
from attnlab.ring.cache import RingCache

__all__ = ["RingLayer"]

_MARK = "attnlab_ring_layer"


class RingLayer(CacheLayerMixin):
    """One layer's keys and values in a ring; storage is allocated at the first call and does not grow.

    Parameters
    ----------
    window : int
        W keys are visible to a query, its own included: transformers' ``sliding_window``.
    capacity : int
        C slots, W or more. ``C - W + 1`` tokens are written at a time, and at most as many can be cropped.

    Raises
    ------
    TypeError, ValueError
        If an argument is no int or less than 1, or C < W.
    """

    is_sliding = True
    is_compileable = False
    is_croppable = True

    def __init__(self, window: int, capacity: int) -> None:
        super().__init__()
        self.window = laws.whole("window", window, least=1)
        self.capacity = laws.whole("capacity", capacity, least=1)
        laws.check_cache(self.capacity, self.window, 1)
        self.ring: RingCache | None = None
        self._pending = 0  # rows that were handed on and have not come back to be written

    @staticmethod
    def of(key_states: Tensor) -> RingLayer | None:
        """Return the layer that handed these keys on; None for keys that come from elsewhere."""
        return getattr(key_states, _MARK, None)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate a ring for keys and values of this shape, [B, H_kv, any, D], dtype and device."""
        if key_states.shape != value_states.shape:
            raise ValueError(
                f"keys and values must have one shape; got {list(key_states.shape)} and "
                f"{list(value_states.shape)}"
            )
        batch, heads, _, head_dim = key_states.shape
        self.ring = self._new_ring(batch, heads, head_dim, key_states)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Hand the new rows on to the attention function, which writes them.

        Raises
        ------
        RuntimeError
            If the rows of the call before never came back.
        """
        if self._pending:
            raise RuntimeError(
                "the keys of the last call never reached the ring: either the model does not attend by "
                "'attnlab_ring', which use_ring_attention(model) sets, or that call failed; reset the cache"
            )
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self._pending = key_states.shape[2]
        key_states = key_states.view_as(key_states)  # the mark belongs on a tensor of our own
        setattr(key_states, _MARK, self)
        return key_states, value_states

    def attend(
        self,
        q: Float[Tensor, "batch heads tokens head_dim"],
        k: Float[Tensor, "batch kv_heads tokens head_dim"],
        v: Float[Tensor, "batch kv_heads tokens head_dim"],
        key_padding_mask: Bool[Tensor, "batch tokens"] | None = None,
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Write the rows that `update` handed on, and attend with their queries, in chunks that fit the ring.

        Parameters
        ----------
        q : [B, Hq, L, D]
        k, v : [B, H_kv, L, D]
        key_padding_mask : bool [B, L], optional
            True marks padding.

        Returns
        -------
        [B, Hq, L, D]
            0 where a query sees only padding.
        """
        assert self.ring is not None, "update comes first"
        most = self.capacity - self.window + 1
        outs = []
        for start in range(0, k.shape[2], most):
            rows = slice(start, start + most)
            padding = None if key_padding_mask is None else key_padding_mask[:, rows]
            self.ring.append(k[:, :, rows], v[:, :, rows], padding)
            outs.append(self.ring.attend(q[:, :, rows]))
        self._pending = 0
        return outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)

    def get_seq_length(self) -> int:
        """Return the tokens seen so far; they may be far more than the slots."""
        return self._pending + (0 if self.ring is None else self.ring.position)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return how many keys the next queries see together, and the position of the first of them."""
        seen = self.get_seq_length()
        first = max(seen - self.window + 1, 0)
        return seen - first + query_length, first

    def get_max_length(self) -> int:
        """Return the window, as transformers' own sliding layers do."""
        return self.window

    def crop(self, tokens_to_remove: int) -> None:
        """Take back the last tokens, by rolling the ring back.

        Parameters
        ----------
        tokens_to_remove : int
            0, or minus the number of tokens.

        Raises
        ------
        ValueError
            If it is positive, or reaches further back than the ring still holds (the rollback law).
        """
        if tokens_to_remove > 0:
            raise ValueError(f"tokens_to_remove must be 0 or negative; got {tokens_to_remove}")
        if self.ring is not None:
            self.ring.rollback(-tokens_to_remove)

    def reset(self) -> None:
        """Forget every token; the next call begins at position 0 and may have another batch size."""
        self.ring, self._pending, self.is_initialized = None, 0, False

    def reorder_cache(self, beam_idx: Int[Tensor, " batch"]) -> None:
        """Let row i continue what row ``beam_idx[i]`` has been, as beam search does. The ring is copied."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row of the batch `repeats` times, next to each other."""
        if self.ring is not None:
            rows = torch.arange(self.ring.k.shape[0], device=self.ring.k.device)
            self.batch_select_indices(rows.repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows of the batch, in this order; `indices` may repeat, or be a mask of booleans."""
        if self.ring is None:
            return
        state = self.ring.state_dict()
        for name in ("k", "v", "padding"):
            state[name] = state[name][indices.to(state[name].device)]
        batch, heads, _, head_dim = state["k"].shape
        if batch != self.ring.k.shape[0]:
            self.ring = self._new_ring(batch, heads, head_dim, self.ring.k)
        self.ring.load_state_dict(state)

    def offload(self) -> None:
        """Raise: a ring stays where it is. It is small, which is its point."""
        raise NotImplementedError("a ring is not offloaded; make the cache with offloading=False")

    def prefetch(self) -> None:
        """Raise, as `offload` does."""
        self.offload()

    def _new_ring(self, batch: int, heads: int, head_dim: int, like: Tensor) -> RingCache:
        return RingCache(
            batch, heads, head_dim, self.capacity, window=self.window, dtype=like.dtype, device=like.device
        )
