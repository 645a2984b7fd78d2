"""Gathers what a page says from what was read; everything that is computed is computed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ftax.ladders.receipt import Receipt
from ftax.machines.environment import Environment
from ftax.reports.columns import Cell
from ftax.reports.html import comparisons, facets, knees, receipts
from ftax.reports.html.charts import Looks
from ftax.reports.html.machines import Machine, Machines
from ftax.reports.html.point_tables import (
    make_machine_tables,
    make_missing_table,
    make_point_tables,
    make_variance_view,
)
from ftax.reports.html.points import collect_environments, collect_points
from ftax.reports.html.sources import Found, Sources, Sweeps, read_sweeps
from ftax.reports.html.view import Charts, Study, TableView
from ftax.reports.table import Rows
from ftax.sweeps.knee_record import Knee
from ftax.sweeps.sweep_records import SweepCell, SweepExport, SweepMachine, SweepRun, SweepTimes

DescribeStudy = Callable[[Sequence[Found], Sweeps], Study]  # the sections of a study


def make_content(
    sources: Sources, *, skip_bad: bool, describe_study: DescribeStudy | None
) -> dict[str, Any]:
    """What templates are given.

    Raises:
        ResultsError: a cell names a machine that no file describes, and ``skip_bad`` is not given.
    """
    sweeps = read_sweeps(sources, skip_bad=skip_bad)
    dropped = (SweepCell, SweepMachine)
    shown = [item for item in sources.found if not isinstance(item.record, dropped)]
    used = dict.fromkeys(item.record.machine for item in sweeps.cells)
    environments = [
        *collect_environments(shown),
        *(sweeps.machines[name].environment for name in used),
    ]
    machines = Machines(environments)
    points = collect_points([*shown, *sweeps.cells], machines, sweeps.machines)
    points = facets.sort_models(points)
    found = [item for item in shown if isinstance(item.record, Knee)]
    looks = Looks([*(point.cell for point in points), *(item.record.cell for item in found)])
    all_facets = facets.make_facets(points)
    receipt_views = receipts.make_receipt_views(
        [item for item in shown if isinstance(item.record, Receipt)], machines
    )
    knee_views = knees.make_knee_views(found, machines, looks)
    comparison_views = comparisons.make_comparison_views(shown)
    study = describe_study(shown, sweeps) if describe_study else Study()
    records = _make_record_table(shown, machines)
    leads = (
        receipts.make_lead(receipt_views),
        study.lead,
        comparisons.make_lead(comparison_views),
        None if receipt_views else facets.make_lead(all_facets, looks),
        knees.make_lead(knee_views, found),
    )
    charts: dict[str, list[tuple[Machine, Charts]]] = {}
    for machine in machines:
        own = [facet for facet in all_facets if facet.machine is machine]
        for name, drawn in (
            ("latency", facets.draw_facets(own, facets.LATENCY, looks)),
            ("overhead", facets.draw_facets(own, facets.OVERHEAD, looks)),
            ("work", facets.draw_work(points, machine, looks)),
        ):
            if drawn:
                charts.setdefault(name, []).append((machine, drawn))
    return {
        "leads": [lead for lead in leads if lead],
        "summary": _summarise(sources, sweeps, list(machines), environments),
        "machines": list(machines),
        "machine_table": TableView(rows=machines.make_table()),
        "measured": _describe_times(environments),
        "files": _make_file_table(sources),
        "receipts": receipt_views,
        "choices": facets.make_choices(points),
        "charts": charts,
        "machine_tables": make_machine_tables(points, machines),
        "variance": make_variance_view(sweeps),
        "point_tables": make_point_tables(points, machines),
        "missing": make_missing_table(sweeps.cells),
        "knees": knee_views,
        "comparisons": comparison_views,
        "claims": study.claims,
        "items": study.items,
        "record_table": records,
        "links": {row[0]: id for row, id in zip(records.rows.rows, records.ids, strict=True)},
        "warnings": _collect_warnings([*shown, *sweeps.cells]),
        "problems": [*sources.problems, *sweeps.problems],
    }


def _summarise(
    sources: Sources,
    sweeps: Sweeps,
    machines: Sequence[Machine],
    environments: Sequence[Environment],
) -> str:
    kinds = Counter(item.record.kind for item in sources.found)
    for told_elsewhere in (SweepMachine, SweepCell, SweepRun, SweepTimes, SweepExport):
        kinds.pop(told_elsewhere.kind, None)
    parts = [_count(number, kind) for kind, number in sorted(kinds.items())]
    if sweeps.cells:
        states = Counter(item.record.status for item in sweeps.cells)
        told = ", ".join(f"{states[name]} {name}" for name in sorted(states))
        parts.append(f"{_count(len(sweeps.cells), 'sweep cell')} ({told})")
    where = _count(len(machines), "machine")
    if len(machines) == 1:
        where = machines[0].title
    days = sorted({environment.condition.utc[:10] for environment in environments})
    when = "" if not days else f", {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "")
    files = _count(len(sources.files), "file")
    return f"{', '.join(parts)} from {files}, measured on {where}{when}."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 or what.endswith('s') else 's'}"


def _describe_times(environments: Sequence[Environment]) -> str:
    times = sorted(environment.condition.utc for environment in environments)
    if not times:
        return ""
    return f"Measured from {times[0][:16]} to {times[-1][:16]} (UTC)."


def _make_file_table(sources: Sources) -> TableView:
    def list_kinds(kinds: Mapping[str, int]) -> str:
        return ", ".join(_count(number, kind) for kind, number in sorted(kinds.items())) or "none"

    cells: dict[str, Cell] = {
        "file": "name",
        "records": ("kinds", list_kinds),
        "lines that could not be read": ("problems", lambda problems: str(len(problems))),
    }
    return TableView(rows=Rows.of("Files", sources.files, cells, text=("file", "records")))


def _make_record_table(found: Sequence[Found], machines: Machines) -> TableView:
    return TableView(
        rows=Rows(
            title="Records of this page",
            columns=("record", "kind", "what", "measured (UTC)", "machine"),
            rows=tuple(_describe_record(item, machines) for item in found),
        ),
        ids=tuple(f"record-{place}" for place in range(len(found))),
    )


def _describe_record(item: Found, machines: Machines) -> tuple[str, ...]:
    record = item.record
    environment = next(iter(collect_environments([item])), None)
    cell = getattr(record, "cell", None) or getattr(
        next(iter(getattr(record, "rungs", ())), None), "cell", None
    )
    return (
        item.ref,
        record.kind,
        str(getattr(record, "label", "")) if cell is None else cell.label(),
        (getattr(record, "utc", "") if environment is None else environment.condition.utc)[:19],
        "" if environment is None else machines.find(environment).name,
    )


def _collect_warnings(found: Sequence[Found]) -> list[tuple[str, list[str]]]:
    """Each text once, with all records that have it."""
    refs: dict[str, dict[str, None]] = {}
    for item in found:
        record = item.record
        is_receipt = isinstance(record, Receipt)
        texts = record.collect_warnings() if is_receipt else getattr(record, "warnings", ())
        for text in texts:
            refs.setdefault(text, {})[item.ref] = None
    return [(text, list(records)) for text, records in refs.items()]


def list_sections(context: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(id, name) of the sections that the page has."""
    charts = context["charts"]
    sections = [
        ("receipts", "Receipts", context["receipts"]),
        ("claims", "Claims", context["claims"]),
        ("figures", "Figures", context["items"]),
        ("latency", "Latency", charts.get("latency")),
        ("overhead", "Overhead", charts.get("overhead")),
        ("work", "Kernel time", charts.get("work")),
        ("machines", "Machines", context["machine_tables"]),
        ("numbers", "All numbers", context["point_tables"] or context["missing"]),
        ("knees", "Knees", context["knees"]),
        ("comparisons", "Comparisons", context["comparisons"]),
        ("method", "Method", True),
        ("warnings", "Warnings", context["warnings"] or context["problems"]),
    ]
    return [(id, name) for id, name, there in sections if there]
