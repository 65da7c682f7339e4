"""Pictures: from a state to SVG and one sentence, and the widgets that move through states.

Every picture is a pure function that returns a `Picture`: SVG text on its own paper, legible in light and
dark, and the one sentence that says the same in words. A picture never computes what it depicts; it is handed
the result.

- `mask_picture`, `tile_picture`, `segment_picture` draw what the techniques work on.
- `curve_figure` draws curves and moves a cursor over them; `to_picture` themes any matplotlib figure.
- `explore` turns a picture's arguments into controls; `replay` scrubs through recorded steps.
- `beside` and `stack` put pictures together; `Svg` and `open_card` draw new ones; `COLOURS` names the
  colours.
- `show_source` shows the package's own source.

Importing this package loads neither matplotlib nor ipywidgets: the first comes with the first curve, the
second with the first explorer that is shown.
"""

from __future__ import annotations

from attnlab.show.card import MARGIN, open_card
from attnlab.show.curve import Curve
from attnlab.show.curves import Curves, curve_figure, to_picture
from attnlab.show.explorer import Explorer, explore, log2
from attnlab.show.grid import Axes, Grid
from attnlab.show.hatch import hatch
from attnlab.show.mask_picture import mask_picture
from attnlab.show.palette import COLOURS, segment_colour
from attnlab.show.picture import Picture, beside, stack
from attnlab.show.replay import Frame, Replay, replay
from attnlab.show.segment_picture import segment_picture
from attnlab.show.source import Source, show_source
from attnlab.show.svg import Svg
from attnlab.show.tile_picture import tile_picture

__all__ = [
    "COLOURS",
    "MARGIN",
    "Axes",
    "Curve",
    "Curves",
    "Explorer",
    "Frame",
    "Grid",
    "Picture",
    "Replay",
    "Source",
    "Svg",
    "beside",
    "curve_figure",
    "explore",
    "hatch",
    "log2",
    "mask_picture",
    "open_card",
    "replay",
    "segment_colour",
    "segment_picture",
    "show_source",
    "stack",
    "tile_picture",
    "to_picture",
]
