"""One picture of every kind, for the tests that all of them must pass."""

from __future__ import annotations

from functools import cache

import numpy as np

from attnlab.masks import causal, sliding_window
from attnlab.show import (
    Curve,
    Frame,
    Picture,
    RooflinePoint,
    Svg,
    address_picture,
    beside,
    capacity_picture,
    curve_figure,
    explore,
    mask_picture,
    merge_picture,
    replay,
    ring_explorer_picture,
    ring_replay,
    roofline_picture,
    schedule_explorer_picture,
    segment_picture,
    stack,
    tile_picture,
    two_level_explorer_picture,
)
from attnlab.tiles import tile_map

IDS = np.repeat([1, 2, 0, 3, 4, 0, 5, 0], [7, 4, 2, 9, 5, 1, 3, 1]).astype(np.int32)
SEQLENS = np.array([7, 4, 9, 5, 3], np.int32)
OFFSETS = np.array([0, 7, 13, 22, 28, -1], np.int32)


def packed_mask() -> np.ndarray:
    return (IDS[:, None] == IDS) & (IDS[:, None] > 0) & np.tri(32, dtype=bool)


def fail(x: int = 1) -> Picture:
    raise ValueError(f"x must not be {x} < 2 & more")


@cache
def pictures() -> dict[str, Picture]:
    tiles = tile_map(causal() & sliding_window(768), 2048, 2048, 128)
    mask = mask_picture(packed_mask(), segment_ids_q=IDS, highlight_row=17)
    tile = tile_picture(tiles, title="Tiles")
    curves = curve_figure(
        [
            Curve("mask", [1024, 4096, 16384], [4 * 2.0**20, 2.0**26, 2.0**30], "muted"),
            Curve("tree", [1024, 4096, 16384], [8000, 9000, 12000], "better", points=True),
        ],
        title="Memory",
        sentence="The tree stays small.",
        x_label="tokens",
        y_label="scratch",
        x_unit="tokens",
        y_unit="bytes",
        log_x=True,
        log_y=True,
    )
    overlay = Svg(10, 10)
    overlay.rect(0, 0, 5, 5, stroke="now")
    return {
        "mask": mask,
        "mask in squares": mask_picture(np.tri(2048, dtype=bool)),
        "tiles": tile,
        "many tiles": tile_picture(tile_map(causal() & sliding_window(2000), 16384, 16384, 128)),
        "segments": segment_picture(IDS, SEQLENS, OFFSETS),
        "segments, invalid": segment_picture(IDS, SEQLENS, OFFSETS, invalid=True),
        "segments, long": segment_picture(
            np.repeat(np.arange(17), 500), np.full(16, 500), np.arange(17) * 500
        ),
        "segments, many": segment_picture(
            np.repeat(np.arange(1, 1001), 40), np.full(1000, 40), np.arange(1001) * 40
        ),
        "curves": curves.picture(),
        "curves with a cursor": curves.with_cursor(4096),
        "beside": beside(mask, curves.picture(), title="Two", sentence="Side by side."),
        "stack": stack(segment_picture(IDS, SEQLENS, OFFSETS, panel=True), tile),
        "ring": ring_explorer_picture(),
        "ring, a step": ring_replay(padded={28}).frame(-1),
        "ring too small": capacity_picture(12),
        "schedule": schedule_explorer_picture(),
        "two levels": two_level_explorer_picture(),
        "merge": merge_picture(77),
        "addresses": address_picture({"one": [(0, 64)], "two": [(96, 128), (0, 32)]}, total_bytes=128),
        "roofline": roofline_picture(1e12, {"memory": 1e10}, [RooflinePoint("a way", 2.0, 1e10)]),
        "a message": explore(fail, x=(1, 3)).picture,
        "a step": replay(tile_picture(tiles, title=None), [Frame(overlay.inner(), "One.")], "Steps").picture,
    }


NAMES = (
    "mask",
    "mask in squares",
    "tiles",
    "many tiles",
    "segments",
    "segments, invalid",
    "segments, long",
    "segments, many",
    "curves",
    "curves with a cursor",
    "beside",
    "stack",
    "ring",
    "ring, a step",
    "ring too small",
    "schedule",
    "two levels",
    "merge",
    "addresses",
    "roofline",
    "a message",
    "a step",
)
COMPOSED = ("beside", "stack")
