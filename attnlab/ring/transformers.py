"""Let a model of Hugging Face transformers attend through our ring, with one call.

>>> from attnlab.ring.transformers import use_ring_attention  # doctest: +SKIP
>>> cache = use_ring_attention(model)  # doctest: +SKIP
>>> model.generate(input_ids, past_key_values=cache)  # doctest: +SKIP

Three things are registered or made, and each is transformers' own way to extend it: an attention function
(``AttentionInterface``), a mask function (``AttentionMaskInterface``), and a cache whose layers are rings
(`attnlab.ring.transformers_layer`). ``model.set_attn_implementation("sdpa")`` switches back.

transformers' ``sliding_window=W`` lets a query see W keys, its own included, as a window of W does here.
Written for transformers 5.23, which is an optional dependency: `attnlab.ring` does not import it.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

try:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.cache_utils import Cache
except ImportError as error:
    raise ImportError(
        "attnlab.ring.transformers needs Hugging Face transformers; pip install 'transformers>=5.23'"
    ) from error

from attnlab.ring import laws
from attnlab.ring.transformers_layer import RingLayer
from attnlab.ring.window import sliding_window_attention

__all__ = ["NAME", "ring_attention", "ring_cache", "ring_mask", "use_ring_attention"]

NAME = "attnlab_ring"
"""The attention implementation's name, for ``model.set_attn_implementation``."""

# What some models hand to an attention function, and this one would have to leave out.
_UNSUPPORTED = ("softcap", "s_aux", "position_bias", "cache", "output_attentions")


def use_ring_attention(model: Any, *, prefill_size: int = 512, capacity: int | None = None) -> Cache:
    """Let a model attend through rings, and return an empty cache for it.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Every layer of its decoder must slide.
    prefill_size, capacity : int
        As in `ring_cache`.

    Returns
    -------
    transformers.Cache
        To be passed as ``past_key_values``; `ring_cache` makes more of them.

    Raises
    ------
    TypeError, ValueError
        As in `ring_cache`; the model is then unchanged.
    """
    cache = ring_cache(model.config, prefill_size=prefill_size, capacity=capacity)
    AttentionInterface.register(NAME, ring_attention)
    AttentionMaskInterface.register(NAME, ring_mask)
    model.set_attn_implementation(NAME)
    return cache


def ring_cache(config: Any, *, prefill_size: int = 512, capacity: int | None = None) -> Cache:
    """Make a cache of rings for a model with this configuration.

    Each ring takes ``2 * B * H_kv * C * D_pad * itemsize`` bytes, allocated at the first call, never more.

    Parameters
    ----------
    config : transformers.PreTrainedConfig
        Of a model in which every layer has a sliding window.
    prefill_size : int
        Tokens written and attended to at a time; longer prompts are taken in chunks of ``C - W + 1``.
    capacity : int, optional
        C, slots of a ring, at least W. By default ``W - 1 + prefill_size``.

    Raises
    ------
    TypeError
        If a number is no int.
    ValueError
        If a layer does not slide, a number is below 1, or C < W.
    """
    config = config.get_text_config(decoder=True)
    window = getattr(config, "sliding_window", None)
    assumed = "full_attention" if window is None else "sliding_attention"
    others = sorted({*(getattr(config, "layer_types", None) or [assumed])} - {"sliding_attention"})
    if others or window is None:
        raise ValueError(
            f"config must give every layer a sliding window; got sliding_window {window} and layers of type "
            f"{', '.join(others) or 'sliding_attention'}"
        )
    prefill_size = laws.whole("prefill_size", prefill_size, least=1)
    slots = window - 1 + prefill_size if capacity is None else capacity
    return Cache(layers=[RingLayer(window, slots) for _ in range(config.num_hidden_layers)])


