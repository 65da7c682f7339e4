"""The colours of every picture, by what they mean, each with a value for light and for dark paper.

A picture never names a hex value: it names a role, and the role is the same in every notebook. Three kinds of
role:

- marks: what a thing is (``dense``, ``edge``, ``skip``, ``now``, ``better``, ``seg1`` ... ``seg8``);
- words: the same hues made dark (or, on dark paper, light) enough to read, with the suffix ``-text``;
- words that stand on a filled mark, with the prefix ``on-``.

Marks that carry meaning also differ in texture, position or label, so colour is never the only channel.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COLOURS", "SEGMENT_COLOURS", "Colour", "colour", "contrast", "luminance", "segment_colour"]


@dataclass(frozen=True)
class Colour:
    """One role: its value on light paper and its value on dark paper, both ``#rrggbb``."""

    light: str
    dark: str


_WHITE, _NIGHT = "#ffffff", "#161a1f"
_ON_LIGHT, _ON_DARK = "#1b1f24", "#12161b"

COLOURS: dict[str, Colour] = {
    # The paper and what is written on it.
    "paper": Colour(_WHITE, _NIGHT),
    "rule": Colour("#e3e6ea", "#313841"),  # the border of the paper, hairlines
    "ink": Colour("#1b1f24", "#e8ebef"),
    "quiet": Colour("#5f6872", "#a7b0bb"),  # muted words: muted itself is too pale to read small
    "muted": Colour("#8a929c", "#77808b"),  # axes, brackets, the baseline that is being beaten
    # What a tile or a pair is.
    "dense": Colour("#3b6fb6", "#6b8ff0"),
    "edge": Colour("#e8a33d", "#f3b84a"),
    "skip": Colour("#f1f3f5", "#262c34"),
    "now": Colour("#c8375b", "#ff7f9b"),  # the current step, the write pointer, an offset
    "better": Colour("#2a9d78", "#41b48d"),  # the read pointer, the improvement
    "pad": Colour("#eceef1", "#20262d"),
    "hatch": Colour("#b3bac3", "#4b545f"),
    # A cycle for segments and curves. Neighbours in the cycle stay apart for a colour-blind reader.
    "seg1": Colour("#3b6fb6", "#6b8ff0"),  # blue
    "seg2": Colour("#e8a33d", "#f3b84a"),  # orange
    "seg3": Colour("#2a9d78", "#41b48d"),  # green
    "seg4": Colour("#7f4c93", "#ab74ca"),  # purple
    "seg5": Colour("#7cbcf0", "#86dcf8"),  # light blue
    "seg6": Colour("#7a4030", "#bd6a5c"),  # brown
    "seg7": Colour("#e9afc9", "#f5d5e2"),  # pink
    "seg8": Colour("#70752a", "#8d9a35"),  # olive
    # The same hues as words on paper.
    "seg1-text": Colour("#3465a8", "#8fabf5"),
    "seg2-text": Colour("#8f5500", "#f3b84a"),
    "seg3-text": Colour("#1b7458", "#41b48d"),
    "seg4-text": Colour("#7f4c93", "#c08fdc"),
    "seg5-text": Colour("#22699f", "#86dcf8"),
    "seg6-text": Colour("#7a4030", "#d98d80"),
    "seg7-text": Colour("#a3417a", "#f5d5e2"),
    "seg8-text": Colour("#61661c", "#a3af4a"),
    # Words on a filled mark.
    "on-seg1": Colour(_WHITE, _ON_DARK),
    "on-seg2": Colour(_ON_LIGHT, _ON_DARK),
    "on-seg3": Colour(_ON_LIGHT, _ON_DARK),
    "on-seg4": Colour(_WHITE, _ON_DARK),
    "on-seg5": Colour(_ON_LIGHT, _ON_DARK),
    "on-seg6": Colour(_WHITE, _ON_DARK),
    "on-seg7": Colour(_ON_LIGHT, _ON_DARK),
    "on-seg8": Colour(_WHITE, _ON_DARK),
}
for _role, _same in (("dense", "seg1"), ("edge", "seg2"), ("better", "seg3")):
    COLOURS[f"{_role}-text"] = COLOURS[f"{_same}-text"]
    COLOURS[f"on-{_role}"] = COLOURS[f"on-{_same}"]
COLOURS["now-text"] = COLOURS["now"]  # dark enough to read as it is
COLOURS["on-now"] = Colour(_WHITE, _ON_DARK)
COLOURS["muted-text"] = COLOURS["quiet"]
COLOURS["ink-text"] = COLOURS["ink"]

SEGMENT_COLOURS = 8


def colour(role: str) -> Colour:
    """Return the colour of a role; ValueError if there is no such role."""
    try:
        return COLOURS[role]
    except KeyError:
        raise ValueError(f"colour: there is no role {role!r}; roles are {', '.join(COLOURS)}") from None


def segment_colour(segment_id: int) -> str:
    """Return the role that a segment id is drawn in: id 1 is ``seg1``, and after ``seg8`` comes ``seg1``."""
    if segment_id < 1:
        raise ValueError(f"segment_id must be at least 1 (0 is padding and has no colour), got {segment_id}")
    return f"seg{(segment_id - 1) % SEGMENT_COLOURS + 1}"


def luminance(value: str) -> float:
    """Return the relative luminance of ``#rrggbb``, from 0 (black) to 1 (white), as WCAG 2.2 defines it."""
    channels = [int(value[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """Return the WCAG contrast ratio of two ``#rrggbb`` values, from 1 to 21. Text needs 4.5 (level AA)."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)
