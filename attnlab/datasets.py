"""Finds and loads what lies under ``data/``, and refuses a file that is not the one that was published.

Each folder of ``data/`` holds small inputs and a ``README.md`` that tells how they were made.
``data/SHA256SUMS`` lists the digest of every data file in the format of ``sha256sum``. A script that makes
data ends with `write_digests`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

DIGESTS = "SHA256SUMS"
_NOT_DATA = {".md", ".py", ".pyc"}


def root() -> Path:
    """Return the folder that holds the data.

    The first of these that exists: the folder that the environment variable ``ATTNLAB_DATA`` names, ``data/``
    beside the package in a checkout, and the copy that the wheel carries.

    Raises
    ------
    FileNotFoundError
        If ``ATTNLAB_DATA`` names no folder, or if there is no data at all.
    """
    chosen = os.environ.get("ATTNLAB_DATA")
    if chosen:
        if not Path(chosen).is_dir():
            raise FileNotFoundError(f"ATTNLAB_DATA is {chosen!r}, which is not a folder.")
        return Path(chosen).resolve()
    package = Path(__file__).resolve().parent
    # Beside an installed attnlab, data/ would be another project's; only a checkout has pyproject.toml there.
    checkout = package.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "data").is_dir():
        return checkout / "data"
    if (package / "_data").is_dir():
        return package / "_data"
    raise FileNotFoundError(
        "No data found: there is neither a data/ folder in a checkout around the package nor a copy inside "
        "the package. Set ATTNLAB_DATA to the data/ folder of a checkout."
    )


def files() -> list[str]:
    """Return the names of all data files, sorted, relative to `root` and with ``/`` between folders."""
    return _data_files(root())


def path(name: str) -> Path:
    """Return where the file or folder ``name`` lies.

    Parameters
    ----------
    name
        A name relative to ``data/``, such as ``"packed_rows/rows.npz"``.

    Raises
    ------
    ValueError
        If ``name`` leads out of ``data/``.
    FileNotFoundError
        If there is no such file; the message lists those that exist.
    """
    folder = root()
    found = (folder / name).resolve()
    if not found.is_relative_to(folder):
        raise ValueError(f"name is {name!r}, which leads out of the data folder; expected 'folder/file.npz'.")
    if not found.exists():
        have = ", ".join(_data_files(folder)) or "nothing"
        raise FileNotFoundError(f"There is no {name!r} under data/. It holds: {have}.")
    return found


def load_npz(name: str) -> dict[str, np.ndarray]:
    """Load every array of an ``.npz`` file, without pickle.

    Returns
    -------
    dict
        The arrays by name; shapes and dtypes are those the folder's ``README.md`` states.

    Raises
    ------
    ValueError
        If the file is not the one listed in ``SHA256SUMS``, or holds something other than plain arrays.
    """
    content = _checked_bytes(name)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            return {key: archive[key] for key in archive.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{name!r} is not an .npz file of plain arrays: {error}") from error


def load_json(name: str) -> Any:
    """Load a JSON file.

    Raises
    ------
    ValueError
        If the file is not the one listed in ``SHA256SUMS``, or is not JSON.
    """
    try:
        return json.loads(_checked_bytes(name))
    except json.JSONDecodeError as error:
        raise ValueError(f"{name!r} is not JSON: {error}") from error


def provenance(name: str) -> str:
    """Return the text of the ``README.md`` that tells how ``name`` was made.

    It is that of the folder ``name`` lies in, or else of the nearest folder above it.

    Raises
    ------
    FileNotFoundError
        If ``name`` does not exist or nothing tells how it was made.
    """
    folder = root()
    place = path(name)
    for above in [place, *place.parents]:
        if (above / "README.md").is_file():
            return (above / "README.md").read_text(encoding="utf-8")
        if above == folder:
            break
    raise FileNotFoundError(f"No README.md tells how {name!r} was made.")


def write_digests(folder: str | os.PathLike[str] | None = None) -> Path:
    """Write ``SHA256SUMS`` anew for every data file under ``folder`` (by default `root`); return its path."""
    top = root() if folder is None else Path(folder).resolve()
    listing = top / DIGESTS
    lines = [f"{_digest((top / name).read_bytes())}  {name}\n" for name in _data_files(top)]
    listing.write_text("".join(lines), encoding="utf-8", newline="\n")
    return listing


def _data_files(folder: Path) -> list[str]:
    found = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    return sorted(
        name.as_posix()
        for name in found
        if name.suffix not in _NOT_DATA
        and name.name != DIGESTS
        and not any(part.startswith(".") for part in name.parts)
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _checked_bytes(name: str) -> bytes:
    """Read the file once, so that what was checked is what is loaded."""
    file, folder = path(name), root()
    if not file.is_file():
        raise ValueError(f"name is {name!r}, which is a folder; expected a file.")
    listing = folder / DIGESTS
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.is_file() else []
    digests = {listed: digest for digest, _, listed in (line.partition("  ") for line in lines)}
    wanted = digests.get(file.relative_to(folder).as_posix())
    if wanted is None:
        raise ValueError(
            f"{name!r} is not listed in {DIGESTS}. If you made it, call attnlab.datasets.write_digests()."
        )
    content = file.read_bytes()
    if _digest(content) != wanted:
        raise ValueError(
            f"{name!r} is not the published file: its SHA-256 is {_digest(content)}, "
            f"{DIGESTS} lists {wanted}. It was cut short or altered; fetch it again."
        )
    return content
