"""A config is checked when it is made: every field by its name, and the laws by theirs."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.ring import laws
from attnlab.ring.config import RingBufferConfig


def test_the_readmes_config_has_2592_slots():
    config = RingBufferConfig(
        num_heads=8, head_dim=64, dropout=0.1, buffer_size=2048, block_size=128,
        tile_size=32, head_tile_size=4, prefill_size=512, causal=True,
    )  # fmt: skip
    assert (config.visible_keys, config.capacity, config.kv_heads) == (2048, 2592, 8)


def test_it_works_without_arguments_and_differs_from_the_readmes_in_dropout_alone():
    config = RingBufferConfig()
    assert [getattr(config, field.name) for field in fields(config)] == [
        8, 64, 0.0, 2048, 128, 32, 4, 512, True, None, None, "auto",
    ]  # fmt: skip
    assert config.capacity == laws.default_capacity(2048, 512, 32) == 2592


def test_no_field_can_be_changed_later():
    with pytest.raises(FrozenInstanceError):
        RingBufferConfig().window = 3
    assert RingBufferConfig() == RingBufferConfig()
    assert hash(RingBufferConfig()) == hash(RingBufferConfig())


@given(
    window=st.integers(1, 500), prefill=st.integers(1, 200), tile=st.integers(1, 40), heads=st.integers(1, 4)
)
def test_the_default_capacity_obeys_every_law(window, prefill, tile, heads):
    config = RingBufferConfig(
        buffer_size=window, prefill_size=prefill, tile_size=tile, block_size=4 * tile,
        num_heads=2 * heads, num_kv_heads=heads,
    )  # fmt: skip
    assert (config.visible_keys, config.kv_heads) == (window, heads)
    laws.check_cache(config.capacity, window, prefill)
    laws.check_tiles(config.capacity, window, prefill, tile)


def test_with_a_window_the_buffer_size_is_the_capacity_and_the_cache_law_is_exact():
    config = RingBufferConfig(buffer_size=100, window=60, prefill_size=41)
    assert (config.visible_keys, config.capacity) == (60, 100)
    with pytest.raises(ValueError, match=r"^cache law: .*capacity 100, window 60 and chunk 42"):
        replace(config, prefill_size=42)
    with pytest.raises(ValueError, match=r"^cache law: .*capacity 99"):
        replace(config, buffer_size=99)
    with pytest.raises(ValueError, match=r"^cache law: .*window 61"):
        replace(config, window=61)


def test_no_law_ties_an_encoders_window_to_its_slots():
    config = RingBufferConfig(buffer_size=64, window=1000, causal=False)
    assert (config.visible_keys, config.capacity) == (1000, 64)


def test_a_kernel_that_reads_tiles_has_laws_of_its_own():
    config = RingBufferConfig(buffer_size=128, window=60, prefill_size=53, impl="triton")
    assert config.kernel_law is None
    with pytest.raises(
        ValueError, match=r"^tile law: .*capacity 128, window 60, chunk 54 and tile_size 16.*impl"
    ):
        replace(config, prefill_size=54)
    with pytest.raises(ValueError, match=r"^tile law: capacity % tile_size == 0; got capacity 136"):
        replace(config, buffer_size=136)
    assert replace(config, buffer_size=136, impl="auto").kernel_law.startswith("tile law")
    assert replace(config, buffer_size=136, causal=False).capacity == 136


SIZES = ["num_heads", "head_dim", "buffer_size", "block_size", "tile_size", "head_tile_size", "prefill_size"]


@pytest.mark.unchecked
@pytest.mark.parametrize("name", [*SIZES, "window", "num_kv_heads"])
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (0, ValueError, "at least 1; got 0"),
        (2.0, TypeError, "an int; got float"),
        (True, TypeError, "an int"),
    ],
)
def test_a_bad_size_is_named(name, value, error, message):
    with pytest.raises(error, match=f"^{name} must be {message}"):
        RingBufferConfig(**{name: value})


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dropout": 1.0}, ValueError, "^dropout must be at least 0 and below 1; got 1.0"),
        ({"dropout": -0.1}, ValueError, "^dropout"),
        ({"dropout": float("nan")}, ValueError, "^dropout"),
        ({"dropout": "0.1"}, TypeError, "^dropout must be a float; got str"),
        ({"causal": 1}, TypeError, "^causal must be a bool; got int: 1"),
        ({"block_size": 100}, ValueError, "^block_size must be a multiple of tile_size, 32; got 100"),
        ({"num_kv_heads": 3}, ValueError, "^num_kv_heads must divide num_heads, 8; got 3"),
        ({"impl": "flash"}, ValueError, "^impl must be one of 'auto', .*; got 'flash'"),
        ({"impl": None}, TypeError, "^impl must be a str; got NoneType"),
        ({"num_heads": None}, TypeError, "^num_heads must be an int; got NoneType"),
    ],
)
def test_another_bad_field_is_named(change, error, message):
    with pytest.raises(error, match=message):
        RingBufferConfig(**change)
