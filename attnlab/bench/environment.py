"""The machine a number was measured on, described without identifying it.

What is recorded decides how fast code runs or which code ran. Host names, user names, addresses, serial
numbers and paths do not, and are left out.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import attnlab

__all__ = ["commit", "describe", "gpus", "package_versions"]

PACKAGES = ("attnlab", "numpy", "torch", "jax", "jaxlib", "triton", "jupyterlab")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def describe() -> dict[str, Any]:
    """Describe this machine and the software on it.

    Returns
    -------
    dict
        ``cpu`` (``model``, ``cores_usable``), ``memory_bytes`` or None, ``os``, ``python``, ``packages``
        (versions by name, without those not installed), ``threads``, ``gpus`` (see `gpus`) and ``commit``
        (see `commit`). No framework is imported for it; torch's thread count is given where torch was loaded
        already.
    """
    return {
        "cpu": {"model": _cpu_model(), "cores_usable": _cores_usable()},
        "memory_bytes": _memory_bytes(),
        "os": _operating_system(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": package_versions(PACKAGES),
        "threads": _threads(),
        "gpus": gpus(),
        "commit": commit(),
    }


def package_versions(names: tuple[str, ...]) -> dict[str, str]:
    """Versions of those packages that are installed, without importing them."""
    found = {}
    for name in names:
        if name == "attnlab":
            found[name] = attnlab.__version__
            continue
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def gpus() -> list[dict[str, Any]]:
    """NVIDIA GPUs as the driver reports them: ``name``, ``driver`` and ``memory_bytes`` of each."""
    answer = _output(
        ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"]
    )
    found = []
    for line in (answer or "").splitlines():
        fields = [part.strip() for part in line.split(",")]
        if len(fields) == 3:
            name, driver, mebibytes = fields
            # Devices whose memory is the machine's own report "[N/A]".
            memory = int(mebibytes) * 2**20 if mebibytes.isdigit() else None
            found.append({"name": name, "driver": driver, "memory_bytes": memory})
    return found


def commit() -> dict[str, Any] | None:
    """The package's git commit: ``hash`` and ``dirty`` (its files differ), or None outside a checkout.

    A package that is installed somewhere inside another project's checkout is not described by that project's
    commit, so the package's own files must be tracked.
    """
    package = Path(attnlab.__file__).resolve().parent
    git = ["git", "-C", str(package)]
    if _output([*git, "ls-files", "--error-unmatch", "__init__.py"]) is None:
        return None
    revision = _output([*git, "rev-parse", "HEAD"])
    changes = _output([*git, "status", "--porcelain", "--", "."])
    if revision is None or changes is None:
        return None
    return {"hash": revision.strip(), "dirty": bool(changes.strip())}


def _output(command: list[str]) -> str | None:
    """Standard output of a command, or None when it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _cpu_model() -> str:
    if sys.platform == "linux":
        try:
            text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
        if model:
            return model.group(1).strip()
    if sys.platform == "darwin":
        brand = _output(["sysctl", "-n", "machdep.cpu.brand_string"])
        if brand:
            return brand.strip()
    return platform.processor() or platform.machine()


def _cores_usable() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _operating_system() -> str:
    """Distribution, kernel series and architecture; a full kernel release may carry a local name."""
    name = platform.system()
    if sys.platform == "linux":
        try:
            name = platform.freedesktop_os_release().get("PRETTY_NAME", name)
        except OSError:
            pass
    series = re.match(r"\d+\.\d+", platform.release())
    kernel = f", kernel {series.group()}" if series else ""
    return f"{name}{kernel}, {platform.machine()}"


def _threads() -> dict[str, Any]:
    counts: dict[str, Any] = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    torch = sys.modules.get("torch")
    if torch is not None:
        counts["torch"] = torch.get_num_threads()
    return counts
