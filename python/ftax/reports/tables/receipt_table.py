"""The receipt as tables: the ladder with its taxes, the alternatives, and what could not be had."""

from __future__ import annotations

from collections.abc import Mapping

from ftax.ladders.lines import Line
from ftax.ladders.receipt import FIRST, Receipt
from ftax.reports.table import Printout, Rows, say
from ftax.reports.tables.energy_table import draw_gpu_readings
from ftax.reports.tables.evidence_table import make_evidence_tables
from ftax.reports.tables.receipt_numbers import number_operators, number_receipt
from ftax.reports.tables.runtime_table import (
    make_runtime_tables,
    make_unavailable_tables,
    say_where_errors_are,
    show_adoption,
)
from ftax.timing.candidate import name_caller
from ftax.timing.cell import Cell
from ftax.timing.measurement import Measurement, format_clock, format_measured, format_rounds
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_interval, format_time


def make_receipt_tables(receipt: Receipt) -> list[Rows]:
    """Receipt, latencies, the runtimes compared, on a GPU evidence, and what is unavailable."""
    return [
        make_line_table(receipt),
        *([make_phase_table(receipt)] if receipt.phases else []),
        *([make_wait_table(receipt)] if receipt.waits else []),
        *make_runtime_tables(receipt),
        *_make_compile_tables(receipt),
        *make_evidence_tables(receipt),
        *make_unavailable_tables(receipt),
    ]


def draw_operators(receipt: Receipt, *, limit: int, by_kind: bool) -> Printout:
    """Operators as they are printed; for programs all of them."""
    doubt = receipt.operator_doubt
    return Printout(
        head=(f"Nothing below is resolved: {doubt}.", "") if doubt else (),
        tables=(make_operator_table(receipt, limit=limit, by_kind=by_kind),),
        numbers=lambda: number_operators(receipt, by_kind=by_kind),
    )


def make_operator_table(receipt: Receipt, *, limit: int, by_kind: bool) -> Rows:
    """Host time of the tape's operator calls, dearest first; summed by operator if ``by_kind``."""
    total = sum(cost.total_ns for cost in receipt.operator_costs) or 1.0
    said = f"{format_time(total)}, {NOT_RESOLVED}" if receipt.operator_doubt else format_time(total)
    if by_kind:
        return _make_kinds(receipt, total, said, limit)
    model = receipt.rungs[0].cell.model
    return Rows.of(
        f"Operator calls of {model} by host time ({said})",
        receipt.operators()[:limit],
        {
            "operator": "operator",
            "module": lambda cost: cost.module or "(model)",
            "arguments": ("build_ns", format_time),
            "call": ("call_ns", format_time),
            "release": ("release_ns", format_time),
            "share": lambda cost: f"{cost.total_ns / total:.1%}",
        },
        text=("operator", "module"),
    )


def draw_receipt(receipt: Receipt) -> Printout:
    """The receipt as it is printed."""
    gpu = draw_gpu_readings(receipt.readings, receipt.energy_tax())
    return Printout(
        head=(*say_again(receipt), *_say_first(receipt)),
        tables=(*make_receipt_tables(receipt), *gpu.tables),
        notes=(
            *gpu.notes,
            *say_where_errors_are(receipt),
            receipt.recommendation,
            *show_adoption(receipt),
        ),
        warnings=(*gpu.warnings, *receipt.collect_warnings()),
        numbers=lambda: number_receipt(receipt),
    )


def say_again(receipt: Receipt) -> tuple[str, ...]:
    """That it was measured in another way than was asked for, if so."""
    first = receipt.preparation.get(FIRST)
    return (str(first), "") if first else ()


def _say_first(found: Receipt) -> tuple[str, ...]:
    """What a reader has to know before the first number, if no line is to go by."""
    if doubt := found.rungs[0].doubt:
        return (f"Nothing below is resolved: {doubt}.", "")
    taxes = [line for line in found.lines if line.lower]
    if not taxes or any(line.resolved for line in taxes):
        return ()
    return ("No line below is resolved: noise is larger than what a layer costs.", "")


