"""Run a notebook and store it as somebody without a kernel should find it.

``python -m attnlab.show.store NOTEBOOK...`` runs each notebook from its first cell, in its own folder, and
writes the outputs back. Views of widgets are left out: without a kernel there is nothing behind them, and
JupyterLab would show "model not found" in place of the picture that stands beside them in the same output.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main", "store"]

_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_SECONDS = 600  # the longest a cell may take


def store(path: Path) -> None:
    """Run the notebook at `path` and write its outputs into it.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell fails; the file is then left as it was.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=_SECONDS,
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "text/plain" in output.get("data", {}):
                output["data"].pop(_WIDGET_VIEW, None)
                output.get("metadata", {}).pop(_WIDGET_VIEW, None)
    nbformat.write(notebook, path)


def main(names: Sequence[str]) -> None:
    """Store every named notebook, and say so."""
    for name in names:
        print(f"Running {name} from its first cell and storing its outputs.", flush=True)
        store(Path(name))


if __name__ == "__main__":
    main(sys.argv[1:])
