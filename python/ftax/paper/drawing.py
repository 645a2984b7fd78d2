"""Draws a `Sheet` with matplotlib, as SVG and PNG.

Colour and marker say what was run. Line style says who ran it: solid and filled was measured here
(other machines are dash-dotted and so on), dashed and hollow is the paper's.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftax.errors import UnavailableError
from ftax.paper.sheet import (
    BLACK,
    BLUE,
    GREY,
    Panel,
    Point,
    Series,
    Sheet,
    Style,
    choose_styles,
    list_hands,
    list_series,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Of a legend's entry: its sample of the line, and a letter of its text, generously.
_ENTRY_IN, _LETTER_IN = 0.45, 0.055

# Of machines in one picture; the paper's are dashed.
_LINES: tuple[Any, ...] = ("-", "-.", (0, (1, 1)), (0, (6, 1, 1, 1, 1, 1)), (0, (8, 2)))
_ABREAST, _MOST_ABREAST = 3, 5  # panels
_RING: Any = {
    "linestyle": "",
    "marker": "o",
    "markersize": 9,
    "markerfacecolor": "none",
    "markeredgecolor": BLACK,
}
_SETTINGS: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "svg.fonttype": "none",  # text stays text: it can be searched, and read by a screen reader
    "svg.hashsalt": "ftax",  # equal data give equal files
}


def save_sheet(sheet: Sheet, stem: Path) -> tuple[Path, Path]:
    """Write ``stem`` as .svg and .png and return the two paths.

    Raises UnavailableError without matplotlib.
    """
    from matplotlib import rc_context

    with rc_context(_SETTINGS):
        figure = draw_sheet(sheet)
        figure.draw_without_rendering()  # places everything, once for both files
        figure.set_layout_engine("none")
        paths = stem.with_suffix(".svg"), stem.with_suffix(".png")
        figure.savefig(paths[0], metadata={"Date": None, "Creator": "ftax"})
        figure.savefig(paths[1], dpi=160)
    return paths


def check_matplotlib() -> None:
    """Raise UnavailableError if matplotlib is missing, before anything is measured for it."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise UnavailableError("figures need matplotlib: `pip install 'ftax[report]'`")


def draw_sheet(sheet: Sheet) -> Figure:
    """The figure; the caller holds the matplotlib settings."""
    check_matplotlib()
    from matplotlib.figure import Figure  # without pyplot: no window, no state

    columns = _choose_columns(len(sheet.panels))
    rows = -(-len(sheet.panels) // columns)
    width = max(5.5, 3.5 * columns)
    styles = choose_styles(sheet)
    entries = _make_legend(sheet, styles)
    longest = max(len(str(entry.get_label())) for entry in entries)
    abreast = max(1, int(width / (_ENTRY_IN + _LETTER_IN * longest)))
    legend_in = 0.6 + 0.17 * -(-len(entries) // abreast)
    figure = Figure(figsize=(width, 2.6 * rows + 0.4 + legend_in), layout="constrained")
    figure.suptitle(_wrap(sheet.title, 13 * width), fontsize=9.5)
    grid: Any = figure.subplots(rows, columns, squeeze=False)
    places = [axes for row in grid for axes in row]
    hands = list_hands(sheet)
    for axes, panel in zip(places, sheet.panels):
        _draw_panel(axes, panel, styles, hands)
    for axes in places[len(sheet.panels) :]:
        axes.set_axis_off()
    figure.legend(
        handles=entries,
        loc="outside lower center",
        ncols=abreast,
        frameon=False,
        title=_wrap(sheet.note, 19 * width),
        title_fontsize=6.5,
    )
    return figure


def _choose_columns(panels: int) -> int:
    if panels <= _ABREAST:
        return panels
    if panels % 2 == 0 and panels <= 2 * _MOST_ABREAST:  # a row a dtype
        return panels // 2
    return _ABREAST


def _wrap(text: str, letters: float) -> str:
    return "\n".join(textwrap.wrap(text, int(letters)))


def _draw_panel(axes: Axes, panel: Panel, styles: dict[str, Style], hands: Sequence[str]) -> None:
    _set_axes(axes, panel)
    for series in panel.series:
        colour, marker = styles[series.style]
        look: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "markersize": 4.5,
            "linestyle": _find_line(series.source, hands) if series.measured else "--",
            "linewidth": 1.6 if series.measured else 1.0,
            "markerfacecolor": colour if series.measured else "white",
        }
        if panel.shows == "share":
            shares = {point: point.share_pct for point in series.points}
            _draw_line(axes, {p: share for p, share in shares.items() if share is not None}, look)
        else:
            _draw_line(axes, {point: point.latency_ms for point in series.points}, look)
            _draw_intervals(axes, series.points, colour)
        if panel.shows == "split":
            _draw_busy(axes, series, colour)
    if panel.scale == "linear" or panel.shows == "split":
        axes.set_ylim(bottom=0)


def _find_line(source: str, hands: Sequence[str]) -> Any:
    """Solid for the first machine, and for one that has a colour of its own."""
    return _LINES[hands.index(source) % len(_LINES)] if source in hands else _LINES[0]


def _set_axes(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_name)
    axes.set_ylabel("overhead share (%)" if panel.shows == "share" else "latency (ms)")
    if panel.scale == "log":
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted({point.x for series in panel.series for point in series.points}))
        axes.xaxis.set_major_formatter(plain)
    if panel.shows == "share":
        axes.set_ylim(0, 100)
    elif panel.scale == "log" and panel.shows == "latency":
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(plain)
    axes.minorticks_off()


