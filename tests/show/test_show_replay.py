"""A replay: the same steps in Python, in a page of its own, and from the keyboard."""

from __future__ import annotations

import json
import re
import shutil
from xml.etree import ElementTree

import pytest

from attnlab.masks import causal
from attnlab.show import Frame, Replay, Svg, replay, tile_picture
from attnlab.tiles import tile_map


def steps() -> Replay:
    tiles = tile_map(causal(), 512, 512, 128)
    base = tile_picture(tiles, title=None)
    frames = []
    for i, (row, column) in enumerate(tiles.order("q")):
        canvas = Svg(*base.size)
        canvas.rect(*base.plots[0].box(int(row), int(column)), stroke="now", stroke_width=3)
        frames.append(
            Frame(canvas.inner(), f"Step {i + 1} of 10: <query> tile {row} meets key tile {column}.")
        )
    return replay(base, frames, "Tile schedule & more")


def test_every_step_is_a_picture():
    shown = steps()
    assert len(shown) == 10
    for i in (0, 9):
        picture = shown.frame(i)
        ElementTree.fromstring(picture.svg)
        assert picture.sentence.startswith(f"Step {i + 1} of 10")
        assert picture.svg.count('stroke="#c8375b"') == 1
    assert shown.frame(0).size == shown.frame(9).size


def test_the_index_is_shared_with_the_widget():
    shown = steps()
    shown.index = 3
    assert shown.widget.index == 3
    shown.widget.index = 5
    assert shown.index == 5 and shown.sentence.startswith("Step 6 of 10")
    shown.index = 0
    assert shown.widget.index == 0


def test_the_widget_holds_all_steps_and_their_colours():
    widget = steps().widget
    assert widget.title == "Tile schedule & more"
    assert [len(frame["lines"]) for frame in widget.frames] == [1] * 10
    css = re.search(r"<style>(.*?)</style>", widget.base)[1]
    # The overlay brings a colour that the base does not have.
    assert ".s-now{stroke:#ff7f9b}" in css
    assert '<g class="al-overlay"></g>' in widget.base
    assert "export" in widget._esm and "http" not in widget._esm


def test_a_notebook_keeps_widget_picture_and_sentence():
    shown = steps()
    shown.index = 2
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {"application/vnd.jupyter.widget-view+json", "image/svg+xml", "text/plain"}
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == shown.widget.model_id
    # What stays where nothing moves is the last step, wherever the reader was.
    assert bundle["text/plain"] == shown.frame(9).sentence
    assert bundle["image/svg+xml"] == shown.frame(9).svg


