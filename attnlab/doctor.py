"""What this machine can run, and what to do about the rest.

`checks` answers as a list, `as_text` and `as_json` write it out; ``attnlab doctor`` prints it. Nothing here
needs any package besides Python's own, and torch and JAX are asked in processes of their own
(`attnlab.probes`), so the answer is the same before and after they are used, and a broken installation is an
answer too.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from attnlab.bench.environment import gpus
from attnlab.bench.units import human
from attnlab.probes import ask

__all__ = ["Check", "as_json", "as_text", "checks"]

COMPILERS = ("g++", "clang++", "c++", "cl")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# On a GPU, matrix products of float32 may be rounded to the ten bits of TF32.
TOLERANCE = 1e-2


@dataclass(frozen=True)
class Check:
    """One thing this machine can or cannot do.

    Attributes
    ----------
    name : str
        What was looked at.
    status : {"ok", "limited", "missing"}
        Whether it can be used, in part, or not at all.
    detail : str
        What was found.
    advice : str
        What that means and what to do about it; empty when all is well.
    """

    name: str
    status: Literal["ok", "limited", "missing"]
    detail: str
    advice: str = ""


def checks(*, full: bool = False) -> list[Check]:
    """Look at this machine.

    Parameters
    ----------
    full
        Also compile FlexAttention and compare its result with dense attention. This takes up to a minute.
    """
    answers = ask(["torch", "jax", "pallas", *(["flex"] if full else [])])
    torch, jax = answers["torch"], answers["jax"]
    cards = gpus()
    compiler = _compiler()
    return [
        _python(),
        _package("NumPy", "numpy", "Nothing runs without it: pip install numpy."),
        _package(
            "jaxtyping", "jaxtyping", "The package cannot be imported without it: pip install jaxtyping."
        ),
        _package(
            "Matplotlib", "matplotlib", "The curves of the notebooks cannot be drawn: pip install matplotlib."
        ),
        _torch(torch),
        _cuda(torch, bool(cards)),
        _jax(jax, bool(cards)),
        _gpu(cards),
        _triton(bool(torch.get("cuda"))),
        compiler,
        _flex(torch, compiler, answers.get("flex")),
        _pallas(answers["pallas"]),
        _package(
            "JupyterLab",
            "jupyterlab",
            "The notebooks cannot be opened here: pip install 'attnlab[notebooks]'.",
        ),
        _package("ipywidgets", "ipywidgets", "The explorers show one still picture: pip install ipywidgets."),
        _package("anywidget", "anywidget", "The replays show one still picture: pip install anywidget."),
        _browser(),
        _data(),
    ]


def as_text(found: Sequence[Check]) -> str:
    """Lay the checks out in aligned columns, advice on lines of its own, and count them at the end."""
    name_width = max(len(check.name) for check in found)
    status_width = max(len(check.status) for check in found)
    lines = []
    for check in found:
        lines.append(
            f"{check.name.ljust(name_width)}  {check.status.ljust(status_width)}  {check.detail}".rstrip()
        )
        if check.advice:
            lines.append(" " * (name_width + status_width + 4) + check.advice)
    counts = {
        status: sum(check.status == status for check in found) for status in ("ok", "limited", "missing")
    }
    lines += ["", f"{counts['ok']} ok, {counts['limited']} limited, {counts['missing']} missing."]
    return "\n".join(lines)


def as_json(found: Sequence[Check]) -> str:
    """Write the checks as a JSON list of objects with the attributes of `Check`."""
    return json.dumps([asdict(check) for check in found], indent=1)


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _package(name: str, module: str, advice: str) -> Check:
    if not _installed(module):
        return Check(name, "missing", "not installed", advice)
    try:
        return Check(name, "ok", metadata.version(module))
    except metadata.PackageNotFoundError:
        return Check(name, "ok", "installed, of unknown version")


def _python() -> Check:
    return Check("Python", "ok", platform.python_version())


def _broken(name: str, module: str, answer: dict[str, Any], meaning: str) -> Check:
    detail = answer["error"] if _installed(module) else "not installed"
    return Check(name, "missing", detail, f"{meaning} pip install {module} brings it.")


def _torch(answer: dict[str, Any]) -> Check:
    if answer["error"]:
        return _broken("torch", "torch", answer, "The torch paths and their tests cannot run.")
    return Check("torch", "ok", f"{answer['version']}, CPU with {answer['threads']} threads")


def _cuda(answer: dict[str, Any], has_card: bool) -> Check:
    name = "torch on CUDA"
    if answer.get("cuda"):
        return Check(name, "ok", ", ".join(answer["cuda"]))
    if not has_card:
        return Check(
            name, "missing", "no NVIDIA GPU", "Notebooks show recorded GPU results in place of new ones."
        )
    if answer["error"]:
        return Check(name, "missing", "torch does not start", "See the line on torch.")
    if answer["built_for_cuda"] is None:
        return Check(
            name,
            "missing",
            "a GPU is here, but this torch was built for the CPU alone",
            "Install the CUDA build that pytorch.org names for this driver.",
        )
    return Check(
        name,
        "missing",
        f"built for CUDA {answer['built_for_cuda']}, but it finds no device",
        "The driver may be too old for this build, or CUDA_VISIBLE_DEVICES may hide the GPU.",
    )


def _jax(answer: dict[str, Any], has_card: bool) -> Check:
    if answer["error"]:
        return _broken("JAX", "jax", answer, "The JAX and Pallas paths and their tests cannot run.")
    detail = f"{answer['version']}, {answer['backend']}: {', '.join(answer['devices'])}"
    if has_card and answer["backend"] == "cpu":
        advice = "JAX leaves the GPU unused; pip install 'jax[cuda13]' or 'jax[cuda12]', to suit the driver."
        return Check("JAX", "limited", detail, advice)
    return Check("JAX", "ok", detail)


def _gpu(cards: list[dict[str, Any]]) -> Check:
    if not cards:
        advice = "Every notebook runs without one, and shows recorded GPU results as such."
        return Check("GPU", "missing", "no NVIDIA driver answers", advice)
    told = []
    for card in cards:
        memory = f", {human(card['memory_bytes'], 'B')}" if card["memory_bytes"] else ""
        told.append(f"{card['name']}{memory}, driver {card['driver']}")
    return Check("GPU", "ok", "; ".join(told))


def _triton(on_cuda: bool) -> Check:
    if not _installed("triton"):
        advice = "Triton kernels are shown, not run."
        if sys.platform == "linux":
            advice = (
                "Triton kernels cannot run; after pip install triton they do, interpreted, without a GPU too."
            )
        return Check("Triton", "missing", "not installed", advice)
    version = _package("Triton", "triton", "").detail
    if on_cuda:
        return Check("Triton", "ok", f"{version}, compiles for the GPU")
    if os.environ.get("TRITON_INTERPRET") == "1":
        advice = "Kernels run on the CPU, slowly, and show what they compute but not how fast."
        return Check("Triton", "limited", f"{version}, interpreted", advice)
    advice = "Set TRITON_INTERPRET=1 before Python starts, and kernels run on the CPU, slowly."
    return Check("Triton", "limited", f"{version}, with no GPU to compile for", advice)


def _compiler() -> Check:
    name = "C++ compiler"
    chosen = os.environ.get("CXX")
    found = [shutil.which(chosen)] if chosen else [shutil.which(compiler) for compiler in COMPILERS]
    paths = [path for path in found if path]
    meaning = "torch.compile cannot make code for the CPU;"
    if not paths:
        looked_for = (
            f"CXX names {chosen!r}, which is not there" if chosen else f"none of {', '.join(COMPILERS)}"
        )
        return Check(name, "missing", looked_for, f"{meaning} install g++ or clang.")
    if not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        advice = f"{meaning} install Python's headers (on Debian and Ubuntu the package python3-dev)."
        return Check(name, "limited", f"{Path(paths[0]).name}, but no Python.h", advice)
    return Check(name, "ok", Path(paths[0]).name)


def _flex(torch: dict[str, Any], compiler: Check, compiled: dict[str, Any] | None) -> Check:
    name = "FlexAttention"
    eager = "Uncompiled it is still right, but builds the whole table of scores."
    if torch["error"]:
        return Check(name, "missing", "torch does not start", "See the line on torch.")
    if compiled is not None and compiled["error"]:
        return Check(name, "limited", f"does not compile: {compiled['error']}", eager)
    proof = ""
    if compiled is not None:
        error = compiled["largest_error"]
        if not error < TOLERANCE:
            detail = f"compiled here, but it differs from dense attention by {error:.1g}"
            return Check(name, "missing", detail, "This version of torch is best replaced.")
        proof = f"; compiled here, within {error:.0e} of dense attention"
    if torch["cuda"]:
        return Check(name, "ok", f"can be compiled for the GPU, forward and backward{proof}")
    if not torch["flex_cpu"]:
        return Check(
            name, "limited", "cannot be compiled for this CPU, which lacks AVX2 or runs macOS", eager
        )
    if compiler.status != "ok":
        return Check(name, "limited", "cannot be compiled without a working C++ compiler", eager)
    return Check(
        name,
        "limited",
        f"forward only, on the CPU{proof}",
        "Gradients through it need a GPU.",
    )


def _pallas(answer: dict[str, Any]) -> Check:
    name = "Pallas, interpreted"
    if answer["error"]:
        detail = answer["error"] if _installed("jax") else "JAX is not installed"
        return Check(name, "missing", detail, "Pallas kernels are shown, not run; a working JAX brings them.")
    if not answer["right"]:
        return Check(
            name, "missing", "a test kernel gave a wrong result", "This version of JAX is best replaced."
        )
    return Check(name, "ok", "a test kernel ran")


def _browser() -> Check:
    name = "Chromium, for tests"
    advice = "Only the browser tests need it, and they are left out:"
    if not _installed("playwright"):
        return Check(name, "missing", "playwright is not installed", f"{advice} pip install 'attnlab[test]'.")
    found = [browser for browser in BROWSERS if shutil.which(browser)]
    if not found:
        return Check(name, "missing", "no browser on the path", f"{advice} on Debian, apt install chromium.")
    return Check(name, "ok", found[0])


def _data() -> Check:
    name = "Data files"
    try:
        from attnlab import datasets

        files = datasets.files()
    except (ImportError, FileNotFoundError) as error:
        advice = (
            "Notebooks that read recorded results or small inputs stop there; use a checkout or reinstall."
        )
        return Check(name, "missing", str(error), advice)
    recorded = sum(file.startswith("gpu/") and file.endswith(".json") for file in files)
    return Check(name, "ok", f"{len(files)} found, {recorded} of them recorded GPU runs")
