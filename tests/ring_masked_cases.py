"""Cases for the general path of the ring, and the same in dense float64 with every table written out."""

from __future__ import annotations

from typing import NamedTuple

import torch
from hypothesis import strategies as st

from attnlab.ring.dropout import keep_mask
from attnlab.ring.masked import masked_attention


class Case(NamedTuple):
    batch: int = 2
    kv_heads: int = 2
    group: int = 2
    q_len: int = 13
    k_len: int = 17
    head_dim: int = 4
    window: int | None = 5
    causal: bool = True
    q_position: int = 4
    k_position: int = 0
    padded: float = 0.0  # share of the keys that are padding
    mask: str = "none"
    dropout: float = 0.0


cases = st.builds(
    Case,
    batch=st.integers(1, 2),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    q_len=st.integers(0, 40),
    k_len=st.integers(0, 40),
    head_dim=st.integers(1, 5),
    window=st.none() | st.integers(1, 50),
    causal=st.booleans(),
    q_position=st.integers(0, 40),
    k_position=st.integers(0, 40),
    padded=st.sampled_from([0.0, 0.3, 1.0]),
    mask=st.sampled_from(["none", "bool", "float", "heads"]),
    dropout=st.sampled_from([0.0, 0.4]),
)


class Made(NamedTuple):
    """Tensors for a case, in float64; `seen` is the whole table of what is visible, and `bias` is finite."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    padding: torch.Tensor | None
    att_mask: torch.Tensor | None
    seen: torch.Tensor
    bias: torch.Tensor


def made(case: Case) -> Made:
    rng = torch.Generator().manual_seed(0)
    q_heads = case.kv_heads * case.group
    q = torch.randn(case.batch, q_heads, case.q_len, case.head_dim, generator=rng, dtype=torch.float64)
    k, v = torch.randn(
        2, case.batch, case.kv_heads, case.k_len, case.head_dim, generator=rng, dtype=torch.float64
    )
    distance = (
        torch.arange(case.q_len)[:, None] - torch.arange(case.k_len) + case.q_position - case.k_position
    )
    seen = torch.ones(case.batch, q_heads, case.q_len, case.k_len, dtype=torch.bool)
    if case.causal:
        seen &= distance >= 0
    if case.window is not None:
        seen &= (distance if case.causal else distance.abs()) < case.window
    padding = att_mask = None
    if case.padded:
        padding = torch.rand(case.batch, case.k_len, generator=rng) < case.padded
        seen &= ~padding[:, None, None]
    bias = torch.zeros(seen.shape, dtype=torch.float64)
    if case.mask != "none":
        lead = (case.batch, q_heads) if case.mask == "heads" else ()
        allowed = torch.rand(*lead, case.q_len, case.k_len, generator=rng) < 0.6
        seen &= allowed
        att_mask = allowed
        if case.mask != "bool":
            added = torch.randn(allowed.shape, generator=rng, dtype=torch.float64)
            bias = bias + added
            att_mask = added.masked_fill(~allowed, -torch.inf)
    return Made(q, k, v, padding, att_mask, seen, bias)


def dense(case: Case, given: Made) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """out, lse and the weights that multiply the values, with every table written out."""
    k, v = (x.repeat_interleave(case.group, dim=1) for x in (given.k, given.v))
    scores = given.q @ k.mT * case.head_dim**-0.5 + given.bias
    some = given.seen.any(dim=-1, keepdim=True)
    # Where nothing is seen, everything is for a moment, and then nothing counts.
    weights = scores.masked_fill(~given.seen & some, -torch.inf).softmax(dim=-1).masked_fill(~some, 0)
    lse = scores.masked_fill(~given.seen & some, -torch.inf).logsumexp(dim=-1)
    lse = lse.masked_fill(~some.squeeze(-1), -torch.inf)
    if case.dropout:
        first, start = case.q_position, case.k_position
        kept = keep_mask(
            9,
            range(case.batch),
            range(case.kv_heads * case.group),
            range(first, first + case.q_len),
            range(start, start + case.k_len),
            case.dropout,
        )
        weights = weights * kept / (1 - case.dropout)
    return weights @ v, lse, weights


def attend(case: Case, given: Made, **options):
    return masked_attention(
        given.q,
        given.k,
        given.v,
        window=case.window,
        causal=case.causal,
        q_position=case.q_position,
        k_position=case.k_position,
        padding=given.padding,
        att_mask=given.att_mask,
        dropout=case.dropout,
        seed=9,
        **options,
    )


def gradients(results, leaves):
    """Of a loss in which out, the finite log-sum-exps and the weights all take part."""
    loss = 0
    for i, x in enumerate(results):
        x = torch.where(x.isfinite(), x, 0)
        loss = loss + (x * torch.sin(torch.arange(x.numel()) + i).reshape(x.shape)).sum()
    return torch.autograd.grad(loss, leaves)
