"""All numbers of a page as tables: a machine each, machines side by side, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ftax.reports.columns import CELL, Column, choose, split_alike
from ftax.reports.html.facets import FILTERS
from ftax.reports.html.machines import Machine
from ftax.reports.html.points import Point
from ftax.reports.html.sources import Found, Sweeps
from ftax.reports.html.view import TableView
from ftax.reports.table import Rows
from ftax.reports.tables.sweep_table import COLUMNS as CELLS
from ftax.reports.tables.sweep_table import make_machine_table, make_variance_table
from ftax.sweeps.results import SweepResults
from ftax.sweeps.side_by_side import group_shared, line_up
from ftax.timing.units import format_time

# Columns of the table that are there only where they tell two points of the page apart.
_SELDOM = ("device", "sequence", "options", "mode", "overhead share", "kernel time", "GMACs")


def make_point_tables(points: Sequence[Point], machines: Iterable[Machine]) -> list[TableView]:
    """A row a point of each machine that has any, with what is known of it; models in order."""
    order = list(dict.fromkeys(point.cell.model for point in points))
    listed = sorted(
        points,
        key=lambda point: (
            order.index(point.cell.model),
            point.runtime,
            point.cell.dtype,
            point.cell.batch,
        ),
    )
    differ, _ = split_alike(listed, choose(_COLUMNS, *_SELDOM))
    left_out = {*_SELDOM} - {column.head for column in differ}
    if not any(point.label for point in points):
        left_out.add("label")
    columns = [column for column in _COLUMNS if column.head not in left_out]
    tables = []
    for machine in machines:
        if mine := [point for point in listed if point.machine is machine]:
            rows = Rows.of_columns(f"Measurements of {machine.label}", mine, columns)
            refs = tuple(point.ref for point in mine)
            tables.append(TableView(rows=rows, records=refs, filtered=True))
    return tables


_INTERVAL = replace(*choose(CELLS, "95 % interval"), is_text=True)
_COLUMNS = (
    Column("label", lambda point: point.label or None, is_text=True),
    *(Column(name, f"cell.{name}", is_text=True) for name in FILTERS if name != "sequence"),
    *choose(CELL, "batch", "sequence", "options"),
    Column("mode", "mode", is_text=True),
    *choose(CELLS, "latency"),
    _INTERVAL,
    Column("rounds", "rounds"),
    Column("overhead share", ("overhead_share", "{:.1%}".format)),
    Column("kernel time", ("kernel_ns", format_time)),
    *choose(CELLS, "GMACs"),
)


def make_machine_tables(points: Sequence[Point], machines: Iterable[Machine]) -> list[TableView]:
    """A table for each model that machines have a latency of in common, in the order of points."""
    timed = [point for point in points if point.mode == "latency"]
    rows = line_up(timed, lambda point: point.cell, lambda point: point.machine.name)
    listed = list(machines)
    names = {machine.name: f"{machine.name}: {machine.short}" for machine in listed}
    known = {machine.name: machine.environment for machine in listed}
    views = []
    for group in group_shared(rows):
        table, notes = make_machine_table(group, names, known)
        refs = tuple(", ".join(point.ref for point in row.found.values()) for row in group)
        views.append(TableView(rows=table, records=refs, notes=notes, filtered=True))
    return views


def make_variance_view(sweeps: Sweeps) -> TableView:
    """How far runs and machines of sweeps differ."""
    cells = tuple(item.record for item in sweeps.cells)
    return TableView(rows=make_variance_table(SweepResults(cells=cells, machines=sweeps.machines)))


def make_missing_table(cells: Sequence[Found]) -> TableView | None:
    """Cells that were not measured, and why; None if all were."""
    missing = [item for item in cells if item.record.status != "measured"]
    if not missing:
        return None
    columns = (
        Column("cell", lambda item: item.record.cell.label(), is_text=True),
        Column("status", "record.status", is_text=True),
        Column("why", "record.reason", is_text=True),
    )
    title = f"Cells of sweeps that were not measured: {len(missing)}"
    rows = Rows.of_columns(title, missing, columns)
    return TableView(rows=rows, records=tuple(item.ref for item in missing))
