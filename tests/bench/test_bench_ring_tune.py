"""Tuning keeps only what beats the default, and its winners count only on the machine they were found on."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
import torch

from attnlab.bench import ring_tune as tune
from attnlab.bench.record import read_record
from attnlab.bench.rows import TIME, Row
from attnlab.ring import strided, tiled, tuned
from attnlab.ring.reference import sliding_window_attention as reference

FORWARD = tune.Setting("forward", 256, 64)
BACKWARD = tune.Setting("backward", 1024, 64)
TILED = tune.Setting("tiled", 256, 64)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache directory of the test's own."""
    place = tmp_path / "cache" / "attnlab"
    monkeypatch.setattr(tuned, "folder", lambda: place)
    tuned.forget_loaded()
    yield place
    tuned.forget_loaded()


def timed(setting, **seconds):
    """Rows as `tune` makes them, with the same seconds in each of three rounds."""
    return [
        Row(
            "ring",
            "tune",
            name.replace("_", ", "),
            TIME,
            "s",
            float(s),
            setting.params,
            samples=[float(s)] * 3,
        )
        for name, s in seconds.items()
    ]


ROWS = [
    *timed(FORWARD, **{"default": 1.0, "32": 0.99, "64": 0.5, "128": 0.7}),
    *timed(BACKWARD, **{"default": 1.0, "32": 0.99}),
    *timed(TILED, **{"default": 1.0, "128_k-major": 0.25}),
]


def test_a_candidate_wins_only_where_it_clearly_beats_the_default():
    forward, backward, tiles = tune.outcome(ROWS)
    assert (forward.setting, forward.size, forward.order, forward.gain) == (FORWARD, 64, None, 2.0)
    assert (backward.setting, backward.winner, backward.size) == (BACKWARD, "default", None)
    assert (tiles.size, tiles.order, tiles.gain) == (128, "k", 4.0)


def test_the_ratio_is_paired_round_by_round():
    default, other = timed(FORWARD, **{"default": 1.0, "64": 1.0})
    rows = [
        # The machine slowed down tenfold half way; in each round the candidate took half as long.
        Row(**{**vars(default), "samples": [1.0, 10.0, 10.0]}),
        Row(**{**vars(other), "samples": [0.5, 5.0, 5.0]}),
    ]
    assert tune.outcome(rows)[0].gain == 2.0


def test_the_table_has_a_line_for_each_candidate_and_marks_the_winners():
    header, *lines = tune.table(ROWS).splitlines()
    assert header.split()[:5] == ["path", "W", "D", "dtype", "candidate"]
    assert len(lines) == len(ROWS)
    won = [line.split() for line in lines if line.endswith("winner")]
    assert [(words[0], words[4]) for words in won] == [
        ("forward", "64"),
        ("backward", "default"),
        ("tiled", "128,"),
    ]
    assert won[0][-2:] == ["2.00x", "winner"]


def test_winners_are_kept_with_their_record_and_looked_up(folder):
    assert tuned.tuned_block(256, 64, torch.float32) is None
    assert tune.save(ROWS, "attnlab tune ring") == folder
    assert tuned.tuned_block(256, 64, torch.float32) == 64
    assert tuned.tuned_block(256, 64, "float32", kind="forward") == 64
    assert tuned.tuned_tiles(256, 64, torch.float32) == (128, "k")
    # Where the default won, there is nothing to look up.
    assert tuned.tuned_block(1024, 64, torch.float32, kind="backward") is None
    record = read_record(folder / tuned.RECORD)
    assert record.command == "attnlab tune ring"
    assert record.rows == ROWS
    assert record.environment["packages"]["torch"] == tuned.machine()["torch"]


@pytest.mark.parametrize(
    ("window", "head_dim", "dtype", "found"),
    [
        (128, 64, "float32", 64),
        (512, 64, "float32", 64),
        (127, 64, "float32", None),
        (513, 64, "float32", None),
        (256, 128, "float32", None),
        (256, 64, "bfloat16", None),
    ],
)
def test_a_winner_serves_windows_near_its_own(window, head_dim, dtype, found):
    tune.save(ROWS, "attnlab tune ring")
    assert tuned.tuned_block(window, head_dim, dtype) == found


