"""Bad input is refused at the door, by every path in the same words."""

from __future__ import annotations

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from segment_paths import MODULES, NATIVE

from attnlab.segments import MASKS
from attnlab.segments.checks import check_max_segments
from attnlab.segments.dot_product import dot_product_arguments, dot_product_attention
from attnlab.segments.flex import block_mask
from attnlab.segments.mask import packed_mask
from attnlab.segments.promises import from_lengths, from_sorted_ids
from attnlab.segments.varlen import varlen_arguments, varlen_attention

pytestmark = pytest.mark.unchecked

NAMES = ("segment_ids_q", "segment_ids_kv", "segment_pos_q", "segment_pos_kv")
paths = pytest.mark.parametrize("path", MODULES)


def call(path, arrays=None, mask="causal", max_segments=2, **replaced):
    """Run a path on good arguments but for those replaced."""
    native = NATIVE[path]
    good = dict(zip(NAMES, (native(np.ones((2, n), np.int32)) for n in (3, 4, 3, 4)), strict=True))
    arguments = good | replaced
    return MODULES[path].seqlens_and_offsets(
        *(arguments[name] for name in NAMES), mask=mask, max_segments=max_segments
    )


@paths
def test_good_arguments_pass(path):
    call(path)


@paths
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["int16", "uint8", "uint32", "float32", "bool"])
def test_another_dtype(path, name, dtype):
    with pytest.raises(TypeError, match=f"^{name} must have dtype int32; got {dtype}$"):
        call(path, **{name: NATIVE[path](np.ones((2, 3), dtype))})


@pytest.mark.parametrize("path", ["reference", "numpy", "torch"])
@pytest.mark.parametrize("name", NAMES)
def test_int64_is_not_cut_down_in_silence(path, name):
    with pytest.raises(TypeError, match=f"^{name} must have dtype int32; got int64$"):
        call(path, **{name: NATIVE[path](np.ones((2, 3), np.int64))})


@pytest.mark.parametrize("path", ["reference", "numpy"])
def test_the_other_byte_order(path):
    with pytest.raises(TypeError, match="^segment_ids_q must have dtype int32; got >i4$"):
        call(path, segment_ids_q=np.ones((2, 3), ">i4"))


@paths
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 1)])
def test_another_number_of_dimensions(path, name, shape):
    wanted = re.escape(f"{name} must have shape [batch, tokens]; got {list(shape)}")
    with pytest.raises(ValueError, match=f"^{wanted}$"):
        call(path, **{name: NATIVE[path](np.ones(shape, np.int32))})


@paths
@pytest.mark.parametrize("side", ["q", "kv"])
@pytest.mark.parametrize("shape", [(2, 5), (1, 3), (3, 2), (2, 0)])
def test_positions_shaped_unlike_their_ids(path, side, shape):
    tokens = 3 if side == "q" else 4
    wanted = f"segment_pos_{side} must have the shape of segment_ids_{side}, [2, {tokens}]; got {list(shape)}"
    with pytest.raises(ValueError, match=f"^{re.escape(wanted)}$"):
        call(path, **{f"segment_pos_{side}": NATIVE[path](np.ones(shape, np.int32))})


@paths
def test_another_batch_on_the_other_side(path):
    kv = NATIVE[path](np.ones((3, 4), np.int32))
    with pytest.raises(
        ValueError, match="^segment_ids_kv must have the batch size of segment_ids_q, 2; got 3$"
    ):
        call(path, segment_ids_kv=kv, segment_pos_kv=kv)


@paths
@pytest.mark.parametrize("max_segments", [0, -1, -(2**40)])
def test_no_room_for_a_segment(path, max_segments):
    with pytest.raises(ValueError, match=f"^max_segments must be at least 1; got {max_segments}$"):
        call(path, max_segments=max_segments)


@paths
def test_more_room_than_indices_reach(path):
    with pytest.raises(ValueError, match=r"^max_segments must be below 2\*\*30; got 1073741824$"):
        call(path, max_segments=2**30)


@paths
@pytest.mark.parametrize("max_segments", [2.0, "2", None, True, np.float64(2), np.array([2])])
def test_room_that_is_no_int(path, max_segments):
    with pytest.raises(TypeError, match="^max_segments must be an int known in advance; got "):
        call(path, max_segments=max_segments)


def test_the_message_names_the_type_that_came():
    with pytest.raises(TypeError, match="got bool$"):
        check_max_segments(True)


@paths
@pytest.mark.parametrize("mask", ["Causal", "", "full", None, 3])
def test_an_unknown_mask(path, mask):
    wanted = f"mask must be one of 'padding', 'causal', 'bottom_right_causal'; got {mask!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(wanted)}$"):
        call(path, mask=mask)


