"""The receipt as tables: the ladder with its taxes, the alternatives, and what could not be had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ftax.errors import say_count
from ftax.ladders.lines import Line
from ftax.ladders.receipt import FIRST, Receipt
from ftax.reports.columns import (
    CELL,
    Column,
    Numbers,
    Scalar,
    choose,
    for_programs,
    list_keys,
    or_dash,
    read_all,
)
from ftax.reports.table import Printout, Rows
from ftax.reports.tables.energy_table import READINGS, draw_gpu_readings
from ftax.reports.tables.measurement_table import COLUMNS as MEASUREMENT
from ftax.reports.tables.python_table import make_python_tables
from ftax.reports.tables.runtime_table import (
    PREPARATION,
    ROW,
    make_runtime_tables,
    make_unavailable_tables,
    say_where_errors_are,
    show_adoption,
)
from ftax.reports.tables.trace_table import EVIDENCE, TIMELINE, make_evidence_tables
from ftax.timing.candidate import name_caller
from ftax.timing.cell import Cell
from ftax.timing.measurement import Measurement, format_clock, format_measured, format_rounds
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_interval, format_time


def make_receipt_tables(receipt: Receipt) -> list[Rows]:
    """The ladder, Python by line and module, the runtimes, on a GPU evidence, what is missing."""
    return [
        make_line_table(receipt),
        *make_python_tables(receipt),
        *([make_phase_table(receipt)] if receipt.phases else []),
        *([make_wait_table(receipt)] if receipt.waits else []),
        *make_runtime_tables(receipt),
        *_make_compile_tables(receipt),
        *make_evidence_tables(receipt),
        *make_unavailable_tables(receipt),
    ]


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
    words = [
        name_work(cell, cell.model),
        cell.device,
        cell.dtype,
        f"batch {cell.batch}",
        *filter(None, [count_items(cell)]),
        *list_threads(receipt.rungs[0]),
        f"{format_rounds(receipt.rungs[0])} rounds{format_clock(receipt.rungs[0])}",
    ]
    top, units = receipt.rungs[0], cell.units
    with_host = any(line.host_ns is not None for line in receipt.lines)
    time = replace(choose(LINE, "time")[0], head="exposed" if with_host else "time")
    per_unit = Column(f"a {cell.unit}", ("time_ns", lambda time_ns: format_time(time_ns / units)))
    columns = [
        *choose(LINE, "what"),
        time,
        *([per_unit] if units > 1 else []),
        *choose(LINE, "95 % interval", "share", *(["host"] if with_host else []), "what it is"),
    ]
    issue_ns = next((item.issue_ns for item in receipt.evidence), None)
    total = {
        "what": f"= {top.place.runtime}, called from {name_caller(top.place.host)}",
        time.head: format_measured(top),
        per_unit.head: format_time(receipt.latency_ns / units),
        "95 % interval": format_interval(top.interval_ns),
        "share": "100.0%",
        "host": or_dash(issue_ns, format_time),
        "what it is": "",
    }
    title = f"Receipt{f' {receipt.label}' if receipt.label else ''}: {', '.join(words)}"
    table = Rows.of_columns(
        title, receipt.lines, columns, gives_way=("host", "share"), legend="what it is"
    )
    last = tuple(total[head] for head in table.columns)
    return replace(table, rows=(*table.rows, last))


def _name_line(line: Line) -> str:
    if line.problem:
        return f"{line.name}\n(no tax: {line.problem})"
    if line.resolved:
        return line.name
    rounds = f", needs about {line.rounds_needed} rounds" if line.rounds_needed else ""
    return f"{line.name}\n({NOT_RESOLVED}{rounds})"


LINE = (
    Column("what", _name_line, "name", "name", is_text=True),
    Column("time", ("time_ns", format_time), "latency_ns"),
    Column("95 % interval", ("interval_ns", format_interval), ("low_ns", "high_ns")),
    Column(
        "share",
        lambda line: None if line.doubt else f"{line.share_ratio:.1%}",
        "share_ratio",
        "share_ratio",
    ),
    *for_programs("resolved"),
    Column("host", ("host_ns", format_time), "host_ns"),
    *for_programs(why=lambda line: line.doubt or line.problem),
    Column("what it is", "removes", is_text=True),
)


def name_work(cell: Cell, name: str) -> str:
    """``bert``, or ``llama, decode step of 8 tokens``; of a function its name."""
    if is_call(cell):
        return name
    unit = f" of {cell.units} {cell.unit}s" if cell.units > 1 else ""
    return f"{name}, {'' if cell.step == 'step' else f'{cell.step} '}step{unit}"


def is_call(cell: Cell) -> bool:
    """Whether one run is a call: a forward pass, or a function that makes one thing."""
    return cell.step == "forward" or (cell.step == "step" and cell.units == 1)


def count_items(cell: Cell) -> str:
    """``'128 tokens'``; "" without a length."""
    unit = "samples" if "sampling_hz" in cell.options else "tokens"
    return f"{cell.sequence} {unit}" if cell.sequence else ""


def list_threads(measurement: Measurement) -> list[str]:
    """``['1 thread']`` on a CPU."""
    if measurement.cell.device != "cpu":
        return []
    return [say_count(measurement.environment.settings.num_threads, "thread")]


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
            **({"device": ("device_ns", format_time)} if device else {}),
        },
        text=("phase",),
    )


# --- for programs ---------------------------------------------------------------------------------

_TIMELINE = tuple(f"traced_{key}" for key in list_keys(TIMELINE))
_KEYS = (
    "part", "name", *list_keys(CELL), "latency_ns", "low_ns", "high_ns", "confidence",
    "share_ratio", "resolved", "host_ns", "p50_ns", "p90_ns", "p99_ns", "mean_ns", "min_ns",
    "max_ns", "samples", "slow_calls_ratio", "slow_calls_extra_ns", "rounds", "rounds_counted",
    *list_keys([*ROW, *EVIDENCE]), *_TIMELINE, *list_keys([*PREPARATION, *READINGS]), "why",
)  # fmt: skip
_MEASURED = [column for column in MEASUREMENT if {*column.keys} <= {*_KEYS}]


def number_receipt(receipt: Receipt) -> Numbers:
    """Lines from top to bottom, runtimes from the fastest on, then what could not be measured.

    One table of several parts, since a script should read one header. ``part`` tells the rows
    apart, and ``latency_ns`` is the whole of a runtime and a line's share of the first one's.
    """
    return Numbers.join(_KEYS, _list_rows(receipt))


def _list_rows(receipt: Receipt) -> Iterator[dict[str, Scalar]]:
    """The rows of `number_receipt`."""
    top = receipt.rungs[0]
    cell = read_all(top, CELL) | {"label": receipt.label, "runtime": None, "host": None}
    for line in receipt.lines:
        yield {"part": "line", **cell, "confidence": top.confidence, **read_all(line, LINE)}
    evidence = {item.place: item for item in receipt.evidence}
    readings = {item.place: item for item in receipt.readings}
    for row in receipt.runtimes:
        place = row.measurement.place
        traced = evidence.get(place)
        timeline = traced.timeline if traced else None
        parts = read_all(timeline, TIMELINE) if timeline else {}
        yield {
            "part": "runtime",
            **read_all(row.measurement, _MEASURED),
            "name": row.label,
            **read_all(row, [*ROW, *PREPARATION]),
            "why": row.doubt or row.excluded,
            **read_all(traced, EVIDENCE),
            **{f"traced_{key}": value for key, value in parts.items()},
            **read_all(readings.get(place), READINGS),
        }
    for item in receipt.unavailable:
        own = {"runtime": item.runtime, "host": item.host, "why": item.reason}
        yield {"part": "unavailable", "name": str(item.place), **cell, **own}
