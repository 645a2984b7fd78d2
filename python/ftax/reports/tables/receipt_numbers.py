"""A receipt for programs: a row a line, a runtime, and a runtime that could not be measured.

The surprising choice: one table of several parts, since a script should read one header. `part`
tells the rows apart, and `latency_ns` is the whole of a runtime and a line's share of the first
one's.
"""

from __future__ import annotations

from collections.abc import Iterator

from ftax.instruments.readings import GpuReadings
from ftax.instruments.trace.timeline import PARTS
from ftax.ladders.evidence import RungEvidence
from ftax.ladders.lines import Line
from ftax.ladders.receipt import OperatorCost, Receipt
from ftax.ladders.rows import RuntimeRow
from ftax.reports.numbers import CELL, Numbers, Scalar, describe_cell, split_ends
from ftax.reports.tables.measurement_table import describe_numbers

_ROW = (
    "speedup_ratio", "saved_ns", "outputs", "outputs_equal", "tolerance", "kernels", "kernel_ns",
    "busy_ns", "issue_ns", "tax_left_ns", "tax_removed_ns", "busy_removed_ns", "examples_per_s",
    "calls_to_pay_back",
)  # fmt: skip
_READINGS = (
    "energy_j", "energy_above_idle_j", "mean_power_w", "sms_active_pct", "warp_occupancy_pct",
    "dram_bandwidth_pct", "tensor_active_pct", "allocated_bytes", "reserved_bytes",
)  # fmt: skip
_TIMELINE = ("traced_wall_ns", *(f"traced_{part}" for part in PARTS))
_COLUMNS = (
    "part", "name", *CELL, "latency_ns", "low_ns", "high_ns", "confidence", "share_ratio",
    "resolved", "host_ns", "p50_ns", "p90_ns", "p99_ns", "min_ns", "max_ns", "samples", "rounds",
    "rounds_counted", *_ROW, "speedup_low", "speedup_high", "saved_low_ns", "saved_high_ns",
    "copies", "fills", "same_kernels", "duration_ratio", "device_ns", *_TIMELINE,
    "preparation_s", "preparation_host_bytes", "preparation_device_bytes", "from_cache",
    *_READINGS, "why",
)  # fmt: skip
_OPERATORS = (
    "model", "operator", "module", "calls", "build_ns", "call_ns", "release_ns", "total_ns",
    "share_ratio",
)  # fmt: skip


def number_receipt(receipt: Receipt) -> Numbers:
    """Lines from top to bottom, runtimes from the fastest on, then what could not be measured."""
    return Numbers.of(_COLUMNS, _list_rows(receipt))


def number_operators(receipt: Receipt, *, by_kind: bool) -> Numbers:
    """Host time of operator calls, dearest first; summed by operator if ``by_kind``."""
    groups: dict[object, list[OperatorCost]] = {}
    for cost in receipt.operators():
        groups.setdefault(cost.operator if by_kind else cost.index, []).append(cost)
    total_ns = sum(cost.total_ns for cost in receipt.operator_costs) or 1.0
    rows: list[dict[str, Scalar]] = []
    for costs in groups.values():
        parts = {
            name: sum(getattr(cost, name) for cost in costs)
            for name in ("build_ns", "call_ns", "release_ns", "total_ns")
        }
        rows.append(
            {
                "model": receipt.rungs[0].cell.model,
                "operator": costs[0].operator,
                "module": None if by_kind else costs[0].module,
                "calls": len(costs),
                **parts,
                "share_ratio": parts["total_ns"] / total_ns,
            }
        )
    rows.sort(key=lambda row: -float(row["total_ns"] or 0.0))
    return Numbers.of(_OPERATORS, rows)


def _list_rows(receipt: Receipt) -> Iterator[dict[str, Scalar]]:
    top = receipt.rungs[0]
    cell = describe_cell(top.cell, receipt.label) | {"runtime": None, "host": None}
    for line in receipt.lines:
        yield {"part": "line", **cell, **_describe_line(line), "confidence": top.confidence}
    evidence = {item.place: item for item in receipt.evidence}
    readings = {item.place: item for item in receipt.readings}
    for row in receipt.runtimes:
        place = row.measurement.place
        yield {
            "part": "runtime",
            **_describe_runtime(row),
            **_describe_evidence(evidence.get(place)),
            **_describe_readings(readings.get(place)),
        }
    for item in receipt.unavailable:
        yield {
            "part": "unavailable",
            "name": str(item.place),
            **cell,
            "runtime": item.runtime,
            "host": item.host,
            "why": item.reason,
        }


def _describe_line(line: Line) -> dict[str, Scalar]:
    return {
        "name": line.name,
        "latency_ns": line.time_ns,
        **split_ends("", line.interval_ns, "_ns"),
        "share_ratio": line.share_ratio,
        "resolved": line.resolved,
        "host_ns": line.host_ns,
        "why": line.doubt or line.problem,
    }


def _describe_runtime(row: RuntimeRow) -> dict[str, Scalar]:
    measured, cost = describe_numbers(row.measurement), row.preparation
    return {
        **{name: value for name, value in measured.items() if name in _COLUMNS},
        "name": row.label,
        **{name: getattr(row, name) for name in _ROW},
        **split_ends("speedup_", row.speedup_interval),
        **split_ends("saved_", row.saved_interval_ns, "_ns"),
        "preparation_s": None if cost is None else cost.seconds,
        "preparation_host_bytes": None if cost is None else cost.peak_host_bytes,
        "preparation_device_bytes": None if cost is None else cost.peak_device_bytes,
        "from_cache": None if cost is None else cost.from_cache,
        "why": row.doubt or row.excluded,
    }


def _describe_evidence(item: RungEvidence | None) -> dict[str, Scalar]:
    if item is None:
        return {}
    found: dict[str, Scalar] = {
        "copies": item.copies,
        "fills": item.fills,
        "same_kernels": item.same_kernels,
        "duration_ratio": item.duration_ratio,
        "device_ns": item.device_ns,
    }
    if item.timeline is not None:
        for name in _TIMELINE:
            found[name] = item.timeline.median_ns(name.removeprefix("traced_"))
    return found


def _describe_readings(item: GpuReadings | None) -> dict[str, Scalar]:
    if item is None:
        return {}
    found: dict[str, Scalar] = {}
    if (energy := item.energy) is not None:
        found |= {
            "energy_j": energy.joules_per_inference,
            "energy_above_idle_j": energy.joules_above_idle,
            "mean_power_w": energy.mean_power_w,
        }
    if (used := item.utilisation) is not None:
        names = ("sms_active_pct", "warp_occupancy_pct", "dram_bandwidth_pct", "tensor_active_pct")
        found |= {name: getattr(used, name) for name in names}
    if (memory := item.memory) is not None:
        found["allocated_bytes"] = memory.allocated_bytes
        found["reserved_bytes"] = memory.reserved_bytes
    return found
