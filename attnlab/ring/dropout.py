"""Dropout that depends on where a weight stands and on nothing else.

An ordinary dropout mask is the next stretch of a random stream, so it changes with the order in which tiles
are visited, with the chunks a sequence is cut into, and with what else drew numbers. A counter-based
generator has no stream: it is a function from a counter and a key to random words, and here the counter is
the coordinate of the weight and the key is the seed. A tile, a recomputed row or a single weight asks for its
own coordinates and gets what the dense table would have held there.

The generator is Philox4x32-10 of Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as
1, 2, 3" (https://doi.org/10.1145/2063384.2063405), which passes BigCrush and which PyTorch uses on GPUs.
One call gives four words of 32 bits, for four neighbouring keys::

    word 0 of the counter    (key position // 4) mod 2**32
    word 1                   query position mod 2**32
    word 2                   (query position // 2**32) * 2**16 + key position // 4 // 2**32
    word 3                   batch index * 2**16 + head
    key                      the seed, its low half first
    taken from the result    word (key position mod 4)

No two coordinates share both a counter and a place in its result. A weight is dropped if its word is below
``round(p * 2**32)``, so the probability is p to within 2**-33.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, Int64
from torch import Tensor

from . import laws

__all__ = ["keep_mask", "philox"]

POSITIONS = 2**48  # positions must be below this, which leaves room for a sequence of 2**40 many times over
INDICES = 2**16  # and batch indices and heads below this
SEEDS = 2**64

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)  # the golden ratio and sqrt(3) - 1, as fractions of 2**32

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def keep_mask(
    seed: int,
    batch: range | Int[Tensor, " batch"],
    heads: range | Int[Tensor, " heads"],
    q_positions: range | Int[Tensor, " q_len"],
    k_positions: range | Int[Tensor, " k_len"],
    p: float,
    *,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "batch heads q_len k_len"]:
    """Which weights are kept: True with probability 1 - p, by the coordinates of each weight alone.

    Parameters
    ----------
    seed : int
        0 to 2**64 - 1.
    batch, heads : range or integer tensor [n]
        Batch indices and query heads, in any order, any subset; 0 to 2**16 - 1.
    q_positions, k_positions : range or integer tensor [n]
        Absolute positions of the queries and of the keys, in any order, any subset; 0 to 2**48 - 1. The
        bounds of a tensor are checked by reading it; a range costs no look at the device.
    p : float
        Probability of dropping a weight, 0 <= p < 1.
    device : torch.device, str or None
        Where the mask is made; None means torch's default device. Index tensors are copied there.

    Returns
    -------
    bool [B, H, Lq, Lk]
        Independent of device, of order and of which other coordinates are asked for with them. While it is
        made, about 24 bytes for each of its entries are needed.

    Raises
    ------
    TypeError
        If the seed is no int, p is no number, or an index is neither a range nor a tensor of integers.
    ValueError
        If an index has more than one dimension, or a value is out of its range.
    """
    if laws.whole("seed", seed) >= SEEDS:
        raise ValueError(f"seed must be below 2**64; got {seed}")
    p = check_probability("p", p)
    b = _indices("batch", batch, INDICES, device)[:, None, None, None]
    h = _indices("heads", heads, INDICES, device)[:, None, None]
    q = _indices("q_positions", q_positions, POSITIONS, device)[:, None]
    k = _indices("k_positions", k_positions, POSITIONS, device)
    if p == 0:
        return torch.ones(len(b), len(h), len(q), len(k), dtype=torch.bool, device=k.device)

    # Each group of four keys is computed once, however its members are scattered over k_positions.
    groups, which = torch.unique(k // 4, return_inverse=True)
    counter = (groups & _WORD, q & _WORD, (q >> 32 << 16) | (groups >> 32), (b << 16) | h)
    words = philox(counter, (seed & _WORD, seed >> 32))
    threshold = round(p * 2**32)
    kept = torch.stack([word >= threshold for word in words], dim=-1).flatten(-2)
    return kept[..., which * 4 + k % 4]


def philox(counter: Words, key: tuple[int, int], rounds: int = 10) -> Words:
    """Philox4x32: four random words of 32 bits for each counter.

    Parameters
    ----------
    counter : four int64 tensors
        Words from 0 to 2**32 - 1, of shapes that broadcast together. They are broadcast only where a round
        mixes them, so what depends on few coordinates is computed once.
    key : (int, int)
        Two words.
    rounds : int
        The paper's recommendation is 10.

    Returns
    -------
    four int64 tensors
        Words from 0 to 2**32 - 1.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        high0, low0 = _multiply(_MULTIPLIERS[0], c0)
        high1, low1 = _multiply(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    c0, c1, c2, c3 = torch.broadcast_tensors(c0, c1, c2, c3)
    return c0, c1, c2, c3


def check_probability(name: str, value: float) -> float:
    """Return a probability of dropping as a float, or raise TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a float; got {type(value).__name__}: {value!r}")
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and below 1; got {value}")
    return float(value)


def _multiply(a: int, x: Int64[Tensor, "..."]) -> tuple[Int64[Tensor, "..."], Int64[Tensor, "..."]]:
    """The high and the low word of a 32 x 32 bit product; no step of it exceeds 2**49, so int64 is enough."""
    low, high = a * (x & 0xFFFF), a * (x >> 16)
    return (high + (low >> 16)) >> 16, (((high & 0xFFFF) << 16) + low) & _WORD


def _indices(
    name: str, values: range | Tensor, limit: int, device: torch.device | str | None
) -> Int64[Tensor, " n"]:
    if isinstance(values, range):
        least, most = sorted((values[0], values[-1])) if values else (0, 0)
        tensor = torch.arange(values.start, values.stop, values.step, device=device)
    elif not isinstance(values, Tensor) or values.dtype not in _INTEGERS:
        came = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise TypeError(f"{name} must be a range or a tensor of integers; got {came}")
    elif values.ndim != 1:
        raise ValueError(f"{name} must have one dimension; got shape {list(values.shape)}")
    else:
        least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        tensor = values.to(torch.get_default_device() if device is None else device, torch.int64)
    if not 0 <= least <= most < limit:
        raise ValueError(f"{name} must lie from 0 to {limit - 1}; got {least} to {most}")
    return tensor
