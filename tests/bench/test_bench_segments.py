"""The segments benchmark reports every way, and reads its targets off the right rows."""

import pytest

from attnlab.bench import segments as bench
from attnlab.bench.case import Report
from attnlab.bench.rows import TIME, XLA_FLOPS, XLA_TEMP, Row
from attnlab.segments.reference import seqlens_and_offsets

WAYS = [bench.MASK_WAY, bench.COMPACTION, bench.COUNTING, bench.ONE_HOT, bench.TREE]


def test_the_measured_pair_is_valid_and_differs_on_its_two_sides():
    pair = bench.packed_pair(512, 8)
    layout = seqlens_and_offsets(*pair, mask="causal", max_segments=8)
    assert layout.valid.all()
    assert (pair[0] != pair[1]).any()
    assert (pair[0] == 0).sum() == 512 // 16


def test_every_way_is_planned_with_its_formula():
    report = Report("segments", "plan", quick=True)
    bench.plan(report, tokens=2048, segments=4)
    temps = {row.variant: row for row in report.rows if row.metric == XLA_TEMP}
    assert list(temps) == WAYS
    assert temps[bench.MASK_WAY].value >= temps[bench.MASK_WAY].formula == 4 * 2048**2
    assert temps[bench.ONE_HOT].value >= temps[bench.ONE_HOT].formula == 8 * 2048 * 4
    assert temps[bench.TREE].value < temps[bench.COUNTING].value


def test_every_way_is_timed_beside_the_floor():
    report = Report("segments", "time", quick=True)
    bench.time_ways(report, tokens=1024, segments=4)
    timed = [row.variant for row in report.rows if row.metric == TIME]
    assert timed == [*WAYS, bench.FLOOR, bench.NUMPY, bench.TORCH]


def row(case, variant, metric, value, tokens, segments):
    return Row("segments", case, variant, metric, "B", float(value), {"T": tokens, "S": segments})


def test_targets_are_read_off_their_own_rows():
    plan = "planned, over segments"
    rows = [
        row(plan, bench.TREE, XLA_TEMP, 20_000, bench.LONG, 16),
        row(plan, bench.TREE, XLA_FLOPS, 2_000_000, bench.LONG, 16),
        row("planned, over row length", bench.TREE, XLA_TEMP, 150_000, bench.LONGEST, 16),
        row("time, T = 131,072, S = 16", bench.TREE, TIME, 1.0, bench.LONG, 16),
        row("time, T = 131,072, S = 16", bench.ONE_HOT, TIME, 7.0, bench.LONG, 16),
        row("near the read floor", bench.TREE, TIME, 12.0, bench.LONG, 1024),
        row("near the read floor", bench.FLOOR, TIME, 2.0, bench.LONG, 1024),
    ]
    targets = {target.name: target for target in bench.targets(rows)}
    assert targets["XLA temporaries, T = 128k, S = 16"].met is True
    assert targets["XLA FLOPs, T = 128k, S = 16"].met is False
    assert targets["growth of temporaries, 128k to 1M, S = 16"].measured == pytest.approx(7.5)
    assert targets["faster than one-hot, T = 128k, S = 16"].measured == pytest.approx(7.0)
    assert targets["distance to the read floor, T = 128k, S = 1024"].measured == pytest.approx(6.0)
    assert targets["distance to the read floor, T = 128k, S = 16"].met is None


def test_cases_have_names_of_their_own():
    for quick in (True, False):
        names = [case.name for case in bench.cases(quick)]
        assert len(set(names)) == len(names)
