"""Gathers what a page says from what was read; everything that is computed is computed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ftax.ladders.receipt import Receipt
from ftax.machines.environment import Environment
from ftax.reports.html.facets import (
    Facet,
    make_facet_data,
    make_facet_views,
    make_facets,
    make_filters,
    make_point_data,
    make_point_table,
)
from ftax.reports.html.knees import make_comparison_table, make_knee_views
from ftax.reports.html.machines import Machine, Machines
from ftax.reports.html.points import collect_environments, collect_points
from ftax.reports.html.receipts import make_glance_table, make_receipt_view
from ftax.reports.html.sources import Found, Sources
from ftax.reports.html.sweeps import Sweeps, make_missing_table, read_sweeps
from ftax.reports.html.view import Chart, Links, TableView, make_notices
from ftax.reports.table import Rows
from ftax.sweeps.knee.record import Knee
from ftax.sweeps.record import SweepCell, SweepExport, SweepMachine, SweepRun, SweepTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """A record of the page's list of records."""

    ref: str
    kind: str
    what: str
    utc: str
    machine: str


DescribeClaims = Callable[[Sequence[Found]], list[Any]]  # verdicts as a page shows them


def leave_claims(found: Sequence[Found]) -> list[Any]:
    """No section of verdicts: whoever knows the study hands in another function."""
    return []


def make_content(
    sources: Sources, *, skip_bad: bool, describe_claims: DescribeClaims
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What templates are given, and what charts are given.

    Raises:
        ResultsError: a cell names a machine that no file describes, and ``skip_bad`` is not given.
    """
    sweeps = read_sweeps(sources, skip_bad=skip_bad)
    dropped = (SweepCell, SweepMachine)
    shown = [item for item in sources.found if not isinstance(item.record, dropped)]
    used = dict.fromkeys(item.record.machine for item in sweeps.cells)
    environments = [*collect_environments(shown), *(sweeps.environments[name] for name in used)]
    machines = Machines(environments)
    points = collect_points([*shown, *sweeps.cells], machines, sweeps.environments)
    facets = make_facets(points)
    receipts = [item for item in shown if isinstance(item.record, Receipt)]
    views = [make_receipt_view(item, place, machines) for place, item in enumerate(receipts)]
    knees = make_knee_views([item for item in shown if isinstance(item.record, Knee)], machines)
    records = [_describe_record(item, machines) for item in shown]
    tables = [make_point_table(points, machine) for machine in machines]
    context: dict[str, Any] = {
        "summary": _summarise(sources, sweeps, list(machines), environments),
        "machines": list(machines),
        "machine_table": TableView(rows=machines.make_table()),
        "measured": _describe_times(environments),
        "files": _make_file_table(sources),
        "glance": make_glance_table(views, receipts) if views else None,
        "receipts": views,
        "filters": make_filters(points),
        "facets": make_facet_views(facets, "latency"),
        "overheads": make_facet_views(facets, "overhead"),
        "works": _make_works(facets, list(machines)),
        "point_tables": [table for table in tables if table.rows.rows],
        "missing": make_missing_table(sweeps.cells),
        "knees": knees,
        "comparisons": make_comparison_table(shown),
        "claims": describe_claims(shown),
        "record_table": records,
        "links": Links(anchors={row.ref: f"record-{i}" for i, row in enumerate(records)}),
        "warnings": make_notices(_list_warnings([*shown, *sweeps.cells])),
        "problems": [*sources.problems, *sweeps.problems],
    }
    data = {
        "points": make_point_data(facets),
        "facets": make_facet_data(facets),
        "receipts": [view.data for view in views],
        "knees": [view.data for view in knees],
        "machines": [machine.name for machine in machines],
    }
    return context, data


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
    return TableView(
        rows=Rows(
            title="Files",
            columns=("file", "records", "lines that could not be read"),
            numeric=("lines that could not be read",),
            rows=tuple(
                (
                    file.name,
                    ", ".join(_count(number, kind) for kind, number in sorted(file.kinds.items()))
                    or "none",
                    str(len(file.problems)),
                )
                for file in sources.files
            ),
        )
    )


def _make_works(
    facets: Sequence[Facet], machines: Sequence[Machine]
) -> list[tuple[Machine, Chart]]:
    """A chart a machine that has cells with both numbers."""
    known = Counter(
        facet.machine.name
        for facet in facets
        for point in facet.points
        if point.macs and point.kernel_ns
    )
    return [
        (
            machine,
            Chart(
                kind="work",
                item=place,
                label=f"Kernel time against multiply-accumulates of {known[machine.name]} cells of "
                f"machine {machine.name}. The table of all measurements has the same numbers.",
            ),
        )
        for place, machine in enumerate(machines)
        if known[machine.name]
    ]


def _describe_record(item: Found, machines: Machines) -> RecordRow:
    record = item.record
    environment = next(iter(collect_environments([item])), None)
    cell = getattr(record, "cell", None) or getattr(
        next(iter(getattr(record, "rungs", ())), None), "cell", None
    )
    return RecordRow(
        ref=item.ref,
        kind=record.kind,
        what=str(getattr(record, "label", "")) if cell is None else cell.label(),
        utc=(getattr(record, "utc", "") if environment is None else environment.condition.utc)[:19],
        machine="" if environment is None else machines.find(environment).name,
    )


def _list_warnings(found: Sequence[Found]) -> list[tuple[str, str]]:
    warnings: list[tuple[str, str]] = []
    for item in found:
        record = item.record
        texts: Sequence[str]
        if isinstance(record, Receipt):
            texts = record.collect_warnings()
        else:
            texts = getattr(record, "warnings", ())
        warnings += [(text, item.ref) for text in texts]
    return warnings


def list_sections(context: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(id, name) of the sections that the page has."""
    sections = [
        ("overview", "Overview", True),
        ("receipts", "Receipts", context["receipts"]),
        ("latency", "Latency", context["facets"]),
        ("overhead", "Overhead share", context["overheads"]),
        ("work", "Kernel time", context["works"]),
        ("numbers", "All measurements", context["point_tables"] or context["missing"]),
        ("knees", "Knees", context["knees"]),
        ("comparisons", "Comparisons", context["comparisons"]),
        ("claims", "Claims", context["claims"]),
        ("method", "Machine and method", True),
        ("warnings", "Warnings", True),
    ]
    return [(id, name) for id, name, there in sections if there]
