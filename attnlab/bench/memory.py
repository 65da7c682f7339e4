"""Peak memory of one call, by the means each framework offers.

What is counted differs, and the differences matter when numbers stand side by side:

- `numpy_peak` asks `tracemalloc`, to which NumPy reports every array. Python's own small objects are counted
  too, a few hundred bytes to a few kilobytes.
- `torch_peak` on the CPU adds up the storages that operators hand back (`attnlab.bench.storages`). A buffer
  that lives and dies inside one operator is not seen.
- `torch_peak` on CUDA reads the caching allocator, which rounds each block up to 512 bytes and does see such
  buffers.
- `xla_memory` reads the plan XLA made at compile time, without running or allocating anything.

All but the last count from what was live before the call, so inputs made earlier are not in the figure, and
the result is. Functions that are measured are called exactly once; call them before where the first call
differs.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Peak", "XlaMemory", "numpy_peak", "torch_peak", "xla_memory"]


@dataclass(frozen=True)
class Peak:
    """Memory of one call, in bytes above what was live before it.

    Attributes
    ----------
    peak_bytes : int
        The most that was live at any moment of the call.
    kept_bytes : int
        What was still live when it returned: its result, and anything it stored.
    """

    peak_bytes: int
    kept_bytes: int


@dataclass(frozen=True)
class XlaMemory:
    """What XLA planned for one compiled function. Bytes, and floating-point operations as XLA counts them.

    Attributes
    ----------
    temp_bytes : int
        Scratch besides arguments and results. 0 means that everything was fused.
    argument_bytes, output_bytes : int
        The arguments and the results themselves.
    flops : float or None
        XLA's own count. It counts arithmetic on floats and integers alike, element by element. None where
        this backend does not say.
    accessed_bytes : float or None
        XLA's estimate of bytes read and written. None where this backend does not say.
    """

    temp_bytes: int
    argument_bytes: int
    output_bytes: int
    flops: float | None
    accessed_bytes: float | None


def numpy_peak(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Peak:
    """Peak of ``fn(*args, **kwargs)`` over memory that NumPy and Python allocate."""
    gc.collect()
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        result = fn(*args, **kwargs)
        after, peak = tracemalloc.get_traced_memory()
        del result
    finally:
        if not was_tracing:
            tracemalloc.stop()
    return Peak(peak - before, after - before)


def torch_peak(fn: Callable[..., Any], *args: Any, device: str = "cpu", **kwargs: Any) -> Peak:
    """Peak of ``fn(*args, **kwargs)`` over torch tensors on ``device``, ``"cpu"`` or ``"cuda"``.

    On the CPU the function must be eager: under the mode that watches the operators, ``torch.compile`` steps
    aside and the same function would run uncompiled, with another peak.

    Raises
    ------
    ValueError
        For another device, for ``"cuda"`` where there is none, for a compiled function on the CPU, and for
        tensors made on another device than the one measured on the CPU.
    """
    import torch

    if device == "cpu":
        from attnlab.bench.storages import StorageWatch

        if hasattr(fn, "_torchdynamo_orig_callable"):
            raise ValueError("fn: got a compiled function, expected an eager one when device is 'cpu'")
        gc.collect()
        with StorageWatch() as watch:
            result = fn(*args, **kwargs)
            kept = watch.live_bytes
        del result
        return Peak(watch.peak_bytes, kept)
    if device != "cuda":
        raise ValueError(f"device: got {device!r}, expected 'cpu' or 'cuda'")
    if not torch.cuda.is_available():
        raise ValueError("device: got 'cuda', but torch sees no CUDA device; expected 'cpu'")
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = fn(*args, **kwargs)
    torch.cuda.synchronize()
    peak, after = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
    del result
    return Peak(peak - before, after - before)


def xla_memory(
    fn: Callable[..., Any], *args: Any, static_argnames: Sequence[str] = (), **kwargs: Any
) -> XlaMemory:
    """What XLA plans for ``fn(*args, **kwargs)``: compiled for the default backend, not run.

    Parameters
    ----------
    fn
        A function of JAX arrays, or one that `jax.jit` has already wrapped.
    *args, **kwargs
        Arrays, or `jax.ShapeDtypeStruct` in their place: then nothing is allocated, whatever the shapes.
    static_argnames
        Names of arguments that are compile-time constants, for a function that is not jitted yet.

    Raises
    ------
    ValueError
        When ``static_argnames`` is given for a function that is already jitted and so has its own.
    RuntimeError
        When this backend reports no memory analysis.
    """
    import jax

    wrapped: Any = fn
    if not hasattr(fn, "lower"):
        wrapped = jax.jit(fn, static_argnames=tuple(static_argnames))
    elif static_argnames:
        raise ValueError("static_argnames: got names for a function that is already jitted, expected none")
    compiled = wrapped.lower(*args, **kwargs).compile()
    planned = compiled.memory_analysis()
    if planned is None:
        raise RuntimeError(f"the {jax.default_backend()} backend of JAX reports no memory analysis")
    cost = compiled.cost_analysis() or {}
    return XlaMemory(
        temp_bytes=int(planned.temp_size_in_bytes),
        argument_bytes=int(planned.argument_size_in_bytes),
        output_bytes=int(planned.output_size_in_bytes),
        flops=cost.get("flops"),
        accessed_bytes=cost.get("bytes accessed"),
    )
