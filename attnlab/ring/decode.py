"""One token against a ring on the CPU: PyTorch's own kernel on each run of slots, and one merge.

The window of one token is at most two ascending runs of slots, and each is a view that the fused kernel reads
where it lies. Two partial results are merged by their log-sum-exps, a and b: the second one's share of the
whole is e^b / (e^a + e^b), which is sigmoid(b - a), so the merge is one interpolation.

The kernel is the one behind `torch.nn.functional.scaled_dot_product_attention`, called by its own name
because that function does not return the log-sum-exp.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def attend_token(
    q: Float[Tensor, "batch kv_heads group head_dim"],
    k: Float[Tensor, "batch kv_heads capacity head_dim"],
    v: Float[Tensor, "batch kv_heads capacity head_dim"],
    runs: Sequence[tuple[int, int]],
) -> tuple[Float[Tensor, "batch kv_heads group head_dim"], Float[Tensor, "batch kv_heads group"]]:
    """Attend with one query per head to all slots of `runs`; no other slot is read.

    Parameters
    ----------
    q : float32 or float64 [B, H_kv, G, D], on the CPU
        The G query heads that share a key/value head, as if they were G queries.
    k, v : [B, H_kv, C, D]
        The ring, in slot order; a narrower type is converted, the visible rows only.
    runs : one or two half-open runs of slots, none empty

    Returns
    -------
    out : as q
    lse : [B, H_kv, G]
    """
    parts = [_kernel(q, *(x[:, :, first:end].to(q.dtype) for x in (k, v))) for first, end in runs]
    out, lse = parts[0]
    if len(parts) == 2:
        later, later_lse = parts[1]
        out = out.lerp_(later, (later_lse - lse).sigmoid_().unsqueeze(-1))
        lse = torch.logaddexp(lse, later_lse)
    return out, lse
