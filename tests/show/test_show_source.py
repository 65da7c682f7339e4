"""The source that is shown is the source that runs."""

from __future__ import annotations

import functools
import re

import pytest

from attnlab.show import Picture, show_source
from attnlab.show import palette as palette_module
from attnlab.show.palette import contrast, luminance


def test_the_docstring_is_left_to_the_notebook():
    source = show_source(contrast)
    assert source.text == (
        "def contrast(a: str, b: str) -> float:\n"
        "    low, high = sorted((luminance(a), luminance(b)))\n"
        "    return (high + 0.05) / (low + 0.05)"
    )
    assert source.line_count == 3
    assert '"""Return the WCAG' in show_source(contrast, drop_docstring=False).text


def test_a_bundle_carries_text_and_coloured_html():
    bundle = show_source(contrast)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert re.fullmatch(r"attnlab/show/palette\.py · from line \d+ · 3 lines", bundle["text/plain"])
    assert repr(show_source(contrast)) == show_source(contrast).text
    html = bundle["text/html"]
    assert re.search(r"attnlab/show/palette\.py · from line \d+ · 3 lines", html)
    assert '<span class="c-dense-text">def</span>' in html
    # What is left when the markup is taken away is the source again.
    shown = re.sub(r"<[^>]*>", "", re.search(r"<pre>(.*?)</pre>", html, re.DOTALL)[1])
    plain = shown.replace("&gt;", ">").replace("&quot;", '"').replace("&lt;", "<")
    assert plain == show_source(contrast).text
    assert "http" not in html and "/work" not in html


def test_every_coloured_word_has_a_dark_value():
    html = show_source(luminance)._repr_mimebundle_()["text/html"]
    for role in set(re.findall(r'class="c-([\w-]+)', html)):
        assert html.count(f".c-{role}{{color:{palette_module.COLOURS[role].light}}}") == 1
        assert html.count(f".c-{role}{{color:{palette_module.COLOURS[role].dark}}}") == 2


def test_lines_are_counted_from_the_first():
    assert show_source(contrast, lines=(4, 4)).text == "return (high + 0.05) / (low + 0.05)"
    first = show_source(contrast, lines=(1, 3))
    assert first.text.splitlines()[-1].strip().startswith("low, high")


def test_decorated_functions_show_what_was_written():
    @functools.cache
    def twice(x):
        """Hidden."""
        return 2 * x

    assert show_source(twice).text == "@functools.cache\ndef twice(x):\n    return 2 * x"


def test_classes_and_modules():
    assert show_source(Picture).text.startswith("@dataclass(frozen=True, repr=False)\nclass Picture:\n")
    module = show_source(palette_module)
    assert module.path == "attnlab/show/palette.py"
    assert module.text.startswith("from __future__ import annotations")


def test_a_function_of_a_notebook_can_be_hostile():
    namespace = {}
    import linecache

    text = 'def f():\n    return "</pre><script>"\n'
    linecache.cache["<cell>"] = (len(text), None, text.splitlines(True), "<cell>")
    exec(compile(text, "<cell>", "exec"), namespace)
    assert "<script" not in show_source(namespace["f"])._repr_mimebundle_()["text/html"]


@pytest.mark.unchecked
def test_bad_things_are_named():
    with pytest.raises(TypeError, match="thing must be a function, a class or a module, got int"):
        show_source(3)
    with pytest.raises(ValueError, match=r"lines must lie in 1 to 4, got \(2, 9\)"):
        show_source(contrast, lines=(2, 9))
    with pytest.raises(ValueError, match="more than a docstring"):
        show_source(contrast, lines=(2, 2))
