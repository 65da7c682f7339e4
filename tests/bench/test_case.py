from __future__ import annotations

import statistics

import pytest
from bench import toyroom

from attnlab.bench.case import QUICK_REPEATS, REPEATS, WARMUP, Case, Report, load, techniques
from attnlab.bench.memory import Peak, XlaMemory
from attnlab.bench.rows import PEAK, TIME, XLA_FLOPS, XLA_TEMP


def test_a_technique_is_a_room_with_a_module_of_its_name(tmp_path, monkeypatch):
    toyroom.add(tmp_path, monkeypatch, "toy_measured", toyroom.TOY)
    toyroom.add(tmp_path, monkeypatch, "toy_unmeasured")
    (tmp_path / "measured" / "toy_helper.py").write_text("")
    found = techniques()
    assert "toy_measured" in found
    # Neither a room without measurements, nor a module of the framework, nor one without a room.
    assert not {"toy_unmeasured", "toy_helper", "timing", "memory", "bench"} & set(found)
    assert found == sorted(found)


def test_load_imports_the_module(tmp_path, monkeypatch):
    toyroom.add(tmp_path, monkeypatch, "toy_loaded", toyroom.TOY)
    module = load("toy_loaded")
    assert [case.name for case in module.cases(quick=False)] == ["size 8", "size 16"]
    assert [case.name for case in module.cases(quick=True)] == ["size 8"]


@pytest.mark.unchecked
def test_load_names_what_is_known_and_what_is_missing(tmp_path, monkeypatch):
    toyroom.add(tmp_path, monkeypatch, "toy_empty", "def cases(quick):\n    return []\n")
    with pytest.raises(ValueError, match="technique: got 'flash', expected one of .*toy_empty"):
        load("flash")
    with pytest.raises(TypeError, match=r"attnlab\.bench\.toy_empty has no function targets\(\)"):
        load("toy_empty")


def test_time_appends_a_row_for_each_variant():
    report = Report("room", "case", quick=False)
    timing = report.time({"a": lambda: 1, "b": lambda: 2}, params={"T": 8}, baseline="a", min_sample=1e-6)
    a, b = report.rows
    assert (a.technique, a.case, a.variant, a.metric, a.unit) == ("room", "case", "a", TIME, "s")
    assert a.params == b.params == {"T": 8}
    assert (a.baseline, b.baseline) == (None, "a")
    assert len(a.samples) == len(b.samples) == REPEATS
    assert b.samples == timing.samples["b"]
    assert b.value == statistics.median(b.samples)
    assert b.loops == timing.loops["b"]
    assert timing.warmup == WARMUP


def test_a_quick_run_takes_fewer_rounds_and_a_case_may_choose():
    report = Report("room", "case", quick=True)
    report.time({"a": lambda: 1}, min_sample=1e-6)
    report.time({"b": lambda: 1}, repeats=2, min_sample=1e-6)
    assert [len(row.samples) for row in report.rows] == [QUICK_REPEATS, 2]


def test_memory_rows_carry_the_formula():
    report = Report("room", "case", quick=False)
    row = report.peak("a", Peak(peak_bytes=96, kept_bytes=32), params={"T": 8}, formula=96, baseline="b")
    assert (row.metric, row.unit, row.value, row.formula, row.baseline) == (PEAK, "B", 96, 96, "b")
    report.xla("a", XlaMemory(7, 8, 9, 10.0, 11.0), temp_formula=7, flops_formula=12)
    assert [(r.metric, r.unit, r.value, r.formula) for r in report.rows[1:]] == [
        (XLA_TEMP, "B", 7, 7),
        (XLA_FLOPS, "FLOP", 10.0, 12),
    ]


def test_a_backend_that_counts_no_flops_gives_no_such_row():
    report = Report("room", "case", quick=False)
    report.xla("a", XlaMemory(7, 8, 9, None, None))
    assert [row.metric for row in report.rows] == [XLA_TEMP]


@pytest.mark.unchecked
def test_reports_refuse_what_would_be_ambiguous_or_is_no_number():
    report = Report("room", "case", quick=False)
    report.add("a", "bytes", 1, "B", params={"T": 8})
    report.add("a", "bytes", 1, "B", params={"T": 9})
    with pytest.raises(ValueError, match="'bytes' of 'a' at {'T': 8} was reported twice"):
        report.add("a", "bytes", 2, "B", params={"T": 8})
    with pytest.raises(ValueError, match="value: got nan for 'bytes' of 'b'"):
        report.add("b", "bytes", float("nan"), "B")
    with pytest.raises(ValueError, match="baseline: got 'c', expected one of 'a'"):
        report.time({"a": lambda: 1}, baseline="c")
    assert len(report.rows) == 2


def test_the_callers_params_are_copied():
    report = Report("room", "case", quick=False)
    params = {"T": 8}
    report.add("a", "bytes", 1, "B", params=params)
    params["T"] = 9
    assert report.rows[0].params == {"T": 8}


def test_a_case_runs_its_function_on_the_report():
    report = Report("room", "one", quick=False)
    Case("one", lambda r: r.add("a", "count", 3, "")).run(report)
    assert report.rows[0].value == 3
