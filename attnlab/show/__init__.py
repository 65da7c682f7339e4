"""Pictures: from a state to SVG and one sentence, and the widgets that move through states.

Every picture is a pure function that returns a `Picture`: SVG text on its own paper, legible in light and
dark, and the one sentence that says the same in words. A picture never computes what it depicts; it is handed
the result.

- `mask_picture`, `tile_picture`, `segment_picture` draw what the techniques work on.
- `ring_picture`, `ring_replay` and `capacity_picture` draw a ring buffer, its pointers and what breaks it;
  `window_picture` the tiles of a window, `schedule_picture`, `schedule_replay` and `two_level_picture` a walk
  over them; `merge_picture` the merge of partial results; `heat_picture` and `sweep_replay` gradients
  through segments; `address_picture` the bytes that are read. Functions that end in ``explorer_picture``
  take plain numbers, for `explore`.
- `roofline_picture` draws measurements under the limits of a machine.
- `curve_figure` draws curves and moves a cursor over them; `to_picture` themes any matplotlib figure.
- `explore` turns a picture's arguments into controls; `replay` scrubs through recorded steps.
- `beside` and `stack` put pictures together; `Svg` and `open_card` draw new ones; `COLOURS` names the
  colours.
- `show_source` shows the package's own source.

Importing this package loads neither matplotlib nor ipywidgets: the first comes with the first curve, the
second with the first explorer that is shown.
"""

from __future__ import annotations

from attnlab.show.address_picture import address_picture
from attnlab.show.card import MARGIN, open_card
from attnlab.show.curve import Curve
from attnlab.show.curves import Curves, curve_figure, to_picture
from attnlab.show.explorer import Explorer, explore, log2
from attnlab.show.grid import Axes, Grid
from attnlab.show.hatch import hatch
from attnlab.show.heat_picture import heat_picture
from attnlab.show.heat_sweep import sweep_replay
from attnlab.show.mask_picture import mask_picture
from attnlab.show.merge_picture import merge_picture
from attnlab.show.palette import COLOURS, segment_colour
from attnlab.show.picture import Picture, beside, stack
from attnlab.show.replay import Frame, Replay, replay
from attnlab.show.ring_capacity_picture import capacity_picture
from attnlab.show.ring_picture import ring_picture
from attnlab.show.ring_replay import ring_explorer_picture, ring_replay, ring_states
from attnlab.show.ring_state import RingState, read_ring
from attnlab.show.roofline import RooflinePoint, roofline_picture
from attnlab.show.schedule_levels import two_level_explorer_picture, two_level_picture
from attnlab.show.schedule_picture import schedule_explorer_picture, schedule_picture, schedule_replay
from attnlab.show.schedule_walks import Schedule, schedule
from attnlab.show.schedule_window import window_picture
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
    "RingState",
    "RooflinePoint",
    "Schedule",
    "Source",
    "Svg",
    "address_picture",
    "beside",
    "capacity_picture",
    "curve_figure",
    "explore",
    "hatch",
    "heat_picture",
    "log2",
    "mask_picture",
    "merge_picture",
    "open_card",
    "read_ring",
    "replay",
    "ring_explorer_picture",
    "ring_picture",
    "ring_replay",
    "ring_states",
    "roofline_picture",
    "schedule",
    "schedule_explorer_picture",
    "schedule_picture",
    "schedule_replay",
    "segment_colour",
    "segment_picture",
    "show_source",
    "stack",
    "sweep_replay",
    "tile_picture",
    "to_picture",
    "two_level_explorer_picture",
    "two_level_picture",
    "window_picture",
]
