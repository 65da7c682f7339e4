from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from attnlab import doctor, probes
from attnlab.doctor import Check, as_json, as_text, checks

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""

# What the probes answer on a laptop with everything but a GPU.
LAPTOP = {
    "torch": {
        "error": None,
        "version": "2.13.0+cpu",
        "threads": 8,
        "built_for_cuda": None,
        "cuda": [],
        "flex_cpu": True,
    },
    "jax": {"error": None, "version": "0.10.2", "backend": "cpu", "devices": ["cpu"]},
    "pallas": {"error": None, "right": True},
    "flex": {"error": None, "device": "cpu", "largest_error": 3e-7},
}
CARD = {"name": "NVIDIA H100", "driver": "550.54", "memory_bytes": 80_000_000_000}


@pytest.fixture
def machine(monkeypatch):
    """A laptop that a test can change; calling it gives the checks by name."""
    answers = json.loads(json.dumps(LAPTOP))
    cards, missing, programs = [], set(), {"g++", "chromium"}
    monkeypatch.setattr(doctor, "ask", lambda names: {name: answers[name] for name in names})
    monkeypatch.setattr(doctor, "gpus", lambda: cards)
    monkeypatch.setattr(doctor, "_installed", lambda module: module not in missing)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/bin/{name}" if name in programs else None)
    is_file = Path.is_file
    monkeypatch.setattr(
        Path, "is_file", lambda p: "no headers" not in programs if p.name == "Python.h" else is_file(p)
    )
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)

    class Machine:
        def __init__(self):
            self.answers, self.cards, self.missing, self.programs = answers, cards, missing, programs

        def __call__(self, **options):
            return {check.name: check for check in checks(**options)}

    return Machine()


def fake_package(folder, name, source):
    (folder / f"{name}.py").write_text(source)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_this_machine():
    found = {check.name: check for check in checks()}
    assert found["torch"].status == "ok"
    assert found["torch"].detail.startswith(metadata.version("torch").partition("+")[0])
    assert found["JAX"].detail.startswith(metadata.version("jax"))
    assert found["NumPy"] == Check("NumPy", "ok", metadata.version("numpy"))
    assert found["Pallas, interpreted"].status == "ok"
    # Whatever is not all well comes with words on what to do.
    assert all(bool(check.advice) == (check.status != "ok") for check in found.values())


def test_looking_loads_no_framework(checkout):
    code = (
        "import sys; from attnlab.doctor import checks; found = checks();"
        "heavy = {'torch', 'jax', 'matplotlib', 'ipywidgets', 'jupyterlab'};"
        "print(len(found), sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=True, timeout=300
    )
    count, loaded = done.stdout.strip().split(" ", 1)
    assert int(count) > 10
    assert loaded == "[]"