@paths
@pytest.mark.parametrize("name", NAMES)
def test_another_library(path, name):
    kind = {"torch": "torch Tensor", "jax": "jax Array"}.get(path, "numpy ndarray")
    other = torch.ones(2, 3, dtype=torch.int32) if path != "torch" else np.ones((2, 3), np.int32)
    for value, came in ((other, type(other).__name__), ([[1, 1, 1]] * 2, "list"), (None, "NoneType")):
        with pytest.raises(TypeError, match=f"^{name} must be a {kind}; got {came}$"):
            call(path, **{name: value})


def test_torch_refuses_another_device():
    for name in NAMES[1:]:
        tokens = 4 if "kv" in name else 3
        with pytest.raises(
            ValueError, match=f"^{name} must be on the device of segment_ids_q, cpu; got meta$"
        ):
            call("torch", **{name: torch.ones(2, tokens, dtype=torch.int32, device="meta")})


def test_jax_refuses_more_tokens_than_indices_reach():
    many, few = (jax.ShapeDtypeStruct((2**16, n), jnp.int32) for n in (2**15, 1))
    function = partial(MODULES["jax"].seqlens_and_offsets, mask="causal", max_segments=2)
    for name, (q, kv) in {"q": (many, few), "kv": (few, many)}.items():
        with pytest.raises(
            ValueError, match=rf"^segment_ids_{name} must hold fewer than 2\*\*31 tokens; got 2147483648"
        ):
            jax.eval_shape(function, q, kv, q, kv)


# The promises.

IDS = np.ones((2, 3), np.int32)
LIBRARY = "must be a NumPy or JAX array; got"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([[1]], IDS), TypeError, f"segment_ids_q {LIBRARY} list"),
        ((IDS, torch.ones(2, 3, dtype=torch.int32)), TypeError, f"segment_ids_kv {LIBRARY} Tensor"),
        (
            (IDS, jnp.ones((2, 3), jnp.int32)),
            TypeError,
            "segment_ids_kv must be of the library of segment_ids_q",
        ),
        ((IDS.astype(np.int64), IDS), TypeError, "segment_ids_q must have dtype int32; got int64"),
        ((IDS, IDS.astype(np.float32)), TypeError, "segment_ids_kv must have dtype int32; got float32"),
        ((IDS[0], IDS), ValueError, r"segment_ids_q must have two dimensions; got shape \[3\]"),
        ((IDS, IDS[:1]), ValueError, "segment_ids_kv must have the batch size of segment_ids_q, 2; got 1"),
    ],
)
def test_sorted_ids_refuse(arguments, error, words):
    with pytest.raises(error, match=f"^{words}"):
        from_sorted_ids(*arguments, mask="causal", max_segments=2)


def test_sorted_ids_refuse_what_every_path_refuses():
    with pytest.raises(ValueError, match="^mask must be one of"):
        from_sorted_ids(IDS, IDS, mask="window", max_segments=2)
    with pytest.raises(ValueError, match="^max_segments must be at least 1; got 0"):
        from_sorted_ids(IDS, IDS, mask="causal", max_segments=0)
    with pytest.raises(TypeError, match="^max_segments must be an int known in advance; got bool"):
        from_sorted_ids(IDS, IDS, mask="causal", max_segments=True)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([[1]], IDS), TypeError, f"q_lengths {LIBRARY} list"),
        ((IDS, IDS.astype(np.int64)), TypeError, "kv_lengths must have dtype int32; got int64"),
        ((IDS, IDS[0]), ValueError, r"kv_lengths must have two dimensions; got shape \[3\]"),
        (
            (IDS, IDS[:, :2]),
            ValueError,
            r"kv_lengths must have the shape of q_lengths.*got \[2, 3\] and \[2, 2\]",
        ),
        (
            (IDS[:, :0], IDS[:, :0]),
            ValueError,
            "kv_lengths must have the shape of q_lengths.*at least one segment",
        ),
        ((IDS, jnp.ones((2, 3), jnp.int32)), TypeError, "kv_lengths must be of the library of q_lengths"),
    ],
)
def test_lengths_refuse(arguments, error, words):
    with pytest.raises(error, match=f"^{words}"):
        from_lengths(*arguments, mask="causal")


def test_lengths_refuse_an_unknown_mask():
    with pytest.raises(ValueError, match="^mask must be one of"):
        from_lengths(IDS, IDS, mask="window")


# On to attention.


