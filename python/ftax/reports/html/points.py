"""Every measured latency of a report as a point: what was measured, how long, on which machine; and
all points as tables, a machine each and machines side by side.

Nothing is merged: a cell that was measured twice is two points.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ftax.ladders.evidence import RungEvidence
from ftax.ladders.receipt import Receipt
from ftax.machines.environment import Environment
from ftax.reports.columns import CELL, Column, choose, split_alike
from ftax.reports.html.machines import Machine, Machines
from ftax.reports.html.sources import Found, Sweeps
from ftax.reports.html.view import TableView
from ftax.reports.table import Rows
from ftax.reports.tables.sweep_table import COLUMNS as CELLS
from ftax.reports.tables.sweep_table import make_machine_table, make_variance_table
from ftax.sweeps.results import SweepResults
from ftax.sweeps.side_by_side import group_shared, line_up
from ftax.sweeps.sweep_records import REPETITION, SweepCell, SweepMachine
from ftax.timing.cell import Cell
from ftax.timing.differences import HostComparison
from ftax.timing.measurement import Measurement
from ftax.timing.trust import find_disturbance
from ftax.timing.units import format_interval, format_latency, format_time

FILTERS = ("model", "runtime", "host", "dtype", "device", "sequence")
# Columns of the table that are there only where they tell two points of the page apart.
_SELDOM = ("device", "sequence", "options", "mode", "overhead share", "kernel time", "GMACs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One latency, or in mode "throughput" the time per request.

    Attributes:
        ref: the record's file and line.
        label: what the user calls the result.
        doubt: why the latency is not to go by; "" if it is.
        disturbance: that its rounds were measured beside others; "" if they were not.
        busy_ns, kernel_ns: device busy time and summed kernel time of one inference, if traced.
        macs: multiply-accumulates of the whole batch, if counted.
    """

    cell: Cell
    machine: Machine
    ref: str
    mode: str
    latency_ns: float
    interval_ns: tuple[float, float] | None
    rounds: int
    label: str = ""
    doubt: str = ""
    disturbance: str = ""
    busy_ns: float | None = None
    kernel_ns: float | None = None
    macs: int | None = None

    @property
    def overhead_share(self) -> float | None:
        """Share of the latency in which the device was idle; None without a reliable trace."""
        if self.busy_ns is None or self.doubt:
            return None
        return max(0.0, 1.0 - self.busy_ns / self.latency_ns)

    @property
    def mark(self) -> str:
        """Why charts mark it; "" if they do not."""
        return self.doubt or self.disturbance

    @property
    def runtime(self) -> str:
        """``'eager/python'``."""
        return f"{self.cell.runtime}/{self.cell.host}"

    @property
    def text(self) -> str:
        """For a label beside the pointer: lines separated by line feeds."""
        lines = [": ".join(filter(None, (self.label, self.cell.model))),
                 f"{self.runtime}, {self.cell.dtype}, batch {self.cell.batch}",
                 format_latency(self.latency_ns, self.doubt, self.disturbance)]  # fmt: skip
        if self.interval_ns is not None:
            lines[-1] += f" ({format_interval(self.interval_ns)})"
        if self.overhead_share is not None:
            lines.append(f"overhead share {self.overhead_share:.1%}")
        if self.kernel_ns is not None:
            lines.append(f"kernel time {format_time(self.kernel_ns)}")
        if self.macs is not None:
            lines.append(f"{self.macs:,} MACs")
        lines += filter(None, [self.mark])
        return "\n".join([*lines, self.ref])


def collect_environments(found: Sequence[Found]) -> Iterator[Environment]:
    """Where each record was measured, in the order of records."""
    for item in found:
        record = item.record
        if isinstance(record, Receipt):
            yield from (m.environment for m in (*record.rungs, *record.others, *record.throughputs))
        elif isinstance(record, HostComparison):
            yield from (measurement.environment for measurement in record)
        elif isinstance(getattr(record, "environment", None), Environment):
            yield record.environment


def collect_points(
    found: Sequence[Found], machines: Machines, sweeps: Mapping[str, SweepMachine]
) -> list[Point]:
    """The points of all records. ``sweeps``: machines by the ids that cells of sweeps name."""
    points: list[Point] = []
    for item in found:
        record = item.record
        if isinstance(record, Measurement):
            points.append(_make_point(record, item.ref, machines))
        elif isinstance(record, HostComparison):
            points += [_make_point(measurement, item.ref, machines) for measurement in record]
        elif isinstance(record, Receipt):
            points += _list_receipt(record, item.ref, machines)
        elif isinstance(record, SweepCell) and _is_place(record):
            machine = machines.find(sweeps[record.machine].environment)
            points.append(_make_sweep_point(record, item.ref, machine))
    return points


def _is_place(cell: SweepCell) -> bool:
    """Whether it was measured, and for the first time: another time is no other place."""
    return cell.status == "measured" and REPETITION not in cell.cell.options


def _list_receipt(receipt: Receipt, ref: str, machines: Machines) -> list[Point]:
    evidence = {(item.runtime, item.host): item for item in receipt.evidence}
    points = [
        _make_point(item, ref, machines, evidence.get((item.cell.runtime, item.cell.host)))
        for item in (*receipt.rungs, *receipt.others)
    ]
    return points + [_make_point(item, ref, machines) for item in receipt.throughputs]


def _make_point(
    item: Measurement, ref: str, machines: Machines, evidence: RungEvidence | None = None
) -> Point:
    traced: dict[str, Any] = {}
    if evidence is not None and evidence.splits(item.latency_ns):
        traced["busy_ns"] = evidence.compute_busy()[0]
        traced["kernel_ns"] = statistics.median(evidence.kernel_ns)
    return Point(
        cell=item.cell,
        machine=machines.find(item.environment),
        ref=ref,
        mode=item.mode,
        latency_ns=item.latency_ns,
        interval_ns=item.interval_ns,
        rounds=len(item.samples_ns),
        label=item.label,
        doubt=item.doubt,
        disturbance=find_disturbance(item.warnings),
        **traced,
    )


def _make_sweep_point(record: SweepCell, ref: str, machine: Machine) -> Point:
    return Point(
        cell=record.cell,
        machine=machine,
        ref=ref,
        mode="latency",
        latency_ns=record.latency_ns,
        interval_ns=record.interval_ns,
        rounds=len(record.values_ns),
        doubt=record.doubt,
        disturbance=record.disturbance,
        busy_ns=record.busy_ns,
        kernel_ns=record.kernel_ns,
        macs=record.macs,
    )


# --- tables ---------------------------------------------------------------------------------------


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
