"""Ring-buffer attention as a module, with the interface of the README it comes from.

What that README shows runs as it stands::

    config = RingBufferConfig(num_heads=8, head_dim=64, dropout=0.1, buffer_size=2048, block_size=128,
                              tile_size=32, head_tile_size=4, prefill_size=512, causal=True)
    model = RingBufferAttention(config)
    model.tiling_processor.tile_order = TileOrder.Q_MAJOR       # or K_MAJOR
    output, state = model(q=query, k=key, v=value, requires_grad=True)
    output, state = model(query, key, value, requires_grad=False)
    decoder_output = model(q=dq, k=dk, v=dv, position=pos, is_decoder=True, att_mask=m,
                           key_padding_mask=pad, needs_weights=False, output_attentions=False,
                           buffer_state=state)

Tensors are [batch, heads, length, head_dim], projected already: the module has no parameters. If you know
only the README, this is what is true here.

**What is computed.** Exact softmax attention in which the token at position p sees the W newest keys,
``p - W < k <= p``; W is `buffer_size`, or `window` if it is given. Tiles, chunks and their order change bytes
and speed, never the result.

**The state.** A call without ``is_decoder`` begins a sequence and returns its `BufferState`; given
``buffer_state=state`` it goes on with that sequence, which is how long ones are trained in segments. With
``is_decoder=True`` the output alone comes back, and the state that was given has moved on by L tokens: it is
a handle, not a value, and `BufferState.clone` makes a branch. Given none, a decoder call goes on with the
state that the model's last self-attention call used, and begins a sequence if there was no such call.

**Memory.** A sequence's ring is allocated once, when it begins, and does not grow; without a graph the
workspace is that of one chunk of `prefill_size` tokens. So the cache is O(C * d) and a decode step O(W * d),
whatever the position. A prefill of n tokens costs O(n * min(n, W) * d), which is linear in n for a fixed
window only, and its inputs and outputs are O(n * d).

**Training.** ``requires_grad=True`` records one graph, which reaches back through the state into earlier
segments; ``state.detach()`` cuts it at a segment boundary. Then the gradient of the queries is still exact,
and those of keys and values lack something only in the last W - 1 rows before the boundary. ``False`` records
nothing and cuts the graph. Not given, it is True if autograd is on and an input or the state asks for
gradients. The ring is written either way, so decoding can go on from a segment that was trained on.

**Position.** That of the first query, absolute. None means at the end. A smaller one takes back the tokens
from there on, as far as the ring still holds what is needed (the rollback law of `attnlab.ring.laws`); a
larger one is an error, since the tokens between would be missing.

**Two masks of opposite polarity.** `att_mask` follows PyTorch's ``scaled_dot_product_attention``: True means
attend, or a float is added to the scores. `key_padding_mask` follows ``nn.MultiheadAttention``: True means
padding. A padded token takes its slot and its position and is never attended to, now or later.

**Dropout.** Of the weights, in training mode only. Which weights are dropped depends on the state's seed and
on each weight's sequence, head and positions, so chunks and steps drop what one call would have dropped.

**Encoder and decoder.** A model with ``causal=False`` encodes a sequence of at most C tokens, each seeing
``|p - k| < W``. Its state is a decoder's memory: ``model(q=dq, k=None, v=None, is_decoder=True,
buffer_state=encoder_state)`` attends to all of it, from any model with the same `head_dim`.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from .call_checks import Arguments, check_cross_attention, check_self_attention
from .config import RingBufferConfig
from .cross_attention import cross_attention
from .processor import TilingProcessor
from .self_attention import encode, in_chunks, in_one_graph
from .state import BufferState

__all__ = ["RingBufferAttention"]

Queries = Float[Tensor, "batch heads tokens head_dim"]
Keys = Float[Tensor, "batch kv_heads tokens head_dim"]


class RingBufferAttention(nn.Module):
    """Sliding-window attention that decodes from a ring; see the head of this file for what it promises.

    Parameters
    ----------
    config : RingBufferConfig

    Attributes
    ----------
    config : RingBufferConfig
    tiling_processor : TilingProcessor
        Its `tile_order` can be read and set.

    Raises
    ------
    TypeError
        If `config` is something else.
    """

    def __init__(self, config: RingBufferConfig):
        super().__init__()
        if not isinstance(config, RingBufferConfig):
            raise TypeError(f"config must be a RingBufferConfig; got {type(config).__name__}")
        self.config = config
        self.tiling_processor = TilingProcessor()
        self._state: BufferState | None = None

    @property
    def buffer_state(self) -> BufferState | None:
        """The state that the last self-attention call used; None before the first."""
        return self._state

    def new_state(
        self,
        batch_size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> BufferState:
        """An empty state: to begin another sequence in decoder calls, or to load a saved one into.

        Parameters
        ----------
        batch_size : int
        dtype : torch.dtype
            That of the tensors to come.
        device : torch.device, str or None
            None means torch's default device.
        """
        return BufferState(self.config, batch_size, dtype=dtype, device=device)

    def forward(
        self,
        q: Queries | None = None,
        k: Keys | None = None,
        v: Keys | None = None,
        requires_grad: bool | None = None,
        position: int | None = None,
        is_decoder: bool = False,
        att_mask: Shaped[Tensor, "..."] | None = None,
        key_padding_mask: Bool[Tensor, "batch keys"] | None = None,
        needs_weights: bool = False,
        output_attentions: bool = False,
        buffer_state: BufferState | None = None,
    ) -> Any:
        """Attend; see the head of this file.

        With n the tokens after the call, L of them new, the *visible keys* are the positions from
        ``max(0, n - L - W + 1)`` to n - 1, oldest first; for a sequence that begins here they are all L. In
        an encoder they are all L, in cross-attention all that the encoder wrote.

        Parameters
        ----------
        q : float32, float64, float16 or bfloat16 [B, num_heads, L, head_dim]
        k, v : as q, [B, num_kv_heads, L, head_dim]
            Both None in cross-attention, and only there.
        requires_grad : bool, optional
            Record a graph. Not given: as autograd would, by whether it is on and something asks for it.
        position : int, optional
            Of the first query. None is the end of the sequence. In cross-attention it only says where
            dropout stands, and None is 0.
        is_decoder : bool
        att_mask : bool (True = attend) or floating (added), optional
            [L, keys], [1 or B, 1 or num_heads, L, keys], or what else `attnlab.ring.masked` takes, with the
            visible keys, in this order, never that of the slots. The window applies besides.
        key_padding_mask : bool [B, L], optional
            True marks padding among the new tokens, and the state remembers it. In cross-attention [B, keys],
            for this call only, in addition to what the encoder was told.
        needs_weights, output_attentions : bool
            Also return the weights over the visible keys: [B, L, keys] averaged over heads, or, with
            `output_attentions`, [B, num_heads, L, keys]. With dropout they are what multiplied the values.
            Without either flag no such table is made.
        buffer_state : BufferState, optional

        Returns
        -------
        output, state : [B, num_heads, L, head_dim] and BufferState
            With weights asked for ``output, state, weights``. With `is_decoder` the output alone, or
            ``output, weights``. A query that sees nothing has output 0.

        Raises
        ------
        TypeError, ValueError
            If an argument is of the wrong type, does not fit, or breaks a law. The message names it, and
            neither the state nor the model has changed.
        """
        given = Arguments(
            q, k, v, requires_grad, position, is_decoder, att_mask, key_padding_mask, needs_weights,
            output_attentions, buffer_state,
        )  # fmt: skip
        crossing = given.leave_keys_to_the_state()
        check = check_cross_attention if crossing else check_self_attention
        call = check(given, self.config, self.tiling_processor.tile_order, self._state, self.training)
        with torch.set_grad_enabled(call.graph):
            if crossing:
                out, weights = cross_attention(call)
            else:
                attend = (in_one_graph if call.graph else in_chunks) if self.config.causal else encode
                out, weights = attend(call)
                self._state = call.state
        results = (out,) if is_decoder else (out, call.state)
        if call.weights is not None:
            results = (*results, weights)
        return results[0] if len(results) == 1 else results

    def extra_repr(self) -> str:
        """The config, as `repr` shows it."""
        return repr(self.config)
