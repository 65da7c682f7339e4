"""Live bytes of torch CPU tensors, by watching every operator's results.

This is the one module of `attnlab.bench` that imports torch when it is imported: it defines a subclass of a
torch class. `attnlab.bench.memory` imports it only when it is asked for a peak of torch on the CPU.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["StorageWatch"]

# The operators through which torch.tensor([...]) hands over a storage it has just filled. That storage
# reaches the mode as an argument, though it is new.
_LIFTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift.default)


class StorageWatch(TorchDispatchMode):
    """Counts the bytes of storages that come to life inside the context, and when they die.

    A storage is counted once, however many tensors view it, at its full size. It is uncounted when the last
    tensor that shares it is gone, inside or outside Python (autograd's saved tensors keep theirs alive).
    Storages that already existed are not counted; where an ``out=`` argument or a ``resize_`` enlarges one,
    the growth is.

    Sizes are those of the storages, before any rounding by the allocator. Memory that lives and dies inside
    one operator is not seen, and neither is memory made outside torch's operators, such as that of
    `torch.from_numpy`.

    Attributes
    ----------
    live_bytes : int
        Bytes alive now.
    peak_bytes : int
        The most that `live_bytes` has been.

    Raises
    ------
    ValueError
        Inside the context, when an operator makes a tensor on another device than the CPU, or takes or makes
        one that is sparse.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live_bytes = 0
        self.peak_bytes = 0
        # Bytes last seen, by the address of the storage. An entry goes when its storage dies, before the
        # address can be used again.
        self._seen: dict[int, int] = {}
        # Of those, what to give back on death: all of a new storage, only the growth of an older one.
        self._counted: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if func not in _LIFTS:
            for tensor in given:
                self._note(tensor, new=False)
        result = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        for tensor in given + made:
            self._note(tensor, new=True)
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return result

    def _note(self, tensor: torch.Tensor, *, new: bool) -> None:
        """Count what is not yet counted of a storage; an older one counts nothing at first sight."""
        if tensor.layout is not torch.strided:
            raise ValueError(
                f"an operator made a tensor of layout {tensor.layout}; only strided ones are counted"
            )
        storage = tensor.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        if address not in self._seen:
            if new and tensor.device.type != "cpu":
                raise ValueError(
                    f"an operator made a tensor on {tensor.device} while the CPU was being measured"
                )
            self._seen[address] = 0 if new else size
            self._counted[address] = 0
            weakref.finalize(storage, self._forget, address).atexit = False
        growth = size - self._seen[address]
        self._seen[address] = size
        self._counted[address] += growth
        self.live_bytes += growth

    def _forget(self, address: int) -> None:
        del self._seen[address]
        self.live_bytes -= self._counted.pop(address)
