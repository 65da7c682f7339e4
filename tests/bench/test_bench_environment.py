from __future__ import annotations

import getpass
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import attnlab
from attnlab.bench import environment


def test_description_has_what_a_reader_needs():
    found = environment.describe()
    assert found["cpu"]["model"]
    assert found["cpu"]["cores_usable"] >= 1
    assert found["memory_bytes"] is None or found["memory_bytes"] > 2**28
    assert platform.python_version() in found["python"]
    assert found["packages"]["numpy"] == np.__version__
    assert found["packages"]["attnlab"] == attnlab.__version__
    assert found["threads"]["torch"] == torch.get_num_threads()
    assert json.loads(json.dumps(found)) == found


def test_description_identifies_nobody():
    text = json.dumps(environment.describe())
    assert str(Path.home()) not in text
    assert str(Path(attnlab.__file__).parent) not in text
    for name in {socket.gethostname(), getpass.getuser()} - {"root", "localhost"}:
        assert name not in text


def test_description_imports_no_framework():
    code = (
        "import sys; from attnlab.bench.environment import describe; found = describe();"
        "assert 'torch' not in found['threads'], found;"
        "print(sorted({'torch', 'jax', 'numpy'} & set(sys.modules)))"
    )
    parent = Path(attnlab.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=parent, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_thread_variables_are_recorded(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert environment.describe()["threads"]["OMP_NUM_THREADS"] == "3"


def test_gpus_as_the_driver_reports_them(monkeypatch):
    answer = "NVIDIA H100 80GB HBM3, 550.54.15, 81559\nNVIDIA GB10, 580.95.05, [N/A]\n\n"
    monkeypatch.setattr(environment, "_output", lambda command: answer)
    assert environment.gpus() == [
        {"name": "NVIDIA H100 80GB HBM3", "driver": "550.54.15", "memory_bytes": 81559 * 2**20},
        {"name": "NVIDIA GB10", "driver": "580.95.05", "memory_bytes": None},
    ]


def test_no_driver_means_no_gpus(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert environment.gpus() == []


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A package `attnlab` that lies in a git repository of its own."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    package = tmp_path / "attnlab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(attnlab, "__file__", str(package / "__init__.py"))
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)

    def git(*words):
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q")
    return git, package


def test_commit_of_a_clean_and_of_a_changed_checkout(repository):
    git, package = repository
    git("add", ".")
    git("commit", "-q", "-m", "first")
    assert environment.commit() == {"hash": git("rev-parse", "HEAD"), "dirty": False}
    (package.parent / "notes.txt").write_text("outside the package")
    assert environment.commit()["dirty"] is False
    (package / "masks.py").write_text("x = 1")
    assert environment.commit()["dirty"] is True


def test_no_commit_outside_a_checkout_or_before_the_first(repository, tmp_path_factory, monkeypatch):
    git, _ = repository
    assert environment.commit() is None
    git("add", ".")
    assert environment.commit() is None
    elsewhere = tmp_path_factory.mktemp("installed") / "__init__.py"
    elsewhere.write_text("")
    monkeypatch.setattr(attnlab, "__file__", str(elsewhere))
    assert environment.commit() is None


def test_no_commit_of_another_projects_checkout(repository):
    git, package = repository
    (package.parent / "theirs.txt").write_text("another project")
    git("add", "theirs.txt")
    git("commit", "-q", "-m", "theirs")
    assert environment.commit() is None


def test_commands_that_fail_or_are_missing_say_nothing():
    assert environment._output([sys.executable, "-c", "raise SystemExit(3)"]) is None
    assert environment._output(["no-such-command-anywhere"]) is None
