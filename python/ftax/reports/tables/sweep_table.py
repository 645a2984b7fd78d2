"""A sweep as tables: its cells, and what was not measured and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ftax.reports.numbers import BARE_CELL, Field, Numbers, read, read_all
from ftax.reports.table import NOTHING, Printout, Rows, say
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
    "latency_ns": lambda cell: cell.latency_ns if _is_measured(cell) else None,
    "low_ns": lambda cell: read(cell, "interval_ns.0") if _is_measured(cell) else None,
    "high_ns": lambda cell: read(cell, "interval_ns.1") if _is_measured(cell) else None,
    "rounds": lambda cell: len(cell.values_ns),
    "overhead_ratio": "overhead_share",
    **{name: name for name in _READINGS},
}
_MOST_ROWS = 60  # of a terminal; --csv prints all


def make_sweep_tables(results: SweepResults) -> list[Rows]:
    """What was measured, machine by machine; then what was not, once a reason."""
    tables = []
    machines = results.split_by_machine()
    for name, part in machines.items():
        measured = [cell for cell in part.cells if cell.status == "measured"]
        if measured:
            of = f" on machine {name}" if len(machines) > 1 else ""
            tables.append(_make_cells(f"{len(measured)} cells{of}", measured))
    missing = [cell for cell in results.cells if cell.status != "measured"]
    if missing:
        tables.append(make_missing_table(missing))
    return tables


def draw_sweep(results: SweepResults, *, is_whole: bool = False) -> Printout:
    """A sweep as it is printed; unless it ``is_whole``, without cells that are too many to read."""
    tables = make_sweep_tables(results)
    if not is_whole and len(results.cells) > _MOST_ROWS:
        missing = [cell for cell in results.cells if cell.status != "measured"]
        tables = [make_missing_table(missing)] if missing else []
    return Printout(
        tables=tuple(tables),
        numbers=lambda: Numbers.of(_FIELDS, [read_all(cell, _FIELDS) for cell in results.cells]),
    )


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
