"""Each notebook is opened in JupyterLab, run from its first cell, and its explorers are driven by keyboard.

ATTNLAB_SCREENSHOTS names a folder that keeps pictures of every explorer in light and dark.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from lab_server import Lab, lab
from playwright.sync_api import Browser, ConsoleMessage, ElementHandle, Page, sync_playwright

pytestmark = pytest.mark.browser

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
SHELF = [file.name for file in sorted(NOTEBOOKS.glob("*.ipynb"))]
RUN_SECONDS = 300  # a notebook may take two minutes; a loaded machine needs room
# One explorer is an output with a picture and something that a keyboard can move: a slider, or the range
# input of a replay.
EXPLORERS = """() => [...document.querySelectorAll('.jp-OutputArea-output')].filter(
    area => area.querySelector('svg.al') && area.querySelector('.noUi-handle, input[type=range]'))"""
# JupyterLab covers the page while it starts and while it changes themes. It stumbles over its own cover, and
# logs that as an error, when the next change comes before the cover has faded.
SPLASH = "#jupyterlab-splash"
HANDLE = ".noUi-handle, input[type=range]"
PICTURES = "area => [...area.querySelectorAll('svg.al')].map(svg => svg.outerHTML).join()"


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Chromium as the system installed it, told to ask for nothing on its own."""
    quiet = [
        "--no-sandbox",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=quiet)
        yield running
        running.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab that serves a copy of the notebooks."""
    place = tmp_path_factory.mktemp("lab")
    shutil.copytree(NOTEBOOKS, place / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    with lab(place / "notebooks", place / "home") as running:
        yield running


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """The folder that keeps the pictures."""
    folder = Path(os.environ.get("ATTNLAB_SCREENSHOTS") or tmp_path / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def page(browser: Browser, server: Lab) -> Iterator[Page]:
    """A page that afterwards must have logged no error and sent nothing out of this machine."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(60_000)
    errors: list[str] = []
    asked: list[str] = []

    def note(said: ConsoleMessage) -> None:
        if said.type == "error":
            errors.append(f"{said.text} ({said.location['url']})")

    page.on("console", note)
    page.on("pageerror", lambda error: errors.append(error.stack or str(error)))
    context.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    yield page
    context.close()
    server.end_kernels()
    outside = [url for url in asked if not stays_here(url)]
    assert not outside, f"The page sent requests out of this machine: {outside}"
    assert not errors, "The console shows errors:\n" + "\n".join(errors)


def stays_here(url: str) -> bool:
    """Tell whether a request stays on this machine."""
    parts = urlsplit(url)
    return parts.scheme in {"data", "blob"} or parts.hostname in {"127.0.0.1", "localhost"}


def run_all(page: Page, address: str) -> None:
    """Open a notebook, run all of its cells and wait until the kernel rests."""
    page.goto(address)
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.wait_for_selector(SPLASH, state="detached")
    page.wait_for_function("() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel")
    page.evaluate(
        """async () => {
            const notebook = window.jupyterapp.shell.currentWidget;
            await notebook.context.ready;
            await notebook.sessionContext.ready;
            window.attnlabRun = 'running';
            window.jupyterapp.commands.execute('notebook:run-all-cells').then(
                () => { window.attnlabRun = 'ended'; }, error => { window.attnlabRun = String(error); });
        }"""
    )
    page.wait_for_function("() => window.attnlabRun !== 'running'", timeout=RUN_SECONDS * 1000)
    page.wait_for_function(
        """() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'
            && ![...document.querySelectorAll('.jp-InputPrompt')].some(p => p.textContent.includes('[*]'))""",
    )
    assert page.evaluate("() => window.attnlabRun") == "ended"


def set_theme(page: Page, name: str) -> None:
    """Switch JupyterLab's theme as its settings menu does."""
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", name)
    page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=name)
    page.wait_for_selector(SPLASH, state="detached")


def press_until_it_changes(page: Page, area: ElementHandle) -> None:
    """Move the first control of an explorer with the arrow keys and see its picture change."""
    before = area.evaluate(PICTURES)
    handle = area.query_selector(HANDLE)
    assert handle is not None
    handle.scroll_into_view_if_needed()
    handle.focus()
    assert handle.evaluate("handle => document.activeElement === handle"), (
        "the control takes no keyboard focus"
    )
    for key in [
        "ArrowRight",
        "ArrowRight",
        "ArrowRight",
        "ArrowLeft",
    ]:  # the last for one that starts at its end
        page.keyboard.press(key)
        for _ in range(20):
            if area.evaluate(PICTURES) != before:
                return
            page.wait_for_timeout(100)
    pytest.fail("the arrow keys moved the first control of an explorer, and its picture stayed the same")


@pytest.mark.parametrize("notebook", SHELF)
def test_explorers_answer_to_the_keyboard(notebook: str, server: Lab, page: Page, screenshots: Path) -> None:
    run_all(page, server.address(notebook))
    cells = page.evaluate(
        """() => window.jupyterapp.shell.currentWidget.model.toJSON().cells
            .filter(cell => cell.cell_type === 'code' && cell.source.length)"""
    )
    for cell in cells:
        assert cell["execution_count"] is not None, f"This cell did not run:\n{cell['source']}"
        assert not [out for out in cell["outputs"] if out["output_type"] == "error"], cell

    areas = [area.as_element() for area in page.evaluate_handle(EXPLORERS).get_properties().values()]
    assert areas, "no output has a picture and a control; every notebook has an explorer"
    for number, area in enumerate(areas, start=1):
        assert area is not None
        press_until_it_changes(page, area)
        for theme in ["Light", "Dark"]:
            set_theme(page, f"JupyterLab {theme}")
            area.scroll_into_view_if_needed()
            file = screenshots / f"{Path(notebook).stem}-{number}-{theme.lower()}.png"
            area.screenshot(path=file)
            assert file.stat().st_size > 0
        set_theme(page, "JupyterLab Light")
    for theme in ["Light", "Dark"]:
        set_theme(page, f"JupyterLab {theme}")
        page.screenshot(path=screenshots / f"{Path(notebook).stem}-page-{theme.lower()}.png")
