"""The wheel carries the package, its JavaScript and the data, and works on its own."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

# Imported from a place that is not the checkout, the package reads every array and text it carries.
USE = """
import attnlab
from attnlab import datasets
print(attnlab.__file__)
print(datasets.root())
for name in datasets.files():
    if name.endswith(".npz"):
        datasets.load_npz(name)
    elif name.endswith(".json"):
        datasets.load_json(name)
    print(name)
"""


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, freshly built."""
    out = tmp_path_factory.mktemp("dist")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(out),
        str(checkout),
    ]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    """The names of all files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_is_for_every_platform(wheel: Path) -> None:
    assert wheel.name.startswith("attnlab-")
    assert wheel.name.endswith("-py3-none-any.whl")


def test_the_wheel_carries_every_module_and_what_lies_beside_it(names: set[str], checkout: Path) -> None:
    package = checkout / "attnlab"
    wanted = {
        file.relative_to(checkout).as_posix()
        for file in package.rglob("*")
        if file.is_file() and file.suffix in {".py", ".js", ".css"}
    }
    assert wanted <= names
    assert any(name.endswith("/replay.js") for name in names)


def test_the_wheel_carries_the_data_and_how_it_was_made(names: set[str], checkout: Path) -> None:
    data = checkout / "data"
    wanted = {
        f"attnlab/_data/{file.relative_to(data).as_posix()}"
        for file in data.rglob("*")
        if file.is_file() and file.suffix not in {".py", ".pyc"}
    }
    assert "attnlab/_data/SHA256SUMS" in wanted
    assert wanted == {name for name in names if name.startswith("attnlab/_data/")}


def test_the_wheel_carries_nothing_else(names: set[str], wheel: Path) -> None:
    info = "-".join(wheel.name.split("-")[:2]) + ".dist-info/"
    for name in names:
        assert name.startswith(("attnlab/", info)), name
        assert "__pycache__" not in name and ".ipynb_checkpoints" not in name, name
    assert wheel.stat().st_size < 20_000_000


def test_no_file_in_the_wheel_names_a_folder_of_the_machine_that_built_it(
    wheel: Path, checkout: Path
) -> None:
    traces = [str(checkout).encode(), str(Path.home()).encode() + b"/"]
    with zipfile.ZipFile(wheel) as archive:
        found = [name for name in archive.namelist() for trace in traces if trace in archive.read(name)]
    assert not found


def test_the_wheel_offers_the_command_and_states_its_extras(wheel: Path, names: set[str]) -> None:
    (entry,) = [name for name in names if name.endswith("/entry_points.txt")]
    (metadata,) = [name for name in names if name.endswith("/METADATA")]
    with zipfile.ZipFile(wheel) as archive:
        assert "attnlab = attnlab.__main__:main" in archive.read(entry).decode()
        described = archive.read(metadata).decode().splitlines()
    assert "Requires-Python: >=3.11" in described
    assert {"Provides-Extra: notebooks", "Provides-Extra: test"} <= set(described)


def test_the_unpacked_wheel_finds_its_data_without_a_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    env = {key: value for key, value in os.environ.items() if key != "ATTNLAB_DATA"} | {
        "PYTHONPATH": str(site)
    }
    done = subprocess.run(
        [sys.executable, "-c", USE], cwd=tmp_path, env=env, text=True, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    where, root, *loaded = done.stdout.splitlines()
    assert Path(where).is_relative_to(site)
    assert Path(root) == site / "attnlab" / "_data"
    assert loaded
