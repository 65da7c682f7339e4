from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import attnlab
from attnlab import datasets


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small data folder that ATTNLAB_DATA points to."""
    folder = tmp_path / "data"
    (folder / "rows").mkdir(parents=True)
    (folder / "README.md").write_text("About all data.\n")
    (folder / "rows" / "README.md").write_text("Rows drawn with seed 0.\n")
    (folder / "rows" / "make.py").write_text("print('made')\n")
    np.savez(
        folder / "rows" / "rows.npz", ids=np.arange(6, dtype=np.int32).reshape(2, 3), scale=np.float32(0.5)
    )
    (folder / "gpu").mkdir()
    (folder / "gpu" / "run.json").write_text(json.dumps({"device": "none", "samples_ms": [1.5, 2.5]}))
    datasets.write_digests(folder)
    monkeypatch.setenv("ATTNLAB_DATA", str(folder))
    return folder


def pretend_installed(monkeypatch: pytest.MonkeyPatch, package: Path) -> None:
    """Make the module believe that it lies in ``package``."""
    package.mkdir(parents=True, exist_ok=True)
    monkeypatch.delenv("ATTNLAB_DATA", raising=False)
    monkeypatch.setattr(datasets, "__file__", str(package / "datasets.py"))


def test_arrays_come_back_as_they_were_saved(data: Path) -> None:
    arrays = datasets.load_npz("rows/rows.npz")
    assert set(arrays) == {"ids", "scale"}
    assert arrays["ids"].dtype == np.int32
    np.testing.assert_array_equal(arrays["ids"], [[0, 1, 2], [3, 4, 5]])


def test_json_comes_back_as_it_was_saved(data: Path) -> None:
    assert datasets.load_json("gpu/run.json") == {"device": "none", "samples_ms": [1.5, 2.5]}


def test_files_lists_data_and_not_the_texts_about_it(data: Path) -> None:
    assert datasets.files() == ["gpu/run.json", "rows/rows.npz"]


def test_provenance_is_the_nearest_readme(data: Path) -> None:
    assert datasets.provenance("rows/rows.npz") == "Rows drawn with seed 0.\n"
    assert datasets.provenance("rows") == "Rows drawn with seed 0.\n"
    assert datasets.provenance("gpu/run.json") == "About all data.\n"


def test_missing_provenance_is_said(data: Path) -> None:
    (data / "README.md").unlink()
    (data.parent / "README.md").write_text("Not about the data.\n")
    with pytest.raises(FileNotFoundError, match=r"No README\.md tells how 'gpu/run\.json' was made"):
        datasets.provenance("gpu/run.json")


def test_a_missing_file_is_answered_with_what_exists(data: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"'rows/row\.npz'.*gpu/run\.json, rows/rows\.npz"):
        datasets.path("rows/row.npz")


@pytest.mark.parametrize("name", ["../secret", "rows/../../secret", "/etc/hostname"])
def test_a_name_may_not_lead_out_of_the_folder(data: Path, name: str) -> None:
    (data.parent / "secret").write_text("x")
    with pytest.raises(ValueError, match="leads out of the data folder"):
        datasets.path(name)


def test_a_truncated_file_is_refused(data: Path) -> None:
    file = data / "rows" / "rows.npz"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="not the published file"):
        datasets.load_npz("rows/rows.npz")


def test_a_file_altered_in_one_bit_is_refused(data: Path) -> None:
    file = data / "gpu" / "run.json"
    file.write_text(file.read_text().replace("1.5", "1.4"))
    with pytest.raises(ValueError, match="not the published file"):
        datasets.load_json("gpu/run.json")


def test_an_unlisted_file_is_refused_until_it_is_listed(data: Path) -> None:
    (data / "gpu" / "new.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"'gpu/new\.json' is not listed"):
        datasets.load_json("gpu/new.json")
    datasets.write_digests()
    assert datasets.load_json("gpu/new.json") == [1]


def test_a_pickle_is_refused(data: Path) -> None:
    np.savez(data / "rows" / "objects.npz", made=np.array([{"code": "x"}], dtype=object))
    datasets.write_digests()
    with pytest.raises(ValueError, match=r"not an \.npz file of plain arrays"):
        datasets.load_npz("rows/objects.npz")


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04cut"])
def test_a_listed_file_that_is_no_archive_is_refused(data: Path, content: bytes) -> None:
    (data / "rows" / "odd.npz").write_bytes(content)
    datasets.write_digests()
    with pytest.raises(ValueError, match=r"not an \.npz file of plain arrays"):
        datasets.load_npz("rows/odd.npz")


def test_a_folder_or_broken_json_is_refused(data: Path) -> None:
    with pytest.raises(ValueError, match="which is a folder"):
        datasets.load_npz("rows")
    (data / "gpu" / "run.json").write_text("{")
    datasets.write_digests()
    with pytest.raises(ValueError, match=r"'gpu/run\.json' is not JSON"):
        datasets.load_json("gpu/run.json")


def test_the_environment_variable_must_name_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNLAB_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="ATTNLAB_DATA is .* which is not a folder"):
        datasets.root()


def test_the_order_is_variable_then_checkout_then_wheel(data: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    with pytest.MonkeyPatch.context() as patch:
        pretend_installed(patch, place / "attnlab")
        with pytest.raises(FileNotFoundError, match="No data found"):
            datasets.root()
        (place / "attnlab" / "_data").mkdir()
        (place / "data").mkdir()  # not a checkout's: no pyproject.toml lies beside it
        assert datasets.root() == place / "attnlab" / "_data"
        (place / "pyproject.toml").touch()
        assert datasets.root() == place / "data"
        patch.setenv("ATTNLAB_DATA", str(data))
        assert datasets.root() == data


def test_every_data_file_of_this_checkout_is_listed_with_its_digest(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ATTNLAB_DATA", raising=False)
    assert Path(attnlab.__file__).is_relative_to(checkout)
    folder = datasets.root()
    listed = (folder / datasets.DIGESTS).read_text()
    # The listing is made anew on a copy, so that a failing test does not mend the tree it judges.
    for name in datasets.files():
        copy = tmp_path / "copy" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((folder / name).read_bytes())
    assert datasets.write_digests(tmp_path / "copy").read_text() == listed, (
        "data/SHA256SUMS is out of date; attnlab.datasets.write_digests() writes it anew"
    )
