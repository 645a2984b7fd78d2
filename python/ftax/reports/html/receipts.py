"""A receipt as a reader sees it: the ladder and the runtimes as charts, and every table behind
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ftax.ladders.lines import Line
from ftax.ladders.receipt import Receipt
from ftax.ladders.rows import RuntimeRow
from ftax.reports.html.machines import Machine, Machines
from ftax.reports.html.sources import Found
from ftax.reports.html.view import Chart, TableView, typeset
from ftax.reports.table import Rows
from ftax.reports.tables.energy_table import (
    describe_idle,
    describe_missing,
    make_energy_tax_table,
    make_gpu_table,
)
from ftax.reports.tables.evidence_table import make_evidence_tables, make_top_table
from ftax.reports.tables.receipt_table import make_line_table, make_operator_table
from ftax.reports.tables.runtime_table import make_runtime_tables, make_unavailable_table
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_interval, format_latency, format_time

_OPERATORS = 15
_KERNELS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptView:
    """One receipt of the page.

    Attributes:
        ladder: the lines, which sum to the latency of Python eager.
        groups: (title, tables, notes) of what stands behind it.
        data: of the two charts.
    """

    id: str
    title: str
    ref: str
    machine: Machine
    advice: str
    ladder: TableView
    ladder_chart: Chart
    runtime_chart: Chart
    groups: tuple[tuple[str, tuple[TableView, ...], tuple[str, ...]], ...]
    warnings: tuple[str, ...]
    data: dict[str, object]


def make_receipt_view(found: Found, place: int, machines: Machines) -> ReceiptView:
    """The view of the receipt ``found``, the page's number ``place``."""
    receipt: Receipt = found.record
    title = describe_receipt(receipt)
    lines, runtimes = receipt.lines, receipt.runtimes
    return ReceiptView(
        id=f"receipt-{place}",
        title=title,
        ref=found.ref,
        machine=machines.find(receipt.rungs[0].environment),
        advice=receipt.recommendation,
        ladder=TableView(rows=make_line_table(receipt), record=found.ref),
        ladder_chart=Chart(
            kind="ladder", item=place, label=_label_ladder(receipt, title), rows=len(lines) + 1
        ),
        runtime_chart=Chart(
            kind="runtimes",
            item=place,
            label=f"Latency of {len(runtimes)} runtimes for {title}, fastest first. The table "
            "of runtimes has the same numbers.",
            rows=len(runtimes),
        ),
        groups=tuple(_list_groups(receipt, found.ref)),
        warnings=tuple(receipt.collect_warnings()),
        data={
            "ref": found.ref,
            "latency": receipt.latency_ns,
            "lines": _list_lines(lines, found.ref),
            "runtimes": [_describe_runtime(row, found.ref) for row in runtimes],
        },
    )


def describe_receipt(receipt: Receipt) -> str:
    """``'bert-base, cuda:0, fp16, batch 1, 128 tokens'``."""
    cell = receipt.rungs[0].cell
    parts = [cell.model, cell.device, cell.dtype, f"batch {cell.batch}"]
    if cell.sequence is not None:
        parts.append(f"{cell.sequence} tokens")
    if cell.options.get("tiny") is True:
        parts.append("tiny")
    return ", ".join(parts)


def make_glance_table(receipts: Sequence[ReceiptView], found: Sequence[Found]) -> TableView:
    """A row a receipt: the latency, what of it is tax, and the fastest equal runtime."""
    rows = tuple(_glance(view, item.record) for view, item in zip(receipts, found, strict=True))
    numeric = ("Python eager", "Python tax", "device busy", "speed-up")
    return TableView(
        rows=Rows(
            title="Receipts at a glance",
            columns=("receipt", "machine", *numeric[:3], "fastest with equal outputs", numeric[3]),
            numeric=numeric,
            rows=rows,
        ),
        records=tuple(item.ref for item in found),
        links=tuple(view.id for view in receipts),
    )


