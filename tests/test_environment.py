"""environment.yml does what `make` does, and the pinned versions give an environment that works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PIP_LINES = ["-c constraints.txt", "-e .[notebooks,test]"]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command outside this test's environment and return what it printed."""
    leaky = {"PYTHONPATH", "VIRTUAL_ENV", "ATTNLAB_DATA", "PYTEST_XDIST_WORKER"}
    env = {key: value for key, value in os.environ.items() if key not in leaky}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def pip_lines(checkout: Path) -> list[str]:
    """Return the pip section of environment.yml."""
    environment = yaml.safe_load((checkout / "environment.yml").read_text())
    (section,) = [part["pip"] for part in environment["dependencies"] if isinstance(part, dict)]
    return section


def pins(checkout: Path) -> dict[str, Requirement]:
    """Return the lines of constraints.txt by package name."""
    lines = (checkout / "constraints.txt").read_text().splitlines()
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in wanted}


def test_environment_is_python_pip_and_exactly_two_pip_lines(checkout: Path) -> None:
    environment = yaml.safe_load((checkout / "environment.yml").read_text())
    assert pip_lines(checkout) == PIP_LINES
    assert [part for part in environment["dependencies"] if isinstance(part, str)] == ["python=3.11", "pip"]


def test_every_constraint_is_one_exact_public_version(checkout: Path) -> None:
    for name, requirement in pins(checkout).items():
        assert requirement.url is None, f"{name} is pinned to a place, not to a version"
        (pin,) = requirement.specifier
        assert pin.operator == "==", f"{name} is not pinned exactly"
        assert "+" not in pin.version, f"{name} is pinned to one build, which other machines may not find"


def test_every_dependency_is_pinned_within_the_range_it_states(checkout: Path) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    stated = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    pinned = pins(checkout)
    for line in stated:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"{name} is not in constraints.txt"
        (pin,) = pinned[name].specifier
        assert requirement.specifier.contains(pin.version), f"{line} does not admit the tested {pin.version}"


@pytest.mark.slow
def test_the_pip_section_makes_a_working_environment(checkout: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ["pyproject.toml", "constraints.txt", "README.md", "LICENSE"]:
        shutil.copy(checkout / name, copy)
    for name in ["attnlab", "data"]:
        shutil.copytree(checkout / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    # conda hands the section to pip as a requirements file that lies beside environment.yml.
    (copy / "requirements.txt").write_text("\n".join(pip_lines(checkout)) + "\n")

    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    # Compiling every dependency to bytecode would take a third of the time, and nothing here needs it.
    run(*pip, "install", "--quiet", "--no-compile", "-r", "requirements.txt", cwd=copy)

    run(*pip, "check", cwd=copy)
    frozen = run(*pip, "freeze", "--exclude-editable", cwd=copy)
    pinned = pins(checkout)
    for line in frozen.splitlines():
        requirement = Requirement(line)
        if (pin := pinned.get(canonicalize_name(requirement.name))) is not None:
            (version,) = requirement.specifier
            assert pin.specifier.contains(version.version), f"{line} was installed in spite of {pin}"
    imported = "import attnlab, jax, jupyterlab, numpy, torch; print(attnlab.__file__)"
    assert Path(run(python, "-c", imported, cwd=tmp_path).strip()).is_relative_to(copy.resolve())
    assert run(python, "-m", "attnlab", "doctor", cwd=tmp_path).strip()
    shutil.rmtree(tmp_path / "venv")  # more than a gigabyte, which pytest would keep for three runs
