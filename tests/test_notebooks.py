"""What every stored notebook must be, without running it; `make test` runs them all with nbval."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
SHELF = sorted(FOLDER.glob("*.ipynb"))
ALL = [*SHELF, *sorted(FOLDER.glob("solutions/*.ipynb"))]
FOLDERS_OF_A_MACHINE = re.compile(r"/(?:home|Users|root|tmp)/\w|/site-packages/|/attnlab/\w+\.py")
BUDGET = re.compile(r"\bruns\b[^.]*\b(?:seconds?|minutes?)\b[^.]*\b(?:laptop|CPU)\b", re.IGNORECASE)


def named(notebooks: list[Path]) -> Any:
    """Give a test one notebook after the other."""
    return pytest.mark.parametrize(
        "notebook", notebooks, ids=[file.relative_to(FOLDER).as_posix() for file in notebooks]
    )


def read(notebook: Path) -> nbformat.NotebookNode:
    return nbformat.read(notebook, as_version=4)


def code_cells(notebook: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in read(notebook).cells if cell.cell_type == "code" and cell.source.strip()]


def test_every_text_has_its_notebook_and_every_notebook_its_text() -> None:
    texts = {file.with_suffix("") for file in FOLDER.rglob("*.py")}
    notebooks = {
        file.with_suffix("") for file in FOLDER.rglob("*.ipynb") if ".ipynb_checkpoints" not in file.parts
    }
    assert texts == notebooks
    assert notebooks, "there is no notebook"
    assert notebooks == {file.with_suffix("") for file in ALL}, "a notebook lies where no test looks"


@named(ALL)
def test_the_text_says_the_same_as_the_notebook(notebook: Path) -> None:
    def content(cell: nbformat.NotebookNode) -> tuple[str, str, list[str], str | None]:
        slide = cell.metadata.get("slideshow", {}).get("slide_type")
        return cell.cell_type, cell.source.strip(), cell.metadata.get("tags", []), slide

    stored = [content(cell) for cell in read(notebook).cells]
    written = [content(cell) for cell in jupytext.read(notebook.with_suffix(".py")).cells]
    assert stored == written, f"{notebook.name} and its .py differ; run: make notebooks"


@named(SHELF)
def test_a_notebook_is_small_enough_to_be_read_on_the_web(notebook: Path) -> None:
    assert notebook.stat().st_size < 200_000


@named(ALL)
def test_the_stored_outputs_come_from_one_run_without_an_error(notebook: Path) -> None:
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    errors = [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    assert not errors


@named(ALL)
def test_no_stored_output_warns_or_names_a_folder_of_the_machine_that_made_it(notebook: Path) -> None:
    for cell in code_cells(notebook):
        for output in cell.outputs:
            assert output.get("name") != "stderr", f"{cell.source}\nwrote to stderr: {output.text}"
            found = FOLDERS_OF_A_MACHINE.search(str(output))
            assert found is None, f"{cell.source}\nprints {found}"


@named(ALL)
def test_the_notebook_opens_without_asking_for_a_kernel(notebook: Path) -> None:
    assert read(notebook).metadata.kernelspec.name == "python3"


@named(ALL)
def test_the_pairing_is_stated_in_one_place(notebook: Path) -> None:
    """Stated again in the notebook, it keeps JupyterLab from opening a copy whose file times differ."""
    assert "formats" not in read(notebook).metadata.get("jupytext", {})


@named(SHELF)
def test_the_top_says_how_long_it_runs(notebook: Path) -> None:
    top = [cell.source for cell in read(notebook).cells[:4] if cell.cell_type == "markdown"]
    assert any(BUDGET.search(source) for source in top), (
        "the first cells should say how long it runs on a laptop"
    )


@named(SHELF)
def test_the_lecture_can_be_made_from_it(notebook: Path) -> None:
    kinds = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in read(notebook).cells]
    assert kinds[0] == "slide", "the first cell should open a slide"
    assert set(kinds) <= {None, "slide", "subslide", "fragment", "skip", "notes", "-"}


@named(ALL)
def test_every_picture_has_words(notebook: Path) -> None:
    """A drawn output also carries text, so that it can be read aloud and compared."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if "image/svg+xml" in output.get("data", {}):
                assert output.data.get("text/plain", "").strip(), cell.source
