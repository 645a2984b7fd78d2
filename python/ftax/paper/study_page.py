"""The study of the paper as sections of a page: verdicts on claims, then figures and tables.

Figures are made from the sheets that `ftax paper` draws, as all charts of the page are, so that a
phone and the dark show them too. Claims that cannot be tested are listed as well, each with its
reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ftax.paper.claims.arithmetic import list_some
from ftax.paper.claims.claim_verdict import OUTCOMES, ClaimValue, Verdict
from ftax.paper.claims.verdict_tables import explain_outcome, format_number
from ftax.paper.items import list_items
from ftax.paper.machine_view import View, group_views, split_views
from ftax.paper.sheet import (
    MARKERS,
    PALETTE,
    Point,
    Series,
    Sheet,
    choose_styles,
    list_hands,
    list_series,
)
from ftax.paper.sheet import Panel as PaperPanel
from ftax.paper.study_setting import StudySetting, has_measured
from ftax.records.fields import FrozenMap
from ftax.reports.html.charts import (
    RING,
    Axis,
    Ends,
    Entry,
    Line,
    Look,
    Mark,
    Plot,
    make_linear_axis,
    make_share_axis,
    make_size_axis,
    make_time_axis,
)
from ftax.reports.html.sources import Found, Sweeps
from ftax.reports.html.view import Bar, Bars, Charts, Lead, Panel, Part, Study, TableView
from ftax.sweeps.results import SweepResults
from ftax.timing.units import format_interval, format_time

_MOST = 8  # numbers of a list that are shown
_MOST_TOLD = 3  # outcomes in the headline; the bar has them all
_TOLD = {  # at the top of the page, of one claim and of several
    "holds": ("holds today", "hold today"),
    "changed": ("has changed", "have changed"),
    "does not hold": ("does not hold", "do not hold"),
    "not resolved": ("is not resolved", "are not resolved"),
    "cannot be tested here": ("cannot be tested", "cannot be tested"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsView:
    """Verdicts on the results of one machine; ``machine`` as they name it.

    Attributes:
        choices: what filters offer: (field, its name, how many there are of each value).
        verdicts: each with what it comes to, and its numbers as
            (name, the paper's, today's, intervals).
    """

    machine: str
    summary: str
    chart: Bars
    choices: tuple[tuple[str, str, Counter[str]], ...]
    verdicts: tuple[tuple[Found, str, tuple[tuple[str, ...], ...]], ...]


def make_claims_views(found: Sequence[Found]) -> list[ClaimsView]:
    """The verdicts of each machine; none without records of them."""
    verdicts = [item for item in found if isinstance(item.record, Verdict)]
    groups: dict[str, list[Found]] = {}
    for item in verdicts:
        groups.setdefault(item.record.machine, []).append(item)
    machines = [name for name in groups if name]
    if len(machines) == 1:  # what needs no machine is said beside the only one
        groups = {machines[0]: verdicts}
    return [_make_view(machine, group) for machine, group in groups.items()]


def _make_view(machine: str, group: Sequence[Found]) -> ClaimsView:
    counts = Counter(str(item.record.today) for item in group)
    today: Counter[str] = Counter({name: counts[name] for name in OUTCOMES if counts[name]})
    told = [f"{count} {_TOLD[name][count > 1]}" for name, count in today.items()]
    where = f" on {machine}" if machine else ""
    return ClaimsView(
        machine=machine or "On no single machine",
        summary=f"Of {len(group)} claims and checks of the paper, "
        f"{', '.join(told[:_MOST_TOLD])}{where}",
        chart=_draw_outcomes(counts, len(group)),
        choices=(
            ("today", "today", today),
            ("paper", "the paper's own data", Counter(item.record.paper for item in group)),
        ),
        verdicts=tuple(
            (
                item,
                item.record.sentence or explain_outcome(item.record),
                tuple(map(_describe_value, item.record.values)),
            )
            for item in group
        ),
    )


def _draw_outcomes(counts: Counter[str], every: int) -> Bars:
    """One bar of all claims, cut where outcomes change."""
    start, parts, legend = 0.0, [], []
    for outcome in OUTCOMES:
        count, kind = counts[outcome], f"outcome-{outcome.replace(' ', '-')}"
        if count:
            width = 100 * count / every
            parts.append(Part(start=start, width=width, kind=kind, text=str(count)))
            legend.append((kind, f"{outcome} {count}"))
            start += width
    bar = Bar(name="claims and checks", value=str(every), parts=tuple(parts))
    return Bars(label="Claims of the paper by what holds today", bars=(bar,), legend=tuple(legend))


def _describe_value(value: ClaimValue) -> tuple[str, ...]:
    ends = zip(value.low, value.high, strict=True)
    return (
        value.name,
        _join(map(format_number, value.paper)) or "no data",
        _join(map(format_number, value.today)) or value.why,
        _join(f"{format_number(low)} to {format_number(high)}" for low, high in ends),
    )


def _join(texts: Iterable[str]) -> str:
    return list_some(texts, _MOST, more=" and {} more")


_MS = 1e6  # in ns
_THESIS, _PANELS = 3, 2  # the figure at the top of the page, and how many panels of it
_BUSY, _MOST_DASHES = 2, 3  # kinds of lines: of busy time, and of machines beside the first
_WHO = {True: ", measured here", False: ", the paper"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureView:
    """One figure: a chart a panel."""

    number: int
    title: str
    note: str
    charts: Charts


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsView:
    """What the cells of machines give of the paper; ``absent`` are figures that they do not."""

    machine: str
    drift: str
    figures: tuple[FigureView, ...]
    tables: tuple[TableView, ...]
    absent: tuple[str, ...]


def describe_study(found: Sequence[Found], sweeps: Sweeps) -> Study:
    """All of the paper that the results have; nothing without verdicts, which a study ends with."""
    claims = make_claims_views(found)
    if not claims:
        return Study()
    items = _make_items_views(sweeps)
    charts = [Charts(panels=(Panel(chart=claims[0].chart),))]
    for figure in [f for view in items for f in view.figures if f.number == _THESIS][:1]:
        panels = [
            replace(panel, caption=f"Figure {_THESIS}: {panel.caption}")
            for panel in figure.charts.panels[:_PANELS]
        ]
        charts.append(replace(figure.charts, panels=tuple(panels)))
    lead = Lead(section="claims", text=claims[0].summary, charts=tuple(charts))
    return Study(lead=lead, claims=claims, items=items)


def _make_items_views(sweeps: Sweeps) -> list[ItemsView]:
    cells = tuple(item.record for item in sweeps.cells)
    results = SweepResults(cells=cells, machines=FrozenMap(sweeps.machines))
    return [_make_items_view(views) for views in group_views(split_views(results))]


def _make_items_view(views: Sequence[View]) -> ItemsView:
    setting = StudySetting.choose(device=views[0].device)
    tables = [
        TableView(rows=item.make_table(views))
        for item in list_items()
        if item.make_table and has_measured(item.make_wants(setting), setting, views)
    ]
    sheets = [item.make_sheet(views) for item in list_items() if item.make_panels]
    drifts = {view.label: view.drift.describe() for view in views if view.drift is not None}
    return ItemsView(
        machine=", ".join(view.label for view in views),
        drift=" ".join(
            text if len(views) == 1 else f"{label}: {text}" for label, text in drifts.items()
        ),
        figures=tuple(_make_figure(sheet) for sheet in sheets if sheet.measured),
        tables=tuple(tables),
        absent=tuple(sheet.title for sheet in sheets if not sheet.measured),
    )


def _make_figure(sheet: Sheet) -> FigureView:
    number = int(sheet.item.removeprefix("fig"))
    looks = {
        name: Look(colour=PALETTE.index(colour), shape=MARKERS.index(marker))
        for name, (colour, marker) in choose_styles(sheet).items()
    }
    hands = list_hands(sheet)
    panels = [
        Panel(chart=_draw(panel, looks, hands), caption=panel.title) for panel in sheet.panels
    ]
    charts = Charts(panels=tuple(panels), legend=_make_legend(sheet, looks))
    return FigureView(number=number, title=sheet.title, note=sheet.note, charts=charts)


def _make_legend(sheet: Sheet, looks: Mapping[str, Look]) -> tuple[Entry, ...]:
    """An entry for each thing that was run, one for each hand that no label names, and what else is
    drawn."""
    every = [*list_series(sheet)]
    things = {series.label: looks[series.style] for series in every}
    ours = list_hands(sheet)
    hands = {
        f"{series.source}{_WHO[series.measured]}": Look(
            shape=0, hollow=not series.measured, dash=_find_dash(series, ours)
        )
        for series in every
        if (series.source in ours if series.measured else series.source not in things)
    }
    if any(panel.shows == "split" for panel in sheet.panels):
        hands["device busy; shaded above it: framework overhead"] = Look(dash=_BUSY)
    entries = [Entry(name=name, look=look) for name, look in (things | hands).items()]
    doubts = [point for series in every for point in series.points if point.doubt]
    return (*entries, *([RING] if doubts else []))


def _find_dash(series: Series, hands: Sequence[str]) -> int:
    """Solid for the first machine that measured, and for one with a colour of its own; dashed for
    the paper; of other machines a kind each, after that of the device's busy time."""
    place = hands.index(series.source) if series.source in hands else 0
    if not series.measured or not place:
        return int(not series.measured)
    return _BUSY + 1 + (place - 1) % _MOST_DASHES