def ring_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    *,
    attention_mask: Bool[Tensor, "batch seen"] | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    **kwargs: Any,
) -> Bool[Tensor, "batch keys"] | None:
    """Say which of the keys are padding; the window and causality are left to `ring_attention`.

    transformers calls this once per forward pass, with the sizes of the cache's first sliding layer.

    Returns
    -------
    bool [B, kv_length] or None
        True means attend. None if nothing is padded.

    Raises
    ------
    ValueError
        If the mask is more than a sliding window with padding, keys do not end with the newest one, or the
        padding mask does not reach over every token seen.
    """
    if local_size is None or not allow_is_causal_skip:
        raise ValueError(
            f"attention {NAME!r} takes a causal sliding window with padding; full attention, packed "
            "sequences, overlaid masks and static caches need another, such as 'sdpa'"
        )
    seen = int(q_offset) + q_length
    if kv_offset + kv_length != seen:
        raise ValueError(
            f"attention {NAME!r} needs keys that end with the newest one, at position {seen - 1}; got "
            f"{kv_length} keys from position {kv_offset} on, as a static cache gives"
        )
    if attention_mask is None:
        return None
    if attention_mask.shape != (batch_size, seen):
        raise ValueError(
            f"attention_mask must have shape [{batch_size}, {seen}], a column for every token seen; got "
            f"{list(attention_mask.shape)}"
        )
    if attention_mask.all():
        return None
    return attention_mask[:, kv_offset:].bool()


def ring_attention(
    module: torch.nn.Module,
    query: Float[Tensor, "batch heads tokens head_dim"],
    key: Float[Tensor, "batch kv_heads keys head_dim"],
    value: Float[Tensor, "batch kv_heads keys head_dim"],
    attention_mask: Bool[Tensor, "batch seen"] | None,
    dropout: float | int = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Float[Tensor, "batch tokens heads head_dim"], None]:
    """Attend as transformers calls it: causal within the window, also where the mask is None.

    Keys that a `RingLayer` handed on are written to its ring and read there. Others (without a cache, or from
    transformers' dynamic one) are taken as they come, oldest first, and the result is differentiable.
    A ring remembers which of its tokens are padding: only the newest columns of a mask are read there.

    Raises
    ------
    ValueError
        If the window is missing or not the ring's, or something is asked for that would have to be left
        out: dropout, bidirectional attention, a 4-D mask, soft caps, sinks, position biases, weights.
    RuntimeError
        If a gradient is wanted through a ring, which records no graph.
    """
    for name in _UNSUPPORTED:
        if kwargs.get(name) is not None and kwargs[name] is not False:
            raise ValueError(f"attention {NAME!r} does not take {name}; use another, such as 'eager'")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if dropout or not causal or sliding_window is None:
        raise ValueError(
            f"attention {NAME!r} needs dropout 0, causal attention and a sliding window; got dropout "
            f"{dropout}, is_causal {causal} and sliding_window {sliding_window}"
        )
    if attention_mask is not None and attention_mask.ndim != 2:
        raise ValueError(
            f"attention_mask must be a padding mask [batch, tokens] for {NAME!r}; got shape "
            f"{list(attention_mask.shape)}"
        )
    if scaling is not None:
        query = query * (scaling * query.shape[-1] ** 0.5)  # both paths below divide by sqrt(head_dim)
    layer = RingLayer.of(key)
    if layer is None:
        out = _attend_in_order(query, key, value, attention_mask, sliding_window)
    else:
        if layer.window != sliding_window:
            raise ValueError(f"sliding_window must be the ring's, {layer.window}; got {sliding_window}")
        if torch.is_grad_enabled() and query.requires_grad:
            raise RuntimeError("a ring records no graph; call the model under torch.no_grad(), or without it")
        padding = None if attention_mask is None else ~attention_mask[:, -key.shape[2] :]
        out = layer.attend(query, key, value, padding)
    return out.transpose(1, 2).contiguous(), None


def _attend_in_order(q: Tensor, k: Tensor, v: Tensor, attend_to: Tensor | None, window: int) -> Tensor:
    """Attend with the newest queries over keys in order of position; rows of padding get 0."""
    if attend_to is None and q.shape[2] == k.shape[2]:
        return sliding_window_attention(q, k, v, window=window)
    keys = torch.arange(k.shape[2], device=q.device)
    back = keys[k.shape[2] - q.shape[2] :, None] - keys
    seen = (back >= 0) & (back < window)
    if attend_to is not None:
        seen = seen & attend_to[:, None, None]
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
