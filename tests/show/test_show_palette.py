"""The colours can be read, and told apart."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from attnlab.show.palette import COLOURS, SEGMENT_COLOURS, colour, contrast, luminance, segment_colour

WORDS = ["ink", "quiet", *(role for role in COLOURS if role.endswith("-text"))]
SEGMENTS = [f"seg{i}" for i in range(1, SEGMENT_COLOURS + 1)]

# Linear RGB as a reader with no working cones of one kind sees it (Machado, Oliveira and Fernandes 2009).
BLINDNESS = {
    "none": np.eye(3),
    "protan": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deutan": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "tritan": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}


def seen_as_lab(value: str, matrix: np.ndarray) -> np.ndarray:
    channels = np.array([int(value[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.asarray(matrix) @ linear, 0, 1)
    to_xyz = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
    xyz = to_xyz @ linear / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_contrast_knows_the_extremes():
    assert luminance("#000000") == 0
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#777777") == 1


def test_the_house_colours_are_those_of_the_design():
    wanted = {
        "dense": "#3b6fb6",
        "edge": "#e8a33d",
        "skip": "#f1f3f5",
        "now": "#c8375b",
        "better": "#2a9d78",
        "ink": "#1b1f24",
        "muted": "#8a929c",
    }
    assert {role: COLOURS[role].light for role in wanted} == wanted


@pytest.mark.parametrize("role", WORDS)
@pytest.mark.parametrize("ground", ["paper", "skip"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_have_contrast_aa(role, ground, theme):
    assert contrast(getattr(COLOURS[role], theme), getattr(COLOURS[ground], theme)) >= 4.5


@pytest.mark.parametrize("role", [*SEGMENTS, "dense", "edge", "better", "now"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_on_a_mark_have_contrast_aa(role, theme):
    assert contrast(getattr(COLOURS[f"on-{role}"], theme), getattr(COLOURS[role], theme)) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", BLINDNESS)
def test_segment_colours_stay_apart_for_a_colour_blind_reader(kind, theme):
    seen = [seen_as_lab(getattr(COLOURS[role], theme), BLINDNESS[kind]) for role in SEGMENTS]
    neighbours = [np.linalg.norm(seen[i] - seen[(i + 1) % len(seen)]) for i in range(len(seen))]
    assert min(neighbours) > 24
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 10


def test_segment_colours_cycle():
    assert [segment_colour(i) for i in (1, 8, 9)] == ["seg1", "seg8", "seg1"]


@pytest.mark.unchecked
def test_unknown_roles_and_ids_are_named():
    with pytest.raises(ValueError, match="no role 'pink'"):
        colour("pink")
    with pytest.raises(ValueError, match="segment_id must be at least 1"):
        segment_colour(0)
