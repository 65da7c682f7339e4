from __future__ import annotations

import io

import pytest
from bench import toyroom

from attnlab.bench.case import WARMUP
from attnlab.bench.record import read_record, write_record
from attnlab.bench.runner import run

BROKEN = """
    from attnlab.bench.case import Case
    from attnlab.bench.rows import at_most

    def good(report):
        report.add("a", "count", 3, "tiles")

    def bad(report):
        report.add("a", "count", 4, "tiles")
        raise RuntimeError("the device is gone")

    def silent(report):
        pass

    def cases(quick):
        return [Case("bad", bad), Case("silent", silent), Case("good", good)]

    def targets(rows):
        return [at_most("count", rows[0].value, 2, "")]
"""


@pytest.fixture
def streams():
    return io.StringIO(), io.StringIO()


def test_a_run_prints_tables_by_case_and_targets(tmp_path, monkeypatch, streams):
    toyroom.add(tmp_path, monkeypatch, "toy_run", toyroom.TOY)
    out, err = streams
    result = run(["toy_run"], out=out, err=err)
    assert result.failures == []
    assert [row.case for row in result.rows] == ["size 8"] * 4 + ["size 16"] * 4
    first, second, targets = out.getvalue().strip().split("\n\n")
    assert first.splitlines()[0] == "toy_run / size 8"
    assert second.splitlines()[0] == "toy_run / size 16"
    assert "faster than slow" in first
    assert "1.02 KB" in second and "16.0x less than slow" in second
    assert targets.splitlines()[0] == "Targets"
    assert targets.splitlines()[-1].split() == ["bytes", "at", "16", "<=", "64", "B", "64", "B", "met"]
    assert [line.split(":")[0] for line in err.getvalue().splitlines()] == [
        "[1/2] toy_run / size 8",
        "[2/2] toy_run / size 16",
    ]


def test_a_quick_run_says_so_to_the_cases(tmp_path, monkeypatch, streams):
    toyroom.add(tmp_path, monkeypatch, "toy_quick", toyroom.TOY)
    out, err = streams
    result = run(["toy_quick"], quick=True, out=out, err=err)
    assert {row.params["quick"] for row in result.rows} == {True}
    assert [target.met for target in result.targets] == [None]
    assert "not measured in this run" in out.getvalue()


def test_a_failing_case_is_reported_and_the_rest_runs(tmp_path, monkeypatch, streams):
    toyroom.add(tmp_path, monkeypatch, "toy_broken", BROKEN)
    toyroom.add(tmp_path, monkeypatch, "toy_fine", toyroom.TOY)
    out, err = streams
    result = run(["toy_broken", "toy_fine"], quick=True, out=out, err=err)
    assert [failure.name for failure in result.failures] == ["toy_broken / bad", "toy_broken / silent"]
    # Nothing of a case that failed half way is kept.
    assert [(row.technique, row.case) for row in result.rows[:2]] == [
        ("toy_broken", "good"),
        ("toy_fine", "size 8"),
    ]
    assert result.targets[0].measured == 3
    assert "Not measured: 2\n  toy_broken / bad: RuntimeError: the device is gone\n" in out.getvalue()
    assert "the case reported no rows" in out.getvalue()
    assert "Traceback" in err.getvalue() and "the device is gone" in err.getvalue()


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (
            "import no_such_framework\n",
            "toy_{}: its cases could not be loaded",
            "No module named 'no_such_framework'",
        ),
        (
            "from attnlab.bench.case import Case\ndef cases(quick): return [Case('x', print)] * 2\n"
            "def targets(rows): return []\n",
            "toy_{}: its cases could not be loaded",
            "the names ['x'] occur more than once",
        ),
        (
            "from attnlab.bench.case import Case\n"
            "def cases(quick): return [Case('x', lambda r: r.add('a', 'n', 1, ''))]\n"
            "def targets(rows): return rows[7].value\n",
            "toy_{}: its targets could not be judged",
            "list index out of range",
        ),
    ],
    ids=["import", "names", "targets"],
)
def test_a_failing_technique_is_reported(tmp_path, monkeypatch, streams, request, source, name, message):
    technique = request.node.callspec.id
    toyroom.add(tmp_path, monkeypatch, f"toy_{technique}", source)
    toyroom.add(tmp_path, monkeypatch, "toy_after", toyroom.TOY)
    out, err = streams
    result = run([f"toy_{technique}", "toy_after"], quick=True, out=out, err=err)
    assert [failure.name for failure in result.failures] == [name.format(technique)]
    assert message in str(result.failures[0].error)
    assert any(row.technique == "toy_after" for row in result.rows)


def test_a_run_becomes_a_record_that_can_be_read_back(tmp_path, monkeypatch, streams):
    toyroom.add(tmp_path, monkeypatch, "toy_record", toyroom.TOY)
    out, err = streams
    result = run(["toy_record"], out=out, err=err)
    record = result.record("attnlab bench toy_record")
    write_record(record, tmp_path / "run.json")
    again = read_record(tmp_path / "run.json")
    assert again == record
    assert again.warmup == WARMUP
    assert again.environment["cpu"]["cores_usable"] >= 1
    assert again.rows == result.rows
