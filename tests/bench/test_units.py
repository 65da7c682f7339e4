from __future__ import annotations

import pytest

from attnlab.bench.units import human, human_ratio


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (65e-6, "s", "65.0 us"),
        (1.5e-3, "s", "1.50 ms"),
        (2.0, "s", "2 s"),
        (2.345, "s", "2.35 s"),
        (75.0, "s", "75 s"),
        (3e-9, "s", "3.00 ns"),
        (18.6e6, "B", "18.6 MB"),
        (1.09e9, "B", "1.09 GB"),
        (30_000, "B", "30.0 KB"),
        (512, "B", "512 B"),
        (0, "B", "0 B"),
        (999, "B", "999 B"),
        (999_400, "B", "999 KB"),
        (999_600, "B", "1.00 MB"),
        (-5000, "B", "-5.00 KB"),
        (28.9e6, "FLOP", "28.9 MFLOP"),
        (12, "FLOP", "12 FLOP"),
        (131_072, "", "131,072"),
        (91, "tiles", "91 tiles"),
        (0.25, "", "0.250"),
        (9.999, "", "10.0"),
        (1e-5, "", "1.00e-05"),
        (23.44, "x", "23.4x"),
        (6900.0, "x", "6,900x"),
    ],
)
def test_human(value, unit, text):
    assert human(value, unit) == text


@pytest.mark.parametrize(
    ("ratio", "unit", "text"),
    [
        (0.1, "s", "10.0x faster than dense"),
        (2.0, "s", "2.00x slower than dense"),
        (0.5, "B", "2.00x less than dense"),
        (1.2, "FLOP", "1.20x more than dense"),
        (0.999, "s", "the same as dense"),
        (0.0, "B", "nothing beside dense"),
    ],
)
def test_human_ratio(ratio, unit, text):
    assert human_ratio(ratio, unit, "dense") == text
