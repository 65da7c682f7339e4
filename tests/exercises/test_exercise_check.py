"""The frame of an exercise, tried on a toy: double every number of a row."""

from __future__ import annotations

import os
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import configuration
from hypothesis import strategies as st
from IPython.core.formatters import DisplayFormatter

from attnlab.exercises.check import Case, Exercise
from attnlab.exercises.counting_row import CountingRow, TooManyReads
from attnlab.exercises.result import Hints, Result
from attnlab.show.picture import Picture
from attnlab.show.svg import Svg


def draw(answer):
    canvas = Svg(80, 60)
    canvas.rect(0, 0, 80, 60, fill="skip" if answer is None else "dense")
    return [Picture(canvas.render(title="a row", sentence="a row"), "a row")]


def case(numbers, note="", max_bytes=None):
    row = np.array(numbers, np.int32)
    words = (
        f"the row {' '.join(map(str, numbers))}" if len(numbers) < 20 else f"a row of {len(numbers)} tokens"
    )
    return Case((row,), 2 * row, words, draw, note, max_bytes)


double = Exercise(
    name="double",
    level="fill in",
    task="Write double(row).",
    returns="twice the row",
    hints=Hints(["Add it to `itself`.", "2 < 3"]),
    cases=lambda: [case([1, 2]), case([0], "It is 0."), case([5] * 4096, max_bytes=40_000)],
    inputs=st.lists(st.integers(0, 50), min_size=1, max_size=8).map(case),
)


def changes_its_input(row):
    row *= 2
    return row.copy()


def takes_a_table(row):
    np.zeros((row.size, row.size), bool)
    return 2 * row


def fails_inside(row):
    if row[0] == 0:
        return row[[7]]
    return 2 * row


def wrong_from_seven(row):
    return np.where(row >= 7, 0, 2 * row).astype(np.int32)


WRONG = {
    "the example only": (
        lambda row: np.array([2, 4], np.int32),
        "for the row 0 your function gave an int32 array of",
    ),
    "the identity": (lambda row: row, "for the row 1 2 your function gave 1 2, expected 2 4."),
    "None too late": (
        lambda row: 2 * row if row[0] else None,
        "for the row 0 your function gave None, expected",
    ),
    "a note": (lambda row: 2 * row + (row == 0).astype(np.int32), "gave 1, expected 0. It is 0."),
    "changed input": (
        changes_its_input,
        "for the row 1 2 your function gave the right answer but changed its input",
    ),
    "memory": (takes_a_table, "took 16.8 MB of memory; at most 40.0 KB is allowed"),
    "an exception": (fails_inside, "for the row 0 your function raised IndexError (index 7 is out of bounds"),
    "its line": (fails_inside, "at `return row[[7]]`, expected 0."),
    "its arguments": (lambda: 0, "raised TypeError"),
    "the way out": (lambda row: sys.exit(3), "raised SystemExit (3)"),
    "random inputs": (wrong_from_seven, "for the row 7 your function gave 0, expected 14."),
}


