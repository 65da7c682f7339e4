"""What holds of every picture, whatever it shows."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from show.show_pictures import COMPOSED, NAMES, pictures

from attnlab.show.palette import COLOURS

SVG = "{http://www.w3.org/2000/svg}"


def test_the_list_is_complete():
    assert set(NAMES) == set(pictures())


@pytest.mark.parametrize("name", NAMES)
def test_is_well_formed_and_says_its_sentence(name):
    picture = pictures()[name]
    root = ElementTree.fromstring(picture.svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == picture.sentence
    assert root.findtext(f"{SVG}desc") == picture.sentence
    assert root.findtext(f"{SVG}title")
    assert picture.sentence.endswith(".") or name == "a message"
    assert (float(root.get("width")), float(root.get("height"))) == picture.size


@pytest.mark.parametrize("name", NAMES)
def test_is_small(name):
    assert len(pictures()[name].svg.encode()) < (24_000 if name in COMPOSED else 12_000)


@pytest.mark.parametrize("name", NAMES)
def test_is_drawn_the_same_twice(name):
    again = pictures.__wrapped__()[name]
    assert again.svg == pictures()[name].svg


@pytest.mark.parametrize("name", NAMES)
def test_every_colour_has_a_dark_value(name):
    """Each painted element has its light value as an attribute, and a class that the dark rules know."""
    svg = pictures()[name].svg
    css = re.search(r"<style>(.*?)</style>", svg)[1]
    painted = 0
    for element in ElementTree.fromstring(svg).iter():
        for attribute, prefix in (("fill", "f-"), ("stroke", "s-")):
            value = element.get(attribute)
            if value in (None, "none"):
                continue
            roles = [c[2:] for c in (element.get("class") or "").split() if c.startswith(prefix)]
            assert len(roles) == 1, f"{element.tag} {element.attrib}"
            assert value == COLOURS[roles[0]].light
            # Once for pages that say so, once for those that leave it to the operating system.
            assert css.count(f".{prefix}{roles[0]}{{{attribute}:{COLOURS[roles[0]].dark}}}") == 2
            painted += 1
    assert painted > 3


@pytest.mark.parametrize("name", NAMES)
def test_dark_is_decided_by_the_page_or_by_the_root(name):
    """The operating system decides only for a picture that is a document of its own."""
    css = re.search(r"<style>(.*?)</style>", pictures()[name].svg)[1]
    assert css.startswith('body[data-jp-theme-light="false"] .al,[data-theme="dark"] .al{')
    media = re.search(r"@media \(prefers-color-scheme:dark\)\{(.*?)\{", css)[1]
    assert media == '[data-theme="auto"] .al,svg.al:root'


@pytest.mark.parametrize("name", NAMES)
def test_stands_on_its_own_paper_and_asks_for_nothing(name):
    svg = pictures()[name].svg
    assert svg.count('class="al-card f-paper s-rule"') == 1
    # No ids, so two pictures on a page cannot meddle with each other; no address but the namespace.
    assert not re.search(r'\sid="|url\(#|<script|<image', svg)
    assert re.findall(r"https?://[^\"' ]*", svg) == ["http://www.w3.org/2000/svg"]


@pytest.mark.parametrize("name", NAMES)
def test_small_text_is_not_tiny(name):
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', pictures()[name].svg)]
    assert min(sizes) >= 13


@pytest.mark.parametrize("name", NAMES)
def test_no_text_begins_outside_the_paper(name):
    picture = pictures()[name]
    width, height = picture.size

    def visit(element, dx, dy):
        move = re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", element.get("transform") or "")
        if move:
            dx, dy = dx + float(move[1]), dy + float(move[2])
        if element.tag == f"{SVG}text" and element.get("x"):
            assert 0 <= float(element.get("x")) + dx <= width
            assert 0 <= float(element.get("y")) + dy <= height
        for child in element:
            visit(child, dx, dy)

    visit(ElementTree.fromstring(picture.svg), 0, 0)
