"""A receipt for programs: a row a line, a runtime, and a runtime that could not be measured.

The surprising choice: one table of several parts, since a script should read one header. `part`
tells the rows apart, and `latency_ns` is the whole of a runtime and a line's share of the first
one's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ftax.instruments.trace.timeline import PARTS
from ftax.ladders.evidence import RungEvidence
from ftax.ladders.receipt import OperatorCost, Receipt
from ftax.reports.numbers import CELL, Field, Numbers, Scalar, read_all
from ftax.reports.tables.measurement_table import FIELDS

# Of a row of the runtimes compared, beside its measurement.
_ROW: Mapping[str, Field] = {
    **{
        name: name
        for name in (
            "speedup_ratio", "saved_ns", "outputs", "outputs_equal", "tolerance", "kernels",
            "kernel_ns", "busy_ns", "issue_ns", "tax_left_ns", "tax_removed_ns", "busy_removed_ns",
            "examples_per_s", "calls_to_pay_back",
        )
    },
    "speedup_low": "speedup_interval.0",
    "speedup_high": "speedup_interval.1",
    "saved_low_ns": "saved_interval_ns.0",
    "saved_high_ns": "saved_interval_ns.1",
}  # fmt: skip
_EVIDENCE: Mapping[str, Field] = {
    name: name for name in ("copies", "fills", "same_kernels", "duration_ratio", "device_ns")
}
_TIMELINE = ("traced_wall_ns", *(f"traced_{part}" for part in PARTS))
_PREPARATION: Mapping[str, Field] = {
    "preparation_s": "preparation.seconds",
    "preparation_host_bytes": "preparation.peak_host_bytes",
    "preparation_device_bytes": "preparation.peak_device_bytes",
    "from_cache": "preparation.from_cache",
}
_READINGS: Mapping[str, Field] = {
    "energy_j": "energy.joules_per_inference",
    "energy_above_idle_j": "energy.joules_above_idle",
    "mean_power_w": "energy.mean_power_w",
    "sms_active_pct": "utilisation.sms_active_pct",
    "warp_occupancy_pct": "utilisation.warp_occupancy_pct",
    "dram_bandwidth_pct": "utilisation.dram_bandwidth_pct",
    "tensor_active_pct": "utilisation.tensor_active_pct",
    "allocated_bytes": "memory.allocated_bytes",
    "reserved_bytes": "memory.reserved_bytes",
}
_LINE: Mapping[str, Field] = {
    "name": "name",
    "latency_ns": "time_ns",
    "low_ns": "interval_ns.0",
    "high_ns": "interval_ns.1",
    "share_ratio": "share_ratio",
    "resolved": "resolved",
    "host_ns": "host_ns",
    "why": lambda line: line.doubt or line.problem,
}
COLUMNS = (
    "part", "name", *CELL, "latency_ns", "low_ns", "high_ns", "confidence", "share_ratio",
    "resolved", "host_ns", "p50_ns", "p90_ns", "p99_ns", "mean_ns", "min_ns", "max_ns", "samples",
    "slow_calls_ratio", "slow_calls_extra_ns", "rounds", "rounds_counted", *_ROW,
    *_EVIDENCE, *_TIMELINE, *_PREPARATION, *_READINGS, "why",
)  # fmt: skip
_MEASURED = {name: field for name, field in FIELDS.items() if name in COLUMNS}
_OPERATORS = (
    "model", "operator", "module", "calls", "build_ns", "call_ns", "release_ns", "total_ns",
    "share_ratio",
)  # fmt: skip


def number_receipt(receipt: Receipt) -> Numbers:
    """Lines from top to bottom, runtimes from the fastest on, then what could not be measured."""
    return Numbers.of(COLUMNS, _list_rows(receipt))


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
    """The rows of `number_receipt`."""
    top = receipt.rungs[0]
    cell = read_all(top, CELL) | {"label": receipt.label, "runtime": None, "host": None}
    for line in receipt.lines:
        yield {"part": "line", **cell, "confidence": top.confidence, **read_all(line, _LINE)}
    evidence = {item.place: item for item in receipt.evidence}
    readings = {item.place: item for item in receipt.readings}
    for row in receipt.runtimes:
        place = row.measurement.place
        yield {
            "part": "runtime",
            **read_all(row.measurement, _MEASURED),
            "name": row.label,
            **read_all(row, {**_ROW, **_PREPARATION}),
            "why": row.doubt or row.excluded,
            **read_all(evidence.get(place), _EVIDENCE),
            **_describe_timeline(evidence.get(place)),
            **read_all(readings.get(place), _READINGS),
        }
    for item in receipt.unavailable:
        own = {"runtime": item.runtime, "host": item.host, "why": item.reason}
        yield {"part": "unavailable", "name": str(item.place), **cell, **own}


def _describe_timeline(item: RungEvidence | None) -> dict[str, Scalar]:
    if item is None or item.timeline is None:
        return {}
    return {name: item.timeline.median_ns(name.removeprefix("traced_")) for name in _TIMELINE}
