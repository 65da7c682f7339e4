"""A JupyterLab for the browser test: on this machine only, with settings of its own and nothing fetched."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETTINGS: dict[str, dict[str, Any]] = {
    # Every cell stays in the page, so that the test sees those that are scrolled away too.
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    # Neither news nor updates are asked for.
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab."""

    url: str
    token: str

    def address(self, notebook: str) -> str:
        """Return the address that opens one notebook in a fresh workspace."""
        return f"{self.url}/lab/tree/{notebook}?reset&token={self.token}"

    def end_kernels(self) -> None:
        """End every kernel, so that one notebook's memory does not stay while the next one runs."""
        for session in json.loads(self.ask("GET", "/api/sessions")):
            self.ask("DELETE", f"/api/sessions/{session['id']}")

    def ask(self, method: str, path: str) -> bytes:
        """Send one request to the server and return the body of its answer."""
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(self.url + path, method=method, headers=headers)
        # No proxy: the server is on this machine, whatever the environment says about others.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            return bytes(answer.read())


@contextmanager
def lab(folder: Path, home: Path) -> Iterator[Lab]:
    """Serve ``folder``; all that Jupyter keeps (settings, workspaces, trust) lies under ``home``."""
    for name, values in SETTINGS.items():
        file = home / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    token = secrets.token_hex(16)
    env = os.environ | {
        "JUPYTER_TOKEN": token,
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
    }
    subprocess.run(
        [sys.executable, "-m", "jupyter", "trust", *sorted(str(file) for file in folder.rglob("*.ipynb"))],
        env=env,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    port = _free_port()
    command = [
        *(sys.executable, "-m", "jupyterlab"),
        f"--ServerApp.root_dir={folder}",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.allow_root={getattr(os, 'geteuid', lambda: 1)() == 0}",
        "--LabApp.extension_manager=readonly",  # the other one asks a package index
        "--no-browser",
        "--expose-app-in-browser",  # window.jupyterapp, through which the test starts commands
    ]
    log = home / "jupyterlab.log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, env=env, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
    try:
        running = Lab(f"http://127.0.0.1:{port}", token)
        _wait(server, running, log)
        yield running
    finally:
        server.terminate()  # JupyterLab then ends its kernels
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        shutil.rmtree(home / "runtime", ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(server: subprocess.Popen[bytes], running: Lab, log: Path, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        try:
            running.ask("GET", "/api")
            return
        except OSError:  # nothing listens yet
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text(errors='replace')[-4000:]}")
