"""Knees on a page: a chart of those that can be compared, the answers, and the probed sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ftax.reports.html.charts import (
    RING,
    Axis,
    Ends,
    Entry,
    Line,
    Looks,
    Mark,
    Plot,
    make_log_axis,
    make_size_axis,
)
from ftax.reports.html.machines import Machine, Machines
from ftax.reports.html.sources import Found
from ftax.reports.html.view import Charts, Lead, Panel, TableView
from ftax.reports.options import describe_options
from ftax.reports.tables.knee_table import make_knee_table, make_point_table
from ftax.sweeps.knee.record import Knee, KneePoint
from ftax.timing.units import format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeView:
    """The knees of one model over one size on one machine: a chart, the answers, the points."""

    title: str
    machine: Machine
    charts: Charts
    answers: TableView
    points: tuple[TableView, ...]


def make_knee_views(found: Sequence[Found], machines: Machines, looks: Looks) -> list[KneeView]:
    """Knees that can be compared stand together: same model, input, margin and machine."""
    groups: dict[tuple[str, ...], list[Found]] = {}
    for item in found:
        groups.setdefault(_make_key(item.record, machines), []).append(item)
    return [_make_view(group, machines, looks) for group in groups.values()]


def make_lead(views: Sequence[KneeView], found: Sequence[Found]) -> Lead | None:
    """The first answer."""
    if not views:
        return None
    knee: Knee = found[0].record
    text = f"{knee.cell.model} in {_name(knee)}: {knee.describe()}"
    return Lead(section="knees", text=text, charts=(views[0].charts,))


def _make_key(knee: Knee, machines: Machines) -> tuple[str, ...]:
    cell = knee.cell
    return (
        machines.find(knee.environment).name, cell.model, cell.device, cell.dtype, knee.over,
        str(cell.batch if knee.over == "sequence" else cell.sequence), describe_options(cell),
        f"{knee.low} {knee.margin}",
    )  # fmt: skip


def _make_view(group: Sequence[Found], machines: Machines, looks: Looks) -> KneeView:
    knees: list[Knee] = [item.record for item in group]
    first, lines = knees[0], tuple(_make_line(item, looks) for item in group)
    return KneeView(
        title=f"{first.cell.model}, {first.cell.device}, {first.cell.dtype}, over {first.over}",
        machine=machines.find(first.environment),
        charts=_draw(knees, lines),
        answers=TableView(rows=make_knee_table(knees), records=tuple(item.ref for item in group)),
        points=tuple(
            TableView(rows=make_point_table(item.record), record=item.ref) for item in group
        ),
    )


def _draw(knees: Sequence[Knee], lines: tuple[Line, ...]) -> Charts:
    first, marks = knees[0], [mark for line in lines for mark in line.marks]
    over, rule = f"latency over that of {first.over} {first.low}", 1 + first.margin
    intervals = [mark.interval for mark in marks]
    y = make_log_axis(over, [*(mark.y for mark in marks), rule], intervals)
    pairs = list(zip(knees, lines, strict=True))
    entries = {_name(knee): Entry(name=_name(knee), look=line.look) for knee, line in pairs}
    plot = Plot(
        label=f"{over}. " + "; ".join(f"{_name(knee)}: {knee.describe()}" for knee in knees),
        x=make_size_axis(first.over, [mark.x for mark in marks]),
        y=y,
        lines=lines,
        areas=tuple(
            (_shade(knee.last_on, knee.first_off, y), line.look.classes)
            for knee, line in pairs
            if knee.first_off is not None
        ),
        rule=rule,
    )
    rings = (RING,) if any(mark.doubt for mark in marks) else ()
    return Charts(panels=(Panel(chart=plot),), legend=(*entries.values(), *rings))


def _shade(low: int, high: int, y: Axis) -> tuple[Ends, ...]:
    return ((low, y.low), (low, y.high), (high, y.high), (high, y.low))


def _make_line(item: Found, looks: Looks) -> Line:
    knee: Knee = item.record
    text = f"{_name(knee)}, {knee.over} {knee.low}\nthe plateau, by definition\n{item.ref}"
    start = Mark(x=knee.low, y=1.0, text=text)
    probed = sorted(knee.points, key=lambda point: point.size)
    points = (_make_mark(item, point) for point in probed if point.ratio is not None)
    return Line(look=looks.find(knee.cell), marks=(start, *points))


def _make_mark(item: Found, point: KneePoint) -> Mark:
    knee: Knee = item.record
    ratio, interval = point.ratio or 1.0, point.ratio_interval(knee.confidence)
    told = [f"{_name(knee)}, {knee.over} {point.size}", f"{ratio:.3f} times the plateau"]
    if interval is not None:
        told[-1] += f" ({interval[0]:.3f} to {interval[1]:.3f})"
    told += [format_time(point.latency_ns or 0.0), point.doubt or point.disturbance]
    return Mark(
        x=point.size,
        y=ratio,
        interval=interval,
        text="\n".join(filter(None, [*told, item.ref])),
        doubt=bool(point.doubt or point.disturbance),
    )


def _name(knee: Knee) -> str:
    return f"{knee.cell.runtime}/{knee.cell.host}"
