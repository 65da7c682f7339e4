"""How wide a line of text will be, without a font at hand.

A picture must leave room for its labels before a browser draws them. The widths are those of DejaVu Sans,
which is wider than the usual system fonts, so that a label that fits here fits there.
"""

from __future__ import annotations

import unicodedata

from attnlab.show.numeric import Number

__all__ = ["text_width", "wrap"]

# Advance widths of the printable ASCII characters, in thousandths of the font size, from "space" to "~".
_REGULAR = (
    "318 401 460 838 636 950 780 275 390 390 500 838 318 361 318 337 636 636 636 636 636 636 636 636 "
    "636 636 337 337 838 838 838 531 1000 684 686 698 770 631 575 775 752 295 295 656 557 863 748 787 "
    "603 787 695 635 611 732 684 989 685 611 685 390 337 390 838 500 500 613 635 550 635 615 352 635 "
    "634 278 279 579 278 974 634 611 635 635 412 521 392 634 592 818 592 592 525 637 337 636 838"
)
_BOLD = (
    "348 456 521 838 696 1002 872 306 457 457 523 838 380 415 380 365 696 696 696 696 696 696 696 696 "
    "696 696 400 400 838 838 838 580 1000 774 762 734 830 683 683 821 837 372 372 775 637 995 837 850 "
    "733 850 770 720 682 812 774 1103 771 724 725 457 365 457 838 500 500 675 716 593 716 678 435 716 "
    "712 343 343 665 343 1042 712 687 716 716 493 595 478 712 652 924 645 652 582 712 365 712 838"
)
_WIDTHS = {
    bold: {chr(32 + i): int(width) / 1000 for i, width in enumerate(table.split())}
    for bold, table in ((False, _REGULAR), (True, _BOLD))
}


def _character(character: str, bold: bool) -> Number:
    known = _WIDTHS[bold].get(character)
    if known is not None:
        return known
    if character == "·":
        return 0.38
    return 1.0 if unicodedata.east_asian_width(character) in "WF" else 0.84


def text_width(text: str, size: Number, *, bold: bool = False) -> Number:
    """Return an upper estimate of the width of one line of text, in the unit of ``size`` (pixels)."""
    return size * sum(_character(character, bold) for character in text)


def wrap(text: str, size: Number, width: Number, *, bold: bool = False) -> list[str]:
    """Break text at spaces into lines no wider than ``width`` pixels; a longer word stays whole."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size, bold=bold) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