@pytest.mark.parametrize(
    "blocked", [{"jax", "torch", "jupyterlab", "ipywidgets", "anywidget"}, {"numpy", "triton"}]
)
def test_a_bare_machine(tmp_path, checkout, blocked):
    """The doctor works where these cannot be imported, neither by itself nor by the processes it starts."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKER.format(blocked=blocked))
    done = subprocess.run(
        [sys.executable, "-m", "attnlab", "doctor", "--json"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = {check["name"]: check for check in json.loads(done.stdout)}
    names = {
        "jax": ["JAX", "Pallas, interpreted"],
        "torch": ["torch", "FlexAttention", "torch on CUDA"],
        "jupyterlab": ["JupyterLab"],
        "ipywidgets": ["ipywidgets"],
        "anywidget": ["anywidget"],
        # torch starts without NumPy; JAX and the data files do not.
        "numpy": ["NumPy", "JAX", "Data files"],
        "triton": ["Triton"],
    }
    for package in blocked:
        for name in names[package]:
            assert found[name]["status"] == "missing", found[name]
            assert found[name]["advice"]
    assert found["Python"]["status"] == "ok"


def test_a_laptop(machine):
    found = machine()
    assert found["torch"] == Check("torch", "ok", "2.13.0+cpu, CPU with 8 threads")
    assert found["JAX"] == Check("JAX", "ok", "0.10.2, cpu: cpu")
    assert (found["GPU"].status, found["torch on CUDA"].detail) == ("missing", "no NVIDIA GPU")
    assert found["C++ compiler"] == Check("C++ compiler", "ok", "g++")
    assert found["FlexAttention"].detail == "forward only, on the CPU"
    assert found["Chromium, for tests"].detail == "chromium"


def test_a_gpu_machine(machine):
    machine.cards.append(CARD)
    machine.answers["torch"].update(cuda=["NVIDIA H100"], built_for_cuda="12.9")
    machine.answers["jax"].update(backend="gpu", devices=["NVIDIA H100"])
    found = machine()
    assert found["GPU"] == Check("GPU", "ok", "NVIDIA H100, 80.0 GB, driver 550.54")
    assert found["torch on CUDA"] == Check("torch on CUDA", "ok", "NVIDIA H100")
    assert found["JAX"].status == "ok"
    assert found["Triton"].detail.endswith("compiles for the GPU")
    assert found["FlexAttention"] == Check(
        "FlexAttention", "ok", "can be compiled for the GPU, forward and backward"
    )


def test_a_gpu_that_the_frameworks_do_not_use(machine):
    machine.cards.append({**CARD, "memory_bytes": None})
    found = machine()
    assert found["GPU"].detail == "NVIDIA H100, driver 550.54"
    assert "built for the CPU alone" in found["torch on CUDA"].detail
    assert found["JAX"].status == "limited" and "jax[cuda" in found["JAX"].advice
    machine.answers["torch"]["built_for_cuda"] = "12.9"
    assert machine()["torch on CUDA"].detail == "built for CUDA 12.9, but it finds no device"


def test_frameworks_that_are_broken_or_not_installed(machine):
    machine.answers["torch"] = {"error": "OSError: libtorch.so: cannot open"}
    machine.answers["jax"] = machine.answers["pallas"] = {
        "error": "ModuleNotFoundError: No module named 'jax'"
    }
    machine.missing.add("jax")
    found = machine()
    assert found["torch"].detail == "OSError: libtorch.so: cannot open"
    assert found["FlexAttention"].detail == "torch does not start"
    assert found["JAX"].detail == "not installed" and "pip install jax" in found["JAX"].advice
    assert found["Pallas, interpreted"].detail == "JAX is not installed"


def test_triton_without_a_gpu(machine, monkeypatch):
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "3.7.1")
    assert "TRITON_INTERPRET=1" in machine()["Triton"].advice
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert machine()["Triton"].detail == "3.7.1, interpreted"
    machine.missing.add("triton")
    assert machine()["Triton"].detail == "not installed"


def test_compilers(machine, monkeypatch):
    machine.programs.add("no headers")
    found = machine()
    assert (found["C++ compiler"].status, found["FlexAttention"].status) == ("limited", "limited")
    assert "Python.h" in found["C++ compiler"].detail
    machine.programs.clear()
    found = machine()
    assert found["C++ compiler"].detail == "none of g++, clang++, c++, cl"
    assert found["FlexAttention"].detail == "cannot be compiled without a working C++ compiler"
    machine.programs.add("g++")
    monkeypatch.setenv("CXX", "icpx")
    assert machine()["C++ compiler"].detail == "CXX names 'icpx', which is not there"


def test_flex_attention_on_other_processors_and_when_compiled(machine):
    assert machine(full=True)["FlexAttention"].detail.endswith(
        "compiled here, within 3e-07 of dense attention"
    )
    machine.answers["flex"]["largest_error"] = 0.5
    assert machine(full=True)["FlexAttention"] == Check(
        "FlexAttention",
        "missing",
        "compiled here, but it differs from dense attention by 0.5",
        "This version of torch is best replaced.",
    )
    machine.answers["flex"] = {"error": "InductorError: no"}
    assert machine(full=True)["FlexAttention"].detail == "does not compile: InductorError: no"
    machine.answers["torch"]["flex_cpu"] = False
    assert "AVX2" in machine()["FlexAttention"].detail


def test_a_pallas_that_computes_wrongly(machine):
    machine.answers["pallas"]["right"] = False
    assert machine()["Pallas, interpreted"].status == "missing"


def test_browser_and_playwright(machine):
    machine.programs.discard("chromium")
    assert machine()["Chromium, for tests"].detail == "no browser on the path"
    machine.missing.add("playwright")
    assert machine()["Chromium, for tests"].detail == "playwright is not installed"


def test_data_files(machine, monkeypatch, tmp_path):
    (tmp_path / "gpu").mkdir()
    for name in ("rows.npz", "gpu/h100.json", "gpu/README.md"):
        (tmp_path / name).write_text("")
    monkeypatch.setenv("ATTNLAB_DATA", str(tmp_path))
    assert machine()["Data files"] == Check("Data files", "ok", "2 found, 1 of them recorded GPU runs")
    monkeypatch.setenv("ATTNLAB_DATA", str(tmp_path / "nowhere"))
    found = machine()["Data files"]
    assert found.status == "missing" and "not a folder" in found.detail


def test_a_package_that_is_there_but_has_no_metadata(machine, monkeypatch):
    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", unknown)
    assert machine()["NumPy"] == Check("NumPy", "ok", "installed, of unknown version")


def test_text_is_aligned_and_says_what_to_do():
    found = [
        Check("A", "ok", "1.0"),
        Check("Longer", "missing", "not installed", "Install it."),
        Check("B", "ok", ""),
    ]
    assert as_text(found).splitlines() == [
        "A       ok       1.0",
        "Longer  missing  not installed",
        "                 Install it.",
        "B       ok",
        "",
        "2 ok, 0 limited, 1 missing.",
    ]


def test_json_has_every_attribute():
    assert json.loads(as_json([Check("A", "limited", "1.0", "Wait.")])) == [
        {"name": "A", "status": "limited", "detail": "1.0", "advice": "Wait."}
    ]


def test_a_probe_that_raises_answers_in_one_line(tmp_path, monkeypatch):
    source = "import os\nraise RuntimeError(os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] + '\\nmore')"
    monkeypatch.setattr(os, "environ", fake_package(tmp_path, "jax", source))
    assert probes.ask(["jax"]) == {"jax": {"error": "RuntimeError: false"}}


NOTHING_SAID = "the process ended with status 0: nothing was said"


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("os._exit(3)", "the process ended with status 3: nothing was said"),
        (
            "print('hm'); print('bad library', file=sys.stderr, flush=True); os._exit(4)",
            "the process ended with status 4: bad library",
        ),
        ("print('{\"half', flush=True); os._exit(0)", NOTHING_SAID),
        ("print('7', flush=True); os._exit(0)", NOTHING_SAID),
    ],
)
def test_a_probe_whose_process_dies_is_an_answer(tmp_path, monkeypatch, source, answer):
    monkeypatch.setattr(os, "environ", fake_package(tmp_path, "jax", f"import os, sys\n{source}"))
    assert probes.ask(["jax"]) == {"jax": {"error": answer}}


def test_a_probe_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(os, "environ", fake_package(tmp_path, "jax", "import time; time.sleep(60)"))
    assert probes.ask(["jax"]) == {"jax": {"error": "no answer within 0.5 seconds"}}


def test_lines_that_libraries_print_do_not_disturb(tmp_path, monkeypatch):
    source = """if True:
        print('welcome')
        __version__ = '9'
        def default_backend(): return 'cpu'
        def devices(): return []
    """
    monkeypatch.setattr(os, "environ", fake_package(tmp_path, "jax", source))
    assert probes.ask(["jax"])["jax"] == {"error": None, "version": "9", "backend": "cpu", "devices": []}


@pytest.mark.unchecked
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_flex_attention_really_compiles():
    answer = probes.ask(["flex"])["flex"]
    assert answer["error"] is None
    assert answer["largest_error"] < 1e-3


def test_importing_the_package_is_light(checkout):
    code = (
        "import sys, attnlab; heavy = {'torch', 'jax', 'matplotlib', 'ipywidgets', 'IPython', 'numpy'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_version_is_the_packages(checkout):
    import attnlab

    assert attnlab.__version__ in Path(checkout, "attnlab", "__init__.py").read_text()
    assert attnlab.__version__.count(".") == 2
