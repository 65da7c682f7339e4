"""One call of a `RingBufferAttention`: its arguments are checked, and nothing has changed yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from .config import RingBufferConfig
from .order import TileOrder
from .state import BufferState

__all__ = ["Call"]


@dataclass(frozen=True, eq=False)
class Call:
    """What the paths need to know; `attnlab.ring.call_checks` makes it.

    Attributes
    ----------
    state : BufferState
        To read, and unless this is cross-attention to write. It holds what comes before `position`.
    config : RingBufferConfig
    order : TileOrder
    q : [B, Hq, L, D]
    k, v : [B, H_kv, L, D], or None in cross-attention
    position : int
        Of the first query.
    first_key, keys : int
        The position of the first column of `att_mask` and of the weights, and how many there are.
    att_mask : [1 or B, 1 or Hq, 1 or L, 1 or keys] or None
    padding : bool or None
        Of the new tokens, [B, L]; in cross-attention of all keys, [B, n].
    dropout : float
        0 unless the model is training.
    weights : "mean", "heads" or None
    graph : bool
        Whether autograd records the call.
    """

    state: BufferState
    config: RingBufferConfig
    order: TileOrder
    q: Tensor
    k: Tensor | None
    v: Tensor | None
    position: int
    first_key: int
    keys: int
    att_mask: Tensor | None
    padding: Tensor | None
    dropout: float
    weights: Literal["mean", "heads"] | None
    graph: bool

    @property
    def plain(self) -> bool:
        """Whether window, order of time and padding are all that decides."""
        return self.att_mask is None and self.dropout == 0 and self.weights is None

    def mask_part(self, rows: slice, first: int, last: int) -> Tensor | None:
        """The mask of some query rows and of the keys at the positions ``first <= p < last``."""
        mask = self.att_mask
        if mask is None:
            return None
        if mask.shape[2] > 1:
            mask = mask[:, :, rows]
        if mask.shape[3] > 1:
            mask = mask[..., first - self.first_key : last - self.first_key]
        return mask

    def settings(self, seed: int) -> dict[str, Any]:
        """The arguments of `masked_attention` that are the same for every part of the call."""
        return dict(
            dropout=self.dropout, seed=seed, rows=self.config.block_size,
            head_tile_size=self.config.head_tile_size, weights=self.weights,
        )  # fmt: skip
