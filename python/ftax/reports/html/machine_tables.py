"""Machines side by side on a page: a table a model, with a column a machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ftax.reports.html.machines import Machine
from ftax.reports.html.points import Point
from ftax.reports.html.sweeps import Sweeps
from ftax.reports.html.view import TableView
from ftax.reports.tables.sweep_table import make_machine_table, make_variance_table
from ftax.sweeps.results import SweepResults
from ftax.sweeps.side_by_side import group_shared, line_up


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
