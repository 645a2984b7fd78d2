"""Knees and comparisons on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ftax.reports.html.machines import Machine, Machines
from ftax.reports.html.points import describe_options
from ftax.reports.html.sources import Found
from ftax.reports.html.view import Chart, TableView, typeset
from ftax.reports.table import Rows
from ftax.reports.tables.knee_table import make_knee_table, make_point_table
from ftax.sweeps.knee.record import Knee
from ftax.timing.comparison import Comparison
from ftax.timing.host_comparison import HostComparison
from ftax.timing.units import format_interval, format_rounds, format_time

_GroupKey = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeView:
    """The knees of one model over one size on one machine: a chart, the answers, the points."""

    title: str
    machine: Machine
    chart: Chart
    answers: TableView
    points: tuple[TableView, ...]
    data: dict[str, object]


def make_knee_views(found: Sequence[Found], machines: Machines) -> list[KneeView]:
    """Knees that can be compared stand together: same model, input, margin and machine."""
    groups: dict[_GroupKey, list[Found]] = {}
    for item in found:
        groups.setdefault(_make_key(item.record, machines), []).append(item)
    return [_make_view(group, place, machines) for place, group in enumerate(groups.values())]


def make_comparison_table(found: Sequence[Found]) -> TableView | None:
    """Comparisons of two measurements and of two hosts, a row each; None if there are none."""
    rows: list[tuple[str, ...]] = []
    refs: list[str] = []
    for item in found:
        record = item.record
        if isinstance(record, Comparison):
            low, high = record.ratio_interval
            rows.append((record.a, record.b, record.verdict, f"{record.ratio:.3f}",
                         f"{low:.3f} to {high:.3f}", f"{record.p_value:.3g}",
                         f"{record.units_a} and {record.units_b} {record.unit}s"))  # fmt: skip
        elif isinstance(record, HostComparison):
            python, cpp = record
            rows.append((python.cell.label(), cpp.cell.label(), record.describe(),
                         f"{cpp.latency_ns / python.latency_ns:.3f}",
                         f"difference {format_interval(record.interval_ns)}", "-",
                         f"{format_rounds(python)} paired rounds"))  # fmt: skip
        else:
            continue
        refs.append(item.ref)
    if not rows:
        return None
    return TableView(
        rows=Rows(
            title="Comparisons: b against a",
            columns=("a", "b", "answer", "latency of b / a", "95 % interval", "p", "tested on"),
            numeric=("latency of b / a", "p"),
            rows=tuple(rows),
        ),
        records=tuple(refs),
    )


def _make_key(knee: Knee, machines: Machines) -> _GroupKey:
    cell = knee.cell
    return (
        machines.find(knee.environment).name, cell.model, cell.device, cell.dtype, knee.over,
        str(cell.batch if knee.over == "sequence" else cell.sequence), describe_options(cell),
        f"{knee.low} {knee.margin}",
    )  # fmt: skip


def _make_view(group: Sequence[Found], place: int, machines: Machines) -> KneeView:
    knees: list[Knee] = [item.record for item in group]
    first = knees[0]
    title = f"{first.cell.model}, {first.cell.device}, {first.cell.dtype}, over {first.over}"
    sentences = "; ".join(f"{_name(knee)}: {knee.describe()}" for knee in knees)
    return KneeView(
        title=title,
        machine=machines.find(first.environment),
        chart=Chart(
            kind="knee",
            item=place,
            label=f"Latency over that of {first.over} {first.low}, against {first.over}. "
            f"{sentences}.",
        ),
        answers=TableView(rows=make_knee_table(knees), records=tuple(item.ref for item in group)),
        points=tuple(
            TableView(rows=make_point_table(item.record), record=item.ref) for item in group
        ),
        data={
            "over": first.over,
            "low": first.low,
            "margin": first.margin,
            "knees": [_describe(item) for item in group],
        },
    )


def _describe(item: Found) -> Mapping[str, object]:
    knee: Knee = item.record
    text = f"{_name(knee)}, {knee.over} {knee.low}\nthe plateau, by definition\n{item.ref}"
    points: list[Mapping[str, object]] = [
        {"size": knee.low, "ratio": 1.0, "interval": None, "text": text}
    ]
    for point in sorted(knee.points, key=lambda point: point.size):
        if point.ratio is None or point.latency_ns is None:
            continue  # it could not be run; the table says why
        interval = point.ratio_interval(knee.confidence)
        text = f"{_name(knee)}, {knee.over} {point.size}\n{point.ratio:.3f} times the plateau"
        if interval is not None:
            text += f" ({interval[0]:.3f} to {interval[1]:.3f})"
        text += f"\n{typeset(format_time(point.latency_ns))}\n{item.ref}"
        points.append(
            {
                "size": point.size,
                "ratio": point.ratio,
                "interval": None if interval is None else list(interval),
                "text": text,
            }
        )
    return {
        "runtime": knee.cell.runtime,
        "host": knee.cell.host,
        "last_on": knee.last_on,
        "first_off": knee.first_off,
        "points": points,
        "record": item.ref,
    }


def _name(knee: Knee) -> str:
    return f"{knee.cell.runtime}/{knee.cell.host}"