@pytest.mark.parametrize(("fn", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_function_is_told_what_broke_it(fn, words):
    result = double(fn)
    assert not result.passed and not result
    assert result.sentence.startswith("Not yet: for ")
    assert words in result.sentence
    assert double(fn).sentence == result.sentence
    assert result.picture is not None
    assert result.picture.sentence == result.sentence
    ElementTree.fromstring(result.picture.svg)


def test_a_right_function_passes():
    result = double(lambda row: 2 * row)
    assert result.passed and result
    assert result.sentence == (
        "Passed on 3 chosen inputs and on random ones. On a long row it kept within 40.0 KB of memory."
    )
    assert result.picture is None
    assert result._repr_mimebundle_() == {"text/plain": result.sentence}


def not_written(row):
    raise NotImplementedError


@pytest.mark.parametrize(
    "fn", [lambda row: None, lambda row: ..., not_written], ids=["None", "...", "raises"]
)
def test_a_stub_is_not_solved_yet(fn):
    result = double(fn)
    assert not result
    assert result.sentence == (
        "Not solved yet. The function should return twice the row. For the row 1 2 that is 2 4."
    )
    assert result.picture is not None


def test_what_a_function_returns_is_no_function():
    result = double(np.array([2, 4]))
    assert not result
    assert result.sentence == (
        "Not yet: hand in the function itself, not what it returns; got an int64 array of shape [2]."
    )


def test_an_answer_is_drawn_only_if_it_is_of_the_right_kind():
    seen = []

    def remember(answer):
        seen.append(answer)
        return draw(answer)

    row = np.array([1], np.int32)
    toy = Exercise(
        "toy", "open", "", "", Hints(), lambda: [Case((row,), 2 * row, "a row", remember)], st.nothing()
    )
    toy(lambda row: row)
    toy(lambda row: [1])
    toy(lambda row: row[7])
    assert seen[0] is not None and seen[1:] == [None, None]


def test_a_function_that_changes_its_mind_is_told_what_it_did_once():
    calls = []

    def fickle(row):
        calls.append(row)
        return row if len(calls) == 20 else 2 * row

    result = double(fickle)
    assert not result
    assert result.sentence.startswith("Not yet: for the row ")


def test_a_keyboard_interrupt_stops_the_check():
    def interrupted(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        double(interrupted)


def test_what_the_function_prints_is_not_shown(capsys):
    assert double(lambda row: print("here") or 2 * row)
    double(lambda row: print("here") or row)
    assert capsys.readouterr().out == ""


def test_a_check_leaves_nothing_behind_and_prints_nothing(tmp_path, checkout):
    program = (
        "from attnlab.exercises.segments import check_lengths\n"
        "import numpy as np\n"
        "def lengths(ids, s):\n"
        "    out = np.bincount(ids, minlength=s + 1)[1:].astype(np.int32)\n"
        "    return out * ((out < 5) | (out > 12))\n"
        "assert not check_lengths(lengths)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_hypothesis_keeps_its_folder():
    before = configuration.storage_directory("examples", intent_to_write=False).path
    double(lambda row: 2 * row)
    assert configuration.storage_directory("examples", intent_to_write=False).path == before


def test_a_result_shows_its_picture_and_says_its_sentence():
    picture = draw(None)[0]
    result = Result(False, "Not yet.", picture)
    assert repr(result) == "Not yet."
    assert result._repr_mimebundle_() == {"image/svg+xml": picture.svg, "text/plain": "Not yet."}


def test_hints_are_folded_in_a_notebook_and_read_as_text():
    assert double.hints[0] == "Add it to `itself`."
    shown, _ = DisplayFormatter().format(double.hints)
    assert shown["text/html"] == (
        "<details><summary>Hint 1</summary><p>Add it to <code>itself</code>.</p></details>\n"
        "<details><summary>Hint 2</summary><p>2 &lt; 3</p></details>"
    )
    assert shown["text/plain"] == "2 hints, folded; hints[0] is the first."


def test_an_exercise_says_what_to_do():
    assert repr(double) == "double (fill in). Write double(row)."


def test_a_counting_row_counts():
    row = CountingRow(np.array([4, 5, 6], np.int32), 1)
    assert (len(row), row.reads) == (3, 0)
    assert [row[0], row[-1], row[np.int64(1)]] == [4, 6, 5]
    assert row.reads == 3
    assert list(row) == [4, 5, 6]
    assert row.reads == 6


def test_a_counting_row_gives_one_token_at_a_time():
    row = CountingRow(np.array([4, 5, 6], np.int32), 1)
    with pytest.raises(TypeError, match="one token at a time"):
        row[:2]
    with pytest.raises(TypeError):
        row[1.0]
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"index {index} is outside a row of 3 tokens"):
            row[index]
    assert row.reads == 0


def test_a_counting_row_ends_a_search_that_does_not_end():
    row = CountingRow(np.array([4, 5, 6], np.int32), 1)
    with pytest.raises(TooManyReads, match="was stopped after 8 reads of 3 tokens; 1 are allowed"):
        while row[0]:
            pass
