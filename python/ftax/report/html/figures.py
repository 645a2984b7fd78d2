"""The paper's figures and tables on a page, of each machine that measured cells.

The surprising choice: they are not the files that `ftax paper` draws. Both come from the same
sheets, and these are drawn as all charts of the page, so that a phone and the dark show them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ftax.paper.items import list_items
from ftax.paper.missing import has_measured
from ftax.paper.setting import Setting
from ftax.paper.sheet import Panel, Point, Series, Sheet
from ftax.paper.styles import MARKERS, PALETTE, choose_styles, list_series
from ftax.paper.view import View, split_views
from ftax.records import FrozenMap
from ftax.report.html.charts import (
    RING,
    Axis,
    Entry,
    Line,
    Look,
    Mark,
    Plot,
    gather,
    make_linear_axis,
    make_log_axis,
    make_share_axis,
    make_size_axis,
)
from ftax.report.html.sweeps import Sweeps
from ftax.report.html.view import TableView
from ftax.sweep.results import SweepResults

_SHOWS = {"latency": "latency (ms)", "split": "latency (ms)", "share": "overhead share"}
_WHO = {True: ", measured here", False: ", the paper"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureView:
    """One figure: a chart a panel, each with its title."""

    id: str
    item: str  # "fig3"
    title: str
    note: str
    legend: tuple[Entry, ...]
    panels: tuple[tuple[str, Plot], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsView:
    """What a machine's cells give of the paper; ``absent`` are figures that they do not."""

    machine: str
    drift: str
    figures: tuple[FigureView, ...]
    tables: tuple[TableView, ...]
    absent: tuple[str, ...]


def make_items_views(sweeps: Sweeps) -> tuple[ItemsView, ...]:
    """The items of each machine."""
    cells = tuple(item.record for item in sweeps.cells)
    results = SweepResults(cells=cells, machines=FrozenMap(sweeps.machines))
    return tuple(_make_view(view) for view in split_views(results))


def _make_view(view: View) -> ItemsView:
    setting = Setting.choose(device=view.device)
    figures, tables, absent = [], [], []
    for item in list_items():
        if item.make_table is not None:
            if has_measured(item.make_wants(setting), setting, view):
                tables.append(TableView(rows=item.make_table(view)))
        elif (sheet := item.make_sheet(view)).measured:
            figures.append(_make_figure(sheet, f"{item.name}-{view.label}"))
        else:
            absent.append(sheet.title)
    return ItemsView(
        machine=view.label,
        drift="" if view.drift is None else view.drift.describe(),
        figures=tuple(figures),
        tables=tuple(tables),
        absent=tuple(absent),
    )


def _make_figure(sheet: Sheet, id: str) -> FigureView:
    looks = {
        name: Look(colour=PALETTE.index(colour), shape=MARKERS.index(marker))
        for name, (colour, marker) in choose_styles(sheet).items()
    }
    return FigureView(
        id="-".join(id.lower().split()),
        item=sheet.item,
        title=sheet.title,
        note=sheet.note,
        legend=_make_legend(sheet, looks),
        panels=tuple((panel.title, _draw_panel(panel, sheet, looks)) for panel in sheet.panels),
    )


def _make_legend(sheet: Sheet, looks: dict[str, Look]) -> tuple[Entry, ...]:
    """An entry for each thing that was run, and one for each hand that ran it."""
    entries = {series.label: Entry(name=series.label, look=looks[series.style])
               for series in list_series(sheet)}  # fmt: skip
    for series in list_series(sheet):
        whose = f"{series.source}{_WHO[series.measured]}"
        if series.measured or series.source not in entries:  # a label may be a device's name
            look = Look(
                colour=None, shape=0, hollow=not series.measured, dash=int(not series.measured)
            )
            entries[whose] = Entry(name=whose, look=look)
    if any(panel.shows == "split" for panel in sheet.panels):
        look = Look(colour=None, shape=None, dash=2)
        entries["busy"] = Entry(name="device busy; shaded above it: framework overhead", look=look)
    if any(point.doubt for series in list_series(sheet) for point in series.points):
        entries["ring"] = RING
    return tuple(entries.values())


def _draw_panel(panel: Panel, sheet: Sheet, looks: dict[str, Look]) -> Plot:
    every = [point for series in panel.series for point in series.points]
    lines, areas = [], []
    for series in panel.series:
        lines.append(_make_line(series, panel, looks[series.style]))
        if panel.shows == "split":
            busy = _find_busy(series)
            lines.append(_make_busy(busy, looks[series.style]))
            if series.measured and len(busy) > 1:
                tops = tuple((p.x, p.latency_ms) for p in series.points if p.busy_ms is not None)
                areas.append((busy, tops, "tax"))
                areas.append((tuple((x, 0.0) for x, _ in busy), busy, "busy"))
    return Plot(
        label=f"{sheet.title}: {panel.title}, {_SHOWS[panel.shows]} over {panel.x_name}",
        x=make_size_axis(panel.x_name, [point.x for point in every])
        if panel.scale == "log"
        else make_linear_axis(panel.x_name, [point.x for point in every]),
        y=_make_y_axis(panel, every),
        lines=tuple(lines),
        areas=tuple(areas),
    )


def _make_y_axis(panel: Panel, points: Sequence[Point]) -> Axis:
    if panel.shows == "share":
        return make_share_axis(_SHOWS["share"])
    values = gather([point.latency_ms for point in points], map(_find_interval, points))
    if panel.scale == "linear" or panel.shows == "split":
        return make_linear_axis(_SHOWS["latency"], values)
    return make_log_axis(_SHOWS["latency"], values)


def _make_line(series: Series, panel: Panel, look: Look) -> Line:
    """Solid and filled if it was measured here, dashed and hollow if by the paper."""
    is_share = panel.shows == "share"
    points = [p for p in series.points if not is_share or p.share_pct is not None]
    return Line(
        look=look if series.measured else replace(look, hollow=True, dash=1),
        marks=tuple(
            Mark(
                x=point.x,
                y=(point.share_pct or 0.0) / 100 if is_share else point.latency_ms,
                interval=None if is_share else _find_interval(point),
                text=_describe(point, series, panel),
                doubt=bool(point.doubt),
            )
            for point in points
        ),
    )


def _describe(point: Point, series: Series, panel: Panel) -> str:
    interval = _find_interval(point)
    lines = [
        f"{series.label}, {series.source}{_WHO[series.measured]}",
        f"{panel.x_name} {point.x:.4g}: {point.latency_ms:.3g} ms",
    ]
    if interval is not None:
        lines[-1] += f" ({interval[0]:.3g} to {interval[1]:.3g})"
    if point.share_pct is not None:
        lines.append(f"device busy {point.busy_ms:.3g} ms, overhead {point.share_pct:.0f} %")
    return "\n".join([*lines, *filter(None, [point.doubt])])


def _find_interval(point: Point) -> tuple[float, float] | None:
    if point.low_ms is None or point.high_ms is None:
        return None
    return point.low_ms, point.high_ms


def _find_busy(series: Series) -> tuple[tuple[float, float], ...]:
    return tuple((point.x, point.busy_ms) for point in series.points if point.busy_ms is not None)


def _make_busy(busy: Sequence[tuple[float, float]], look: Look) -> Line:
    """The device's part of a latency: a line without marks."""
    marks = tuple(Mark(x=x, y=y, text="") for x, y in busy)
    return Line(look=replace(look, shape=None, dash=2), marks=marks)
