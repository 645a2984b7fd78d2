"""Gathers what a page says from what was read, and writes it: templates, style and scripts in one
file that needs no network.

Its content security policy names the hash of its only script: text from a results file could not
run even if escaping failed, and nothing can be fetched. Charts need no script.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ftax_run.page import make_page as make_run_page
from ftax_run.page import make_policy, read_template

from ftax import _build_info
from ftax.errors import InvalidArgumentError
from ftax.ladders.receipt import Receipt
from ftax.ladders.runs import Run
from ftax.machines.environment import Environment
from ftax.records.whole_file import write_whole
from ftax.reports.columns import Cell
from ftax.reports.html import comparisons, facets, knees, receipts
from ftax.reports.html.charts import Looks
from ftax.reports.html.machines import Machine, Machines
from ftax.reports.html.points import (
    collect_environments,
    collect_points,
    make_machine_tables,
    make_missing_table,
    make_point_tables,
    make_variance_view,
)
from ftax.reports.html.sources import Found, Sources, Sweeps, read_sources, read_sweeps
from ftax.reports.html.view import Charts, Study, TableView, typeset
from ftax.reports.table import Rows
from ftax.reports.terminal import clean
from ftax.sweeps.knee_record import Knee
from ftax.sweeps.sweep_records import SweepCell, SweepExport, SweepMachine, SweepRun, SweepTimes

DescribeStudy = Callable[[Sequence[Found], Sweeps], Study]  # the sections of a study
_TEMPLATES = Path(__file__).parent / "templates"
_START = b"<!doctype html>"


def write_report(
    paths: Sequence[str | Path],
    output: str | Path,
    *,
    skip_bad: bool = False,
    title: str | None = None,
    describe_study: DescribeStudy | None = None,
) -> Sources:
    """Write a page of all results in ``paths`` (files, or folders of .jsonl files) to ``output``.

    Where all of them are runs of `ftax run`, it is the page that `ftax run --html` writes.
    ``describe_study`` makes the sections of the paper. The same results give the same bytes.
    Returns what was read.

    Raises:
        ResultsError: a path has no results, or a line cannot be read and ``skip_bad`` is not given.
        InvalidArgumentError: ``output`` exists and is no HTML page, or cannot be written.
    """
    target = Path(os.path.realpath(output))  # what a link names is written, and the link stays
    _check_target(target)
    sources = read_sources(paths, skip_bad=skip_bad)
    runs = [item.record.account for item in sources.of(Run)]
    if runs and len(runs) == len(sources.found):
        text = make_run_page(runs, title)
    else:
        text = make_page(
            sources, skip_bad=skip_bad, title=title or "ftax report", describe_study=describe_study
        )
    try:
        write_whole(target, text.encode("utf-8"))
    except OSError as error:
        raise InvalidArgumentError(
            f"{target}: {error.strerror or error}; choose a path that can be written"
        ) from error
    return sources


def make_page(
    sources: Sources,
    *,
    skip_bad: bool = False,
    title: str = "ftax report",
    describe_study: DescribeStudy | None = None,
) -> str:
    """The page as text; see `write_report`."""
    import jinja2
    import markupsafe

    context = make_content(sources, skip_bad=skip_bad, describe_study=describe_study)
    script = read_template("shared.js") + _read("page.js")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            value if isinstance(value, markupsafe.Markup) else _write_text(value)
        ),
    )
    safe = markupsafe.Markup  # ours alone: nothing of a record goes through it
    return environment.get_template("page.html").render(
        **context,
        title=title,
        version=_build_info.VERSION,
        sections=list_sections(context),
        policy=make_policy(script),
        style=safe(read_template("shared.css") + _read("report.css")),
        script=safe(script),
    )


def _write_text(value: Any) -> Any:
    """As on a terminal, nothing that turns the direction of writing or that is no UTF-8; and times
    as a page writes them."""
    return typeset(clean(value)) if isinstance(value, str) else value


def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _check_target(target: Path) -> None:
    """A page may be written anew; results must not be written over."""
    if target.is_dir():
        raise InvalidArgumentError(f"{target} is a folder; name a file, such as report.html")
    if target.exists() and not target.is_file():
        raise InvalidArgumentError(f"{target} is no regular file; name one, such as report.html")
    if not target.exists() or target.stat().st_size == 0:
        return
    with target.open("rb") as file:
        start = file.read(len(_START))
    if start.lower() != _START:
        raise InvalidArgumentError(
            f"{target} exists and is no HTML page, so it is not written over; choose another name"
        )


# --- what it says ---------------------------------------------------------------------------------


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
        _name(record) if cell is None else cell.label(),
        (getattr(record, "utc", "") if environment is None else environment.condition.utc)[:19],
        "" if environment is None else machines.find(environment).name,
    )


def _name(record: Any) -> str:
    return record.describe() if isinstance(record, Run) else str(getattr(record, "label", ""))


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
        ("machines", "Machines", context["machine_tables"]),
        ("numbers", "All numbers", context["point_tables"] or context["missing"]),
        ("knees", "Knees", context["knees"]),
        ("comparisons", "Comparisons", context["comparisons"]),
        ("method", "Method", True),
        ("warnings", "Warnings", context["warnings"] or context["problems"]),
    ]
    return [(id, name) for id, name, there in sections if there]