def test_the_page_fragment_is_self_contained():
    page = steps().html()
    assert set(re.findall(r"https?://[^\"'\\ ]*", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe)|\bsrc=|\bimport[ (]|@import", page)
    assert page.count("</script>") == 2
    data = json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert data["index"] == 0 and len(data["frames"]) == 10
    assert page == steps().html()


@pytest.mark.unchecked
def test_bad_replays_are_named():
    base = tile_picture(tile_map(causal(), 512, 512, 128), title=None)
    with pytest.raises(ValueError, match="frames must hold at least one frame"):
        replay(base, [], "Title")
    with pytest.raises(ValueError, match="title must not be empty"):
        replay(base, [Frame("", "One.")], " ")
    with pytest.raises(ValueError, match="base must be drawn with title=None"):
        replay(tile_picture(tile_map(causal(), 512, 512, 128)), [Frame("", "One.")], "Title")
    with pytest.raises(ValueError, match="still must name one of 1 frames, got 1"):
        replay(base, [Frame("", "One.")], "Title", still=1)
    shown = steps()
    with pytest.raises(ValueError, match=r"index must be in \[0, 10\), got 10"):
        shown.index = 10


@pytest.mark.browser
@pytest.mark.skipif(
    shutil.which("chromium") is None, reason="this test drives Chromium, which is not installed"
)
class TestInAPage:
    @pytest.fixture(params=["no-preference", "reduce"])
    def page(self, request, tmp_path):
        from playwright.sync_api import sync_playwright

        file = tmp_path / "page.html"
        file.write_text(f'<!doctype html><meta charset="utf-8"><body>{steps().html()}', encoding="utf-8")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_context(reduced_motion=request.param).new_page()
            self.problems, self.requests = [], []
            page.on("console", lambda message: self.problems.append(message.text))
            page.on("pageerror", lambda error: self.problems.append(str(error)))
            page.on("request", lambda sent: self.requests.append(sent.url))
            page.goto(file.as_uri())
            page.wait_for_selector(".al-replay")
            yield page
            browser.close()
        assert self.problems == []
        assert [url for url in self.requests if not url.startswith("file://")] == []

    @staticmethod
    def at(page) -> int:
        """The step that is shown, after checking that every part of the page agrees on it."""
        shown = int(page.locator(".al-replay output").inner_text().split(" / ")[0])
        svg = page.locator(".al-replay .al-stage > svg")
        assert svg.get_attribute("aria-label").startswith(f"Step {shown} of 10: <query> tile")
        assert page.locator(".al-replay .al-sentence").text_content() == svg.get_attribute("aria-label")
        assert page.locator(".al-replay input").input_value() == str(shown - 1)
        return shown

    def test_keys(self, page):
        page.locator(".al-replay input").focus()
        seen = [self.at(page)]
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home", "ArrowLeft"):
            page.keyboard.press(key)
            seen.append(self.at(page))
        assert seen == [1, 2, 3, 2, 10, 10, 1, 1]
        assert page.locator(".al-replay [role=status]").text_content().startswith("Step 1 of 10")

    def test_space_plays_and_pauses(self, page):
        page.locator(".al-replay input").focus()
        page.keyboard.press(" ")
        page.wait_for_function("parseInt(document.querySelector('.al-replay output').textContent) >= 3")
        page.keyboard.press(" ")
        page.wait_for_selector('.al-replay [aria-label="Play"]')
        stopped = self.at(page)
        page.wait_for_timeout(1500)
        assert self.at(page) == stopped

    def test_playing_ends_at_the_last_step_and_begins_again(self, page):
        page.locator(".al-replay input").focus()
        for key in ("End", "ArrowLeft", " "):
            page.keyboard.press(key)
        page.wait_for_selector('.al-replay [aria-label="Play"]')
        assert self.at(page) == 10
        page.get_by_role("button", name="Play").click()
        page.wait_for_function("parseInt(document.querySelector('.al-replay output').textContent) < 10")

    def test_buttons_and_slider(self, page):
        assert page.get_by_role("button", name="Step back").is_disabled()
        page.get_by_role("button", name="Step forward").click()
        assert self.at(page) == 2
        page.locator(".al-replay input").fill("6")
        assert self.at(page) == 7

    def test_focus_can_be_seen(self, page):
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert width == "3px"


@pytest.mark.browser
@pytest.mark.skipif(
    shutil.which("chromium") is None, reason="this test drives Chromium, which is not installed"
)
@pytest.mark.parametrize(
    ("system", "body", "dark"),
    [
        ("light", "", False),
        ("dark", "", False),
        ("dark", 'data-jp-theme-light="true"', False),
        ("light", 'data-jp-theme-light="false"', True),
        ("light", 'data-theme="dark"', True),
        ("dark", 'data-theme="light"', False),
        ("dark", 'data-theme="auto"', True),
        ("light", 'data-theme="auto"', False),
    ],
)
def test_the_page_decides_whether_a_picture_is_dark(system, body, dark):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(color_scheme=system).new_page()
        page.set_content(f"<body {body}>{steps().picture.svg}</body>")
        fill = page.evaluate("getComputedStyle(document.querySelector('.al-card')).fill")
        browser.close()
    assert fill == ("rgb(22, 26, 31)" if dark else "rgb(255, 255, 255)")
