"""Masks of every shape and polarity mean what they mean elsewhere, and bad input is refused by name."""

from __future__ import annotations

import pytest
import torch
from ring_masked_cases import Case, attend, dense, gradients, made

from attnlab.ring.masked import masked_attention

sdpa = torch.nn.functional.scaled_dot_product_attention


def test_a_learned_bias_of_any_broadcast_shape_gets_its_gradient():
    case = Case()
    given = made(case)
    for shape in ((13, 17), (1, 17), (13, 1), (4, 13, 17), (8, 13, 17), (2, 1, 13, 17), (1, 4, 1, 17)):
        bias = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        whole = bias.unflatten(0, (2, 4)) if shape[0] == 8 else bias
        expected = dense(case, given._replace(bias=whole.expand(given.seen.shape)))
        got = attend(case, given._replace(att_mask=bias), rows=5, head_tile_size=1, weights="heads")
        torch.testing.assert_close(got.out, expected[0], atol=1e-12, rtol=0)
        (mine,), (theirs,) = gradients(got, [bias]), gradients(expected, [bias])
        torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize(
    "shape", [(9, 12), (1, 9, 12), (4, 9, 12), (2, 1, 9, 12), (1, 4, 9, 12), (2, 4, 9, 12), (1, 12)]
)
def test_a_mask_means_what_it_means_to_sdpa(kind, shape):
    case = Case(kv_heads=4, group=1, q_len=9, k_len=12, window=None, causal=False)
    q, k, v, *_ = made(case)
    rng = torch.Generator().manual_seed(1)
    mask = torch.rand(shape, generator=rng) < 0.7
    if kind == "float":
        mask = torch.randn(shape, generator=rng, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    got = masked_attention(q, k, v, window=None, causal=False, att_mask=mask, rows=4)
    torch.testing.assert_close(got.out, sdpa(q, k, v, mask), atol=1e-12, rtol=0)


@pytest.mark.parametrize("average", [True, False])
def test_masks_padding_and_weights_mean_what_they_mean_to_multihead_attention(average):
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(8, 4, bias=False, batch_first=True, dtype=torch.float64).eval()
    x = torch.randn(2, 10, 8, dtype=torch.float64)
    padding = torch.zeros(2, 10, dtype=torch.bool)
    padding[0, 7:] = True
    hidden = torch.rand(8, 10, 10) < 0.2  # its own polarity: True hides
    hidden[:, :, 0] = False
    expected, shown = theirs(
        x, x, x, key_padding_mask=padding, attn_mask=hidden, average_attn_weights=average
    )  # fmt: skip
    q, k, v = (
        part.unflatten(2, (4, 2)).transpose(1, 2) for part in (x @ theirs.in_proj_weight.T).chunk(3, 2)
    )
    got = masked_attention(
        q, k, v, window=None, causal=False, padding=padding, att_mask=~hidden, rows=3,
        weights="mean" if average else "heads",
    )  # fmt: skip
    out = theirs.out_proj(got.out.transpose(1, 2).flatten(2))
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(got.weights, shown, atol=1e-12, rtol=0)


def ones(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device=device)


GOOD = dict(q=ones(3, 4, 6, 8), k=ones(3, 2, 7, 8), v=ones(3, 2, 7, 8), window=3)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (dict(q=[1.0]), TypeError, "q must be a torch Tensor; got list"),
        (dict(q=ones(3, 4, 6, 8).int()), TypeError, "q must have one of the dtypes .*got torch.int32"),
        (dict(k=ones(3, 2, 7, 8).double()), TypeError, "k must have dtype torch.float32; got torch.float64"),
        (dict(q=ones(4, 6, 8)), ValueError, r"q must have shape .*got \[4, 6, 8\]"),
        (dict(q=ones(3, 4, 6, 0)), ValueError, "q must have a head_dim of at least 1"),
        (dict(k=ones(2, 2, 7, 8)), ValueError, r"k must have shape \[3, any, any, 8\]"),
        (dict(v=ones(3, 2, 6, 8)), ValueError, r"v must have shape \[3, 2, 7, 8\]"),
        (dict(k=ones(3, 3, 7, 8), v=ones(3, 3, 7, 8)), ValueError, "k must have heads that divide the 4"),
        (dict(k=ones(3, 0, 7, 8), v=ones(3, 0, 7, 8)), ValueError, "k must have heads.*got 0"),
        (dict(k=ones(3, 2, 7, 8, device="meta")), ValueError, "k must be on cpu; got meta"),
        (dict(window=0), ValueError, "window must be at least 1; got 0"),
        (dict(window=2.0), TypeError, "window must be an int; got float"),
        (dict(causal=1), TypeError, "causal must be a bool; got int"),
        (dict(q_position=-1), ValueError, "q_position must be at least 0"),
        (dict(k_position=None), TypeError, "k_position must be an int; got NoneType"),
        (dict(rows=0), ValueError, "rows must be at least 1"),
        (dict(head_tile_size=0), ValueError, "head_tile_size must be at least 1"),
        (dict(seed=2**64), ValueError, "seed must be below"),
        (dict(dropout=1.0), ValueError, "dropout must be at least 0 and below 1; got 1.0"),
        (dict(weights="all"), ValueError, "weights must be None, 'mean' or 'heads'; got 'all'"),
        (dict(weights=True), ValueError, "weights must be None, 'mean' or 'heads'; got True"),
        (dict(scale=float("nan")), ValueError, "scale must be finite; got nan"),
        (dict(scale="1"), TypeError, "scale must be a float; got str"),
        (dict(padding=ones(3, 7)), TypeError, "padding must have dtype torch.bool"),
        (dict(padding=ones(3, 6).bool()), ValueError, r"padding must have shape \[3, 7\]; got \[3, 6\]"),
        (dict(att_mask=[[True]]), TypeError, "att_mask must be a torch Tensor; got list"),
        (dict(att_mask=ones(6, 7).int()), TypeError, "att_mask must be bool .*got torch.int32"),
        (dict(att_mask=ones(6, 7, device="meta")), ValueError, "att_mask must be on cpu; got meta"),
        (dict(att_mask=ones(7)), ValueError, r"att_mask must have shape \[6 or 1, 7 or 1\].*got \[7\]"),
        (dict(att_mask=ones(6, 6)), ValueError, r"att_mask must have shape .*got \[6, 6\]"),
        (dict(att_mask=ones(3, 6, 7)), ValueError, r"\[3, 6, 7\] seems meant per sequence: .*four axes"),
        (dict(att_mask=ones(5, 6, 7)), ValueError, r"\[1 or 4 or 12, .*got \[5, 6, 7\]"),
        (dict(att_mask=ones(2, 4, 6, 7)), ValueError, r"or \[1 or 3, 1 or 4, .*got \[2, 4, 6, 7\]"),
    ],
)
def test_bad_input_names_the_argument(bad, error, message):
    with pytest.raises(error, match=message):
        masked_attention(**(GOOD | bad))


def test_a_mask_that_could_be_read_in_two_ways_is_refused():
    q, k = ones(4, 4, 6, 8), ones(4, 2, 7, 8)
    with pytest.raises(ValueError, match="meant per head .* or per sequence: give it four axes"):
        masked_attention(q, k, k, window=3, att_mask=ones(4, 6, 7))
