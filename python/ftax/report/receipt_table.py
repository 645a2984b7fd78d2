"""The receipt as tables: the ladder with its taxes, the alternatives, and what could not be had."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ftax.ladder import Line
from ftax.receipt import Alternative, OperatorCost, Receipt, describe_outputs
from ftax.report.energy_table import render_gpu_readings
from ftax.report.evidence_table import make_evidence_tables
from ftax.report.table import Rows
from ftax.report.units import format_interval, format_time
from ftax.results import Measurement


def make_receipt_tables(receipt: Receipt) -> list[Rows]:
    """Receipt, rungs and alternatives, on a GPU evidence, and what is unavailable."""
    tables = [_make_lines(receipt), _make_runtimes(receipt), *make_evidence_tables(receipt)]
    if receipt.unavailable:
        tables.append(
            Rows(
                title="Not measured",
                columns=("runtime", "host", "why"),
                numeric=(),
                rows=tuple((u.runtime, u.host, u.reason) for u in receipt.unavailable),
            )
        )
    return tables


def make_operator_table(receipt: Receipt, *, limit: int, by_kind: bool) -> Rows:
    """Host time of the tape's operator calls, dearest first; summed by operator if ``by_kind``."""
    total = sum(cost.total_ns for cost in receipt.operator_costs) or 1.0
    if by_kind:
        return _make_kinds(receipt, total, limit)
    rows = [
        (
            cost.operator,
            cost.module or "(model)",
            format_time(cost.build_ns),
            format_time(cost.call_ns),
            format_time(cost.release_ns),
            f"{cost.total_ns / total:.1%}",
        )
        for cost in receipt.operators()[:limit]
    ]
    model = receipt.rungs[0].cell.model
    return Rows(
        title=f"Operator calls of {model} by host time ({format_time(total)})",
        columns=("operator", "module", "arguments", "call", "release", "share"),
        numeric=("arguments", "call", "release", "share"),
        rows=tuple(rows),
    )


def render_receipt(receipt: Receipt) -> RenderableType:
    """For a terminal: tables, then what one should know beside them."""
    parts: list[RenderableType] = [table.to_rich() for table in make_receipt_tables(receipt)]
    if receipt.readings:
        parts.append(render_gpu_readings(receipt.readings, receipt.energy_tax()))
    parts.append(Text(summarise(receipt)))
    parts += [Text(f"! {warning}", style="yellow") for warning in collect_warnings(receipt)]
    return Group(*parts)


def summarise(receipt: Receipt) -> str:
    """The answer in a sentence or two, from the numbers."""
    sentences = []
    tax = receipt.python_tax_ns
    if tax is not None:
        time_ns, interval = tax
        share = time_ns / receipt.latency_ns
        if interval is not None and interval[0] > 0:
            sentences.append(
                f"Python costs {format_time(time_ns)} of {format_time(receipt.latency_ns)} "
                f"({share:.0%}; {format_interval(interval)})."
            )
        else:
            sentences.append(
                f"Python's cost is not resolved: {format_interval(interval)} of "
                f"{format_time(receipt.latency_ns)}."
            )
    best = next((a for a in receipt.alternatives if a.outputs_equal), None)
    if best is not None:
        cell = best.measurement.cell
        interval = best.saved_interval_ns
        if interval is not None and interval[0] > 0:
            sentences.append(
                f"{cell.runtime} from {cell.host} would give back {format_time(best.saved_ns)} "
                f"({best.speedup_ratio:.2f}x)."
            )
        else:
            sentences.append("No other runtime measured here is faster than eager for certain.")
    return " ".join(sentences)


def collect_warnings(receipt: Receipt) -> list[str]:
    """Warnings of the receipt and of its measurements, each once."""
    found = list(receipt.warnings)
    for measurement in (*receipt.rungs, *receipt.others):
        found += measurement.warnings
    return list(dict.fromkeys(found))


