"""What a ring-buffer attention is made of: sizes, checked once, before a tensor is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from . import laws
from .dropout import check_probability
from .triton_blocks import SMALLEST_TILE
from .window import IMPLS

__all__ = ["RingBufferConfig"]

_SIZES = ("num_heads", "head_dim", "buffer_size", "block_size", "tile_size", "head_tile_size", "prefill_size")


@dataclass(frozen=True)
class RingBufferConfig:
    """The sizes of a `RingBufferAttention`. It works without arguments, and no field can be changed later.

    There are two ways to size the ring:

    - ``window=None``: `buffer_size` is the window, and the ring gets the fewest slots that obey every law,
      ``roundup(W - 1 + prefill_size, tile_size) + tile_size``. That is 2592 slots for the defaults.
    - ``window=W``: `buffer_size` is the number of slots, and the cache law must hold for chunks of
      `prefill_size`: ``buffer_size >= W - 1 + prefill_size``.

    With ``causal=False`` the ring holds one encoded sequence, which is written once. Then nothing is written
    over while it is needed: the number of slots bounds the length of the sequence, and no law ties it to W.

    Parameters
    ----------
    num_heads : int
        Query heads, Hq.
    head_dim : int
        D.
    dropout : float
        Probability that a weight is dropped, in training mode only; 0 <= dropout < 1.
    buffer_size : int
        The window, or with `window` the number of slots.
    block_size : int
        Query rows that are handled at a time where the scores are written out; a multiple of `tile_size`.
    tile_size : int
        T, what the number of slots is rounded to, so that no tile straddles the end of the ring.
    head_tile_size : int
        Query heads that are handled at a time where the scores are written out. It need not divide
        `num_heads`, and it never changes a result.
    prefill_size : int
        The most tokens that are written to the ring before they attend; longer inputs are cut into such
        chunks. It bounds the workspace and never changes a result.
    causal : bool
        True: a query at p sees ``p - W < k <= p``. False: an encoder, which sees ``|p - k| < W``.
    window : int, optional
        W, keys visible to a query, its own included.
    num_kv_heads : int, optional
        H_kv, a divisor of `num_heads`; query head h reads key head ``h // (Hq // H_kv)``. Not given, Hq.
    impl : str
        The path of `attnlab.ring.sliding_window_attention` for what needs no mask but the window's. With
        ``"triton"`` the ring is read by a kernel too, tile by tile, so the tile laws must hold for tiles of
        16; ``"auto"`` does so on CUDA if they hold.

    Raises
    ------
    TypeError
        If a field is of another type.
    ValueError
        If a field is out of its range, or the sizes break a law; the message names the field or the law.
    """

    num_heads: int = 8
    head_dim: int = 64
    dropout: float = 0.0
    buffer_size: int = 2048
    block_size: int = 128
    tile_size: int = 32
    head_tile_size: int = 4
    prefill_size: int = 512
    causal: bool = True
    window: int | None = None
    num_kv_heads: int | None = None
    impl: str = "auto"

    def __post_init__(self) -> None:
        for name in _SIZES:
            laws.whole(name, getattr(self, name), least=1)
        check_probability("dropout", self.dropout)
        if not isinstance(self.causal, bool):
            raise TypeError(f"causal must be a bool; got {type(self.causal).__name__}: {self.causal!r}")
        if self.block_size % self.tile_size:
            raise ValueError(
                f"block_size must be a multiple of tile_size, {self.tile_size}; got {self.block_size}"
            )
        if self.num_kv_heads is not None:
            laws.whole("num_kv_heads", self.num_kv_heads, least=1)
            if self.num_heads % self.num_kv_heads:
                raise ValueError(
                    f"num_kv_heads must divide num_heads, {self.num_heads}; got {self.num_kv_heads}"
                )
        if not isinstance(self.impl, str):
            raise TypeError(f"impl must be a str; got {type(self.impl).__name__}: {self.impl!r}")
        if self.impl not in IMPLS:
            raise ValueError(f"impl must be one of {', '.join(map(repr, IMPLS))}; got {self.impl!r}")
        if self.window is not None:
            laws.whole("window", self.window, least=1)
            if self.causal:
                laws.check_cache(self.buffer_size, self.window, self.prefill_size)
        if self.impl == "triton" and self.causal and self.kernel_law is not None:
            raise ValueError(f"{self.kernel_law}; impl 'triton' reads the ring in such tiles")

    @property
    def visible_keys(self) -> int:
        """W: the keys that a query sees, its own included (on either side of it, for an encoder)."""
        return self.buffer_size if self.window is None else self.window

    @property
    def capacity(self) -> int:
        """C: the slots of the ring."""
        if self.window is not None:
            return self.buffer_size
        return laws.default_capacity(self.buffer_size, self.prefill_size, self.tile_size)

    @property
    def kernel_law(self) -> str | None:
        """The tile law that keeps a kernel from reading the ring in its smallest tiles, or None."""
        try:
            laws.check_tiles(self.capacity, self.visible_keys, self.prefill_size, SMALLEST_TILE)
        except ValueError as error:
            return str(error)
        return None

    @property
    def kv_heads(self) -> int:
        """H_kv: key and value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads
