"""The arguments of a `RingBufferAttention` are checked here, all of them before anything changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from . import laws
from .call import Call
from .checks import check_tensor
from .config import RingBufferConfig
from .masked_inputs import mask_axes
from .order import TileOrder
from .rows import WORK_DTYPE
from .state import BufferState

__all__ = ["Arguments", "check_cross_attention", "check_self_attention"]


@dataclass(frozen=True, eq=False)
class Arguments:
    """The arguments as they came, unchecked; their meaning is in `RingBufferAttention.forward`."""

    q: Any
    k: Any
    v: Any
    requires_grad: Any
    position: Any
    is_decoder: Any
    att_mask: Any
    key_padding_mask: Any
    needs_weights: Any
    output_attentions: Any
    buffer_state: Any

    @property
    def weights(self) -> Literal["mean", "heads"] | None:
        """Which weights to return: per head if both are asked for."""
        if self.output_attentions:
            return "heads"
        return "mean" if self.needs_weights else None

    def leave_keys_to_the_state(self) -> bool:
        """Check the types of the flags and of the state, and say whether this is cross-attention.

        Raises
        ------
        TypeError
            For a flag that is no bool, or a state of another type.
        ValueError
            If k and v are missing where they are needed.
        """
        for name in ("is_decoder", "needs_weights", "output_attentions", "requires_grad"):
            flag = getattr(self, name)
            if not isinstance(flag, bool) and (flag is not None or name != "requires_grad"):
                raise TypeError(f"{name} must be a bool; got {type(flag).__name__}: {flag!r}")
        if self.buffer_state is not None and not isinstance(self.buffer_state, BufferState):
            raise TypeError(f"buffer_state must be a BufferState; got {type(self.buffer_state).__name__}")
        for name, given, other in (("k", self.k, self.v), ("v", self.v, self.k)):
            if given is None and (other is not None or not self.is_decoder):
                raise ValueError(
                    f"{name} must be given; k and v may be None together in cross-attention, with "
                    "is_decoder=True and the buffer_state of an encoder"
                )
        return self.k is None

    def records(self, state: BufferState | None) -> bool:
        """Whether autograd records this call."""
        asked = self.requires_grad
        if asked is None:
            given = (x for x in (self.q, self.k, self.v, self.att_mask) if x is not None)
            asked = any(x.requires_grad for x in given) or (state is not None and state.carries_graph)
        return asked and torch.is_grad_enabled()


def check_self_attention(
    given: Arguments, config: RingBufferConfig, order: TileOrder, last: BufferState | None, training: bool
) -> Call:
    """Check a call that brings keys and values; `last` is the model's own last state.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, or the law.
    """
    if given.is_decoder and not config.causal:
        raise ValueError(
            "k and v must be None when is_decoder=True and the model's config has causal=False: its sequence "
            "is written once, by a call without is_decoder, and then read by cross-attention"
        )
    state = given.buffer_state
    _check_queries(given.q, config)
    if state is not None:
        _check_same_sizes(state, config)
        _check_like(given.q, state)
    elif given.is_decoder and last is not None:
        state = last
        try:
            _check_like(given.q, state)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"{error}: that is what the model's last state holds. For another sequence, pass "
                "buffer_state=model.new_state(...)"
            ) from None
    q, length = given.q, given.q.shape[2]
    for name, x in (("k", given.k), ("v", given.v)):
        check_tensor(name, x, (len(q), config.kv_heads, length, config.head_dim), q)

    written = 0 if state is None else state.position
    position = written if given.position is None else laws.whole("position", given.position)
    if position > written:
        raise ValueError(
            f"position must be at most the tokens written, {written}, or tokens would be missing between; "
            f"got {position}"
        )
    first = max(0, position - config.visible_keys + 1) if config.causal else 0
    keys = position + length - first
    padding = _check_padding(given.key_padding_mask, q, length)
    mask = _check_mask(given.att_mask, q, config.kv_heads, keys)
    graph = given.records(state)
    if not config.causal:
        _check_written_once(written, length, config)
    elif state is not None and position < written:
        _check_rollback(state, position, graph)
    if state is None:  # nothing can fail from here on
        state = BufferState(config, len(q), dtype=q.dtype, device=q.device)
    return Call(
        state=state, config=config, order=order, q=q, k=given.k, v=given.v, position=position,
        first_key=first, keys=keys, att_mask=mask, padding=padding,
        dropout=config.dropout if training else 0.0, weights=given.weights, graph=graph,
    )  # fmt: skip


def check_cross_attention(
    given: Arguments, config: RingBufferConfig, order: TileOrder, last: BufferState | None, training: bool
) -> Call:
    """Check a call that leaves keys and values to an encoder's state, by default the model's own last.

    Raises
    ------
    TypeError, ValueError
        Naming the argument.
    """
    state = given.buffer_state
    if state is None and not config.causal:
        state = last
    if state is None:
        raise ValueError(
            "buffer_state must be given when k and v are None: cross-attention reads the state that a model "
            "with causal=False in its config returned"
        )
    if state.config.causal:
        raise ValueError(
            "buffer_state must come from a model with causal=False in its config when k and v are None, "
            "which means cross-attention; to go on with a causal sequence, pass its next k and v"
        )
    _check_queries(given.q, config)
    keys, kv_heads, head_dim = state.position, state.config.kv_heads, state.config.head_dim
    if head_dim != config.head_dim or config.num_heads % kv_heads:
        raise ValueError(
            f"buffer_state must have head_dim {config.head_dim} and key heads that divide "
            f"{config.num_heads}; got head_dim {head_dim} and {kv_heads} key heads"
        )
    if keys == 0:
        raise ValueError("buffer_state must hold an encoded sequence; got an empty one")
    _check_like(given.q, state)
    q = given.q
    position = 0 if given.position is None else laws.whole("position", given.position)
    padding = _check_padding(given.key_padding_mask, q, keys)
    mask = _check_mask(given.att_mask, q, kv_heads, keys)
    return Call(
        state=state, config=config, order=order, q=q, k=None, v=None, position=position, first_key=0,
        keys=keys, att_mask=mask, padding=padding, dropout=config.dropout if training else 0.0,
        weights=given.weights, graph=given.records(state),
    )  # fmt: skip


def _check_queries(q: Any, config: RingBufferConfig) -> None:
    if not isinstance(q, Tensor):
        raise TypeError(f"q must be a torch Tensor; got {type(q).__name__}")
    if q.dtype not in WORK_DTYPE:
        raise TypeError(f"q must have one of the dtypes {', '.join(map(str, WORK_DTYPE))}; got {q.dtype}")
    check_tensor("q", q, (None, config.num_heads, None, config.head_dim), q)
    if len(q) == 0:
        raise ValueError("q must have a batch of at least 1; got 0")


def _check_like(q: Tensor, state: BufferState) -> None:
    check_tensor("q", q, (state.cache.k.shape[0], None, None, None), state.cache.k)


def _check_same_sizes(state: BufferState, config: RingBufferConfig) -> None:
    """The state must have been made for rings like this model's."""
    for name in ("causal", "kv_heads", "head_dim", "visible_keys", "capacity"):
        theirs, ours = getattr(state.config, name), getattr(config, name)
        if theirs != ours:
            raise ValueError(f"buffer_state must have the model's {name}, {ours}; got {theirs}")


