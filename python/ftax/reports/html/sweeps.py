"""Cells of sweeps for a report: which lines count, on which machine, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ftax.errors import ResultsError
from ftax.reports.columns import Cell
from ftax.reports.html.sources import Found, Sources
from ftax.reports.html.view import TableView
from ftax.reports.table import Rows
from ftax.sweeps.record import SweepCell, SweepMachine
from ftax.sweeps.results import keep_last


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeps:
    """What the records of sweeps say together.

    Attributes:
        cells: the last line of each cell of each machine; those that were measured anew are out.
        machines: by the ids that cells name.
        problems: cells that cannot be shown, a text each.
    """

    cells: tuple[Found, ...]
    machines: Mapping[str, SweepMachine]
    problems: tuple[str, ...]


def read_sweeps(sources: Sources, *, skip_bad: bool) -> Sweeps:
    """The cells of all sweeps.

    Raises:
        ResultsError: a cell names a machine that no file describes; with ``skip_bad`` such cells
            are left out and listed.
    """
    machines = {item.record.id: item.record for item in sources.of(SweepMachine)}
    known: list[Found] = []
    problems: list[str] = []
    for item in sources.of(SweepCell):
        if item.record.machine in machines:
            known.append(item)
            continue
        problem = (
            f"{item.ref}: the cell names machine {item.record.machine!r}, which no file describes; "
            "add the file that has the line of this machine, or delete this one"
        )
        if not skip_bad:
            raise ResultsError(problem)
        problems.append(problem)
    last = {id(record) for record in keep_last([item.record for item in known])}
    return Sweeps(
        cells=tuple(item for item in known if id(item.record) in last),
        machines=machines,
        problems=tuple(problems),
    )


def make_missing_table(cells: Sequence[Found]) -> TableView | None:
    """Cells that were not measured, and why; None if all were."""
    missing = [item for item in cells if item.record.status != "measured"]
    if not missing:
        return None
    columns: dict[str, Cell] = {
        "cell": lambda item: item.record.cell.label(),
        "status": "record.status",
        "why": "record.reason",
    }
    title = f"Cells of sweeps that were not measured: {len(missing)}"
    rows = Rows.of(title, missing, columns, text=columns)
    return TableView(rows=rows, records=tuple(item.ref for item in missing))
