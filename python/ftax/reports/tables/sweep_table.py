"""A sweep as tables: its cells, and what was not measured and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ftax.reports.numbers import CELL, Numbers, Scalar, describe_cell, split_ends
from ftax.reports.table import Printout, Rows
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
_NUMBERS = (
    *CELL, "status", "why", "machine", "latency_ns", "low_ns", "high_ns", "rounds",
    "overhead_ratio", *_READINGS,
)  # fmt: skip
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
    return Printout(tables=tuple(tables), numbers=lambda: number_cells(results.cells))


def number_cells(cells: Iterable[SweepCell]) -> Numbers:
    """A row a cell, measured or not."""
    return Numbers.of(_NUMBERS, map(_describe_numbers, cells))


def _describe_numbers(cell: SweepCell) -> dict[str, Scalar]:
    row: dict[str, Scalar] = {
        **describe_cell(cell.cell), "status": cell.status, "why": cell.reason,
        "machine": cell.machine, "rounds": len(cell.values_ns),
        "overhead_ratio": cell.overhead_share,
        **{name: getattr(cell, name) for name in _READINGS},
    }  # fmt: skip
    if cell.status == "measured":
        row |= {"latency_ns": cell.latency_ns, **split_ends("", cell.interval_ns, "_ns")}
        row["why"] = cell.doubt or cell.disturbance
    return row


def make_missing_table(cells: Iterable[SweepCell]) -> Rows:
    """Cells without rounds: how many there are of each reason, with one of them."""
    groups: dict[tuple[str, str, str], list[SweepCell]] = {}
    for cell in cells:
        name = f"{cell.cell.runtime}/{cell.cell.host}"
        groups.setdefault((cell.status, name, cell.reason), []).append(cell)
    return Rows(
        title="Not measured",
        columns=("status", "cells", "runtime", "for example", "why"),
        numeric=("cells",),
        rows=tuple(
            (status, str(len(found)), runtime, found[0].cell.label(), reason)
            for (status, runtime, reason), found in groups.items()
        ),
    )


def _make_cells(title: str, cells: Sequence[SweepCell]) -> Rows:
    """What all cells have in common stands in the title."""
    places = {name: [_say(getattr(cell.cell, name)) for cell in cells] for name in _COLUMNS}
    differ = [name for name in _COLUMNS if len(set(places[name])) > 1]
    alike = ", ".join(
        f"{name} {places[name][0]}"
        for name in _COLUMNS
        if name not in differ and places[name][0] != "-"
    )
    numeric = ("latency", "95 % interval", "overhead", "kernels", "GMACs")
    return Rows(
        title=f"{title}{': ' if alike else ''}{alike}",
        columns=(*differ, *numeric),
        numeric=(*(name for name in ("batch", "sequence") if name in differ), *numeric),
        gives_way=("GMACs", "kernels", "overhead"),
        rows=tuple(
            (*(places[name][row] for name in differ), *_make_row(cell))
            for row, cell in enumerate(cells)
        ),
    )


def _make_row(cell: SweepCell) -> tuple[str, ...]:
    share = None if cell.doubt else cell.overhead_share
    return (
        format_latency(cell.latency_ns, cell.doubt, cell.disturbance),
        format_interval(cell.interval_ns),
        "-" if share is None else f"{share:.0%}",
        _say(cell.kernels),
        "-" if cell.macs is None else f"{cell.macs / 1e9:.3g}",
    )


def _say(value: object) -> str:
    return "-" if value is None else str(value)