def test_winners_of_another_machine_or_version_are_ignored(folder):
    tune.save(ROWS, "attnlab tune ring")
    path = folder / tuned.WINNERS
    content = json.loads(path.read_text())
    for name in content["machine"]:
        other = {**content, "machine": {**content["machine"], name: "another"}}
        path.write_text(json.dumps(other))
        tuned.forget_loaded()
        assert tuned.tuned_block(256, 64, torch.float32) is None, name
    path.write_text(json.dumps(content))
    tuned.forget_loaded()
    assert tuned.tuned_block(256, 64, torch.float32) == 64


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"schema": 1', '"schema": 99'),
        lambda text: text.replace('"size": 64', '"size": -64'),
        lambda text: text.replace('"size": 64', '"size": "64"'),
        lambda text: text.replace('"order": "k"', '"order": "z"'),
        lambda text: text.replace('"winners"', '"losers"'),
    ],
)
def test_a_spoilt_file_is_as_good_as_none(folder, spoil):
    tune.save(ROWS, "attnlab tune ring")
    path = folder / tuned.WINNERS
    path.write_text(spoil(path.read_text()))
    tuned.forget_loaded()
    assert tuned.tuned_block(256, 64, torch.float32) is None
    assert tuned.tuned_tiles(256, 64, torch.float32) is None


def test_the_file_is_read_once(folder):
    tune.save(ROWS, "attnlab tune ring")
    assert tuned.tuned_block(256, 64, torch.float32) == 64
    (folder / tuned.WINNERS).unlink()
    assert tuned.tuned_block(256, 64, torch.float32) == 64
    with tuned.ignored():
        assert tuned.tuned_block(256, 64, torch.float32) is None
    assert tuned.tuned_block(256, 64, torch.float32) == 64


def test_forget_removes_both_files(folder):
    tune.save(ROWS, "attnlab tune ring")
    assert tune.forget() is True
    assert list(folder.iterdir()) == []
    assert tuned.tuned_block(256, 64, torch.float32) is None
    assert tune.forget() is False


@pytest.mark.unchecked
def test_another_kind_is_refused():
    with pytest.raises(ValueError, match="kind must be 'forward' or 'backward', got 'sideways'"):
        tuned.tuned_block(256, 64, torch.float32, kind="sideways")


def test_looking_up_loads_no_framework(checkout):
    code = (
        "import sys; import attnlab.ring.tuned;"
        "print(sorted({'torch', 'jax', 'numpy', 'attnlab.bench'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_every_candidate_is_measured_in_every_kind():
    chosen = [tune.Setting(kind, 16, 8) for kind in ("forward", "backward", "tiled")]
    err = io.StringIO()
    rows = tune.tune(quick=True, chosen=chosen, err=err)
    for setting in chosen:
        names = [row.variant for row in rows if row.params == setting.params]
        assert names == [label for label, _, _ in tune.candidates(setting, True)]
        assert names[0] == "default"
    assert "[3/3] tiled, W = 16, D = 8" in err.getvalue()
    assert [o.setting for o in tune.outcome(rows)] == chosen


def test_what_is_timed_is_the_pass_that_is_named():
    """The forward pass gives the output and records no graph; the backward pass gives three gradients."""
    out = tune._call(tune.Setting("forward", 16, 8), 32, tune.TileOrder.Q_MAJOR)()
    assert not out.requires_grad
    again = tune._call(tune.Setting("tiled", 32, 8), 32, tune.TileOrder.K_MAJOR)()
    assert out.shape == again.shape == (1, tune.HEADS, 64, 8)
    gradients = tune._call(tune.Setting("backward", 16, 8), 32, tune.TileOrder.Q_MAJOR)
    first, second = gradients(), gradients()
    assert [x.shape for x in first] == [out.shape] * 3
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("size", tune.BLOCKS)
def test_every_candidate_is_a_size_that_its_path_takes(size):
    q, k, v = (torch.randn(1, 2, 200, 8) for _ in range(3))
    want = reference(q, k, v, window=48)
    torch.testing.assert_close(
        strided.sliding_window_attention(q, k, v, window=48, block_size=size), want.to(q.dtype)
    )
    if size in tune.TILES:
        torch.testing.assert_close(
            tiled.sliding_window_attention(q, k, v, window=48, tile_size=size), want.to(q.dtype)
        )
