from __future__ import annotations

import io

from attnlab.bench.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(stream):
    times = iter([0.0, 1.5, 2.0, 2.25])
    progress = Progress(2, stream, clock=lambda: next(times))
    for name, outcome in (("one", "measured"), ("two", "failed")):
        progress.start(name)
        progress.finish(name, outcome)
    return stream.getvalue()


def test_a_log_gets_one_plain_line_per_case():
    assert run(io.StringIO()) == "[1/2] one: measured after 1.50 s\n[2/2] two: failed after 250 ms\n"


def test_a_terminal_gets_one_line_that_is_gone_at_the_end():
    times = iter([0.0, 1.0])
    stream = Terminal()
    progress = Progress(3, stream, clock=lambda: next(times))
    progress.start("one")
    assert stream.getvalue().endswith("[1/3] one ...")
    progress.finish("one", "measured")
    assert stream.getvalue().endswith("\r\x1b[K")
    assert "\n" not in stream.getvalue()
