"""What is given to a ring is checked at the door: tensors, and the pointers of a saved state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from . import laws


def check_tensor(
    name: str, tensor: Any, shape: tuple[int | None, ...], like: Tensor, *, anywhere: bool = False
) -> None:
    """Raise unless `tensor` has this shape (None for any size), and the dtype and device of `like`.

    Parameters
    ----------
    name : str
        The argument, for the message.
    anywhere : bool
        Take a tensor of any device.

    Raises
    ------
    TypeError
        For something that is no tensor, or another dtype.
    ValueError
        For another shape or device.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch Tensor; got {type(tensor).__name__}")
    if tensor.dtype != like.dtype:
        raise TypeError(f"{name} must have dtype {like.dtype}; got {tensor.dtype}")
    sizes = tuple(tensor.shape)
    if len(sizes) != len(shape) or any(
        want not in (None, got) for want, got in zip(shape, sizes, strict=True)
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must have shape [{wanted}]; got {list(sizes)}")
    if not anywhere and tensor.device != like.device:
        raise ValueError(f"{name} must be on {like.device}; got {tensor.device}")


def check_pointers(state_dict: Any, window: int) -> tuple[int, int]:
    """Return the position and the highest position of a saved ring, or raise.

    Raises
    ------
    TypeError
        For something that is no mapping, or pointers that are no ints.
    ValueError
        For missing or unknown entries, another window, or pointers that could not be.
    """
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"state_dict must be a mapping; got {type(state_dict).__name__}")
    names = ("position", "highest", "window", "k", "v", "padding")
    if set(state_dict) != set(names):
        raise ValueError(f"state_dict must have the entries {', '.join(names)}; got {list(state_dict)}")
    highest = laws.whole("state_dict['highest']", state_dict["highest"])
    written = laws.whole("state_dict['position']", state_dict["position"])
    stored = laws.whole("state_dict['window']", state_dict["window"], least=1)
    if stored != window:
        raise ValueError(f"state_dict['window'] must be the cache's, {window}; got {stored}")
    if written > highest:
        raise ValueError(f"state_dict['position'] must be at most 'highest', {highest}; got {written}")
    return written, highest
