"""The README says what is true: the code draws its picture, its example runs, its links lead somewhere."""

import re
from pathlib import Path

import numpy as np

from attnlab.show.packed_row import packed_row_picture

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_picture_is_the_one_the_code_draws():
    assert (ROOT / "docs/packed-row.svg").read_text(encoding="utf-8") == packed_row_picture().svg


def test_the_examples_give_what_they_say():
    of_segments, of_ring = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names = {}
    exec(of_segments, names)
    said = dict(re.findall(r"layout\.(\w+) +# (\[[^:\n]*\])", of_segments))
    assert set(said) == {"q_seqlens", "q_offsets", "valid"}
    for field, text in said.items():
        assert np.asarray(getattr(names["layout"], field)).tolist() == eval(text)

    exec(of_ring, names)
    (position,) = re.findall(r"state\.position +# (\d+)", of_ring)
    assert names["state"].position == int(position)
    assert names["step"].shape == (1, 8, 1, 64)


def test_every_link_leads_to_a_file():
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
