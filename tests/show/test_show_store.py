"""A stored notebook shows pictures to a reader without a kernel."""

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from attnlab.show.store import main


def notebook(path, source):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, path)
    return path


def test_the_picture_stays_and_the_widget_goes(tmp_path):
    source = (
        "import numpy as np\nfrom attnlab.show import explore, mask_picture\n"
        "explore(lambda n: mask_picture(np.tri(n, dtype=bool)), n=(4, 9))"
    )
    path = notebook(tmp_path / "a.ipynb", source)
    main([str(path)])
    stored = nbformat.read(path, as_version=4)
    (output,) = stored.cells[0].outputs
    assert set(output.data) == {"image/svg+xml", "text/plain"}
    assert output.data["text/plain"] == "10 of 16 pairs are visible (62.5%)."
    assert "widgets" not in stored.metadata


def test_a_failing_cell_leaves_the_file_alone(tmp_path):
    path = notebook(tmp_path / "b.ipynb", "1 / 0")
    before = path.read_bytes()
    with pytest.raises(CellExecutionError):
        main([str(path)])
    assert path.read_bytes() == before