def _draw_line(axes: Axes, values: Mapping[Point, float], look: dict[str, Any]) -> None:
    """The values of points, with rings around what is not to go by, or was measured beside
    others."""
    axes.plot(_xs([*values]), list(values.values()), **look)
    doubtful = [point for point in values if point.doubt]
    axes.plot(_xs(doubtful), [values[point] for point in doubtful], **_RING)


def _draw_intervals(axes: Axes, points: Sequence[Point], colour: str) -> None:
    known = [point for point in points if point.low_ms is not None and point.high_ms is not None]
    lows, highs = [point.low_ms for point in known], [point.high_ms for point in known]
    if len(known) > 1:
        axes.fill_between(_xs(known), lows, highs, color=colour, alpha=0.2, linewidth=0)  # type: ignore[arg-type]
    elif known:
        axes.vlines(_xs(known), lows, highs, color=colour)  # type: ignore[arg-type]


def _draw_busy(axes: Axes, series: Series, colour: str) -> None:
    """The device's time below the latency; for ours the two parts are filled."""
    known = [point for point in series.points if point.busy_ms is not None]
    busy = [point.busy_ms or 0.0 for point in known]
    style = "-." if series.measured else ":"
    axes.plot(_xs(known), busy, color=colour, linestyle=style, linewidth=1.0)
    if series.measured and len(known) > 1:
        axes.fill_between(_xs(known), 0, busy, color=GREY, alpha=0.35, linewidth=0)
        tops = [point.latency_ms for point in known]
        axes.fill_between(_xs(known), busy, tops, color=colour, alpha=0.15, linewidth=0)


def _has_busy(sheet: Sheet) -> bool:
    """Whether any latency is drawn with the device's part of it."""
    return any(
        point.busy_ms is not None
        for panel in sheet.panels
        if panel.shows == "split"
        for series in panel.series
        for point in series.points
    )


def _xs(points: Sequence[Point]) -> list[float]:
    return [point.x for point in points]


def _make_legend(sheet: Sheet, styles: dict[str, Style]) -> list[Any]:
    """An entry for each thing that was run, one for each hand that ran it."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Any] = [
        Line2D([], [], color=styles[style][0], marker=styles[style][1], linewidth=1.6, label=label)
        for label, style in dict.fromkeys((s.label, s.style) for s in list_series(sheet))
    ]
    ours = list_hands(sheet)
    theirs = dict.fromkeys(series.source for series in list_series(sheet) if not series.measured)
    entries += [
        Line2D(
            [],
            [],
            color=BLACK,
            marker="o",
            linewidth=1.6,
            linestyle=_find_line(name, ours),
            label=f"{'like this' if place else 'solid'}: {name}, measured",
        )
        for place, name in enumerate(ours)
    ]
    if theirs:
        whose = f"{next(iter(theirs))}, " if len(theirs) == 1 else ""
        entries.append(
            Line2D([], [], color=BLACK, marker="o", markerfacecolor="white", linestyle="--",
                   linewidth=1.0, label=f"dashed: {whose}the paper")
        )  # fmt: skip
    if _has_busy(sheet):
        entries.append(Patch(color=GREY, alpha=0.35, label="device busy (the paper: dotted)"))
        entries.append(Patch(color=BLUE, alpha=0.15, label="framework overhead"))
    if any(point.doubt for series in list_series(sheet) for point in series.points):
        entries.append(Line2D([], [], label="ring: not resolved, or disturbed", **_RING))
    return entries
