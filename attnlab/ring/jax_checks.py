"""What is given to the JAX paths is checked at the door, where shapes and dtypes are known even under jit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from attnlab.intervals import check_whole

from .order import TileOrder

FLOATS = tuple(map(jnp.dtype, (jnp.float32, jnp.bfloat16, jnp.float16, jnp.float64)))


def work_dtype(dtype: Any) -> Any:
    """What scores and sums are kept in: float32, or float64 for float64."""
    return jnp.promote_types(dtype, jnp.float32)


def check_array(name: str, x: Any, shape: tuple[int | None, ...], dtype: Any) -> None:
    """Raise unless `x` is a JAX array of this shape (None for any size) and dtype.

    Raises
    ------
    TypeError
        For something that is no JAX array, or another dtype.
    ValueError
        For another shape.
    """
    if not isinstance(x, jax.Array):
        raise TypeError(f"{name} must be a JAX array; got {type(x).__name__}")
    if x.dtype != dtype:
        raise TypeError(f"{name} must have dtype {jnp.dtype(dtype)}; got {x.dtype}")
    if x.ndim != len(shape) or any(want not in (None, got) for want, got in zip(shape, x.shape, strict=True)):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must have shape [{wanted}]; got {list(x.shape)}")


def check_sequence(q: Any, k: Any, v: Any, window: Any, causal: Any, order: Any, return_lse: Any) -> int:
    """Check the arguments that every sliding_window_attention has, and return the window as an int.

    Raises
    ------
    TypeError
        If q, k or v is no JAX array of floats, k or v has another dtype than q, or another argument is of the
        wrong type.
    ValueError
        If shapes do not belong together, or the window is below 1.
    """
    if not isinstance(q, jax.Array):
        raise TypeError(f"q must be a JAX array; got {type(q).__name__}")
    if q.dtype not in FLOATS:
        raise TypeError(f"q must be float32, bfloat16, float16 or float64; got {q.dtype}")
    if q.ndim != 4 or q.shape[-1] == 0:
        raise ValueError(
            f"q must have shape [batch, heads, length, head_dim] with head_dim > 0; got {list(q.shape)}"
        )
    batch, heads, tokens, head_dim = q.shape
    check_array("k", k, (batch, None, tokens, head_dim), q.dtype)
    if k.shape[1] == 0 or heads % k.shape[1]:
        raise ValueError(f"k must have heads that divide the {heads} of q; got {k.shape[1]}")
    check_array("v", v, k.shape, q.dtype)
    for name, flag in (("causal", causal), ("return_lse", return_lse)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be a bool; got {type(flag).__name__}")
    if not isinstance(order, TileOrder):
        raise TypeError(f"order must be a TileOrder; got {type(order).__name__}")
    return check_whole("window", window, least=1)
