"""What is lost when the graph is cut between segments: which keys lose gradient, and from which queries.

If a segment reads the W - 1 keys and values before it but is not differentiated through them (``detach``),
memory is constant and every output and every dQ is exact. A key loses what the queries of later segments
would have given it: only the last W - 1 keys of a segment have such queries, and the last of them loses the
gradient of W - 1 queries out of W. This is the training of Transformer-XL (Dai et al. 2019,
https://arxiv.org/abs/1901.02860). `attnlab.ring.gradient_ring` loses nothing in the same memory.

Nothing here is derived from that argument. The gradients of every query by itself are computed by autograd,
through the whole graph and through the cut one, and compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from . import laws
from .checks import check_tensor
from .gradient_ring import cut
from .segment_attention import first_key

__all__ = ["TruncationLoss", "truncated_attention", "truncation_loss_map"]


@dataclass(frozen=True, eq=False)
class TruncationLoss:
    """Where gradient is lost. All in float64, summed over batch, heads and channels.

    Attributes
    ----------
    window, segment_size : int
    pair : [S, S]
        Norm of what query p (row) gives to the key and value k (column) in the whole graph, dK and dV
        together.
    pair_lost : [S, S]
        Norm of the part of it that the cut graph does not give.
    dq, dk, dv : [S]
        Norm of the cut graph's error over the norm of the whole gradient, by position; 0 where that is 0
        but for rounding.
    """

    window: int
    segment_size: int
    pair: Float64[Tensor, "tokens tokens"]
    pair_lost: Float64[Tensor, "tokens tokens"]
    dq: Float64[Tensor, " tokens"]
    dk: Float64[Tensor, " tokens"]
    dv: Float64[Tensor, " tokens"]

    @property
    def lost(self) -> Bool[Tensor, "tokens tokens"]:
        """True where a query (row) gives a key (column) gradient and the cut graph loses at least half."""
        return (self.pair > 0) & (self.pair_lost >= 0.5 * self.pair)

    @property
    def sentence(self) -> str:
        """How many pairs, and how many keys, lose gradient."""
        pairs, of_pairs = int(self.lost.sum()), int((self.pair > 0).sum())
        keys = int(self.lost.any(dim=0).sum())
        return (
            f"Cut into segments of {self.segment_size}, {pairs} of {of_pairs} visible pairs lose their "
            f"gradient, and {keys} of {self.dk.numel()} keys lose some."
        )


def truncated_attention(
    q: Float[Tensor, "batch q_heads tokens head_dim"],
    k: Float[Tensor, "batch kv_heads tokens head_dim"],
    v: Float[Tensor, "batch kv_heads tokens head_dim"],
    *,
    window: int,
    segment_size: int,
) -> Float[Tensor, "batch q_heads tokens head_dim"]:
    """Causal sliding-window attention whose graph ends at the start of each segment.

    Parameters
    ----------
    q : floating [B, Hq, S, D]
    k, v : as q, [B, Hkv, S, D]
        Query head h reads key head ``h // (Hq / Hkv)``.
    window : int
        W, keys visible, the query's own included.
    segment_size : int
        Tokens of a segment. With S or more the graph is whole.

    Returns
    -------
    out : as q
        Exact, and so is its gradient in q. The keys and values of earlier segments are detached.

    Raises
    ------
    TypeError
        For something that is no tensor, another dtype than q's, or a number that is no int.
    ValueError
        For shapes or devices that do not fit q, or a number below 1.
    """
    window = _check(q, k, v, window)
    outs = []
    for start, stop in cut(q.shape[2], segment_size):
        first = first_key(start, window)
        keys, values = (
            torch.cat([x[:, :, first:start].detach(), x[:, :, start:stop]], dim=2) for x in (k, v)
        )
        positions = torch.arange(first, stop, device=q.device)
        ahead = positions - positions[start - first :, None]
        queries = q[:, :, start:stop].unflatten(1, (k.shape[1], -1))
        scores = queries @ keys.unsqueeze(2).mT * q.shape[-1] ** -0.5
        weights = scores.masked_fill((ahead > 0) | (ahead <= -window), -torch.inf).softmax(dim=-1)
        outs.append((weights @ values.unsqueeze(2)).flatten(1, 2))
    return torch.cat(outs, dim=2) if outs else torch.zeros_like(q)


@torch.enable_grad()
def truncation_loss_map(
    q: Float[Tensor, "batch q_heads tokens head_dim"],
    k: Float[Tensor, "batch kv_heads tokens head_dim"],
    v: Float[Tensor, "batch kv_heads tokens head_dim"],
    dout: Float[Tensor, "batch q_heads tokens head_dim"],
    *,
    window: int,
    segment_size: int,
) -> TruncationLoss:
    """Compare the gradients of the cut graph with those of the whole one, query by query, in float64.

    Two backward passes for each query: for sequences of up to a few hundred tokens.

    Parameters
    ----------
    q, k, v, window, segment_size
        As in `truncated_attention`.
    dout : as q
        The gradient of the output.

    Raises
    ------
    TypeError, ValueError
        As in `truncated_attention`.
    """
    window = _check(q, k, v, window)
    check_tensor("dout", dout, tuple(q.shape), q)
    tokens = q.shape[2]
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
    sizes = max(tokens, 1), segment_size  # one segment is the whole graph
    graphs = [truncated_attention(*leaves, window=window, segment_size=size) for size in sizes]
    pair, pair_lost = (torch.zeros(tokens, tokens, dtype=torch.float64) for _ in range(2))
    totals = [[torch.zeros_like(leaf) for leaf in leaves] for _ in graphs]
    for p in range(tokens):
        row = dout[:, :, p].double()
        shares = [torch.autograd.grad(graph[:, :, p], leaves, row, retain_graph=True) for graph in graphs]
        for total, share in zip(totals, shares, strict=True):
            for a, b in zip(total, share, strict=True):
                a += b
        (_, *whole), (_, *partial) = shares
        missing = [a - b for a, b in zip(whole, partial, strict=True)]
        for norms, grads in ((pair, whole), (pair_lost, missing)):
            norms[p] = torch.stack([_norms(x) for x in grads]).norm(dim=0)
    relative = []
    for exact, truncated in zip(*totals, strict=True):
        size = _norms(exact)
        nothing = size <= 1e-12 * size.max() if tokens else size > 0
        error = _norms(exact - truncated).masked_fill(nothing, 0)
        relative.append(error / size.masked_fill(nothing, 1))
    return TruncationLoss(window, segment_size, pair, pair_lost, *relative)


def _norms(x: Tensor) -> Tensor:
    """Norm of each position's rows, [B, H, S, D] to [S]."""
    return x.detach().transpose(0, 2).flatten(1).norm(dim=1).cpu()


def _check(q: Tensor, k: Tensor, v: Tensor, window: int) -> int:
    check_tensor("q", q, (None, None, None, None), q)
    check_tensor("k", k, (q.shape[0], None, q.shape[2], q.shape[3]), q)
    check_tensor("v", v, tuple(k.shape), q)
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"k must have heads that divide the {q.shape[1]} of q; got {k.shape[1]}")
    return laws.whole("window", window, least=1)
