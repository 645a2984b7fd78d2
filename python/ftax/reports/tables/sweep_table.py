"""A sweep as tables: its cells, and what was not measured and why.

The surprising choice: machines stand side by side as soon as they have a cell in common; until then
each has a table of its own, since nothing of them can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftax.reports.numbers import BARE_CELL, Field, Numbers, read, read_all
from ftax.reports.table import NOTHING, Printout, Rows, say
from ftax.reports.tables.machine_table import make_machine_table
from ftax.reports.tables.variance_table import make_variance_table
from ftax.sweeps.record import GPU, REPETITION, drop_options
from ftax.sweeps.side_by_side import group_shared, line_up, name_machines
from ftax.timing.units import format_interval, format_latency

if TYPE_CHECKING:
    from ftax.sweeps.record import SweepCell
    from ftax.sweeps.results import SweepResults

_COLUMNS = ("model", "runtime", "host", "device", "dtype", "batch", "sequence")
_READINGS = (
    "busy_ns", "kernel_ns", "kernels", "sm_active_ratio", "sm_occupancy_ratio",
    "peak_device_bytes", "device_bytes", "macs", "operators", "modules", "parameter_count",
    "seconds",
)  # fmt: skip
_FIELDS: Mapping[str, Field] = {
    **BARE_CELL,
    "status": "status",
    "why": lambda cell: cell.doubt or cell.disturbance if _is_measured(cell) else cell.reason,
    "machine": "machine",
    "machine_name": lambda _: "",
    "latency_ns": lambda cell: cell.latency_ns if _is_measured(cell) else None,
    "low_ns": lambda cell: read(cell, "interval_ns.0") if _is_measured(cell) else None,
    "high_ns": lambda cell: read(cell, "interval_ns.1") if _is_measured(cell) else None,
    "rounds": lambda cell: len(cell.values_ns),
    "overhead_ratio": "overhead_share",
    **{name: name for name in _READINGS},
}
_MOST_ROWS = 60  # of a terminal; --csv prints all


def make_sweep_tables(results: SweepResults) -> list[Rows]:
    """What was measured, models that several machines measured with these side by side, the others
    machine by machine; then what was not, once a reason."""
    made = _Tables.of(results)
    return [*made.measured, *made.variance, *_make_missing_tables(results)]


def draw_sweep(results: SweepResults, *, is_whole: bool = False) -> Printout:
    """A sweep as it is printed; unless it ``is_whole``, without cells that are too many to read."""
    made = _Tables.of(results)
    missing = [cell for cell in results.cells if not _is_measured(cell)]
    is_long = sum(len(table.rows) for table in made.measured) + len(missing) > _MOST_ROWS
    is_shown = is_whole or not is_long
    names = name_machines(results.machines.values())
    fields = {**_FIELDS, "machine_name": lambda cell: names.get(cell.machine, "")}
    return Printout(
        tables=(
            *(made.measured if is_shown else ()),
            *made.variance,
            *_make_missing_tables(results),
        ),
        notes=made.notes if is_shown else (),
        numbers=lambda: Numbers.of(fields, [read_all(cell, fields) for cell in results.cells]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """Of what was measured, and what to say below."""

    measured: tuple[Rows, ...]
    variance: tuple[Rows, ...]  # of machines that have something in common
    notes: tuple[str, ...]

    @classmethod
    def of(cls, results: SweepResults) -> _Tables:
        measured = [cell for cell in results.cells if _is_measured(cell)]
        once = [cell for cell in measured if REPETITION not in cell.cell.options]
        rows = line_up(once, lambda cell: cell.cell, lambda cell: cell.machine)
        groups = group_shared(rows)
        names = {
            **{cell.machine: f"machine {cell.machine}" for cell in measured},
            **name_machines(results.machines.values()),
        }
        known = {name: machine.environment for name, machine in results.machines.items()}
        beside = [make_machine_table(group, names, known) for group in groups]
        shown = {row.cell for group in groups for row in group}
        rest = [cell for cell in measured if drop_options(cell.cell, GPU, REPETITION) not in shown]
        own = [table for table, _ in beside]
        machines = dict.fromkeys(cell.machine for cell in measured)
        for name in machines:
            cells = [cell for cell in rest if cell.machine == name]
            if cells:
                of = f" on machine {name}" if len(machines) > 1 else ""
                own.append(_make_cells(f"{len(cells)} cells{of}", cells))
        notes = dict.fromkeys(note for _, notes in beside for note in notes)
        variance = (make_variance_table(results),) if groups else ()
        return cls(measured=tuple(own), variance=variance, notes=tuple(notes))


def _make_missing_tables(results: SweepResults) -> list[Rows]:
    missing = [cell for cell in results.cells if not _is_measured(cell)]
    return [make_missing_table(missing)] if missing else []


def make_missing_table(cells: Iterable[SweepCell]) -> Rows:
    """Cells without rounds: how many there are of each reason, with one of them."""
    groups: dict[tuple[str, str, str], list[SweepCell]] = {}
    for cell in cells:
        name = f"{cell.cell.runtime}/{cell.cell.host}"
        groups.setdefault((cell.status, name, cell.reason), []).append(cell)
    return Rows.of(
        "Not measured",
        groups.items(),
        {
            "status": "0.0",
            "cells": lambda group: len(group[1]),
            "runtime": "0.1",
            "for example": lambda group: group[1][0].cell.label(),
            "why": "0.2",
        },
        text=("status", "runtime", "for example", "why"),
    )


def _make_cells(title: str, cells: Sequence[SweepCell]) -> Rows:
    """What all cells have in common stands in the title."""
    places = {name: {say(getattr(cell.cell, name)) for cell in cells} for name in _COLUMNS}
    differ = {name: f"cell.{name}" for name in _COLUMNS if len(places[name]) > 1}
    alike = ", ".join(
        f"{name} {value}"
        for name in _COLUMNS
        for value in places[name]
        if name not in differ and value != NOTHING
    )
    return Rows.of(
        f"{title}{': ' if alike else ''}{alike}",
        cells,
        {
            **differ,
            "latency": lambda cell: format_latency(cell.latency_ns, cell.doubt, cell.disturbance),
            "95 % interval": lambda cell: format_interval(cell.interval_ns),
            "overhead": (
                lambda cell: None if cell.doubt else cell.overhead_share,
                "{:.0%}".format,
            ),
            "kernels": "kernels",
            "GMACs": ("macs", lambda macs: f"{macs / 1e9:.3g}"),
        },
        text=_COLUMNS[:5],
        gives_way=("GMACs", "kernels", "overhead"),
    )


def _is_measured(cell: SweepCell) -> bool:
    return cell.status == "measured"
