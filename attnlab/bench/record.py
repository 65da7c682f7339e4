"""A benchmark run as a JSON file that can be read back years later and trusted.

A file holds the schema's version, when the run was made and by which command, the environment, the number of
warm-up calls, the rows and the targets. It ends with a SHA-256 digest of all the rest, so that a file that
was cut short or changed by hand is refused: a recorded number is one that was measured. The digest is over
the content and not the text, so that re-indenting a file or changing its line ends does no harm. It guards
against accidents, and is no signature.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attnlab.bench.rows import Row, Target
from attnlab.bench.schema import RecordError, check_record

__all__ = ["SCHEMA", "Record", "RecordError", "load_records", "new_record", "read_record", "write_record"]

SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """One run of ``attnlab bench``.

    Attributes
    ----------
    created : str
        When the run ended, in UTC, as ``"2026-01-31T12:00:00+00:00"``.
    command : str
        The command that makes such a run again.
    environment : dict
        As `attnlab.bench.environment.describe` gives it.
    warmup : int
        Untimed calls made before every timing.
    rows : list of Row
        What was measured.
    targets : list of Target
        What was promised.
    """

    created: str
    command: str
    environment: Mapping[str, Any]
    warmup: int
    rows: Sequence[Row]
    targets: Sequence[Target]


def new_record(
    command: str, environment: Mapping[str, Any], warmup: int, rows: Sequence[Row], targets: Sequence[Target]
) -> Record:
    """Make a record of a run that ends now."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Record(created, command, environment, warmup, list(rows), list(targets))


def write_record(record: Record, path: str | os.PathLike[str]) -> None:
    """Write a record as JSON. The file appears whole or not at all.

    Raises
    ------
    RecordError
        When the record holds something that `read_record` would refuse, such as a value that is not finite.
    OSError
        When the file cannot be written.
    """
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "created": record.created,
        "command": record.command,
        "environment": dict(record.environment),
        "warmup": record.warmup,
        "rows": [{**asdict(row), "params": dict(row.params)} for row in record.rows],
        # `met` follows from the rest; it is written for readers of the file, and compared when it is read.
        "targets": [{**asdict(target), "met": target.met} for target in record.targets],
    }
    check_record(content)
    content["sha256"] = _digest(content)
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        # mkstemp makes the file private to its owner; a record is an ordinary file.
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_record(path: str | os.PathLike[str]) -> Record:
    """Read a record that `write_record` wrote.

    Raises
    ------
    RecordError
        When the file is not JSON (it was cut short, perhaps), is of another schema, lacks something, holds
        something of the wrong type, or is not what was written. The message names the file and the place in
        it.
    OSError
        When the file cannot be read.
    """
    name = Path(path).name
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except ValueError as error:
        raise RecordError(f"{name}: not valid JSON, perhaps cut short: {error}") from error
    try:
        if not isinstance(content, dict):
            raise RecordError(f"got a {type(content).__name__}, expected an object")
        if content.get("schema") != SCHEMA:
            raise RecordError(f"schema: got {content.get('schema')!r}, expected {SCHEMA}")
        digest = content.pop("sha256", None)
        check_record(content)
        if digest != _digest(content):
            raise RecordError(
                "sha256: the content is not what was written; it was altered, or the digest is lost"
            )
    except RecordError as error:
        raise RecordError(f"{name}: {error}") from error
    return Record(
        created=content["created"],
        command=content["command"],
        environment=content["environment"],
        warmup=content["warmup"],
        rows=[Row(**row) for row in content["rows"]],
        targets=[
            Target(**{key: value for key, value in target.items() if key != "met"})
            for target in content["targets"]
        ],
    )


def load_records(folder: str | os.PathLike[str]) -> dict[str, Record]:
    """Read every ``*.json`` of a folder, such as ``data/gpu``; by file name without its ending, sorted.

    Raises
    ------
    FileNotFoundError
        When there is no such folder. A folder without records gives an empty dict.
    RecordError
        When any of the files is refused.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"folder: {folder.name!r} does not exist or is not a folder")
    return {path.stem: read_record(path) for path in sorted(folder.glob("*.json"))}


def _digest(content: Mapping[str, Any]) -> str:
    try:
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RecordError(f"not expressible in JSON: {error}") from error
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON has")
