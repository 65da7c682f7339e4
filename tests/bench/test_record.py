from __future__ import annotations

import dataclasses
import json
import pickle
from datetime import UTC, datetime

import pytest

from attnlab.bench import record as records
from attnlab.bench.record import Record, RecordError, load_records, new_record, read_record, write_record
from attnlab.bench.rows import Row, Target, at_least, at_most

ENVIRONMENT = {
    "cpu": {"model": "Example", "cores_usable": 2},
    "memory_bytes": None,
    "os": "Example",
    "python": "CPython 3.11.0",
    "packages": {"numpy": "2.4.0"},
    "threads": {},
    "gpus": [],
    "commit": None,
}


def example() -> Record:
    rows = [
        Row("segments", "lengths", "mask", "time", "s", 0.2, {"T": 8, "kind": "causal"}, [0.1, 0.2, 0.3], 4),
        Row("segments", "lengths", "mask", "peak memory", "B", 64, {"T": 8}, formula=64, baseline="fast"),
    ]
    targets = [at_most("bytes", 64, 30e3, "B"), at_least("speed", None, 6, "x", "six times")]
    return new_record("attnlab bench segments", ENVIRONMENT, 3, rows, targets)


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "run.json"
    write_record(example(), path)
    return path


def altered(path, change):
    """Apply a change to the parsed file and write it back, digest untouched."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


def resealed(path, change):
    """Apply a change and put the right digest on it, so that only the checks of the content can object."""
    content = json.loads(path.read_text())
    content.pop("sha256")
    change(content)
    content["sha256"] = records._digest(content)
    path.write_text(json.dumps(content))
    return path


def test_round_trip(tmp_path):
    before = example()
    path = tmp_path / "run.json"
    write_record(before, path)
    assert read_record(path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]


def test_created_is_utc():
    made = datetime.fromisoformat(example().created)
    assert made.tzinfo == UTC
    assert abs((datetime.now(UTC) - made).total_seconds()) < 3600


def test_the_file_says_whether_targets_were_met(written):
    targets = json.loads(written.read_text())["targets"]
    assert [target["met"] for target in targets] == [True, None]


def test_indentation_and_line_ends_do_not_matter(written):
    before = read_record(written)
    content = json.loads(written.read_text())
    written.write_bytes(json.dumps(content, indent=4).replace("\n", "\r\n").encode())
    assert read_record(written) == before


def test_every_truncation_is_refused(written):
    text = written.read_text()
    for length in range(0, len(text) - 2, 37):
        written.write_text(text[:length])
        with pytest.raises(RecordError, match=r"run\.json: not valid JSON, perhaps cut short"):
            read_record(written)


def test_a_number_changed_by_hand_is_refused(written):
    altered(written, lambda content: content["rows"][1].update(value=32))
    with pytest.raises(RecordError, match="altered"):
        read_record(written)


def test_a_row_taken_out_is_refused(written):
    altered(written, lambda content: content["rows"].pop())
    with pytest.raises(RecordError, match="altered"):
        read_record(written)


def test_a_lost_digest_is_refused(written):
    altered(written, lambda content: content.pop("sha256"))
    with pytest.raises(RecordError, match="sha256"):
        read_record(written)


def setting(*path_and_value):
    *path, value = path_and_value

    def change(content):
        for step in path[:-1]:
            content = content[step]
        content[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (setting("schema", 2), "schema: got 2, expected 1"),
        (setting("created", "yesterday"), "created: got 'yesterday'"),
        (setting("created", "2026-01-31T12:00:00+02:00"), "expected a time in UTC"),
        (setting("created", 12), "created: got 12"),
        (setting("command", ""), "command: got ''"),
        (setting("warmup", -1), "warmup: got -1"),
        (setting("warmup", True), "warmup: got True"),
        (setting("environment", []), "environment: got"),
        (setting("environment", {"cpu": 1}), "environment: 'os' is missing"),
        (setting("rows", {}), "rows: got {}, expected a list"),
        (setting("rows", 0, "value", "64"), r"rows\[0\].value: got '64', expected a finite number"),
        (setting("rows", 1, "value", True), r"rows\[1\].value: got True"),
        (setting("rows", 0, "value", 0.25), r"rows\[0\].value: got 0.25, expected the median of its samples"),
        (setting("rows", 0, "samples", []), r"rows\[0\].samples: got none"),
        (setting("rows", 0, "samples", 1, None), r"rows\[0\].samples\[1\]: got None"),
        (setting("rows", 0, "loops", 0), r"rows\[0\].loops: got 0"),
        (setting("rows", 0, "params", "T", [8]), r"rows\[0\].params.T: got \[8\]"),
        (setting("rows", 0, "variant", ""), r"rows\[0\].variant: got ''"),
        (setting("rows", 0, "unit", None), r"rows\[0\].unit: got None"),
        (setting("rows", 0, "extra", 1), r"rows\[0\] has an unknown 'extra'"),
        (setting("rows", 1, 7), r"rows\[1\]: got 7, expected an object"),
        (lambda content: content["rows"][0].pop("case"), r"rows\[0\] lacks 'case'"),
        (lambda content: content.pop("rows"), "the record lacks 'rows'"),
        (setting("targets", 0, "met", False), r"targets\[0\].met: got False, expected True"),
        (setting("targets", 1, "met", True), r"targets\[1\].met: got True, expected None"),
        (setting("targets", 0, "relation", "<"), r"targets\[0\].relation: got '<'"),
        (setting("targets", 0, "bound", None), r"targets\[0\].bound: got None"),
    ],
)
def test_what_is_wrong_is_named(written, change, message):
    resealed(written, change)
    with pytest.raises(RecordError, match=message):
        read_record(written)


def test_infinity_is_refused_though_python_reads_it(written):
    written.write_text(written.read_text().replace("0.3", "Infinity"))
    with pytest.raises(RecordError, match="Infinity is not a number that JSON has"):
        read_record(written)


@pytest.mark.parametrize("content", [b"[1, 2]", b"null", b'"text"', b"\xff\xfe", pickle.dumps([1])])
def test_what_is_no_record_at_all_is_refused(tmp_path, content):
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"odd\.json"):
        read_record(path)


def test_a_record_that_could_not_be_read_is_not_written(tmp_path):
    path = tmp_path / "run.json"
    path.write_text("what was there before")
    bad = dataclasses.replace(example(), rows=[Row("r", "c", "v", "m", "s", float("nan"))])
    with pytest.raises(RecordError, match=r"rows\[0\].value: got nan"):
        write_record(bad, path)
    with pytest.raises(RecordError, match="not expressible in JSON"):
        write_record(dataclasses.replace(example(), environment={**ENVIRONMENT, "gpus": {1, 2}}), path)
    assert path.read_text() == "what was there before"
    assert list(tmp_path.iterdir()) == [path]


def test_load_records_reads_a_folder_in_order(tmp_path):
    write_record(example(), tmp_path / "b.json")
    write_record(example(), tmp_path / "a.json")
    (tmp_path / "README.md").write_text("how they were made")
    assert list(load_records(tmp_path)) == ["a", "b"]
    (tmp_path / "c.json").write_text("{")
    with pytest.raises(RecordError, match=r"c\.json"):
        load_records(tmp_path)


def test_load_records_of_an_empty_and_of_a_missing_folder(tmp_path):
    assert load_records(tmp_path) == {}
    with pytest.raises(FileNotFoundError, match="'nowhere' does not exist"):
        load_records(tmp_path / "nowhere")


def test_targets_are_met_up_to_and_including_the_bound():
    assert at_most("m", 5, 5, "B").met is True
    assert at_most("m", 6, 5, "B").met is False
    assert at_least("m", 5, 5, "x").met is True
    assert at_least("m", 4, 5, "x").met is False
    assert Target("m", "<=", 5, "B", None).met is None


@pytest.mark.unchecked
def test_targets_refuse_what_cannot_be_compared():
    with pytest.raises(ValueError, match="bound: got inf"):
        at_most("m", 5, float("inf"), "B")
    with pytest.raises(ValueError, match="measured: got nan"):
        at_least("m", float("nan"), 5, "x")
