"""Every wrong call names its argument, and neither the state nor the model has changed after it."""

from __future__ import annotations

import pytest
import torch
from ring_calls import close, dense, inputs, model, snapshot, unchanged

from attnlab.ring.module import RingBufferAttention
from attnlab.ring.order import TileOrder

pytestmark = pytest.mark.unchecked

Q, K, V = inputs(3, seed=1)
BITS = torch.zeros(2, 3, dtype=torch.bool)

BAD_CALLS = {
    "no q": (dict(q=None), TypeError, "^q must be a torch Tensor; got NoneType"),
    "numpy q": (dict(q=Q.numpy()), TypeError, "^q must be a torch Tensor; got ndarray"),
    "whole q": (dict(q=Q.long()), TypeError, "^q must have one of the dtypes .*; got torch.int64"),
    "other q": (dict(q=Q.float()), TypeError, "^q must have dtype torch.float64; got torch.float32"),
    "flat q": (dict(q=Q[0]), ValueError, r"^q must have shape \[any, 4, any, 5\]; got \[4, 3, 5\]"),
    "heads": (dict(q=Q[:, :3]), ValueError, r"^q must have shape \[any, 4"),
    "head_dim": (dict(q=Q[..., :4]), ValueError, "^q must have shape"),
    "batch": (dict(q=Q[:1], k=K[:1], v=V[:1]), ValueError, r"^q must have shape \[2, any.*got \[1, 4"),
    "no batch": (dict(q=Q[:0], k=K[:0], v=V[:0]), ValueError, "^q must have a batch of at least 1"),
    "device": (dict(q=Q.to("meta")), ValueError, "^q must be on cpu; got meta"),
    "no k": (dict(k=None), ValueError, "^k must be given; k and v may be None together in cross-attention"),
    "no v": (dict(v=None), ValueError, "^v must be given"),
    "kv heads": (dict(k=Q, v=Q), ValueError, r"^k must have shape \[2, 2, 3, 5\]; got \[2, 4, 3, 5\]"),
    "k length": (dict(k=K[:, :, :2]), ValueError, r"^k must have shape \[2, 2, 3, 5\]"),
    "v shape": (dict(v=V[..., :4]), ValueError, "^v must have shape"),
    "v dtype": (dict(v=V.half()), TypeError, "^v must have dtype torch.float64; got torch.float16"),
    "list k": (dict(k=[1.0]), TypeError, "^k must be a torch Tensor; got list"),
    "gap": (dict(position=32), ValueError, "^position must be at most the tokens written, 31, .*; got 32"),
    "negative": (dict(position=-1), ValueError, "^position must be at least 0; got -1"),
    "float position": (dict(position=3.0), TypeError, "^position must be an int; got float"),
    "rollback": (dict(position=23), ValueError, "^rollback law: .*position 23, window 6, highest 31"),
    "grad": (dict(requires_grad=1), TypeError, "^requires_grad must be a bool; got int: 1"),
    "decoder": (dict(is_decoder="yes"), TypeError, "^is_decoder must be a bool; got str"),
    "weights": (dict(needs_weights=None), TypeError, "^needs_weights must be a bool; got NoneType"),
    "attentions": (dict(output_attentions=0), TypeError, "^output_attentions must be a bool"),
    "mask type": (dict(att_mask=[[True]]), TypeError, "^att_mask must be a torch Tensor; got list"),
    "whole mask": (dict(att_mask=torch.ones(3, 8).long()), TypeError, "^att_mask must be bool"),
    "mask by slots": (dict(att_mask=torch.ones(3, 12)), ValueError, r"^att_mask .*got \[3, 12\]"),
    "mask of new": (dict(att_mask=torch.ones(3, 3)), ValueError, r"^att_mask .*got \[3, 3\]"),
    "mask device": (dict(att_mask=torch.ones(3, 8, device="meta")), ValueError, "^att_mask must be on cpu"),
    "bits type": (dict(key_padding_mask=[True]), TypeError, "^key_padding_mask must be a torch Tensor"),
    "bits dtype": (dict(key_padding_mask=BITS.float()), TypeError, "^key_padding_mask must have dtype"),
    "bits": (dict(key_padding_mask=BITS[:, :2]), ValueError, r"^key_padding_mask must have shape \[2, 3\]"),
    "state type": (dict(buffer_state={}), TypeError, "^buffer_state must be a BufferState; got dict"),
    "cross": (
        dict(k=None, v=None, is_decoder=True),
        ValueError,
        "^buffer_state must come from a model with causal=False .*pass its next k and v",
    ),
    "no keys": (dict(k=None, v=None, is_decoder=False), ValueError, "^k must be given"),
}


