"""Masked attention and its gradients written out densely, in float64, for the paths to attention to equal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attnlab.attention import dense_attention


class Dense(NamedTuple):
    out: np.ndarray
    dq: np.ndarray
    dk: np.ndarray
    dv: np.ndarray


def dense_gradients(q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray, dout: np.ndarray) -> Dense:
    """Output of attention, and the gradients of ``sum(out * dout)``.

    q, k, v and dout are [B, T, heads, head_dim], seen is bool [B, Tq, Tkv]. Queries that see nothing have out
    0 and take no part in any gradient.
    """
    q, k, v, dout = (x.astype(np.float64).swapaxes(1, 2) for x in (q, k, v, dout))
    scale = q.shape[-1] ** -0.5
    out, lse = dense_attention(q, k, v, mask=seen[:, None])
    scores = scale * (q @ k.swapaxes(-1, -2))
    finite = np.where(np.isneginf(lse), 0, lse)[..., None]
    weights = np.where(seen[:, None], np.exp(scores - finite), 0)
    dweights = dout @ v.swapaxes(-1, -2)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    parts = (out, scale * dscores @ k, scale * dscores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ dout)
    return Dense(*(x.swapaxes(1, 2) for x in parts))
