"""attnlab teaches how attention gets cheap, on four techniques, with the code beside every picture.

The ground holds what every technique must agree with: `attnlab.masks` (one language for masks),
`attnlab.attention` (dense attention in float64 and the merge of partial results) and `attnlab.tiles`
(a mask cut into tiles).

Each technique above it is a room with the same plan: `attnlab.segments`, `attnlab.ring`, `attnlab.relpos`,
`attnlab.speech`, and `attnlab.parallel`, which joins several of them. Inside a room `reference.py` is short
and obviously right, `numpy.py`, `torch.py` and `jax.py` are optimised, `triton.py` and `pallas.py` are
kernels, and all of them share one signature. Optimised files never import the reference nor one another; the
tests join them.

`attnlab.bench` measures, `attnlab.show` draws, `attnlab.exercises` checks a reader's own answers, and
`attnlab.doctor` says what this machine can run.

Importing this package loads no framework. Import the room you need, for example
``from attnlab.segments import torch as segments_torch``.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
