"""Colours and markers of what figures show.

The surprising choice: only what several figures have in common is fixed. Everything else takes the
next colour and the next marker, so that no two things on one figure share either.
"""

from __future__ import annotations

from collections.abc import Iterable

from ftax.paper.figures.sheet import Series, Sheet

# Okabe and Ito's palette, which the colour-blind can tell apart, without its yellow, which white
# paper swallows, and with a grey.
BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_PURPLE, _SKY, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#7F7F7F"
PALETTE = (BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _SKY, GREY, BLACK)
MARKERS = "os^DvPX*"

Style = tuple[str, str]  # colour and marker

_FIXED: dict[str, Style] = {  # what several figures show looks the same in all of them
    "eager": (BLUE, "o"),
    "torchscript": (_ORANGE, "s"),
    "onnxruntime": (_GREEN, "^"),
    "cuda-graph": (_RED, "D"),
    "nested": (_PURPLE, "P"),
    "padded": (_SKY, "v"),
    "eager-once": (_SKY, "v"),
    "torchscript-once": (_RED, "D"),
    "bert-base": (BLUE, "o"),
    "resnet-50": (BLUE, "o"),
    "here": (BLACK, "*"),
}


def choose_styles(sheet: Sheet) -> dict[str, Style]:
    """Colour and marker of each style of a sheet: fixed ones first, the others in order."""
    names = list(dict.fromkeys(series.style for series in list_series(sheet)))
    styles = {name: _FIXED[name] for name in names if name in _FIXED}
    colours = [colour for colour in PALETTE if colour not in {c for c, _ in styles.values()}]
    markers = [marker for marker in MARKERS if marker not in {m for _, m in styles.values()}]
    others = [name for name in names if name not in styles]
    for place, name in enumerate(others):
        styles[name] = (
            (colours or PALETTE)[place % len(colours or PALETTE)],
            (markers or MARKERS)[place % len(markers or MARKERS)],
        )
    return styles


def list_hands(sheet: Sheet) -> list[str]:
    """The machines that have a kind of line each: those whose name is not that of the line itself,
    which then has a colour of its own."""
    measured = (series for series in list_series(sheet) if series.measured)
    return list(
        dict.fromkeys(item.source for item in measured if not item.label.startswith(item.source))
    )


def list_series(sheet: Sheet) -> Iterable[Series]:
    """All series of all panels."""
    return (series for panel in sheet.panels for series in panel.series)
