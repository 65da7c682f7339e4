"""One block of queries against the keys that some of them can see: the arithmetic of `attnlab.ring.masked`.

A query that sees nothing is the awkward case. Its maximum is -inf and its sum 0, so both meet a division or a
difference without a value, and a ``where`` that only picks the right result afterwards leaves a NaN in the
gradient: 0 times the infinite slope of the branch that was not picked. So the operand is replaced first, and
the result again after it, which is known as the double where.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .rows import WORK_DTYPE


class Reach(NamedTuple):
    """Which keys a query sees by position: those with ``least <= query - key <= most``; None is no limit."""

    least: int | None
    most: int | None

    def rows(self, queries: range, k_position: int, k_len: int) -> tuple[int, int]:
        """The rows of K from lo to hi - 1, the first at `k_position`, that lie within reach of a query."""
        lo = 0 if self.most is None else queries.start - self.most - k_position
        hi = k_len if self.least is None else queries.stop - self.least - k_position
        lo, hi = max(lo, 0), min(hi, k_len)
        return (lo, hi) if lo < hi else (0, 0)

    def hidden(self, queries: range, keys: range, device: torch.device) -> Bool[Tensor, "q_len k_len"] | None:
        """True where a key is out of reach, [Lq, Lk]; None where none is."""
        if not queries or not keys:
            return None
        near, far = queries[0] - keys[-1], queries[-1] - keys[0]
        edges = []
        distance = torch.empty(0)
        if (self.least is not None and near < self.least) or (self.most is not None and far > self.most):
            places = [torch.arange(x.start, x.stop, device=device) for x in (queries, keys)]
            distance = places[0].unsqueeze(1) - places[1]
        if self.least is not None and near < self.least:
            edges.append(distance < self.least)
        if self.most is not None and far > self.most:
            edges.append(distance > self.most)
        return None if not edges else edges[0] if len(edges) == 1 else edges[0] | edges[1]


class Attended(NamedTuple):
    """out [B, Hkv, G, L, D], lse [B, Hkv, G, L], weights [B, Hkv, G, L, n] or None; all of the work dtype."""

    out: Float[Tensor, "batch kv_heads group rows head_dim"]
    lse: Float[Tensor, "batch kv_heads group rows"]
    weights: Float[Tensor, "batch kv_heads group rows keys"] | None


def attend_block(
    q: Float[Tensor, "batch kv_heads group rows head_dim"],
    k: Float[Tensor, "batch kv_heads keys head_dim"],
    v: Float[Tensor, "batch kv_heads keys head_dim"],
    *,
    scale: float,
    hidden: Bool[Tensor, "#batch #kv_heads #group #rows keys"] | None,
    bias: Float[Tensor, "#batch #kv_heads #group #rows #keys"] | None,
    keep: Bool[Tensor, "batch kv_heads group rows keys"] | None,
    dropout: float,
    with_weights: bool,
) -> Attended:
    """Attention of one block, safe where nothing is visible and whatever hidden keys hold.

    Parameters
    ----------
    q : [B, Hkv, G, L, D]
        G query heads share a key head.
    k, v : [B, Hkv, n, D]
    scale : float
        Of the scores.
    hidden : bool, broadcasting to [B, Hkv, G, L, n], or None
        True where a key is not seen.
    bias : floating, broadcasting likewise, or None
        Added to the scaled scores.
    keep : bool [B, Hkv, G, L, n] or None
        False where a weight is dropped.
    dropout : float
        The probability with which `keep` was drawn.
    with_weights : bool

    Returns
    -------
    Attended
    """
    work = WORK_DTYPE[q.dtype]
    q, k, v = q.to(work), k.to(work), v.to(work)
    if hidden is not None:
        # 0 times NaN is NaN, so what nobody sees must not be multiplied, not even by 0.
        unused = hidden.flatten(2, 3).all(dim=2).unsqueeze(-1)
        k, v = k.masked_fill(unused, 0), v.masked_fill(unused, 0)
        q = q.masked_fill(hidden.all(dim=-1, keepdim=True), 0)

    group_rows = q.shape[2:4]
    scores = ((q * scale).flatten(2, 3) @ k.mT).unflatten(2, group_rows)
    if bias is not None:
        scores = scores + bias.to(work)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    # The results do not depend on the maximum, so it takes no gradient.
    top = scores.detach().amax(dim=-1, keepdim=True) if k.shape[2] else scores.new_zeros(*q.shape[:4], 1)
    top = top.masked_fill(top == -torch.inf, 0)
    weights = (scores - top).exp()
    total = weights.sum(dim=-1, keepdim=True)
    nothing = total == 0
    total = total.masked_fill(nothing, 1)
    lse = (top + total.log()).masked_fill(nothing, -torch.inf).squeeze(-1)

    kept = weights if keep is None else weights * keep
    total = total * (1 - dropout)
    out = (kept.flatten(2, 3) @ v).unflatten(2, group_rows) / total
    return Attended(out, lse, kept / total if with_weights else None)
