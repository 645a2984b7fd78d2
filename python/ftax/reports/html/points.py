"""Every measured latency of a report as a point: what was measured, how long, on which machine.

Nothing is merged: a cell that was measured twice is two points.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ftax.ladders.evidence import RungEvidence
from ftax.ladders.receipt import Receipt
from ftax.machines.environment import Environment
from ftax.reports.html.machines import Machine, Machines
from ftax.reports.html.sources import Found
from ftax.sweeps.sweep_records import REPETITION, SweepCell, SweepMachine
from ftax.timing.cell import Cell
from ftax.timing.host_comparison import HostComparison
from ftax.timing.measurement import Measurement
from ftax.timing.trust import find_disturbance
from ftax.timing.units import format_interval, format_latency, format_time


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
