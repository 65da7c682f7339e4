"""A registry of attentions: build one by the name that a configuration file holds.

xFormers had such a factory, which built an attention from its name and its settings, and took it out again
with its other legacy components. The pattern is still what lets an experiment swap attentions in one line, so
it is kept here, small. Its living equivalent, by which a whole model changes its attention, is transformers'
``AttentionInterface``: see `attnlab.ring.transformers`.

>>> known_attentions()
('ring_buffer',)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .config import RingBufferConfig
    from .module import RingBufferAttention

__all__ = ["build_attention", "known_attentions", "register_attention"]

Builder = TypeVar("Builder", bound=Callable[..., Any])

_BUILDERS: dict[str, Callable[..., Any]] = {}


def known_attentions() -> tuple[str, ...]:
    """Return the registered names, in the order in which they were registered."""
    return tuple(_BUILDERS)


def register_attention(name: str) -> Callable[[Builder], Builder]:
    """Give a builder a name, as a decorator; a class is a builder too.

    Parameters
    ----------
    name : str
        One that is not taken.

    Returns
    -------
    callable
        Registers a function or class, which `build_attention` calls as ``builder(config, **options)``, and
        returns it unchanged.

    Raises
    ------
    TypeError
        If `name` is no str, or what is decorated cannot be called.
    ValueError
        If `name` is empty or taken.
    """
    _check_name(name)
    if not name:
        raise ValueError("name must not be empty")

    def register(builder: Builder) -> Builder:
        if not callable(builder):
            raise TypeError(f"builder must be callable; got {type(builder).__name__}")
        if name in _BUILDERS:
            raise ValueError(f"name {name!r} is taken; registered are {_list_names()}")
        _BUILDERS[name] = builder
        return builder

    return register


def build_attention(name: str, config: Any = None, **options: Any) -> Any:
    """Build the attention that is registered under a name.

    Parameters
    ----------
    name : str
        For example ``"ring_buffer"``.
    config
        What the builder takes: a `RingBufferConfig` for ``"ring_buffer"``, or None for its defaults.
    **options
        Passed on. For ``"ring_buffer"`` they are fields of the configuration, and win over it.

    Raises
    ------
    TypeError
        If `name` is no str.
    ValueError
        If nothing has that name.
    """
    _check_name(name)
    if name not in _BUILDERS:
        raise ValueError(f"name {name!r} is not registered; registered are {_list_names()}")
    return _BUILDERS[name](config, **options)


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name must be a str; got {type(name).__name__}")


def _list_names() -> str:
    return ", ".join(map(repr, _BUILDERS)) or "none"


@register_attention("ring_buffer")
def _build_ring_buffer(config: RingBufferConfig | None = None, **options: Any) -> RingBufferAttention:
    # Both need torch, and a registry should be there before it is.
    from .config import RingBufferConfig
    from .module import RingBufferAttention

    if config is not None and not isinstance(config, RingBufferConfig):
        raise TypeError(f"config must be a RingBufferConfig or None; got {type(config).__name__}")
    return RingBufferAttention(RingBufferConfig(**options) if config is None else replace(config, **options))