def _glance(view: ReceiptView, receipt: Receipt) -> tuple[str, ...]:
    tax = receipt.python_tax_ns
    busy = next((line for line in receipt.lines if line.is_kernels), None)
    allowed = [row for row in receipt.runtimes if not (row.excluded or row.doubt)]
    is_doubtful = any(line.doubt for line in receipt.lines)
    best = allowed[0] if allowed else None
    return (
        view.title,
        view.machine.name,
        format_latency(receipt.latency_ns, receipt.rungs[0].doubt),
        "-" if tax is None or is_doubtful else f"{tax[0] / receipt.latency_ns:.0%}",
        "-" if busy is None or busy.doubt else f"{busy.share_ratio:.0%}",
        "-" if best is None else best.label,
        "-" if best is None or best.speedup_ratio is None else f"{best.speedup_ratio:.2f}x",
    )


def _list_groups(
    receipt: Receipt, ref: str
) -> list[tuple[str, tuple[TableView, ...], tuple[str, ...]]]:
    evidence = make_evidence_tables(receipt)
    top = make_top_table(receipt, limit=_KERNELS)
    unavailable = make_unavailable_table(receipt)
    groups: list[tuple[str, list[Rows], list[str]]] = [
        ("Runtimes compared",
         [*make_runtime_tables(receipt), *([] if unavailable is None else [unavailable])], []),
        ("Evidence from the device", [*evidence, *([] if top is None else [top])], []),
    ]  # fmt: skip
    if receipt.readings:
        energy = receipt.energy_tax()
        tables = [make_gpu_table(receipt.readings)]
        tables += [make_energy_tax_table(energy)] if energy else []
        notes = [*describe_idle(receipt.readings), *describe_missing(receipt.readings)]
        groups.append(("Energy, utilisation, memory", tables, notes))
    if receipt.operator_costs:
        table = make_operator_table(receipt, limit=_OPERATORS, by_kind=True)
        groups.append(("Operators by host time", [table], []))
    if receipt.floors_ns:
        groups.append(("What the machine itself costs", [_make_floors(receipt)], []))
    return [
        (title, tuple(TableView(rows=rows, record=ref) for rows in tables), tuple(notes))
        for title, tables, notes in groups
        if tables
    ]


def _make_floors(receipt: Receipt) -> Rows:
    return Rows(
        title="Floors of the machine",
        columns=("what", "time"),
        numeric=("time",),
        rows=tuple((name, f"{value:,.1f} ns") for name, value in receipt.floors_ns.items()),
    )


def _label_ladder(receipt: Receipt, title: str) -> str:
    parts = ", ".join(f"{line.name} {_format_share(line)}" for line in receipt.lines)
    return f"Where {format_time(receipt.latency_ns)} of {title} go: {parts}."


def _list_lines(lines: Sequence[Line], ref: str) -> list[dict[str, object]]:
    """Each line begins where the one above it ends."""
    start_ns, found = 0.0, []
    for line in lines:
        state = "problem" if line.problem else "resolved" if line.resolved else "unresolved"
        if state == "resolved" and line.is_kernels:
            state = "kernels"
        text = f"{line.name}: {format_time(line.time_ns)} ({_format_share(line, '.1%')})"
        if line.interval_ns is not None:
            text += f"\n{format_interval(line.interval_ns)}"
        found.append(
            {
                "name": line.name,
                "start": start_ns,
                "time": line.time_ns,
                "interval": None if line.interval_ns is None else list(line.interval_ns),
                "state": state,
                "value": typeset(f"{format_time(line.time_ns)}, {_format_share(line)}"),
                "text": "\n".join([typeset(text), line.problem or line.doubt or line.removes, ref]),
            }
        )
        start_ns += line.time_ns
    return found


def _format_share(line: Line, digits: str = ".0%") -> str:
    return NOT_RESOLVED if line.doubt else format(line.share_ratio, digits)


def _describe_runtime(row: RuntimeRow, ref: str) -> dict[str, object]:
    interval = row.measurement.interval_ns
    latency = format_latency(row.latency_ns, row.measurement.doubt)
    lines = [f"{row.label}: {latency} ({format_interval(interval)})"]
    if row.speedup_ratio is not None and not row.doubt:
        lines.append(f"speed-up {row.speedup_ratio:.2f}x")
    if row.busy_ns is not None:
        lines.append(f"device busy {format_time(row.busy_ns)}")
    lines += [row.excluded] if row.excluded else []
    return {
        "name": row.label,
        "latency": row.latency_ns,
        "interval": None if interval is None else list(interval),
        "busy": row.busy_ns,
        "excluded": bool(row.excluded),
        "text": "\n".join([*map(typeset, lines), ref]),
    }
