"""A roofline: points under a roof, at the right place."""

from __future__ import annotations

import pytest
from show.show_texts import check_words, words_of

from attnlab.show import RooflinePoint, roofline_picture

POINTS = [
    RooflinePoint("dense", 30, 8e10, "muted"),
    RooflinePoint("strided", 28, 9e10, "better"),
    RooflinePoint("decode", 0.5, 6e9),
]


def test_the_sentence_is_the_share_of_the_roof():
    picture = roofline_picture(1.8e11, {"memory": 1.6e10, "cache": 1.2e11}, POINTS)
    # Decode stands under the slope: 0.5 FLOPs a byte at 120 GB/s are 60 GFLOP/s.
    assert picture.sentence == "How much of its roof each reaches: dense, 44%; strided, 50%; decode, 10%."


def test_points_and_roofs_lie_where_they_belong():
    picture = roofline_picture(1e11, {"memory": 1e10}, POINTS)
    (axes,) = picture.plots
    assert axes.x_range[0] < 0.5 and axes.x_range[1] > 30
    # On a logarithmic plot the slope of a bandwidth is one decade a decade.
    decade_x = axes.to_x(10) - axes.to_x(1)
    assert axes.to_x(1) - axes.to_x(0.5) == pytest.approx(decade_x * 0.30103, rel=1e-4)
    assert "peak, 100 GFLOP/s" in {word.text for word in words_of(picture.svg)}
    assert ">memory, 10 GB/s<" in picture.svg


@pytest.mark.parametrize(
    "points",
    [
        [RooflinePoint("one", 1000, 1e13)],
        [RooflinePoint(f"way {i}", 1 + i / 100, 1e10 * (1 + i / 50)) for i in range(6)],
        POINTS,
    ],
)
def test_no_words_collide(points):
    check_words(roofline_picture(9.9e14, {"HBM": 3.35e12}, points))


@pytest.mark.parametrize(
    ("value", "text"), [(999.6e9, "1 TB/s"), (312e9, "312 GB/s"), (3.35e12, "3.35 TB/s")]
)
def test_rates_are_short(value, text):
    assert f">memory, {text}<" in roofline_picture(1e15, {"memory": value}, POINTS).svg


@pytest.mark.unchecked
def test_bad_values_are_named():
    with pytest.raises(ValueError, match="points and bandwidths must each hold at least one entry"):
        roofline_picture(1e12, {}, POINTS)
    with pytest.raises(ValueError, match=r"bandwidths\['memory'\] must be positive and finite, got 0"):
        roofline_picture(1e12, {"memory": 0}, POINTS)
    with pytest.raises(ValueError, match="decode: flops must be positive and finite, got -1"):
        roofline_picture(1e12, {"memory": 1e10}, [RooflinePoint("decode", 1.0, -1)])
    with pytest.raises(ValueError, match="there is no role"):
        roofline_picture(1e12, {"memory": 1e10}, [RooflinePoint("decode", 1.0, 1.0, "teal")])
