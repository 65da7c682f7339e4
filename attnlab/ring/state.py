"""What attention remembers between calls: a ring of keys and values, and the part of them in a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from . import laws
from .cache import RingCache
from .config import RingBufferConfig
from .dropout import SEEDS

__all__ = ["BufferState"]

Rows = tuple[
    Float[Tensor, "batch kv_heads rows head_dim"],
    Float[Tensor, "batch kv_heads rows head_dim"],
    Bool[Tensor, "batch rows"],
]


class BufferState:
    """A handle on a sequence: each call that is given it reads it and moves it on.

    It wraps a `RingCache`, which is written in place and carries no gradient. After a call with
    ``requires_grad=True`` it also holds the rows that later queries can see, the last W - 1 of K and V (all
    rows of an encoder), as part of the graph, so that a loss on the next segment reaches this one.

    Parameters
    ----------
    config : RingBufferConfig
    batch_size : int
    dtype : torch.dtype
        Of K and V.
    device : torch.device, str or None
        None means torch's default device.

    Raises
    ------
    TypeError, ValueError
        As `RingCache`.
    """

    def __init__(
        self,
        config: RingBufferConfig,
        batch_size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ):
        self._config = config
        # No query looks back into an encoder's ring while it is written, so every slot is free for its keys.
        window = config.visible_keys if config.causal else 1
        self._cache = RingCache(
            batch_size, config.kv_heads, config.head_dim, config.capacity,
            window=window, dtype=dtype, device=device,
        )  # fmt: skip
        self._seed = int(torch.randint(2**62, (), device="cpu")) if config.dropout else 0
        self._graph: tuple[Tensor, Tensor] | None = None  # K and V up to `position`, inside autograd
        self._padded = 0  # no token at or after this position was written with a padding mask

    @property
    def config(self) -> RingBufferConfig:
        """What the state was made for."""
        return self._config

    @property
    def cache(self) -> RingCache:
        """The ring itself, to look at; writing to it is the model's affair."""
        return self._cache

    @property
    def position(self) -> int:
        """The tokens written, n, which is also the position of the next one."""
        return self._cache.position

    @property
    def seed(self) -> int:
        """The key of the dropout, drawn from torch's default generator when the state was made.

        It is 0 and nothing is drawn where the config has no dropout.
        """
        return self._seed

    @property
    def carries_graph(self) -> bool:
        """Whether a loss on later tokens would reach the tokens already written."""
        return self._graph is not None

    def detach(self) -> BufferState:
        """Cut the graph here, in place, and return the state: later losses stop at the tokens written so far.

        The numbers stay, because the ring holds them too. Outputs that were returned earlier keep their
        graph. This is the segment boundary of Transformer-XL (Dai et al. 2019,
        https://arxiv.org/abs/1901.02860).
        """
        self._graph = None
        return self

    def clone(self) -> BufferState:
        """A state that goes its own way from here: a copy of the ring, the same seed, the same graph."""
        cache = self._cache
        twin = object.__new__(BufferState)
        twin._config, twin._seed = self._config, self._seed
        twin._graph, twin._padded = self._graph, self._padded
        twin._cache = RingCache(
            cache.k.shape[0], cache.k.shape[1], cache.k.shape[3], cache.capacity,
            window=cache.window, dtype=cache.k.dtype, device=cache.k.device,
        )  # fmt: skip
        twin._cache.load_state_dict(cache.state_dict())
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> BufferState:
        """A clone without the graph, so that a model which holds a state can be copied after training."""
        return self.clone().detach()

    def state_dict(self) -> dict[str, Any]:
        """Copy the state: the entries of `RingCache.state_dict`, the seed, and whether it is causal.

        Tensors, ints and one bool, which ``torch.load(..., weights_only=True)`` reads. A graph is not saved.
        """
        return {"seed": self._seed, "causal": self._config.causal, **self._cache.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` saved, from a state of the same sizes; a graph is cut.

        Raises
        ------
        TypeError
            For something that is no mapping, or entries of another kind.
        ValueError
            For missing or unknown entries, or a state of other sizes. Then nothing has changed.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"state_dict must be a mapping; got {type(state_dict).__name__}")
        ring = dict(state_dict)
        if not {"seed", "causal"} <= set(ring):
            raise ValueError(f"state_dict must have the entries seed and causal; got {list(state_dict)}")
        if laws.whole("state_dict['seed']", seed := ring.pop("seed")) >= SEEDS:
            raise ValueError(f"state_dict['seed'] must be below 2**64; got {seed}")
        if (causal := ring.pop("causal")) is not self._config.causal:
            raise ValueError(f"state_dict['causal'] must be {self._config.causal}; got {causal!r}")
        self._cache.load_state_dict(ring)
        self._seed, self._graph = seed, None
        self._padded = self._cache.highest if self._cache.padding.any() else 0

    def padding_from(self, start: int) -> Bool[Tensor, "batch capacity"] | None:
        """The ring's padding bits, in slot order, or None if no token from `start` on came with a mask.

        It is answered without a look at the device.
        """
        return self._cache.padding if start < self._padded else None

    def rows(self, start: int, stop: int) -> Rows:
        """K, V and the padding bits of the positions ``start <= p < stop``, oldest first.

        Parameters
        ----------
        start, stop : int
            Positions that the ring holds. K and V are part of the graph if it reaches back to `start`.

        Returns
        -------
        k, v : [B, H_kv, rows, D]
            Views of the ring where the rows lie in one run, copies where they wrap.
        padding : bool [B, rows]
        """
        cache = self._cache
        parts = laws.runs(start, stop, cache.capacity) or ((0, 0),)
        k, v = (_joined([x[:, :, i:j] for i, j in parts], dim=2) for x in (cache.k, cache.v))
        padding = _joined([cache.padding[:, i:j] for i, j in parts], dim=1)
        if self._graph is not None:
            first = self.position - self._graph[0].shape[2]  # the oldest position in the graph
            if start >= first:
                k, v = (x[:, :, start - first : stop - first] for x in self._graph)
        return k, v, padding

    def write(
        self,
        k: Float[Tensor, "batch kv_heads tokens head_dim"],
        v: Float[Tensor, "batch kv_heads tokens head_dim"],
        padding: Bool[Tensor, "batch tokens"] | None = None,
        *,
        position: int,
        graph: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Roll back to `position` and append tokens to the ring, without a graph.

        Parameters
        ----------
        k, v : [B, H_kv, L, D]
        padding : bool [B, L], optional
        position : int
            Of the first of them; at most `BufferState.position`, and under the rollback law.
        graph : (k, v), optional
            The same tokens, and those before them that are visible from later ones, inside autograd; the rows
            that later tokens can see are kept. Without it the graph is cut.
        """
        self._cache.rollback(self.position - position)
        most = self._cache.capacity - self._cache.window + 1
        for start in range(0, k.shape[2], most):
            rows = slice(start, start + most)
            bits = None if padding is None else padding[:, rows]
            self._cache.append(k[:, :, rows], v[:, :, rows], bits)
        if padding is not None:
            self._padded = max(self._padded, self.position)
        self._graph = None
        if graph is not None and any(x.requires_grad for x in graph):
            length = graph[0].shape[2]
            kept = min(self._config.visible_keys - 1, length) if self._config.causal else length
            if kept:
                self._graph = graph[0][:, :, length - kept :], graph[1][:, :, length - kept :]


def _joined(parts: list[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)
