"""Packed sequences: how long each segment of a row is and where it starts, in O(T) instead of O(T^2).

Several sequences share one row of T tokens; ``segment_ids`` says which token belongs to which, 0 being
padding. Fused attention kernels want two short lists instead: lengths and starts. Every path below has the
signature ``seqlens_and_offsets(segment_ids_q, segment_ids_kv, segment_pos_q, segment_pos_kv, *, mask,
max_segments)`` and returns a `SegmentLayout`:

- `attnlab.segments.reference`: through the T x T mask, to the letter. The oracle.
- `attnlab.segments.numpy`: from where neighbouring ids differ.
- `attnlab.segments.torch`: the same without a host synchronisation, on CPU and CUDA, whole under
  ``torch.compile``.
- `attnlab.segments.jax`: static shapes under ``jit`` and ``vmap``, with O(T / 32 + S) memory; its search is
  in `attnlab.segments.rank_select`. The slower ways it replaces stand in `attnlab.segments.jax_rungs`.

`attnlab.segments.promises` does less work for a caller who can promise more. The layout is carried on to
attention by `attnlab.segments.varlen` (cu_seqlens), `attnlab.segments.flex` (FlexAttention's BlockMask) and
`attnlab.segments.dot_product` (``jax.nn.dot_product_attention``); `attnlab.segments.mask` is the mask
itself, for pictures and tiles.

Source: NVIDIA TransformerEngine pull request 2522, "Calculate seqlens and offsets in O(T) space".
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .checks import MASKS, MaskKind
from .layout import SegmentLayout

__all__ = ["MASKS", "MaskKind", "SegmentLayout", "positions"]


def positions(segment_ids: Any) -> Any:
    """Number the tokens of every run of equal ids from 0; padding (id 0) gets 0.

    Parameters
    ----------
    segment_ids : int32 [B, T]
        A NumPy array, a torch tensor or a JAX array.

    Returns
    -------
    int32 [B, T]
        Of the same library, on the same device.

    Raises
    ------
    TypeError
        For another kind of object, or another dtype.
    ValueError
        For another number of dimensions.
    """
    for cls in type(segment_ids).__mro__:
        path = {"numpy": "numpy", "torch": "torch", "jax": "jax", "jaxlib": "jax"}.get(
            cls.__module__.split(".")[0]
        )
        if path is not None:
            return import_module(f".{path}", __package__).positions(segment_ids)
    raise TypeError(
        f"segment_ids must be a NumPy array, a torch tensor or a JAX array; got {type(segment_ids).__name__}"
    )