@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize(("change", "error", "message"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_bad_call_names_the_argument_and_changes_nothing(change, error, message, decoder):
    ring = model(dropout=0.2)
    _, state = ring(*inputs(31), requires_grad=True)
    before, generator = snapshot(state), torch.get_rng_state()
    given = dict(q=Q, k=K, v=V, is_decoder=decoder, buffer_state=state)
    with pytest.raises(error, match=message):
        ring(**{**given, **change})
    unchanged(state, before)
    assert ring.buffer_state is state
    if "buffer_state" not in change and decoder:  # the model's own last state is as safe
        with pytest.raises(error):
            ring(**{**given, "buffer_state": None, **change})
        unchanged(state, before)
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (dict(buffer_size=7), "visible_keys, 6; got 7"),
        (dict(prefill_size=9), "capacity, 12; got 16"),
        (dict(num_kv_heads=4), "kv_heads, 2; got 4"),
        (dict(head_dim=6), "head_dim, 5; got 6"),
        (dict(causal=False), "causal, True; got False"),
    ],
)
def test_a_state_of_another_models_sizes_is_refused(other, message):
    state = model(**other).new_state(2, dtype=torch.float64)
    with pytest.raises(ValueError, match=f"^buffer_state must have the model's {message}"):
        model()(Q, K, V, buffer_state=state)
    assert state.position == 0


def test_a_last_state_of_another_batch_says_how_to_begin_anew():
    ring = model()
    ring(*inputs(5, batch=3))
    with pytest.raises(ValueError, match=r"^q must have shape \[3, .*buffer_state=model.new_state"):
        ring(Q, K, V, is_decoder=True)
    assert ring.buffer_state.position == 5


def test_going_back_in_a_graph_is_refused_until_it_is_cut():
    ring = model()
    tokens = inputs(20)
    _, state = ring(*(x.clone().requires_grad_() for x in tokens), True)
    before = snapshot(state)
    with pytest.raises(ValueError, match="^position must be 20, the end, .*call detach"):
        ring(Q, K, V, True, position=17, buffer_state=state)
    unchanged(state, before)
    out, _ = ring(Q, K, V, True, position=17, buffer_state=state.detach())
    q, k, v = (torch.cat([a[:, :, :17], b], dim=2) for a, b in zip(tokens, (Q, K, V), strict=True))
    close(out, dense(q, k, v)[0][:, :, 17:])


def test_a_path_that_cannot_run_changes_nothing():
    """meta tensors pass the door, and the path says that it needs the CPU."""
    ring = model(impl="strided")
    _, state = ring(*inputs(4))
    meta = [x.to("meta") for x in (Q, K, V)]
    fresh = ring.new_state(2, dtype=torch.float64, device="meta")
    for grad in (False, True):
        with pytest.raises(ValueError, match="impl 'strided' needs tensors on the CPU"):
            ring(*meta, grad, buffer_state=fresh if not grad else None)
    assert fresh.position == 0 and ring.buffer_state is state


def test_the_tile_order_must_be_one():
    ring = model()
    for wrong in ("q", 0, None):
        with pytest.raises(
            TypeError, match="^tile_order must be TileOrder.Q_MAJOR or TileOrder.K_MAJOR; got"
        ):
            ring.tiling_processor.tile_order = wrong
    assert ring.tiling_processor.tile_order is TileOrder.Q_MAJOR


def test_the_config_must_be_one():
    with pytest.raises(TypeError, match="^config must be a RingBufferConfig; got dict"):
        RingBufferAttention({})
