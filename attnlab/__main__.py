"""The command line: ``attnlab doctor``, ``attnlab bench``, ``attnlab tune`` and ``attnlab lab``.

Each command imports what it needs when it runs, so that ``attnlab doctor`` works where little is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from attnlab import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 when something failed, 2 when it was asked wrongly."""
    arguments = _parser().parse_args(argv)
    status: int = arguments.command(arguments)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attnlab", description="How attention gets cheap, on four techniques."
    )
    parser.add_argument("--version", action="version", version=f"attnlab {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    doctor = commands.add_parser(
        "doctor", help="say what this machine can run, and what to do about the rest"
    )
    doctor.add_argument("--full", action="store_true", help="also compile a kernel, which may take a minute")
    doctor.add_argument("--json", action="store_true", help="print JSON instead of text")
    doctor.set_defaults(command=_doctor)

    bench = commands.add_parser("bench", help="measure time and memory on this machine")
    bench.add_argument("technique", nargs="*", help="what to measure; everything where none is named")
    bench.add_argument("--quick", action="store_true", help="small sizes and few rounds")
    bench.add_argument("--json", metavar="PATH", type=Path, help="also write the run to this file")
    bench.add_argument("--list", action="store_true", help="list the techniques and stop")
    bench.set_defaults(command=_bench)

    tune = commands.add_parser("tune", help="find the block sizes that are fastest here, and keep them")
    tune.add_argument("technique", choices=["ring"], help="whose block sizes")
    tune.add_argument("--quick", action="store_true", help="few candidates and few rounds")
    tune.add_argument("--json", metavar="PATH", type=Path, help="also write the record to this file")
    tune.add_argument("--forget", action="store_true", help="remove what was kept and stop")
    tune.set_defaults(command=_tune)

    lab = commands.add_parser("lab", help="open JupyterLab on the first notebook, on this machine only")
    lab.set_defaults(command=_lab)
    return parser


def _doctor(arguments: argparse.Namespace) -> int:
    from attnlab import doctor

    found = doctor.checks(full=arguments.full)
    print(doctor.as_json(found) if arguments.json else doctor.as_text(found))
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from attnlab.bench.case import techniques

    known = techniques()
    if arguments.list:
        print("\n".join(known))
        return 0
    unknown = [name for name in arguments.technique if name not in known]
    if unknown:
        return _refuse(
            f"unknown technique {', '.join(map(repr, unknown))}; known are {', '.join(known) or '(none yet)'}"
        )
    path: Path | None = arguments.json
    # Asked before the run, which may take minutes, and not after it.
    if not _can_be_written(path):
        return _refuse(f"--json: {str(path)!r} is not a file in a folder that exists")
    if not known:
        return _refuse("there is nothing to measure: no technique has a module in attnlab.bench")

    from attnlab.bench.record import write_record
    from attnlab.bench.runner import run

    chosen = list(dict.fromkeys(arguments.technique)) or known
    result = run(chosen, quick=arguments.quick)
    if path is not None:
        # Where the file went is nobody's business, so the recorded command leaves it out.
        command = ["attnlab", "bench", *dict.fromkeys(arguments.technique)]
        write_record(result.record(" ".join(command + ["--quick"] * arguments.quick)), path)
        print(f"Written to {path}.")
    return 1 if result.failures else 0


def _tune(arguments: argparse.Namespace) -> int:
    path: Path | None = arguments.json
    if not _can_be_written(path):
        return _refuse(f"--json: {str(path)!r} is not a file in a folder that exists")

    from attnlab.bench import ring_tune as tune
    from attnlab.bench.record import write_record

    if arguments.forget:
        print("The winners are forgotten." if tune.forget() else "There were no winners to forget.")
        return 0
    rows = tune.tune(quick=arguments.quick)
    print(tune.table(rows))
    command = "attnlab tune ring" + " --quick" * arguments.quick
    print(f"Kept in {tune.save(rows, command)}.")
    if path is not None:
        write_record(tune.record(rows, command), path)
        print(f"Written to {path}.")
    return 0


def _can_be_written(path: Path | None) -> bool:
    """Whether no path was given, or one of a file in a folder that exists."""
    return path is None or (not path.is_dir() and path.absolute().parent.is_dir())


def _lab(arguments: argparse.Namespace) -> int:
    root = Path(__file__).resolve().parent.parent
    first = sorted((root / "notebooks").glob("00*.ipynb"))
    if not first:
        return _refuse(
            "there are no notebooks beside this package; they come with a checkout of the repository, "
            "not with the wheel"
        )
    if importlib.util.find_spec("jupyterlab") is None:
        return _refuse(
            "JupyterLab is not installed; in the checkout, "
            "run: pip install -c constraints.txt -e '.[notebooks]'"
        )
    from jupyterlab.labapp import main as start  # type: ignore[import-untyped]

    # Jupyter's own defaults are the safe ones: it listens on localhost only and asks for a token. It runs in
    # this process, so that Control-C reaches it and it can close its kernels.
    # The whole checkout is its root, so that the code can be opened beside a notebook.
    os.chdir(root)
    start(["--ServerApp.root_dir=.", str(first[0].relative_to(root))])
    return 0


def _refuse(reason: str) -> int:
    print(f"attnlab: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
