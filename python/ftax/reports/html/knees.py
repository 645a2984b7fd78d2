"""Knees on a page: a chart of those that can be compared, the answers, and the probed sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ftax.reports.columns import describe_options
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
from ftax.reports.tables.knee_table import make_knee_table, make_point_table, name_knees
from ftax.sweeps.knee_record import Knee, KneePoint
from ftax.timing.units import format_time

_DASHES = 6  # kinds of lines of the style sheet


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeView:
    """The knees of one model over one size: a chart, the answers, the points; ``machine`` is None
    where they are of several, which their names then say."""

    title: str
    machine: Machine | None
    charts: Charts
    answers: TableView
    points: tuple[TableView, ...]


def make_knee_views(found: Sequence[Found], machines: Machines, looks: Looks) -> list[KneeView]:
    """Knees that can be compared stand together: same model, input and margin."""
    groups: dict[tuple[str, ...], list[Found]] = {}
    for item in found:
        groups.setdefault(_make_key(item.record), []).append(item)
    return [_make_view(group, machines, looks) for group in groups.values()]


def make_lead(views: Sequence[KneeView], found: Sequence[Found]) -> Lead | None:
    """The first answer."""
    if not views:
        return None
    knee: Knee = found[0].record
    text = f"{knee.cell.model} in {_name(knee)}: {knee.describe()}"
    return Lead(section="knees", text=text, charts=(views[0].charts,))


def _make_key(knee: Knee) -> tuple[str, ...]:
    cell = knee.cell
    return (
        cell.model, cell.device, cell.dtype, knee.over,
        str(cell.batch if knee.over == "sequence" else cell.sequence), describe_options(cell),
        f"{knee.low} {knee.margin}",
    )  # fmt: skip


def _make_view(group: Sequence[Found], machines: Machines, looks: Looks) -> KneeView:
    knees: list[Knee] = [item.record for item in group]
    own = [machines.find(knee.environment) for knee in knees]
    called = [f"{machine.name}: {machine.short}" for machine in own]
    marked, notes = name_knees(knees, called)
    names = [" on ".join(filter(None, pair)) for pair in zip(map(_name, knees), marked)]
    # A machine is told by the kind of line, as all knees of a chart have one dtype.
    dashes = [list(dict.fromkeys(called)).index(name) % _DASHES for name in called]
    first, lines = knees[0], tuple(map(_make_line, group, names, dashes, [looks] * len(group)))
    return KneeView(
        title=f"{first.cell.model}, {first.cell.device}, {first.cell.dtype}, over {first.over}",
        machine=None if any(marked) else own[0],
        charts=_draw(knees, lines, names),
        answers=TableView(
            rows=make_knee_table(knees, called),
            records=tuple(item.ref for item in group),
            notes=notes,
        ),
        points=tuple(
            TableView(rows=make_point_table(item.record, name), record=item.ref)
            for item, name in zip(group, marked, strict=True)
        ),
    )


def _draw(knees: Sequence[Knee], lines: tuple[Line, ...], names: Sequence[str]) -> Charts:
    first, marks = knees[0], [mark for line in lines for mark in line.marks]
    over, rule = f"latency over that of {first.over} {first.low}", 1 + first.margin
    intervals = [mark.interval for mark in marks]
    y = make_log_axis(over, [*(mark.y for mark in marks), rule], intervals)
    pairs = list(zip(knees, lines, strict=True))
    entries = {
        name: Entry(name=name, look=line.look) for name, line in zip(names, lines, strict=True)
    }
    plot = Plot(
        label=f"{over}. "
        + "; ".join(f"{name}: {knee.describe()}" for name, knee in zip(names, knees, strict=True)),
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


def _make_line(item: Found, name: str, dash: int, looks: Looks) -> Line:
    knee: Knee = item.record
    text = f"{name}, {knee.over} {knee.low}\nthe plateau, by definition\n{item.ref}"
    start = Mark(x=knee.low, y=1.0, text=text)
    probed = sorted(knee.points, key=lambda point: point.size)
    points = (_make_mark(item, name, point) for point in probed if point.ratio is not None)
    look = looks.find(knee.cell)
    return Line(look=replace(look, dash=dash or look.dash), marks=(start, *points))


def _make_mark(item: Found, name: str, point: KneePoint) -> Mark:
    knee: Knee = item.record
    ratio, interval = point.ratio or 1.0, point.ratio_interval(knee.confidence)
    told = [f"{name}, {knee.over} {point.size}", f"{ratio:.3f} times the plateau"]
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
