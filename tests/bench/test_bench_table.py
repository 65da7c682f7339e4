from __future__ import annotations

import pytest

from attnlab.bench.rows import Row, at_least, at_most
from attnlab.bench.table import align, rows_table, targets_table


def test_align_pads_to_the_widest_and_leaves_no_trailing_space():
    text = align(["name", "value"], [["a", "1"], ["longer", "100"]], right=["value"])
    assert text == "name    value\na           1\nlonger    100"


@pytest.mark.unchecked
def test_align_refuses_ragged_lines():
    with pytest.raises(ValueError, match="got 1 cells"):
        align(["a", "b"], [["1"]])


def test_rows_table():
    rows = [
        Row("r", "c", "dense", "time", "s", 2e-3, {"T": 4096, "kind": "causal"}, [1e-3, 2e-3, 3e-3]),
        Row("r", "c", "fast", "time", "s", 5e-4, {"T": 4096, "kind": "causal"}, [5e-4] * 3, baseline="dense"),
        Row("r", "c", "dense", "bytes", "B", 64e6, {"T": 4096}, formula=64e6),
        Row("r", "c", "fast", "bytes", "B", 32e3, {"T": 4096}, formula=30e3, baseline="dense"),
    ]
    assert rows_table(rows).splitlines() == [
        "    T    kind  variant  metric    value   spread  by formula  against the baseline",
        "4,096  causal  dense    time    2.00 ms  1.00 ms",
        "4,096  causal  fast     time     500 us      0 s              4.00x faster than dense",
        "4,096          dense    bytes   64.0 MB              64.0 MB",
        "4,096          fast     bytes   32.0 KB              30.0 KB  2,000x less than dense",
    ]


def test_columns_that_would_be_empty_are_left_out():
    table = rows_table([Row("r", "c", "only", "count", "tiles", 91)])
    assert table.splitlines() == ["variant  metric     value", "only     count   91 tiles"]


def test_targets_table_says_each_outcome():
    targets = [
        at_most("temporaries", 28_000, 30e3, "B"),
        at_least("speed", 4.2, 6, "x", "six times as fast"),
        at_most("growth", None, 8, "x"),
    ]
    assert targets_table(targets).splitlines() == [
        "target                promised  measured",
        "temporaries         <= 30.0 KB   28.0 KB  met",
        "speed        six times as fast     4.20x  not met",
        "growth                <= 8.00x            not measured in this run",
    ]
