"""Explorers follow their controls, and stay usable when a picture cannot be drawn."""

from __future__ import annotations

import numpy as np
import pytest

from attnlab.show import Picture, explore, log2, mask_picture
from attnlab.show.controls import read_control

CONTROLS = {
    "tokens": (4, 64),
    "share": (0.0, 1.0),
    "block": log2(4, 64),
    "kind": ["causal", "full"],
    "flip": False,
}


def draw(
    tokens: int = 8, share: float = 0.5, block: int = 16, kind: str = "causal", flip: bool = True
) -> Picture:
    if tokens > 32:
        raise ValueError(f"tokens must be at most 32, got {tokens} <b>")
    mask = np.tri(tokens, dtype=bool) if kind == "causal" else np.ones((tokens, tokens), bool)
    return mask_picture(mask, sentence=f"{tokens} {share} {block} {kind} {flip}.")


def test_controls_begin_at_the_defaults_of_the_function():
    explorer = explore(draw, **CONTROLS)
    assert explorer.state == {"tokens": 8, "share": 0.5, "block": 16, "kind": "causal", "flip": True}
    assert explorer.sentence == "8 0.5 16 causal True."


def test_controls_without_a_default_begin_at_their_low_end():
    explorer = explore(
        lambda n, kind, on: mask_picture(np.eye(n, dtype=bool)), n=(3, 9), kind=("a", "b"), on=True
    )
    assert explorer.state == {"n": 3, "kind": "a", "on": True}


def test_it_draws_without_a_widget():
    explorer = explore(draw, **CONTROLS)
    assert explorer.draw(tokens=5).sentence == "5 0.5 16 causal True."
    assert explorer.state["tokens"] == 8
    explorer.set(tokens=6, kind="full")
    assert explorer.sentence == "6 0.5 16 full True."
    assert explorer._widget is None


def test_the_picture_follows_the_sliders():
    explorer = explore(draw, **CONTROLS)
    _, place, caption = explorer.widget.children
    assert explorer.picture.sentence in place.value
    explorer._turned["tokens"].value = 12
    assert explorer.sentence == "12 0.5 16 causal True."
    assert explorer.sentence in place.value and explorer.sentence in caption.value
    explorer._turned["block"].value = 64
    explorer._turned["kind"].value = "full"
    explorer._turned["flip"].value = False
    explorer._turned["share"].value = 0.25
    assert explorer.sentence == "12 0.25 64 full False."
    assert 'role="status" aria-live="polite"' in caption.value


def test_setting_the_state_moves_the_controls():
    explorer = explore(draw, **CONTROLS)
    _ = explorer.widget
    explorer.set(tokens=20, kind="full")
    assert explorer._turned["tokens"].value == 20 and explorer._turned["kind"].value == "full"
    assert explorer.widget.children[1].value.count("20 0.5 16 full True.") >= 1


def test_an_error_is_shown_calmly_and_the_explorer_goes_on():
    explorer = explore(draw, **CONTROLS)
    place = explorer.widget.children[1]
    explorer._turned["tokens"].value = 40
    assert explorer.sentence == "No picture for these values: tokens must be at most 32, got 40 <b>"
    assert "got 40 &lt;b&gt;" in place.value and "<b>" not in place.value
    explorer._turned["tokens"].value = 10
    assert explorer.sentence == "10 0.5 16 causal True."
    assert explorer.sentence in place.value
    with pytest.raises(ValueError, match="at most 32"):
        explorer.draw(tokens=50)


def test_only_the_errors_of_values_are_shown_as_pictures():
    explorer = explore(lambda n: 1 / 0, n=(1, 2))
    with pytest.raises(ZeroDivisionError):
        _ = explorer.picture


def test_the_caption_is_seen_only_where_the_picture_has_no_header():
    bare = explore(lambda n: mask_picture(np.eye(n, dtype=bool), title=None), n=(2, 4))
    assert "al-caption" in bare.widget.children[2].value
    assert "al-unseen" in explore(draw, **CONTROLS).widget.children[2].value


def test_a_notebook_keeps_widget_picture_and_sentence():
    explorer = explore(draw, **CONTROLS)
    bundle = explorer._repr_mimebundle_()
    assert set(bundle) == {"application/vnd.jupyter.widget-view+json", "image/svg+xml", "text/plain"}
    view = bundle["application/vnd.jupyter.widget-view+json"]
    assert view == {"version_major": 2, "version_minor": 0, "model_id": explorer.widget.model_id}
    assert bundle["text/plain"] == explorer.sentence
    assert bundle["image/svg+xml"] == explorer.picture.svg


def test_each_spec_has_its_widget():
    def kind(spec, default=None):
        control = read_control("x", spec, "x", default)
        return type(control.widget(control.initial)).__name__

    assert kind((1, 9)) == kind((0, 90, 10)) == "IntSlider"
    assert kind((0.0, 1)) == "FloatSlider"
    assert kind(log2(1, 8)) == "SelectionSlider"
    assert kind(["a", "b"]) == kind([1, 2, 3]) == "ToggleButtons"
    assert kind(("a", "b", "c")) == "ToggleButtons"
    assert kind([f"choice {i}" for i in range(9)]) == "Dropdown"
    assert kind(False) == "Checkbox"


def test_powers_of_two_are_all_there():
    assert read_control("x", log2(1, 8), "x", None).options == (1, 2, 4, 8)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("controls", "error", "message"),
    [
        ({}, ValueError, "controls must name at least one argument"),
        ({"nobody": (1, 2)}, TypeError, "nobody: draw takes no such argument"),
        ({"tokens": (9, 4)}, ValueError, "tokens: low must be below high, got 9 and 4"),
        ({"tokens": (4, 9, 0)}, ValueError, "tokens: step must be positive"),
        ({"tokens": (10, 20)}, ValueError, r"tokens must be in \[10, 20\], got 8"),
        ({"tokens": "many"}, TypeError, "tokens must be"),
        ({"kind": []}, TypeError, "kind must be"),
        ({"kind": ["a", "a"]}, ValueError, "kind: options must differ"),
        (
            {"tokens": (4, 64), "labels": {"kind": "k"}},
            ValueError,
            r"labels must name controls, got \['kind'\]",
        ),
    ],
)
def test_bad_specs_are_named(controls, error, message):
    with pytest.raises(error, match=message):
        explore(draw, **controls)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ({"tokens": 99}, ValueError, r"tokens must be in \[4, 64\], got 99"),
        ({"tokens": 4.5}, TypeError, "tokens must be an integer"),
        ({"share": "half"}, TypeError, "share must be a number"),
        ({"block": 5}, ValueError, "block must be one of"),
        ({"flip": 1}, TypeError, "flip must be True or False"),
        ({"nobody": 1}, TypeError, "nobody: no such control"),
    ],
)
def test_bad_values_are_named_and_change_nothing(state, error, message):
    explorer = explore(draw, **CONTROLS)
    before = explorer.state
    with pytest.raises(error, match=message):
        explorer.set(**state)
    assert explorer.state == before


@pytest.mark.unchecked
def test_log2_takes_powers_of_two():
    with pytest.raises(ValueError, match="low must be a power of two, got 3"):
        log2(3, 8)
    with pytest.raises(ValueError, match="low must be below high"):
        log2(8, 8)