def make_line_table(receipt: Receipt) -> Rows:
    """The ladder: a row a line, and the latency that they sum to."""
    cell = receipt.rungs[0].cell
    unit = "samples" if "sampling_hz" in cell.options else "tokens"
    words = [
        name_work(cell, cell.model),
        cell.device,
        cell.dtype,
        f"batch {cell.batch}",
        *([f"{cell.sequence} {unit}"] if cell.sequence else []),
        *list_threads(receipt.rungs[0]),
        f"{format_rounds(receipt.rungs[0])} rounds{format_clock(receipt.rungs[0])}",
    ]
    top, lines = receipt.rungs[0], receipt.lines
    with_host = any(line.host_ns is not None for line in lines)
    units = cell.units if cell.units > 1 else None
    rows = [_make_line(line, with_host, units) for line in lines]
    total = (f"= {top.place.runtime}, called from {name_caller(top.place.host)}",
             format_measured(top),
             *([format_time(receipt.latency_ns / units)] if units else []),
             format_interval(top.interval_ns), "100.0%",
             *([_format_issue(receipt)] if with_host else []), "")  # fmt: skip
    per_unit = [f"a {cell.unit}"] if units else []
    numeric = ("exposed" if with_host else "time", *per_unit, "95 % interval", "share",
               *(["host"] if with_host else []))  # fmt: skip
    return Rows(
        title=f"Receipt{f' {receipt.label}' if receipt.label else ''}: {', '.join(words)}",
        columns=("what", *numeric, "what it is"),
        numeric=numeric,
        gives_way=("host", "share"),
        legend="what it is",
        rows=(*rows, total),
    )


def name_work(cell: Cell, name: str) -> str:
    """``bert``, or ``llama, decode step of 8 tokens``; of a function its name."""
    if cell.step == "forward" or (cell.step == "step" and cell.units == 1):
        return name
    unit = f" of {cell.units} {cell.unit}s" if cell.units > 1 else ""
    return f"{name}, {'' if cell.step == 'step' else f'{cell.step} '}step{unit}"


def list_threads(measurement: Measurement) -> list[str]:
    """``['1 thread']`` on a CPU."""
    if measurement.cell.device != "cpu":
        return []
    threads = measurement.environment.settings.num_threads
    return [f"{threads} {'thread' if threads == 1 else 'threads'}"]


def _make_compile_tables(receipt: Receipt) -> list[Rows]:
    """Where the first call of the compiled callable went, on the ladder that takes it apart."""
    phases = receipt.rungs[0].preparation.get("compile_phases_s")
    if receipt.ladder_name != "compile" or not isinstance(phases, Mapping) or not phases:
        return []
    total = sum(phases.values())
    return [
        Rows.of(
            f"Compiling {receipt.rungs[0].cell.model} for the first time ({total:.1f} s)",
            list(phases.items()),
            {
                "who": lambda item: item[0],
                "time": lambda item: f"{item[1]:.1f} s",
                "share": lambda item: f"{item[1] / (total or 1.0):.0%}",
            },
            text=("who",),
        )
    ]


def make_wait_table(receipt: Receipt) -> Rows:
    """Where Python eager waits for the device, and how often in one run."""
    return Rows.of(
        f"Where {receipt.rungs[0].cell.model} waits for the device in Python eager",
        receipt.waits,
        {"operator": "operator", "line": "place", "times": "count"},
        text=("operator", "line"),
    )


def make_phase_table(receipt: Receipt) -> Rows:
    """How long Python eager is in each phase of a step that trains."""
    total = sum(phase.host_ns for phase in receipt.phases) or 1.0
    device = any(phase.device_ns is not None for phase in receipt.phases)
    return Rows.of(
        f"Phases of {receipt.rungs[0].cell.model} in Python eager, timed after the rounds",
        receipt.phases,
        {
            "phase": "name",
            "host": ("host_ns", format_time),
            "share": lambda phase: f"{phase.host_ns / total:.1%}",
            **({"device": lambda phase: say(phase.device_ns, format_time)} if device else {}),
        },
        text=("phase",),
    )


def _make_line(line: Line, with_host: bool, units: int | None) -> tuple[str, ...]:
    name = line.name
    if line.problem:
        name += f"\n(no tax: {line.problem})"
    elif not line.resolved:
        rounds = f", needs about {line.rounds_needed} rounds" if line.rounds_needed else ""
        name += f"\n({NOT_RESOLVED}{rounds})"
    return (
        name,
        format_time(line.time_ns),
        *([format_time(line.time_ns / units)] if units else []),
        format_interval(line.interval_ns),
        "-" if line.doubt else f"{line.share_ratio:.1%}",
        *([say(line.host_ns, format_time)] if with_host else []),
        line.removes,
    )


def _format_issue(found: Receipt) -> str:
    issue = next((item.issue_ns for item in found.evidence), None)
    return say(issue, format_time)


def _make_kinds(receipt: Receipt, total: float, said: str, limit: int) -> Rows:
    kinds: dict[str, list[float]] = {}
    for cost in receipt.operator_costs:
        kinds.setdefault(cost.operator, []).append(cost.total_ns)
    return Rows.of(
        f"Operators of {receipt.rungs[0].cell.model} by host time ({said})",
        sorted(kinds.items(), key=lambda kind: -sum(kind[1]))[:limit],
        {
            "operator": "0",
            "calls": lambda kind: len(kind[1]),
            "total": lambda kind: format_time(sum(kind[1])),
            "per call": lambda kind: format_time(sum(kind[1]) / len(kind[1])),
            "share": lambda kind: f"{sum(kind[1]) / total:.1%}",
        },
        text=("operator",),
    )
