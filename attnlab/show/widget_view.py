"""What a notebook stores of something live: the widget, a still picture, and the sentence."""

from __future__ import annotations

from typing import Any

from attnlab.show.picture import Picture

__all__ = ["live_bundle"]


def live_bundle(widget: Any, picture: Picture) -> dict[str, Any]:
    """Return the display data of a widget that also has a still picture.

    A reader with a kernel gets the widget; one without (a web page, a diff, a printout) gets the picture; and
    what nbval compares is the sentence.
    """
    bundle: dict[str, Any] = dict(picture._repr_mimebundle_())
    view = widget._repr_mimebundle_()
    # anywidget hands out data and metadata; ipywidgets only the data.
    data = view[0] if isinstance(view, tuple) else view
    bundle["application/vnd.jupyter.widget-view+json"] = data["application/vnd.jupyter.widget-view+json"]
    return bundle
