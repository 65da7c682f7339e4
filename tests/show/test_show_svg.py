"""The builder escapes what it is given and writes no more than it needs."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.show import Picture, Svg, mask_picture
from attnlab.show.svg import body_of, escape, number
from attnlab.show.theme import style

HOSTILE = '</title><script>alert("1")</script>&\x00\'>'


def test_hostile_titles_stay_text():
    picture = mask_picture(np.eye(3, dtype=bool), title=HOSTILE, sentence=HOSTILE, highlight_row=0,
                           highlight_label=HOSTILE, x_label=HOSTILE)  # fmt: skip
    root = ElementTree.fromstring(picture.svg)
    assert not [e for e in root.iter() if e.tag.endswith("script")]
    assert root.get("aria-label") == HOSTILE.replace("\x00", "\ufffd")


@given(st.text())
def test_any_text_survives(text):
    assert ElementTree.fromstring(f'<a b="{escape(text)}">x{escape(text)}x</a>') is not None


@given(st.floats(-1e5, 1e5))
def test_numbers_are_short_and_right(value):
    text = number(value)
    assert abs(float(text) - value) <= 0.00501
    assert not text.startswith(("0.", "-0.")) and text != "-0"


@pytest.mark.unchecked
def test_a_coordinate_must_be_finite():
    with pytest.raises(ValueError, match="must be finite"):
        number(float("nan"))


@pytest.mark.unchecked
def test_bad_sizes_and_colours_are_named():
    with pytest.raises(ValueError, match="width and height"):
        Svg(0, 10)
    with pytest.raises(ValueError, match="no role 'teal'"):
        Svg(10, 10).rect(0, 0, 1, 1, fill="teal")
    with pytest.raises(ValueError, match="no role 'teal'"):
        style(["f-teal"])


def test_the_body_can_be_taken_out_again():
    canvas = Svg(10, 10)
    with canvas.group(2, 0, name="part"):
        canvas.texts([(1, 2, "a"), (3, 4, "b")], fill="now")
    assert body_of(canvas.render(title="t", sentence="s.")) == canvas.inner()
    assert canvas.inner().count("<text") == 2 and canvas.inner().count("#c8375b") == 1


def test_a_foreign_svg_has_no_body():
    with pytest.raises(ValueError, match="svg must be a picture"):
        body_of("<svg></svg>")


def test_saving_writes_the_same_text(tmp_path):
    picture = mask_picture(np.eye(3, dtype=bool))
    picture.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == picture.svg
    with pytest.raises(ValueError, match=r"path must end in \.svg"):
        picture.save(tmp_path / "a.png")


def test_a_picture_is_displayed_as_svg_and_sentence():
    picture = Picture("<svg/>", "Nothing.")
    assert picture._repr_mimebundle_() == {"image/svg+xml": "<svg/>", "text/plain": "Nothing."}
    assert repr(picture) == "Picture('Nothing.')"
