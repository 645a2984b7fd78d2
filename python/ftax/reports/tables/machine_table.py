"""Machines side by side: a table a model, with a column for the latency on each of them.

A second table says how far runs and machines differ, a row a kind of machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ftax.reports.options import describe_options, read_column
from ftax.reports.table import NOTHING, Cell, Rows, say
from ftax.sweeps.results import SweepResults
from ftax.sweeps.side_by_side import Row, mark_software, name_kind
from ftax.sweeps.variance import KindVariance, find_variances
from ftax.timing.units import format_latency

if TYPE_CHECKING:
    from ftax.machines.environment import Environment

_FEWEST = 2  # machines that a narrow terminal shows
_TEXT = ("runtime", "called from", "device", "dtype", "options")
_FIELDS: Mapping[str, Callable[[Row[Any]], str]] = {
    **{
        name: lambda row, name=name: say(read_column(row.cell, name))  # type: ignore[misc]
        for name in ("runtime", "called from", "device", "dtype", "batch", "sequence")
    },
    "options": lambda row: describe_options(row.cell) or NOTHING,
}


def make_machine_table(
    rows: Sequence[Row[Any]],
    names: Mapping[str, str],
    environments: Mapping[str, Environment],
) -> tuple[Rows, tuple[str, ...]]:
    """The rows of one model, whose items have ``latency_ns``, ``doubt`` and ``disturbance``; and
    what to say below: in which software the machines differ. What is the same of all rows stands in
    the title.

    Args:
        names: of machines, by what rows call them; each another.
        environments: likewise, of those that are known.
    """
    machines = [machine for machine in names if any(machine in row.found for row in rows)]
    known = {
        names[machine]: environments[machine] for machine in machines if machine in environments
    }
    headings, notes = mark_software([names[machine] for machine in machines], known)
    told = {name: [read(row) for row in rows] for name, read in _FIELDS.items()}
    columns: dict[str, Cell] = {
        name: read
        for name, read in _FIELDS.items()
        if len(set(told[name])) > 1 or name == "runtime"
    }
    alike = [
        f"{name} {told[name][0]}"
        for name in _FIELDS
        if name not in columns and told[name][0] != NOTHING
    ]
    for machine in machines:
        columns[headings[names[machine]]] = _make_cell(machine)
    title = ", ".join([f"{rows[0].cell.model} on {len(machines)} machines", *alike])
    last_first = [headings[names[machine]] for machine in reversed(machines[_FEWEST:])]
    return Rows.of(title, rows, columns, text=_TEXT, gives_way=tuple(last_first)), notes


def _make_cell(machine: str) -> Cell:
    return (
        lambda row: row.found.get(machine),
        lambda item: format_latency(item.latency_ns, item.doubt, item.disturbance),
    )


_LONG = 99.5  # what two digits would write as 1e+02


def make_variance_table(results: SweepResults) -> Rows:
    """What differs between runs of one machine, and beyond that between machines of a kind."""

    def name(kind: KindVariance) -> str:
        known = [results.machines[id] for id in kind.machines if id in results.machines]
        return name_kind(known, results.machines.values()) or f"machine {kind.machines[0]}"

    columns: dict[str, Cell] = {
        "kind of machine": name,
        "machines": lambda kind: len(kind.machines),
        "cells": "cells",
        "runs": "runs",
        "between runs": ("components.within", _format),
        "between machines": ("components.between", _format),
        "95 % interval": (
            "components.interval",
            lambda ends: f"{_format(ends[0]).removesuffix(' %')} to {_format(ends[1])}",
        ),
        "why not": lambda kind: f"cannot tell: {kind.problem}" if kind.problem else "",
    }
    kinds = find_variances(results)
    if not any(kind.problem for kind in kinds):
        del columns["why not"]
    return Rows.of(
        "How far latencies differ between runs on one machine, and beyond that between machines "
        "of one kind (standard deviations)",
        kinds,
        columns,
        text=("kind of machine", "why not"),
        legend="why not" if "why not" in columns else "",
    )


def _format(ratio: float) -> str:
    percent = 100 * ratio
    return f"{percent:.2g} %" if percent < _LONG else f"{percent:.0f} %"
