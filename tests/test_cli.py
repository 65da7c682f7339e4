from __future__ import annotations

import json
import subprocess
import sys
import types

import pytest
from bench import toyroom

import attnlab
from attnlab import __main__ as cli
from attnlab import doctor
from attnlab.bench.record import read_record


def attnlab_command(checkout, *words):
    return subprocess.run(
        [sys.executable, "-m", "attnlab", *words], cwd=checkout, capture_output=True, text=True, timeout=300
    )


def test_version(checkout):
    done = attnlab_command(checkout, "--version")
    assert (done.returncode, done.stdout) == (0, f"attnlab {attnlab.__version__}\n")


def test_no_command_shows_the_usage(checkout):
    done = attnlab_command(checkout)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: attnlab")


def test_the_commands_that_only_look_load_no_framework(checkout):
    code = (
        "import sys; from attnlab.__main__ import main; main(['bench', '--list']);"
        "main(['bench', 'no_such_room']);"
        "print(sorted({'torch', 'jax', 'numpy', 'matplotlib', 'jupyterlab'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_doctor_prints_text_or_json(monkeypatch, capsys):
    asked = []

    def checks(*, full):
        asked.append(full)
        return [doctor.Check("Python", "ok", "3.11")]

    monkeypatch.setattr(doctor, "checks", checks)
    assert cli.main(["doctor"]) == 0
    assert capsys.readouterr().out.startswith("Python  ok  3.11\n")
    assert cli.main(["doctor", "--full", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "Python"
    assert asked == [False, True]


def test_list_names_the_techniques(tmp_path, monkeypatch, capsys):
    toyroom.add(tmp_path, monkeypatch, "toy_listed", toyroom.TOY)
    assert cli.main(["bench", "--list"]) == 0
    assert "toy_listed" in capsys.readouterr().out.split()


def test_an_unknown_technique_is_refused_with_those_known(tmp_path, monkeypatch, capsys):
    toyroom.add(tmp_path, monkeypatch, "toy_known", toyroom.TOY)
    assert cli.main(["bench", "toy_known", "flash"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("attnlab: unknown technique 'flash'; known are ")
    assert "toy_known" in said.err
    assert said.out == ""


def test_bench_writes_a_record_of_what_was_run(tmp_path, monkeypatch, capsys):
    toyroom.add(tmp_path, monkeypatch, "toy_written", toyroom.TOY)
    path = tmp_path / "run.json"
    assert cli.main(["bench", "toy_written", "toy_written", "--quick", "--json", str(path)]) == 0
    record = read_record(path)
    assert record.command == "attnlab bench toy_written --quick"
    assert [row.variant for row in record.rows] == ["slow", "fast"] * 2
    assert str(tmp_path) not in path.read_text()
    assert "toy_written / size 8" in capsys.readouterr().out


def test_bench_measures_everything_where_nothing_is_named(tmp_path, monkeypatch, capsys):
    from attnlab.bench import case

    toyroom.add(tmp_path, monkeypatch, "toy_first", toyroom.TOY)
    toyroom.add(tmp_path, monkeypatch, "toy_second", toyroom.TOY)
    monkeypatch.setattr(case, "techniques", lambda: ["toy_first", "toy_second"])
    assert cli.main(["bench", "--quick"]) == 0
    said = capsys.readouterr().out
    assert said.index("toy_first / size 8") < said.index("toy_second / size 8")


def test_a_failing_case_makes_the_status_1_and_the_record_is_still_written(tmp_path, monkeypatch, capsys):
    source = toyroom.TOY.replace("report.add", "raise RuntimeError('out of memory'); report.add", 1)
    toyroom.add(tmp_path, monkeypatch, "toy_failing", source)
    path = tmp_path / "run.json"
    assert cli.main(["bench", "toy_failing", "--quick", "--json", str(path)]) == 1
    assert "out of memory" in capsys.readouterr().out
    record = read_record(path)
    assert record.rows == []
    assert [target.met for target in record.targets] == [None]


def test_an_impossible_path_is_refused_before_the_run(tmp_path, monkeypatch, capsys):
    toyroom.add(tmp_path, monkeypatch, "toy_path", toyroom.TOY)
    for path in (tmp_path, tmp_path / "nowhere" / "run.json"):
        assert cli.main(["bench", "toy_path", "--json", str(path)]) == 2
        said = capsys.readouterr()
        assert "--json" in said.err
        assert said.out == ""


def test_nothing_to_measure_is_said(monkeypatch, capsys):
    from attnlab.bench import case

    monkeypatch.setattr(case, "techniques", list)
    assert cli.main(["bench"]) == 2
    assert "there is nothing to measure" in capsys.readouterr().err
    assert cli.main(["bench", "flash"]) == 2
    assert "(none yet)" in capsys.readouterr().err


@pytest.fixture
def tuned_folder(tmp_path, monkeypatch):
    """A cache directory of the test's own, and measurements that take no time."""
    from attnlab.bench import ring_tune as tune
    from attnlab.bench.rows import TIME, Row
    from attnlab.ring import tuned

    asked = []

    def measured(*, quick):
        asked.append(quick)
        params = tune.Setting("forward", 256, 64).params
        return [
            Row("ring", "tune", name, TIME, "s", seconds, params, samples=[seconds] * 3)
            for name, seconds in (("default", 1.0), ("64", 0.5))
        ]

    monkeypatch.setattr(tuned, "folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(tune, "tune", measured)
    tuned.forget_loaded()
    yield tmp_path / "cache", asked
    tuned.forget_loaded()


def test_tune_prints_keeps_and_writes_the_winner(tuned_folder, tmp_path, capsys):
    from attnlab.ring.tuned import tuned_block

    folder, asked = tuned_folder
    path = tmp_path / "run.json"
    assert cli.main(["tune", "ring", "--quick", "--json", str(path)]) == 0
    said = capsys.readouterr().out
    assert "2.00x  winner" in said
    assert f"Kept in {folder}." in said
    assert asked == [True]
    assert tuned_block(256, 64, "float32") == 64
    record = read_record(path)
    assert record.command == "attnlab tune ring --quick"
    assert record == read_record(folder / "ring-tuning-record.json")


def test_tune_forgets_without_measuring(tuned_folder, capsys):
    folder, asked = tuned_folder
    cli.main(["tune", "ring"])
    assert cli.main(["tune", "ring", "--forget"]) == 0
    assert capsys.readouterr().out.endswith("The winners are forgotten.\n")
    assert list(folder.iterdir()) == []
    assert cli.main(["tune", "ring", "--forget"]) == 0
    assert capsys.readouterr().out == "There were no winners to forget.\n"
    assert asked == [False]


def test_tune_refuses_an_impossible_path_before_it_measures(tuned_folder, tmp_path, capsys):
    _, asked = tuned_folder
    assert cli.main(["tune", "ring", "--json", str(tmp_path / "nowhere" / "run.json")]) == 2
    assert "--json" in capsys.readouterr().err
    assert asked == []


def test_tune_refuses_a_technique_that_has_nothing_to_tune(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["tune", "segments"])
    assert stopped.value.code == 2
    assert "choose from" in capsys.readouterr().err


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    """A checkout with two notebooks in place of the real one."""
    (tmp_path / "attnlab").mkdir()
    (tmp_path / "notebooks").mkdir()
    for name in ("00_start_here.ipynb", "01_packed_sequences.ipynb"):
        (tmp_path / "notebooks" / name).write_text("{}")
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "attnlab" / "__main__.py"))
    monkeypatch.chdir(tmp_path / "attnlab")
    return tmp_path


def test_lab_opens_the_first_notebook_with_jupyters_own_defaults(notebooks, monkeypatch):
    started = []

    def start(argv):
        import os

        started.append((argv, os.getcwd()))

    monkeypatch.setitem(sys.modules, "jupyterlab.labapp", types.SimpleNamespace(main=start))
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: object())
    assert cli.main(["lab"]) == 0
    # No option that would listen on other addresses or drop the token.
    assert started == [(["--ServerApp.root_dir=.", "notebooks/00_start_here.ipynb"], str(notebooks))]


def test_lab_without_jupyterlab(notebooks, monkeypatch, capsys):
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None)
    assert cli.main(["lab"]) == 2
    assert "JupyterLab is not installed" in capsys.readouterr().err


def test_lab_without_notebooks(notebooks, capsys):
    for notebook in (notebooks / "notebooks").iterdir():
        notebook.unlink()
    assert cli.main(["lab"]) == 2
    assert "there are no notebooks beside this package" in capsys.readouterr().err
