"""Attentions are built by name, and a name that is taken or unknown says which there are."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from attnlab.ring import registry
from attnlab.ring.registry import build_attention, known_attentions, register_attention


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Forget what a test has registered."""
    monkeypatch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))


def test_a_function_is_called_with_the_configuration_and_the_options():
    @register_attention("dense")
    def dense(config, **options):
        return config, options

    assert known_attentions() == ("ring_buffer", "dense")
    assert build_attention("dense", {"heads": 2}, window=4) == ({"heads": 2}, {"window": 4})
    assert build_attention("dense") == (None, {})
    assert dense(1) == (1, {})  # the decorator gives the function back


def test_a_class_is_a_builder_too():
    @register_attention("kept")
    class Kept:
        def __init__(self, config, *, window=1):
            self.config, self.window = config, window

    assert build_attention("kept", 3, window=8).window == 8
    assert isinstance(build_attention("kept", 3), Kept)


@pytest.mark.unchecked
def test_a_taken_name_and_an_unknown_one_are_told_the_known():
    register_attention("dense")(lambda config: config)
    with pytest.raises(ValueError, match="'dense' is taken; registered are 'ring_buffer', 'dense'"):
        register_attention("dense")(lambda config: config)
    with pytest.raises(ValueError, match="'sparse' is not registered; registered are 'ring_buffer', 'dense'"):
        build_attention("sparse", None)


@pytest.mark.unchecked
def test_names_and_builders_are_checked():
    with pytest.raises(TypeError, match="name must be a str; got int"):
        register_attention(3)
    with pytest.raises(TypeError, match="name must be a str; got NoneType"):
        build_attention(None)
    with pytest.raises(ValueError, match="must not be empty"):
        register_attention("")
    with pytest.raises(TypeError, match="builder must be callable; got int"):
        register_attention("three")(3)


def test_the_registry_alone_loads_no_framework():
    code = "import sys, attnlab.ring.registry; assert not {'torch', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


MODULE_THERE = importlib.util.find_spec("attnlab.ring.module") is not None


@pytest.mark.skipif(not MODULE_THERE, reason="attnlab.ring.module is not there")
def test_ring_buffer_is_the_module_and_options_win_over_the_configuration():
    from attnlab.ring.config import RingBufferConfig
    from attnlab.ring.module import RingBufferAttention

    config = RingBufferConfig(num_heads=4, head_dim=16)
    model = build_attention("ring_buffer", config, dropout=0.25)
    assert isinstance(model, RingBufferAttention)
    assert (model.config.num_heads, model.config.dropout) == (4, 0.25)
    assert build_attention("ring_buffer").config == RingBufferConfig()
    assert build_attention("ring_buffer", num_heads=2).config.num_heads == 2


@pytest.mark.unchecked
@pytest.mark.skipif(not MODULE_THERE, reason="attnlab.ring.module is not there")
def test_ring_buffer_takes_its_own_configuration_only():
    with pytest.raises(TypeError, match="config must be a RingBufferConfig or None; got dict"):
        build_attention("ring_buffer", {"num_heads": 2})