@pytest.mark.parametrize("name", NAMES)
def test_block_mask_refuses(name):
    good = dict.fromkeys(NAMES, torch.ones(2, 3, dtype=torch.int32))
    refused = [
        (TypeError, "must have dtype int32; got int64", torch.ones(2, 3, dtype=torch.int64)),
        (TypeError, "must be a torch Tensor; got ndarray", IDS),
        (ValueError, "must have shape", torch.ones(3, dtype=torch.int32)),
    ]
    for error, words, value in refused:
        with pytest.raises(error, match=f"^{name} {words}"):
            block_mask(*(good | {name: value}).values(), mask="causal")


def test_block_mask_refuses_numbers_that_make_no_tiles():
    one = torch.ones(1, 3, dtype=torch.int32)
    with pytest.raises(ValueError, match="^segment_ids_q must have at least one row; got a batch of 0"):
        block_mask(one[:0], one[:0], one[:0], one[:0], mask="causal")
    with pytest.raises(ValueError, match="^mask must be one of"):
        block_mask(one, one, one, one, mask="window")
    with pytest.raises(ValueError, match="^window must be between 1 and"):
        block_mask(one, one, one, one, mask="causal", window=0)
    with pytest.raises(TypeError, match="^window must be an int"):
        block_mask(one, one, one, one, mask="causal", window=2.0)
    with pytest.raises(ValueError, match="^block_size must be between 1 and"):
        block_mask(one, one, one, one, mask="causal", block_size=0)


@pytest.mark.parametrize("name", NAMES)
def test_packed_mask_refuses(name):
    good = dict.fromkeys(NAMES, IDS[0])
    with pytest.raises(TypeError, match=f"^{name} must have dtype int32; got int64"):
        packed_mask(*(good | {name: IDS[0].astype(np.int64)}).values(), mask="causal")
    side = name[-2:].strip("_")
    with pytest.raises(ValueError, match=f"^segment_pos_{side} must have the shape of segment_ids_{side}"):
        packed_mask(*(good | {name: IDS[0, :2]}).values(), mask="causal")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [[1, 1, 1], torch.ones(3, dtype=torch.int32)], ids=["list", "Tensor"])
def test_packed_mask_refuses_another_library(name, value):
    good = dict.fromkeys(NAMES, IDS[0])
    with pytest.raises(TypeError, match=f"^{name} must be a numpy ndarray; got {type(value).__name__}"):
        packed_mask(*(good | {name: value}).values(), mask="causal")


def test_packed_mask_takes_one_row():
    with pytest.raises(ValueError, match=r"^segment_ids_kv must be one row, of shape \[tokens\]; got \[1, "):
        packed_mask(IDS[0], IDS[:1], IDS[0], IDS[0], mask="causal")


def test_packed_mask_refuses_a_window_of_nothing():
    for mask in MASKS:
        with pytest.raises(ValueError, match="^window must be between 1 and"):
            packed_mask(*[IDS[0]] * 4, mask=mask, window=0)


def test_varlen_refuses():
    layout = call("torch")
    with pytest.raises(ValueError, match="^mask must be one of"):
        varlen_arguments(layout, q_tokens=3, kv_tokens=4, mask="window")
    ids = torch.tensor([[1, 1]], dtype=torch.int32)
    pos = torch.tensor([[0, 1]], dtype=torch.int32)
    layout = MODULES["torch"].seqlens_and_offsets(ids, ids, pos, pos, mask="padding", max_segments=1)
    arguments = varlen_arguments(layout, q_tokens=2, kv_tokens=2, mask="padding")
    x = torch.ones(1, 2, 1, 4)
    for i, name in enumerate("qkv"):
        with pytest.raises(ValueError, match=rf"^{name} must have shape \[batch, tokens, heads, head_dim\]"):
            varlen_attention(*(x[0] if i == j else x for j in range(3)), arguments)
    with pytest.raises(ValueError, match=r"^v must have the shape of k, \[1, 2, 1, 4\]; got \[1, 2, 1, 2\]"):
        varlen_attention(x, x, x[..., :2], arguments)


def test_dot_product_refuses():
    layout = call("jax")
    sizes = dict(q_tokens=3, kv_tokens=4, max_seqlen_q=3, max_seqlen_kv=4)
    for name in sizes:
        with pytest.raises(ValueError, match=f"^{name} must be at least 1; got 0"):
            dot_product_arguments(layout, **(sizes | {name: 0}))
    arguments = dot_product_arguments(layout, **sizes)
    q, kv = jnp.ones((2, 3, 1, 4)), jnp.ones((2, 4, 1, 4))
    with pytest.raises(ValueError, match="^mask must be one of"):
        dot_product_attention(q, kv, kv, arguments, mask="window")
    for i, name in enumerate("qkv"):
        with pytest.raises(ValueError, match=rf"^{name} must have shape \[batch, tokens, heads, head_dim\]"):
            dot_product_attention(
                *(x[0] if i == j else x for j, x in enumerate((q, kv, kv))), arguments, mask="causal"
            )
