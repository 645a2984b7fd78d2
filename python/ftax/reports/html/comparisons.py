"""Comparisons on a page: what changed, before and after, as bars and as tables.

Before and after share a bar, the one as its outline, which shows how far the two are apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ftax.reports.html.charts import Ends
from ftax.reports.html.sources import Found
from ftax.reports.html.view import Bar, Bars, Charts, Lead, Panel, Scale, TableView
from ftax.reports.tables.comparison_table import make_change_table, make_line_change_table
from ftax.reports.tables.measurement_table import make_measurement_table
from ftax.timing.comparison import Comparison
from ftax.timing.differences import HostComparison
from ftax.timing.units import format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonView:
    """One comparison of the page."""

    title: str
    text: str
    ref: str
    charts: Charts
    tables: tuple[TableView, ...]


def make_comparison_views(found: Sequence[Found]) -> list[ComparisonView]:
    """Comparisons of results and of hosts, in the order of the records."""
    kinds = (Comparison, HostComparison)
    return [_make_view(item) for item in found if isinstance(item.record, kinds)]


def make_lead(views: Sequence[ComparisonView]) -> Lead | None:
    """The first comparison."""
    if not views:
        return None
    return Lead(section="comparisons", text=views[0].text.rstrip("."), charts=(views[0].charts,))


def _make_view(item: Found) -> ComparisonView:
    record: Comparison | HostComparison = item.record
    if isinstance(record, Comparison):
        title = f"{record.name_b} against {record.name_a}"
        tables = [make_change_table([record])]
        tables += [make_line_change_table(record)] if record.lines else []
    else:
        title = f"{record.cpp.cell.runtime}: driven from C++ against driven from Python"
        tables = [make_measurement_table([*record])]
    return ComparisonView(
        title=title,
        text=record.describe(),
        ref=item.ref,
        charts=Charts(panels=(Panel(chart=_draw(record, title)),)),
        tables=tuple(TableView(rows=rows, record=item.ref) for rows in tables),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """Before, after, and the interval of what is after; in ns, or as shares of before."""

    name: str
    a: float
    b: float
    ends: Ends | None
    is_told: bool


def _list_changes(record: Comparison | HostComparison) -> Iterator[_Change]:
    """Of each line of a receipt, of the whole, and of the other runtimes."""
    if isinstance(record, HostComparison):
        python, interval = record.python, record.interval_ns
        whole, cost = python.latency_ns, interval or (0.0, 0.0)
        yield _Change(
            name=python.cell.runtime,
            a=whole,
            b=record.cpp.latency_ns,
            ends=None if interval is None else (whole - cost[1], whole - cost[0]),
            is_told=not cost[0] <= 0 <= cost[1],
        )
        return
    for line in record.lines:
        if line.a_ns is not None and line.b_ns is not None:
            low, high = line.interval_ns or (0.0, 0.0)
            yield _Change(
                name=line.name,
                a=line.a_ns,
                b=line.b_ns,
                ends=None if line.interval_ns is None else (line.a_ns + low, line.a_ns + high),
                is_told=line.verdict in ("faster", "slower"),
            )
    for whole_of in (record, *record.runtimes):
        before, (low, high) = whole_of.latency_a_ns, whole_of.ratio_interval
        yield _Change(
            name=("= " if whole_of is record and record.lines else "") + whole_of.runtime,
            a=before,
            b=whole_of.latency_b_ns,
            ends=(before * low, before * high),
            is_told=whole_of.verdict in ("faster", "slower"),
        )


def _draw(record: Comparison | HostComparison, title: str) -> Bars:
    changes = list(_list_changes(record))
    before, after = "driven from Python", "driven from C++"
    if isinstance(record, Comparison):
        before, after = f"{record.name_a}, before", f"{record.name_b}, after"
    values = [value for change in changes for value in (change.a, change.b)]
    scale, longest = Scale([*values, 1.1 * max(values)]), max(values)
    return Bars(
        label=title,
        bars=tuple(
            Bar(
                name=change.name,
                value=_describe(change, longest),
                parts=(
                    scale.make_part(0.0, change.b, "tax" if change.is_told else "unsure"),
                    scale.make_part(0.0, change.a, "whole"),
                ),
                whisker=change.ends and scale.measure(change.ends),
            )
            for change in changes
        ),
        legend=(("whole", before), ("tax", after), ("unsure", f"{after}: not told apart")),
    )


def _describe(change: _Change, longest: float) -> str:
    """``'-1,200 us, -31%'``."""
    sign = "+" if change.b > change.a else ""
    time = f"{sign}{format_time(change.b - change.a, longest)}"
    share = f"{change.b / change.a - 1:+.1%}" if change.a > 0 else ""
    return ", ".join(filter(None, [time, share]))