def _draw(panel: PaperPanel, looks: Mapping[str, Look], hands: Sequence[str]) -> Plot:
    every = [point for series in panel.series for point in series.points]
    make_x_axis = make_size_axis if panel.scale == "log" else make_linear_axis
    lines = [
        _make_line(series, panel, replace(looks[series.style], dash=_find_dash(series, hands)))
        for series in panel.series
    ]
    areas: list[tuple[tuple[Ends, ...], str]] = []
    for series in panel.series if panel.shows == "split" else ():
        known = [point for point in series.points if point.busy_ms is not None]
        busy = [(point.x, (point.busy_ms or 0.0) * _MS) for point in known]
        marks = tuple(Mark(x=x, y=y) for x, y in busy)
        lines.append(Line(look=replace(looks[series.style], shape=None, dash=_BUSY), marks=marks))
        if series.measured and len(known) > 1:
            tops = [(point.x, point.latency_ms * _MS) for point in reversed(known)]
            areas.append(((*busy, *tops), "tax"))
            areas.append((((known[0].x, 0.0), *busy, (known[-1].x, 0.0)), "busy"))
    return Plot(
        label=f"{panel.title}: {panel.shows} over {panel.x_name}",
        x=make_x_axis(panel.x_name, [point.x for point in every]),
        y=_make_y_axis(panel, every),
        lines=tuple(lines),
        areas=tuple(areas),
    )


