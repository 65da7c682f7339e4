"""Settings that every test shares."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Read when torch, JAX and matplotlib are first imported, which happens after this file is read.
os.environ.setdefault("MPLBACKEND", "Agg")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Several workers share the cores; threads of their own would only wait for one another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A slow machine is not a failing test, and a green run in CI must be green again when it is repeated.
settings.register_profile("laptop", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "laptop")


@pytest.fixture(scope="session", autouse=True)
def _untuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Test what is in the package, and not what a developer's machine was tuned to."""
    from attnlab.ring import tuned

    empty = tmp_path_factory.mktemp("untuned")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuned, "folder", lambda: empty)
        yield


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the source tree that is being tested."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is. A laptop without it skips the browser tests; in CI they must run."""
    names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    for name in names:
        if (executable := shutil.which(name)) is not None:
            return executable
    missing = f"The browser tests need Chromium, and none of these is on the path: {', '.join(names)}."
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(f"{missing} In CI it must be installed; see .ci/run.")
    pytest.skip(f"{missing} On Debian, `apt install chromium` brings it.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the slowest tests first, and skip what needs a GPU where there is none."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    needs_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if needs_gpu:
        import torch

        if not torch.cuda.is_available():
            for item in needs_gpu:
                item.add_marker(
                    pytest.mark.skip(reason="this test needs a CUDA device, and torch finds none")
                )
