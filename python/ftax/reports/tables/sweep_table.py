"""A sweep as tables: its cells, how far runs and machines differ, what was not measured and why.

Machines stand side by side as soon as they have a cell in common; until then each has its own
table, since nothing of them can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ftax.reports.columns import (
    CELL,
    IDENTITY,
    Column,
    Numbers,
    Scalar,
    choose,
    for_programs,
    list_keys,
    read,
    read_all,
    split_alike,
)
from ftax.reports.table import Printout, Rows
from ftax.sweeps.results import SweepResults
from ftax.sweeps.side_by_side import (
    Row,
    group_shared,
    line_up,
    mark_software,
    name_kind,
    name_machines,
)
from ftax.sweeps.sweep_records import GPU, REPETITION, drop_options
from ftax.sweeps.variance import KindVariance, find_variances
from ftax.timing.units import format_interval, format_latency, format_time

if TYPE_CHECKING:
    from ftax.machines.environment import Environment
    from ftax.sweeps.sweep_records import SweepCell

_MOST_ROWS = 60  # of a terminal; --csv prints all
_FEWEST = 2  # machines that a narrow terminal shows
_LONG = 99.5  # percent, which two digits would write as 1e+02


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
    called = name_machines(results.machines.values())
    tables: list[Rows] = []
    notes: dict[str, None] = {}
    if is_whole or sum(map(len, groups)) + len(rest) + len(missing) <= _MOST_ROWS:
        names = {**{cell.machine: f"machine {cell.machine}" for cell in measured}, **called}
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

    def list_rows() -> Iterator[dict[str, Scalar]]:
        for cell in results.cells:
            yield {**read_all(cell, COLUMNS), "machine_name": called.get(cell.machine, "")}

    return Printout(
        tables=tuple(tables),
        notes=tuple(notes),
        numbers=lambda: Numbers.join(list_keys(COLUMNS), list_rows()),
    )


# --- cells ----------------------------------------------------------------------------------------


def _make_machines(cells: Sequence[SweepCell], machines: int) -> Iterator[Rows]:
    """A table a machine, of ``machines`` that there are."""
    by_machine: dict[str, list[SweepCell]] = {}
    for cell in cells:
        by_machine.setdefault(cell.machine, []).append(cell)
    for name, own in by_machine.items():
        of = f" on machine {name}" if machines > 1 else ""
        yield _make_cells(f"{len(own)} cells{of}", own)


def _make_cells(title: str, cells: Sequence[SweepCell]) -> Rows:
    """What all cells have in common stands in the title."""
    steps = [] if {cell.cell.step for cell in cells} == {"forward"} else choose(CELL, "step")
    differ, alike = split_alike(cells, [*IDENTITY, *steps])
    options, _ = split_alike(cells, choose(CELL, "options"))  # repetitions, for example
    units = {cell.cell.unit for cell in cells if cell.cell.units > 1}
    unit = next(iter(units)) if len(units) == 1 else "unit"
    each = [Column(f"a {unit}", (_divide, format_time))] if units else []
    return Rows.of_columns(
        f"{title}{': ' if alike else ''}{', '.join(alike)}",
        cells,
        [
            *differ,
            *options,
            *choose(COLUMNS, "latency", "95 % interval"),
            *each,
            *choose(COLUMNS, "overhead", "kernels", "GMACs"),
        ],
        gives_way=("GMACs", "kernels", "overhead"),
    )


def _divide(cell: SweepCell) -> float | None:
    """What one unit of the step takes; nothing where the whole is not to go by."""
    return None if cell.doubt else cell.latency_ns / cell.cell.units


def _if_measured(name: str) -> Any:
    return lambda cell: read(cell, name) if cell.status == "measured" else None


def _find_reason(cell: SweepCell) -> str:
    return cell.reason if cell.status != "measured" else cell.doubt or cell.disturbance


COLUMNS = (
    *CELL,
    *for_programs(
        status="status",
        why=_find_reason,
        machine="machine",
        machine_name=lambda _: "",  # which the other cells decide
    ),
    Column(
        "latency",
        lambda cell: format_latency(cell.latency_ns, cell.doubt, cell.disturbance),
        "latency_ns",
        _if_measured("latency_ns"),
    ),
    Column(
        "95 % interval",
        ("interval_ns", format_interval),
        ("low_ns", "high_ns"),
        _if_measured("interval_ns"),
    ),
    *for_programs(rounds=lambda cell: len(cell.values_ns)),
    Column(
        "overhead",
        (lambda cell: None if cell.doubt else cell.overhead_share, "{:.0%}".format),
        "overhead_ratio",
        "overhead_share",
    ),
    *for_programs("busy_ns", "kernel_ns"),
    Column("kernels", "kernels", "kernels"),
    *for_programs("sm_active_ratio", "sm_occupancy_ratio", "peak_device_bytes", "device_bytes"),
    Column("GMACs", ("macs", lambda macs: f"{macs / 1e9:.3g}"), "macs"),
    *for_programs("operators", "modules", "parameter_count", "seconds"),
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


# --- machines -------------------------------------------------------------------------------------


def make_machine_table(
    rows: Sequence[Row[Any]],
    names: Mapping[str, str],
    environments: Mapping[str, Environment],
) -> tuple[Rows, tuple[str, ...]]:
    """The rows of one model, whose items have ``latency_ns``, ``doubt`` and ``disturbance``, with a
    column a machine; and what to say below: in which software the machines differ. What is the same
    of all rows stands in the title.

    Args:
        names: of machines, by what rows call them; each another.
        environments: likewise, of those that are known.
    """
    machines = [machine for machine in names if any(machine in row.found for row in rows)]
    known = {
        names[machine]: environments[machine] for machine in machines if machine in environments
    }
    headings, notes = mark_software([names[machine] for machine in machines], known)
    runtime, *others = IDENTITY[1:]
    differ, alike = split_alike(rows, [*others, *choose(CELL, "options")])
    columns = [runtime, *differ]
    columns += [_make_column(machine, headings[names[machine]]) for machine in machines]
    title = ", ".join([f"{rows[0].cell.model} on {len(machines)} machines", *alike])
    last_first = tuple(headings[names[machine]] for machine in reversed(machines[_FEWEST:]))
    return Rows.of_columns(title, rows, columns, gives_way=last_first), notes


def _make_column(machine: str, head: str) -> Column:
    (latency,) = choose(COLUMNS, "latency")
    return Column(head, (lambda row: row.found.get(machine), latency.write))


def make_variance_table(results: SweepResults) -> Rows:
    """What differs between runs of one machine, and beyond that between machines of a kind."""

    def name(kind: KindVariance) -> str:
        known = [results.machines[id] for id in kind.machines if id in results.machines]
        return name_kind(known, results.machines.values()) or f"machine {kind.machines[0]}"

    kinds = find_variances(results)
    columns = [
        Column("kind of machine", name, is_text=True),
        Column("machines", lambda kind: len(kind.machines)),
        Column("cells", "cells"),
        Column("runs", "runs"),
        Column("between runs", ("components.within", _format_percent)),
        Column("between machines", ("components.between", _format_percent)),
        Column("95 % interval", ("components.interval", _format_percents)),
    ]
    is_told = any(kind.problem for kind in kinds)
    if is_told:
        columns.append(Column("why not", _say_problem, is_text=True))
    return Rows.of_columns(
        "How far latencies differ between runs on one machine, and beyond that between machines "
        "of one kind (standard deviations)",
        kinds,
        columns,
        legend="why not" if is_told else "",
    )


def _say_problem(kind: KindVariance) -> str:
    return f"cannot tell: {kind.problem}" if kind.problem else ""


def _format_percents(ends: tuple[float, float]) -> str:
    return f"{_format_percent(ends[0]).removesuffix(' %')} to {_format_percent(ends[1])}"


def _format_percent(ratio: float) -> str:
    percent = 100 * ratio
    return f"{percent:.2g} %" if percent < _LONG else f"{percent:.0f} %"
