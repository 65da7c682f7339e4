"""Attention in float64 by its definition, and the merge that lets it be computed in pieces.

For one query, scores s_j over the keys it may see, and values v_j::

    out = sum_j exp(s_j) v_j / sum_j exp(s_j)          lse = log sum_j exp(s_j)

Cut the keys into parts. With m = max_j s_j, l = sum_j exp(s_j - m) and O = sum_j exp(s_j - m) v_j, each taken
over one part, two parts a and b become one by bringing them to a common maximum::

    m = max(m_a, m_b)    l = exp(m_a - m) l_a + exp(m_b - m) l_b    O = exp(m_a - m) O_a + exp(m_b - m) O_b

The result does not depend on how the keys were cut nor on the order of merging, up to rounding: the merge is
associative and commutative, and a part in which nothing is visible, (-inf, 0, 0), changes nothing. Every
tiled, ringed or distributed path in this package rests on that, and must equal `dense_attention`.

Milakov and Gimelshein 2018 (https://arxiv.org/abs/1805.02867) gave m and l in one pass; Rabe and Staats 2021
(https://arxiv.org/abs/2112.05682) and FlashAttention (Dao et al. 2022, https://arxiv.org/abs/2205.14135)
carry O along.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Float64

from attnlab.masks import Mask

Part = tuple[np.ndarray, np.ndarray]
Triple = tuple[np.ndarray, np.ndarray, np.ndarray]


def dense_attention(
    q: Float[np.ndarray, "*batch_q q_len head_dim"],
    k: Float[np.ndarray, "*batch_k kv_len head_dim"],
    v: Float[np.ndarray, "*batch_v kv_len value_dim"],
    mask: Mask | Bool[np.ndarray, "..."] | None = None,
    scale: float | None = None,
) -> tuple[Float64[np.ndarray, "*batch q_len value_dim"], Float64[np.ndarray, "*batch q_len"]]:
    """softmax(scale * q k^T) v over the visible keys, in float64: what every other path must equal.

    Parameters
    ----------
    q, k, v : floating array [..., q_len, d], [..., kv_len, d], [..., kv_len, d_v]
        Leading axes, such as batch and heads, broadcast together.
    mask : Mask, bool array [..., q_len, kv_len], or None
        True means attend. A Mask is the same for every batch entry and head. None lets every query see every
        key.
    scale : float, optional
        Defaults to 1 / sqrt(d).

    Returns
    -------
    out : float64 array [..., q_len, d_v]
    lse : float64 array [..., q_len]
        Log-sum-exp of the scaled scores. A query that sees nothing gets out 0 and lse -inf.

    Raises
    ------
    TypeError
        If q, k or v is not a NumPy array of floats, or mask is neither a Mask nor a NumPy array of booleans.
    ValueError
        If shapes do not fit together, or scale is not finite.
    """
    return normalise(*partial_attention(q, k, v, mask, scale))


def partial_attention(
    q: Float[np.ndarray, "*batch_q q_len head_dim"],
    k: Float[np.ndarray, "*batch_k kv_len head_dim"],
    v: Float[np.ndarray, "*batch_v kv_len value_dim"],
    mask: Mask | Bool[np.ndarray, "..."] | None = None,
    scale: float | None = None,
) -> tuple[
    Float64[np.ndarray, "*batch q_len"],
    Float64[np.ndarray, "*batch q_len"],
    Float64[np.ndarray, "*batch q_len value_dim"],
]:
    """The (m, l, O) of these keys, before division; arguments as in `dense_attention`."""
    seen = _check(q, k, v, mask)
    if scale is None:
        scale = q.shape[-1] ** -0.5
    if not np.isfinite(scale):
        raise ValueError(f"scale must be finite, got {scale}")
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = np.where(seen, scale * (q @ np.swapaxes(k, -1, -2)), -np.inf)
    # A key that no query sees must not matter, not even if its value is NaN, and 0 * NaN is NaN.
    v = np.where((scores != -np.inf).any(axis=-2)[..., None], v, 0.0)
    m = scores.max(axis=-1, initial=-np.inf)
    weights = np.exp(scores - _finite(m)[..., None])
    return m, weights.sum(axis=-1), weights @ v


def normalise(
    m: Float[np.ndarray, "*batch q_len"],
    l: Float[np.ndarray, "*batch q_len"],  # noqa: E741 (the papers' letter)
    o: Float[np.ndarray, "*batch q_len value_dim"],
) -> tuple[Float[np.ndarray, "*batch q_len value_dim"], Float[np.ndarray, "*batch q_len"]]:
    """Finish a triple: ``out = O / l`` and ``lse = m + log l``, or 0 and -inf where nothing was visible."""
    _check_part("m, l, o", (m, l, o))
    some = np.where(l > 0, l, 1)
    return o / some[..., None], np.where(l > 0, m + np.log(some), -np.inf)


def merge_mlo(part_a: Triple, part_b: Triple) -> Triple:
    """Merge the (m, l, O) of two parts of the keys into that of both; the equation heads this module.

    Parameters
    ----------
    part_a, part_b : (m [..., q_len], l [..., q_len], O [..., q_len, d_v])
        Of one shape each. Where nothing was visible they hold (-inf, 0, 0).

    Raises
    ------
    ValueError
        If the shapes of a part or of the two parts do not fit.
    """
    _check_part("part_a", part_a)
    _check_part("part_b", part_b, like=part_a)
    (m_a, l_a, o_a), (m_b, l_b, o_b) = part_a, part_b
    m = np.maximum(m_a, m_b)
    a, b = np.exp(m_a - _finite(m)), np.exp(m_b - _finite(m))
    return m, a * l_a + b * l_b, a[..., None] * o_a + b[..., None] * o_b


def merge(part_a: Part, part_b: Part) -> Part:
    """Merge two finished results, (out, lse), over two disjoint parts of the keys.

    A finished part is the triple m = lse, l = 1, O = out, so this is `merge_mlo` followed by `normalise`::

        lse = log(exp(lse_a) + exp(lse_b))    out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b

    Parameters
    ----------
    part_a, part_b : (out [..., q_len, d_v], lse [..., q_len])
        Of one shape each. Where nothing was visible they hold (0, -inf).

    Raises
    ------
    ValueError
        If the shapes of a part or of the two parts do not fit.
    """
    _check_part("part_a", part_a[::-1])
    _check_part("part_b", part_b[::-1], like=part_a[::-1])
    a, b = ((lse, np.ones_like(lse), out) for out, lse in (part_a, part_b))
    return normalise(*merge_mlo(a, b))


def _finite(m: np.ndarray) -> np.ndarray:
    """Replace -inf by 0: a row that sees nothing would otherwise meet -inf - -inf, which is NaN."""
    return np.where(np.isneginf(m), 0, m)


def _check_part(name: str, part: tuple[np.ndarray, ...], like: tuple[np.ndarray, ...] | None = None) -> None:
    *rows, out = (x.shape for x in part)
    if any(shape != out[:-1] for shape in rows):
        raise ValueError(f"{name}: shapes {rows} do not fit the output of shape {out}; expected {out[:-1]}")
    if like is not None and out != like[-1].shape:
        raise ValueError(f"{name} has an output of shape {out}, expected {like[-1].shape} as in part_a")


def _check(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Mask | np.ndarray | None) -> np.ndarray:
    """Check the arguments of attention and return what is visible, bool [..., q_len, kv_len]."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, np.ndarray) or not np.issubdtype(x.dtype, np.floating):
            came = f"dtype {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
            raise TypeError(f"{name} must be a NumPy array of floats, got {came}")
        if x.ndim < 2 or x.shape[-1] == 0:
            raise ValueError(
                f"{name} must have shape [..., length, head_dim] with head_dim > 0, got {x.shape}"
            )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"k must have the head_dim of q, {q.shape[-1]}, got shape {k.shape}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"v must have the length of k, {k.shape[-2]}, got shape {v.shape}")
    try:
        batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    except ValueError:
        raise ValueError(
            f"leading axes of q, k, v must broadcast, got {q.shape}, {k.shape}, {v.shape}"
        ) from None
    pairs = (q.shape[-2], k.shape[-2])
    if mask is None:
        mask = np.ones(pairs, np.bool_)
    elif isinstance(mask, Mask):
        mask = mask.dense(*pairs)
    elif not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        came = f"dtype {mask.dtype}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise TypeError(f"mask must be a Mask, a NumPy array of booleans or None, got {came}")
    try:
        return np.broadcast_to(mask, batch + pairs)
    except ValueError:
        raise ValueError(f"mask must broadcast to {batch + pairs}, got shape {mask.shape}") from None
