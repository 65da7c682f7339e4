"""A key/value cache of fixed size for sliding-window attention: a ring that is written in place.

Memory is O(C * d), constant in the number of tokens, and a decode step costs O(W * d). Nothing here is
recorded for autograd. Which slot holds what, and which calls are safe, is in `attnlab.ring.laws`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from . import laws
from .checks import check_pointers, check_tensor
from .rows import WORK_DTYPE, attend_newest


class Visible(NamedTuple):
    """The keys that the newest token sees, oldest first: copies, [B, H_kv, n, D], [B, n] and [n]."""

    k: Float[Tensor, "batch kv_heads visible head_dim"]
    v: Float[Tensor, "batch kv_heads visible head_dim"]
    padding: Bool[Tensor, "batch visible"]
    positions: Int64[Tensor, " visible"]


class RingCache:
    """The last keys and values of a sequence, in slots that are used again and again.

    K and V lie as [B, H_kv, C, D]; rows are padded so that each starts on a cache line, 64 bytes (128 on
    CUDA). The storage is allocated once and never moves. It obeys the cache law C >= W - 1 + chunk for each
    chunk; a kernel that reads tiles checks its own.

    Parameters
    ----------
    batch_size, num_kv_heads, head_dim : int
        B, H_kv and D.
    capacity : int
        C, slots.
    window : int
        W: a query at p sees the keys p - W < k <= p, W of them with its own. That is ``sliding_window=W`` of
        transformers, and ``window_size=(W - 1, 0)`` of FlashAttention.
    dtype : torch.dtype
        float32, float64, float16 or bfloat16.
    device : torch.device, str or None
        None means torch's default device.

    Raises
    ------
    TypeError
        For a number that is no int, or another dtype.
    ValueError
        For a number below 1, or if C < W, with which not even one token could be written.
    """

    def __init__(
        self,
        batch_size: int,
        num_kv_heads: int,
        head_dim: int,
        capacity: int,
        *,
        window: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ):
        self._batch = laws.whole("batch_size", batch_size, least=1)
        self._heads = laws.whole("num_kv_heads", num_kv_heads, least=1)
        self._head_dim = laws.whole("head_dim", head_dim, least=1)
        self._capacity = laws.whole("capacity", capacity, least=1)
        self._window = laws.whole("window", window, least=1)
        if dtype not in WORK_DTYPE:
            raise TypeError(f"dtype must be one of {', '.join(map(str, WORK_DTYPE))}; got {dtype!r}")
        laws.check_cache(self._capacity, self._window, 1)

        # A tensor made in inference mode could not be written to outside it.
        with torch.inference_mode(False):
            self._padding = torch.zeros(self._batch, self._capacity, dtype=torch.bool, device=device)
            line = 128 if self._padding.device.type == "cuda" else 64
            padded_dim = laws.round_up(self._head_dim, line // dtype.itemsize)
            shape = (self._batch, self._heads, self._capacity, padded_dim)
            # The first row is aligned too: torch aligns to 64 bytes on the CPU and to 512 on CUDA.
            self._k_rows = torch.zeros(shape, dtype=dtype, device=device)
            self._v_rows = torch.zeros(shape, dtype=dtype, device=device)
        self._written = self._highest = 0
        self._masked = 0  # no token at or after this position was appended with a padding mask

    @property
    def position(self) -> int:
        """The tokens written, n, which is also the position of the next one."""
        return self._written

    @property
    def highest(self) -> int:
        """The most tokens that were ever written, h: rollbacks do not lower it."""
        return self._highest

    @property
    def window(self) -> int:
        """Keys visible to a query, its own included."""
        return self._window

    @property
    def capacity(self) -> int:
        """The number of slots."""
        return self._capacity

    @property
    def storage_bytes(self) -> int:
        """Bytes of K and V: 2 * B * H_kv * C * D_pad * itemsize. The padding bits take B * C bytes more."""
        return self._k_rows.nbytes + self._v_rows.nbytes

    @property
    def k(self) -> Float[Tensor, "batch kv_heads capacity head_dim"]:
        """The keys in slot order, [B, H_kv, C, D]: a view of the storage, or the storage itself."""
        rows = self._k_rows
        return rows if rows.shape[3] == self._head_dim else rows[..., : self._head_dim]

    @property
    def v(self) -> Float[Tensor, "batch kv_heads capacity head_dim"]:
        """The values in slot order, [B, H_kv, C, D]: a view of the storage, or the storage itself."""
        rows = self._v_rows
        return rows if rows.shape[3] == self._head_dim else rows[..., : self._head_dim]

    @property
    def padding(self) -> Bool[Tensor, "batch capacity"]:
        """True in the slots of padded tokens, [B, C]: the storage itself."""
        return self._padding

    @torch.no_grad()
    def append(
        self,
        k: Float[Tensor, "batch kv_heads tokens head_dim"],
        v: Float[Tensor, "batch kv_heads tokens head_dim"],
        key_padding_mask: Bool[Tensor, "batch tokens"] | None = None,
    ) -> None:
        """Write the next tokens, in place and without a graph.

        Parameters
        ----------
        k, v : [B, H_kv, L, D], the cache's dtype and device
            L is at most C - W + 1; 0 is allowed.
        key_padding_mask : bool [B, L], optional
            True marks padding, as in ``nn.MultiheadAttention``. A padded token takes its slot and its
            position, and is never attended to.

        Raises
        ------
        TypeError
            For something that is no tensor, or another dtype.
        ValueError
            For another shape or device, or a chunk that breaks the cache law. Then nothing was written.
        """
        check_tensor("k", k, (self._batch, self._heads, None, self._head_dim), self._k_rows)
        length = k.shape[2]
        check_tensor("v", v, tuple(k.shape), self._k_rows)
        if key_padding_mask is not None:
            check_tensor("key_padding_mask", key_padding_mask, (self._batch, length), self._padding)
        laws.check_cache(self._capacity, self._window, length)

        stop, done = self._written + length, 0
        for first, end in laws.runs(self._written, stop, self._capacity):
            rows = slice(done, done + end - first)
            self.k[:, :, first:end] = k[:, :, rows]
            self.v[:, :, first:end] = v[:, :, rows]
            if key_padding_mask is not None or self._masked:  # before the first mask, no bit is set
                self._padding[:, first:end] = False if key_padding_mask is None else key_padding_mask[:, rows]
            done = rows.stop
        self._written, self._highest = stop, max(self._highest, stop)
        if key_padding_mask is not None:
            self._masked = max(self._masked, stop)

    @torch.no_grad()
    def attend(
        self, q: Float[Tensor, "batch heads tokens head_dim"], *, return_lse: bool = False
    ) -> (
        Float[Tensor, "batch heads tokens head_dim"]
        | tuple[Float[Tensor, "batch heads tokens head_dim"], Float[Tensor, "batch heads tokens"]]
    ):
        """Causal sliding-window attention of the newest tokens, which must be in the cache already.

        Keys are read from at most two runs of slots, and no slot outside them is read; a chunk on the CPU
        copies its runs next to one another. Scores are scaled by ``1 / sqrt(D)``. There is no gradient.

        Parameters
        ----------
        q : [B, Hq, L, D], the cache's dtype and device
            Row i is the token at position ``n - L + i``. Hq is a multiple of H_kv, and query head h shares
            key/value head ``h // (Hq / H_kv)``.
        return_lse : bool
            Return the log-sum-exp of the scores too.

        Returns
        -------
        out : [B, Hq, L, D], of the cache's dtype
            0 where a query sees only padding.
        lse : [B, Hq, L], float32, or float64 in a float64 cache
            With `return_lse`; -inf where a query sees only padding.

        Raises
        ------
        TypeError
            For something that is no tensor, or another dtype.
        ValueError
            For another shape or device, more rows than tokens, or if the attend law is broken.
        """
        check_tensor("q", q, (self._batch, None, None, self._head_dim), self._k_rows)
        heads, length = q.shape[1:3]
        if heads == 0 or heads % self._heads:
            raise ValueError(
                f"q must have a multiple of num_kv_heads, {self._heads}, as its heads; got {heads}"
            )
        if length > self._written:
            raise ValueError(f"q must have at most one row per token written, {self._written}; got {length}")
        laws.check_attend(self._written, length, self._highest, self._window, self._capacity)

        oldest = max(0, self._written - length - self._window + 1)
        out, lse = attend_newest(
            q.unflatten(1, (self._heads, heads // self._heads)),
            self.k,
            self.v,
            self._padding if oldest < self._masked else None,
            self._written,
            window=self._window,
        )
        return (out, lse) if return_lse else out

    def visible(self) -> Visible:
        """Copy what the newest token sees, oldest first: at most W keys, in the order of their positions.

        Returns
        -------
        Visible
            ``k, v, padding, positions``; empty before the first token.

        Raises
        ------
        ValueError
            If the attend law is broken: after a rollback the oldest key may be gone until a token is added.
        """
        laws.check_attend(self._written, min(1, self._written), self._highest, self._window, self._capacity)
        oldest = laws.oldest_visible(self._written, self._window)
        positions = torch.arange(oldest, self._written, device=self._padding.device)
        slots = positions % self._capacity
        return Visible(self.k[:, :, slots], self.v[:, :, slots], self._padding[:, slots], positions)

    def rollback(self, r: int) -> None:
        """Take back the last `r` tokens; the next ones are written over them.

        Raises
        ------
        TypeError, ValueError
            If `r` is no int, is negative or more than the tokens written, or breaks the rollback law: in all
            rollbacks together no more than C - W + 1 tokens, counted from `highest`.
        """
        if laws.whole("r", r) > self._written:
            raise ValueError(f"r must be at most the tokens written, {self._written}; got {r}")
        laws.check_rollback(self._written - r, self._highest, self._window, self._capacity)
        self._written -= r

    def state_dict(self) -> dict[str, Any]:
        """Copy the whole state: the pointers, the window, K and V without row padding, the padding bits."""
        return {
            "position": self._written,
            "highest": self._highest,
            "window": self._window,
            "k": self.k.clone(memory_format=torch.contiguous_format),
            "v": self.v.clone(memory_format=torch.contiguous_format),
            "padding": self._padding.clone(),
        }

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state that `state_dict` made, copying into the storage that is here, from any device.

        Raises
        ------
        TypeError
            For entries of another kind or dtype.
        ValueError
            For missing or unknown entries, a state of another shape or window, or pointers that could not
            be. Then nothing has changed.
        """
        written, highest = check_pointers(state_dict, self._window)
        mine = {"k": self.k, "v": self.v, "padding": self._padding}
        for name, tensor in mine.items():
            label = f"state_dict['{name}']"
            check_tensor(label, state_dict[name], tuple(tensor.shape), tensor, anywhere=True)
        laws.check_rollback(written, highest, self._window, self._capacity)

        for name, tensor in mine.items():
            tensor.copy_(state_dict[name])
        self._written, self._highest = written, highest
        self._masked = highest if self._padding.any() else 0