def _make_y_axis(panel: PaperPanel, points: list[Point]) -> Axis:
    if panel.shows == "share":
        return make_share_axis("overhead share")
    times = [point.latency_ms * _MS for point in points]
    is_log = panel.scale == "log" and panel.shows == "latency"
    intervals = map(_find_interval, points)
    return make_time_axis("latency", times, intervals, like_ns=1e3 * _MS, log=is_log)


def _make_line(series: Series, panel: PaperPanel, look: Look) -> Line:
    """Solid and filled if it was measured here, dashed and hollow if by the paper."""
    is_share = panel.shows == "share"
    return Line(
        look=replace(look, hollow=not series.measured),
        marks=tuple(
            Mark(
                x=point.x,
                y=(point.share_pct or 0.0) / 100 if is_share else point.latency_ms * _MS,
                interval=None if is_share else _find_interval(point),
                text=_describe(point, series, panel),
                doubt=bool(point.doubt),
            )
            for point in series.points
            if not is_share or point.share_pct is not None
        ),
    )


def _describe(point: Point, series: Series, panel: PaperPanel) -> str:
    lines = [
        f"{series.label}, {series.source}{_WHO[series.measured]}",
        f"{panel.x_name} {point.x:.4g}: {format_time(point.latency_ms * _MS)}",
    ]
    interval = _find_interval(point)
    lines[-1] += f" ({format_interval(interval)})" if interval else ""
    if point.busy_ms is not None:
        busy = format_time(point.busy_ms * _MS)
        lines.append(f"device busy {busy}, overhead {point.share_pct:.0f} %")
    return "\n".join([*lines, *filter(None, [point.doubt])])


def _find_interval(point: Point) -> Ends | None:
    if point.low_ms is None or point.high_ms is None:
        return None
    return point.low_ms * _MS, point.high_ms * _MS
