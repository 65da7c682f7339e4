"""Puts a technique of the test's own into the package, as files on disk, the way a real one is found."""

from __future__ import annotations

import sys
import textwrap

import attnlab
import attnlab.bench


def add(folder, monkeypatch, name, bench=None):
    """Add the room `name`, and its module in `attnlab.bench` where `bench` gives its source."""
    room = folder / "rooms" / name
    room.mkdir(parents=True)
    (room / "__init__.py").write_text("")
    measured = folder / "measured"
    measured.mkdir(exist_ok=True)
    if bench is not None:
        (measured / f"{name}.py").write_text(textwrap.dedent(bench))
    for package, path in ((attnlab, folder / "rooms"), (attnlab.bench, measured)):
        if str(path) not in package.__path__:
            monkeypatch.setattr(package, "__path__", [*package.__path__, str(path)])
    # Registered with monkeypatch, so that what the test imports is forgotten after it.
    monkeypatch.setitem(sys.modules, f"attnlab.bench.{name}", None)
    monkeypatch.delitem(sys.modules, f"attnlab.bench.{name}")


TOY = """
    from attnlab.bench.case import Case
    from attnlab.bench.query import one
    from attnlab.bench.rows import at_most

    def measure(report, size):
        params = {"T": size, "quick": report.quick}
        report.time({"slow": lambda: sum(range(2000)), "fast": lambda: 1}, params=params, baseline="slow",
                    min_sample=1e-6)
        report.add("slow", "bytes", 4 * size**2, "B", params=params, formula=4 * size**2)
        report.add("fast", "bytes", 4 * size, "B", params=params, formula=4 * size, baseline="slow")

    def cases(quick):
        sizes = [8] if quick else [8, 16]
        return [Case(f"size {size}", lambda report, size=size: measure(report, size)) for size in sizes]

    def targets(rows):
        row = one(rows, variant="fast", metric="bytes", T=16)
        return [at_most("bytes at 16", None if row is None else row.value, 64, "B")]
"""
