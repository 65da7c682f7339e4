"""What the general path allocates: blocks of scores, and no table of all of them."""

from __future__ import annotations

import pytest
import torch

from attnlab.bench.memory import torch_peak
from attnlab.ring.masked import masked_attention


def peak_of(length: int, window: int, rows: int, *, backward: bool = False, **options) -> int:
    q, k, v = (torch.randn(1, 2, length, 8, requires_grad=backward) for _ in range(3))

    def call():
        out = masked_attention(q, k, v, window=window, rows=rows, **options).out
        return torch.autograd.grad(out.sum(), (q, k, v)) if backward else out

    return torch_peak(call).peak_bytes


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_workspace_is_rows_times_window_and_not_the_square_of_the_length(dropout):
    window, rows = 64, 32
    table = 2 * rows * (window - 1 + rows) * 4  # one block's scores, both heads
    copies = 10 if dropout else 4
    outputs = 2 * 4 * 2 * (8 + 1)  # bytes per query: out and lse, in blocks and joined
    short, long = (peak_of(length, window, rows, dropout=dropout) for length in (256, 1024))
    assert long < copies * table + outputs * 1024
    assert long - short < 1.1 * outputs * (1024 - 256)  # nothing else grows with the length
    shown = peak_of(1024, window, rows, weights="mean")
    assert shown >= 1024 * 1024 * 4  # on request it is there


def test_a_graph_is_linear_in_the_length():
    short, long = (peak_of(length, 64, 32, backward=True) for length in (256, 1024))
    assert long < 4.2 * short
    assert long < 2 * 1024 * (64 - 1 + 32) * 4 * 4 + 40 * 1024 * 2 * 8 * 4