def _make_lines(receipt: Receipt) -> Rows:
    cell = receipt.rungs[0].cell
    lines = receipt.lines
    with_host = any(line.host_ns is not None for line in lines)
    rows = [_make_line(line, with_host) for line in lines]
    total = ("= eager, host python", format_time(receipt.latency_ns),
             format_interval(receipt.rungs[0].interval_ns), "100.0%",
             *([_format_issue(receipt)] if with_host else []), "")  # fmt: skip
    sequence = f", {cell.sequence} tokens" if cell.sequence else ""
    return Rows(
        title=f"Receipt: {cell.model}, {cell.device}, {cell.dtype}, batch {cell.batch}{sequence}, "
        f"{len(receipt.rungs[0].values_ns)} rounds",
        columns=(
            "what",
            "exposed" if with_host else "time",
            "95 % interval",
            "share",
            *(["host"] if with_host else []),
            "what it is",
        ),
        numeric=("exposed", "time", "share", "host"),
        rows=(*rows, total),
    )


def _make_line(line: Line, with_host: bool) -> tuple[str, ...]:
    name = line.name
    if line.problem:
        name += f" (no tax: {line.problem})"
    elif not line.resolved:
        rounds = f", needs about {line.rounds_needed} rounds" if line.rounds_needed else ""
        name += f" (not resolved{rounds})"
    return (
        name,
        format_time(line.time_ns),
        format_interval(line.interval_ns),
        f"{line.share_ratio:.1%}",
        *([] if not with_host else ["-" if line.host_ns is None else format_time(line.host_ns)]),
        line.removes,
    )


def _format_issue(receipt: Receipt) -> str:
    issue = next((item.issue_ns for item in receipt.evidence), None)
    return "-" if issue is None else format_time(issue)


def _make_runtimes(receipt: Receipt) -> Rows:
    rows = [_make_rung(rung, receipt) for rung in receipt.rungs]
    rows += [_make_alternative(alternative) for alternative in receipt.alternatives]
    return Rows(
        title="Rungs and alternatives",
        columns=(
            "runtime",
            "host",
            "latency",
            "95 % interval",
            "p50",
            "p90",
            "p99",
            "speed-up",
            "outputs",
        ),
        numeric=("latency", "p50", "p90", "p99", "speed-up"),
        rows=tuple(rows),
    )


def _make_rung(rung: Measurement, receipt: Receipt) -> tuple[str, ...]:
    first = rung is receipt.rungs[0]
    outputs = "the reference" if first else describe_outputs(rung)[1]
    return (*_describe(rung), f"{receipt.latency_ns / rung.latency_ns:.2f}x", outputs)


def _make_alternative(row: Alternative) -> tuple[str, ...]:
    return (*_describe(row.measurement), f"{row.speedup_ratio:.2f}x", row.outputs)


def _describe(measurement: Measurement) -> tuple[str, ...]:
    summary = measurement.summary
    return (
        measurement.cell.runtime,
        measurement.cell.host,
        format_time(measurement.latency_ns),
        format_interval(measurement.interval_ns),
        format_time(summary.p50_ns),
        format_time(summary.p90_ns),
        format_time(summary.p99_ns),
    )


def _make_kinds(receipt: Receipt, total: float, limit: int) -> Rows:
    kinds: dict[str, list[OperatorCost]] = {}
    for cost in receipt.operator_costs:
        kinds.setdefault(cost.operator, []).append(cost)
    sums = {name: sum(c.total_ns for c in costs) for name, costs in kinds.items()}
    order = sorted(sums, key=lambda name: -sums[name])[:limit]
    return Rows(
        title=f"Operators of {receipt.rungs[0].cell.model} by host time ({format_time(total)})",
        columns=("operator", "calls", "total", "per call", "share"),
        numeric=("calls", "total", "per call", "share"),
        rows=tuple(
            (
                name,
                str(len(kinds[name])),
                format_time(sums[name]),
                format_time(sums[name] / len(kinds[name])),
                f"{sums[name] / total:.1%}",
            )
            for name in order
        ),
    )
