"""A sweep as tables: its cells, and what was not measured and why.

The surprising choice: machines stand side by side as soon as they have a cell in common; until then
each has a table of its own, since nothing of them can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ftax.reports.numbers import BARE_CELL, Field, Numbers, read, read_all
from ftax.reports.options import COLUMNS, describe_options, read_column
from ftax.reports.table import NOTHING, Cell, Printout, Rows, say
from ftax.reports.tables.machine_table import make_machine_table, make_variance_table
from ftax.sweeps.record import GPU, REPETITION, drop_options
from ftax.sweeps.side_by_side import group_shared, line_up, name_machines
from ftax.timing.units import format_interval, format_latency, format_time

if TYPE_CHECKING:
    from ftax.sweeps.record import SweepCell
    from ftax.sweeps.results import SweepResults

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


def draw_sweep(results: SweepResults, *, is_whole: bool = False) -> Printout:
    """A sweep as it is printed: models that several machines measured with these side by side, the
    others machine by machine; how far machines and runs differ; then what was not measured, once a
    reason. Unless it ``is_whole``, without cells that are too many to read."""
    measured = [cell for cell in results.cells if cell.status == "measured"]
    missing = [cell for cell in results.cells if cell.status != "measured"]
    once = [cell for cell in measured if REPETITION not in cell.cell.options]
    groups = group_shared(line_up(once, lambda cell: cell.cell, lambda cell: cell.machine))
    shared = {row.cell for group in groups for row in group}
    rest = [cell for cell in measured if drop_options(cell.cell, GPU, REPETITION) not in shared]
    tables: list[Rows] = []
    notes: dict[str, None] = {}
    if is_whole or sum(map(len, groups)) + len(rest) + len(missing) <= _MOST_ROWS:
        names = {
            **{cell.machine: f"machine {cell.machine}" for cell in measured},
            **name_machines(results.machines.values()),
        }
        known = {name: machine.environment for name, machine in results.machines.items()}
        for group in groups:
            table, told = make_machine_table(group, names, known)
            tables.append(table)
            notes |= dict.fromkeys(told)
        tables += _make_machines(rest, len({cell.machine for cell in measured}))
    if groups:
        tables.append(make_variance_table(results))
    if missing:
        tables.append(make_missing_table(missing))
    called = name_machines(results.machines.values())
    fields = {**_FIELDS, "machine_name": lambda cell: called.get(cell.machine, "")}
    return Printout(
        tables=tuple(tables),
        notes=tuple(notes),
        numbers=lambda: Numbers.of(fields, [read_all(cell, fields) for cell in results.cells]),
    )


def _make_machines(cells: Sequence[SweepCell], machines: int) -> Iterator[Rows]:
    """A table a machine, of ``machines`` that there are."""
    by_machine: dict[str, list[SweepCell]] = {}
    for cell in cells:
        by_machine.setdefault(cell.machine, []).append(cell)
    for name, own in by_machine.items():
        of = f" on machine {name}" if machines > 1 else ""
        yield _make_cells(f"{len(own)} cells{of}", own)


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
    steps = {cell.cell.step for cell in cells}
    columns = COLUMNS if steps == {"forward"} else (*COLUMNS, "step")
    units = {cell.cell.unit for cell in cells if cell.cell.units > 1}
    places = {name: {say(read_column(cell.cell, name)) for cell in cells} for name in columns}
    differ: dict[str, Cell] = {
        name: partial(_read_column, name) for name in columns if len(places[name]) > 1
    }
    if len({describe_options(cell.cell) for cell in cells}) > 1:  # repetitions, for example
        differ["options"] = lambda cell: describe_options(cell.cell) or None
    alike = ", ".join(
        f"{name} {value}"
        for name in columns
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
            **{
                f"a {unit}": (_divide, format_time)
                for unit in (units if len(units) < 2 else ("unit",))
            },
            "overhead": (
                lambda cell: None if cell.doubt else cell.overhead_share,
                "{:.0%}".format,
            ),
            "kernels": "kernels",
            "GMACs": ("macs", lambda macs: f"{macs / 1e9:.3g}"),
        },
        text=(*COLUMNS[:5], "step", "options"),
        gives_way=("GMACs", "kernels", "overhead"),
    )


def _read_column(name: str, cell: SweepCell) -> Any:
    return read_column(cell.cell, name)


def _is_measured(cell: SweepCell) -> bool:
    return cell.status == "measured"


def _divide(cell: SweepCell) -> float | None:
    """What one unit of the step takes; nothing where the whole is not to go by."""
    return None if cell.doubt else cell.latency_ns / cell.cell.units
