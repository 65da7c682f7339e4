"""Knowing when a result is ready: the part of timing that depends on the framework.

No framework is imported here. A result that belongs to one can only exist once that framework is loaded, so
it is looked up among the loaded modules.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Waiter", "cuda_seconds", "finish_queued_work", "leaves", "waiter_for"]

Waiter = Callable[[Any], object]


def leaves(result: Any) -> Iterator[Any]:
    """Everything inside nested tuples, lists, dicts and dataclasses.

    `jax.block_until_ready` would pass over a dataclass that is not registered as a pytree.
    """
    if isinstance(result, dict):
        for value in result.values():
            yield from leaves(value)
    elif isinstance(result, (tuple, list)):
        for value in result:
            yield from leaves(value)
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        for field in dataclasses.fields(result):
            yield from leaves(getattr(result, field.name))
    else:
        yield result


def waiter_for(result: Any) -> tuple[Waiter | None, bool]:
    """How to wait for results like this one, and whether CUDA events should time it.

    Returns
    -------
    wait : callable or None
        None where the result was ready when the call returned (NumPy, torch on the CPU).
    on_cuda : bool
        True for CUDA tensors of torch with no JAX array among them.

    Raises
    ------
    ValueError
        For tensors on a device other than the CPU or CUDA.
    """
    torch = sys.modules.get("torch")
    kinds = set()
    for leaf in leaves(result):
        if hasattr(leaf, "block_until_ready"):
            kinds.add("jax")
        elif torch is not None and isinstance(leaf, torch.Tensor):
            kinds.add(leaf.device.type)
    unknown = kinds - {"jax", "cpu", "cuda"}
    if unknown:
        raise ValueError(f"result: got tensors on {', '.join(sorted(unknown))}, expected cpu or cuda")
    return (_block if "jax" in kinds else None), kinds in ({"cuda"}, {"cuda", "cpu"})


def _block(result: Any) -> None:
    for leaf in leaves(result):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()


def finish_queued_work() -> None:
    """Wait for CUDA work queued by torch, where torch has started CUDA; otherwise do nothing."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def cuda_seconds(fn: Callable[[], Any], loops: int) -> float:
    """Seconds the current CUDA stream takes for ``loops`` calls of ``fn``, by a pair of events."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        raise ValueError("device: got 'cuda', but torch sees no CUDA device; expected None or 'cpu'")
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(loops):
        fn()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3