def _check_rollback(state: BufferState, position: int, graph: bool) -> None:
    laws.check_rollback(position, state.cache.highest, state.cache.window, state.cache.capacity)
    if graph and state.carries_graph:
        raise ValueError(
            f"position must be {state.position}, the end, while the state carries a graph: going back to "
            f"{position} would lose gradients without a word; call detach() on the state first"
        )


def _check_written_once(written: int, length: int, config: RingBufferConfig) -> None:
    if written:
        raise ValueError(
            f"buffer_state must be empty for an encoder, which is written once; got one with {written} tokens"
        )
    if length > config.capacity:
        raise ValueError(
            f"k must have at most as many tokens as an encoder has slots, {config.capacity}; got {length}"
        )


def _check_padding(padding: Any, q: Tensor, keys: int) -> Tensor | None:
    if padding is not None:
        like = torch.empty(0, dtype=torch.bool, device=q.device)
        check_tensor("key_padding_mask", padding, (len(q), keys), like)
    return padding


def _check_mask(att_mask: Any, q: Tensor, kv_heads: int, keys: int) -> Tensor | None:
    """The mask with four axes, [1 or B, 1 or Hq, 1 or L, 1 or keys], or an error that names it."""
    if att_mask is None:
        return None
    stand_in = q.new_empty(1, 1, 1, 1).expand(len(q), kv_heads, keys, 1)
    return mask_axes(att_mask, q, stand_in).flatten(1, 2)
