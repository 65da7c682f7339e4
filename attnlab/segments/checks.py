"""The door of the room: one set of checks for every path, on shapes and dtypes alone.

Nothing here looks at a value, so the same checks serve arrays that are being traced or that live on a GPU.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

MaskKind = Literal["padding", "causal", "bottom_right_causal"]
MASKS: tuple[str, ...] = get_args(MaskKind)


def check_mask(mask: str) -> None:
    """Raise ValueError unless `mask` is one of `MASKS`."""
    if mask not in MASKS:
        raise ValueError(f"mask must be one of {', '.join(map(repr, MASKS))}; got {mask!r}")


def check_max_segments(max_segments: int) -> None:
    """Raise TypeError unless `max_segments` is a Python int, ValueError unless it is at least 1."""
    if isinstance(max_segments, bool) or not isinstance(max_segments, int):
        raise TypeError(f"max_segments must be an int known in advance; got {type(max_segments).__name__}")
    if max_segments < 1:
        raise ValueError(f"max_segments must be at least 1; got {max_segments}")
    if max_segments >= 2**30:
        raise ValueError(f"max_segments must be below 2**30; got {max_segments}")


def check_tokens(name: str, array: Any, kind: type[Any]) -> None:
    """Raise unless `array` is a `kind` of dtype int32 and shape [batch, tokens]."""
    if not isinstance(array, kind):
        wanted = f"{kind.__module__.split('.')[0]} {kind.__name__.rpartition('.')[2]}"
        raise TypeError(f"{name} must be a {wanted}; got {type(array).__name__}")
    dtype = str(array.dtype).removeprefix("torch.")
    if dtype != "int32":
        raise TypeError(f"{name} must have dtype int32; got {dtype}")
    if array.ndim != 2:
        raise ValueError(f"{name} must have shape [batch, tokens]; got {list(array.shape)}")


def check_sides(
    ids_q: Any, ids_kv: Any, pos_q: Any, pos_kv: Any, *, mask: str, max_segments: int, kind: type[Any]
) -> None:
    """Check all that `seqlens_and_offsets` takes, and that the four arrays belong together."""
    check_mask(mask)
    check_max_segments(max_segments)
    named = {
        "segment_ids_q": ids_q,
        "segment_ids_kv": ids_kv,
        "segment_pos_q": pos_q,
        "segment_pos_kv": pos_kv,
    }
    for name, array in named.items():
        check_tokens(name, array, kind)
    for side, ids, pos in (("q", ids_q, pos_q), ("kv", ids_kv, pos_kv)):
        if ids.shape != pos.shape:
            raise ValueError(
                f"segment_pos_{side} must have the shape of segment_ids_{side}, {list(ids.shape)}; "
                f"got {list(pos.shape)}"
            )
    if ids_q.shape[0] != ids_kv.shape[0]:
        raise ValueError(
            f"segment_ids_kv must have the batch size of segment_ids_q, {ids_q.shape[0]}; "
            f"got {ids_kv.shape[0]}"
        )
