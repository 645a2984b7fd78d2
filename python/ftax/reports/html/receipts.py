"""A receipt as a reader sees it: the ladder and the runtimes as bars, and every table behind them.

Several receipts are first shown as one chart of shares, in which two models can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from textwrap import dedent

from ftax.ladders.lines import Line
from ftax.ladders.receipt import Receipt
from ftax.ladders.rows import RuntimeRow
from ftax.reports.columns import Cell
from ftax.reports.html.charts import Ends
from ftax.reports.html.machines import Machine, Machines
from ftax.reports.html.sources import Found
from ftax.reports.html.view import Bar, Bars, Charts, Lead, Panel, Part, Scale, TableView
from ftax.reports.table import Rows
from ftax.reports.tables.energy_table import draw_gpu_readings
from ftax.reports.tables.first_screen import draw_receipt_first
from ftax.reports.tables.operator_table import make_operator_table
from ftax.reports.tables.python_table import make_python_tables, say_how
from ftax.reports.tables.receipt_table import count_items, make_line_table
from ftax.reports.tables.runtime_table import make_runtime_tables, make_unavailable_tables
from ftax.reports.tables.trace_table import make_evidence_tables, make_top_tables
from ftax.timing.measurement import format_measured
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_interval, format_time

_OPERATORS = 15
_KERNELS = 15
_BEYOND = 0.1  # of the latency: how far whiskers may reach out of it
# The layers of all ladders from the top down; what else a ladder ends with is a rest.
_LAYERS = (
    "model glue",
    "interpreter and bindings",
    "host reads",
    "dispatch",
    "launch",
    "graph",
    "kernels",
    "operators, or what no rung takes away",
)
_LEAST_TOLD = 7.0  # percent of a bar, that have room for their number


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptView:
    """One receipt of the page; ``groups`` are (title, tables, notes) of what stands behind it."""

    id: str
    title: str
    ref: str
    machine: Machine
    receipt: Receipt
    ladder: Bars
    runtimes: Bars
    groups: tuple[tuple[str, tuple[TableView, ...], tuple[str, ...]], ...]
    warnings: tuple[str, ...]

    @property
    def excluded(self) -> str:
        """The runtimes that are not advised, each with its reason."""
        rows = self.receipt.runtimes
        return "; ".join(f"{row.label}: {row.excluded}" for row in rows if row.excluded)


def make_receipt_views(found: Sequence[Found], machines: Machines) -> list[ReceiptView]:
    """The views of receipts, in the order of the records."""
    return [_make_view(item, place, machines) for place, item in enumerate(found)]


def _make_view(found: Found, place: int, machines: Machines) -> ReceiptView:
    receipt: Receipt = found.record
    title = ", ".join(_list_words(receipt))
    return ReceiptView(
        id=f"receipt-{place}",
        title=title,
        ref=found.ref,
        machine=machines.find(receipt.rungs[0].environment),
        receipt=receipt,
        ladder=_draw_ladder(receipt, title, found.ref),
        runtimes=_draw_runtimes(receipt.runtimes, title, found.ref),
        groups=tuple(_list_groups(found)),
        warnings=tuple(receipt.collect_warnings()),
    )


def _list_words(receipt: Receipt) -> list[str]:
    """``['before', 'bert-base', 'cuda:0', 'fp16', 'batch 1', '128 tokens']``; first the label."""
    cell = receipt.rungs[0].cell
    words = [
        *filter(None, [receipt.label]),
        cell.model,
        cell.device,
        cell.dtype,
        f"batch {cell.batch}",
    ]
    words += filter(None, [count_items(cell)])
    return words + (["tiny"] if cell.options.get("tiny") is True else [])


# --- all of them ----------------------------------------------------------------------------------


def make_lead(views: Sequence[ReceiptView]) -> Lead | None:
    """What the only receipt says on its first screen; of several the largest tax, and where each
    one's time goes."""
    if not views:
        return None
    if len(views) == 1:
        return _lead_with(views[0])
    text, more, chart = f"{len(views)} receipts", "", _draw_shares(views)
    taxes = [(*tax, view) for view in views if (tax := _find_tax(view.receipt))]
    if taxes:
        _, share, what, most = max(taxes, key=lambda tax: tax[:2])
        alike = [tax[1] for tax in taxes if tax[2] == what]
        text = f"{share:.0%} of the latency of {most.title} is {what}"
        more = most.receipt.recommendation
        if len(alike) > 1:
            more += f" In {len(alike)} receipts it is {min(alike):.0%} to {share:.0%}."
    return Lead(
        section="receipts", text=text, more=more, charts=(Charts(panels=(Panel(chart=chart),)),)
    )


def _lead_with(view: ReceiptView) -> Lead:
    drawn = draw_receipt_first(view.receipt)
    *reason, title, answer = filter(None, drawn.head)
    gains = [
        replace(rows, title=rows.columns[0], columns=("runtime", *rows.columns[1:]))
        for rows in drawn.tables
        if rows.look == "light"
    ]
    *notes, _ = filter(None, drawn.notes)  # the last one tells of the terminal
    code = [note for note in notes if note.startswith(" ")]
    return Lead(
        section="receipts",
        text=f"{', '.join(title.split('  '))}. {answer}",
        warning=" ".join(reason),
        charts=(Charts(panels=(Panel(chart=view.ladder),)),),
        tables=tuple(TableView(rows=rows, record=view.ref) for rows in gains),
        more=" ".join(note for note in notes if note not in code),
        code=dedent("\n".join(code)),
    )


def _find_tax(receipt: Receipt) -> tuple[bool, float, str] | None:
    """(whether it is all tax, its share, what it is): of the latency in which the device idles, or,
    where nobody knows that, of Python. None if it is not resolved."""
    tax, last = receipt.python_tax_ns, receipt.lines[-1]
    if any(line.doubt for line in receipt.lines):
        return None
    if last.upper == "busy":
        return True, 1 - last.share_ratio, "framework tax"
    return None if tax is None else (False, tax[0] / receipt.latency_ns, "the cost of Python")


def _draw_shares(views: Sequence[ReceiptView]) -> Bars:
    """A bar a receipt, all of one length, cut where the lines of its ladder are."""
    words = [_list_words(view.receipt) for view in views]
    shared = set(words[0]).intersection(*words)
    machines = {view.machine.name for view in views}
    longest = max(view.receipt.latency_ns for view in views)
    bars, kinds = [], set()
    for view, own in zip(views, words, strict=True):
        name = ", ".join([own[0], *(word for word in own[1:] if word not in shared)])
        start, parts = 0.0, []
        whole = sum(max(0.0, line.time_ns) for line in view.receipt.lines)
        for line in view.receipt.lines:
            kind, width = _name_layer(line), 100 * max(0.0, line.time_ns) / whole
            told = f"{width:.0f}%" if width > _LEAST_TOLD else ""
            look = kind if _name_state(line) in ("tax", "busy") else f"{kind} unsure"
            parts.append(Part(start=start, width=width, kind=look, text=told))
            kinds.add(kind)
            start += width
        bars.append(
            Bar(
                name=name + (f" ({view.machine.name})" if len(machines) > 1 else ""),
                value=format_time(view.receipt.latency_ns, longest),
                parts=tuple(parts),
                text=f"{view.ladder.label}\n{view.ref}",
                link=view.id,
            )
        )
    names = {f"layer-{place}": name for place, name in enumerate(_LAYERS)}
    legend = tuple((kind, name) for kind, name in names.items() if kind in kinds)
    return Bars(label="Where the latency of Python eager goes", bars=tuple(bars), legend=legend)


def _name_layer(line: Line) -> str:
    name = line.name.partition(" + ")[0]  # of two layers with no rung between them
    return f"layer-{_LAYERS.index(name if name in _LAYERS else _LAYERS[-1])}"


# --- one of them ----------------------------------------------------------------------------------


def _draw_ladder(receipt: Receipt, title: str, ref: str) -> Bars:
    """Each line begins where the one above it ends."""
    total = receipt.latency_ns
    *starts, _ = accumulate((line.time_ns for line in receipt.lines), initial=0.0)
    scale, bars = _make_scale(receipt, starts), []
    for line, start_ns in zip(receipt.lines, starts, strict=True):
        share = NOT_RESOLVED if line.doubt else f"{line.share_ratio:.0%}"
        told = f"{line.name}: {format_time(line.time_ns)} ({format_interval(line.interval_ns)})"
        part = scale.make_part(start_ns, start_ns + line.time_ns, _name_state(line))
        bars.append(
            Bar(
                name=line.name,
                value=f"{format_time(line.time_ns, total)}, {share}",
                parts=(part,),
                whisker=scale.measure(_shift(line.interval_ns, start_ns))
                if line.interval_ns
                else None,
                text="\n".join([told, line.problem or line.doubt or line.removes, ref]),
            )
        )
    lines = ", ".join(f"{bar.name} {bar.value}" for bar in bars)
    whole = scale.make_part(0.0, total, "whole")
    bars.append(Bar(name="= Python eager", value=format_time(total), parts=(whole,)))
    return Bars(label=f"Where {format_time(total)} of {title} go: {lines}", bars=tuple(bars))


def _make_scale(receipt: Receipt, starts: Sequence[float]) -> Scale:
    """With room for all lines, and a little more for their intervals."""
    total, lines = receipt.latency_ns, list(zip(receipt.lines, starts, strict=True))
    values = [0.0, total, *(start + line.time_ns for line, start in lines)]
    ends = [
        end for line, start in lines if line.interval_ns for end in _shift(line.interval_ns, start)
    ]
    low, high = min(values) - _BEYOND * total, max(values) + _BEYOND * total
    return Scale([*values, *(min(max(end, low), high) for end in ends)])


def _shift(ends: tuple[float, ...], by: float) -> Ends:
    low, high = ends
    return low + by, high + by


def _name_state(line: Line) -> str:
    if line.problem:
        return "problem"
    if line.doubt or not line.resolved:
        return "unsure"
    return "busy" if line.lower is None else "tax"  # what no rung takes away


def _draw_runtimes(rows: Sequence[RuntimeRow], title: str, ref: str) -> Bars:
    """Fastest first, each with what the device does in it, where that is known."""
    longest = max(row.latency_ns for row in rows)
    ends = [row.measurement.interval_ns for row in rows]
    scale = Scale([min(end, (1 + _BEYOND) * longest) for pair in ends if pair for end in pair]
                  + [longest])  # fmt: skip
    is_split = any(row.busy_ns is not None for row in rows)
    return Bars(
        label=f"Latency of {len(rows)} runtimes for {title}, fastest first",
        bars=tuple(_draw_runtime(row, scale, longest, is_split, ref) for row in rows),
        legend=(("busy", "device busy"), ("tax", "tax")) if is_split else (),
    )


def _draw_runtime(row: RuntimeRow, scale: Scale, longest: float, is_split: bool, ref: str) -> Bar:
    interval, busy = row.measurement.interval_ns, row.busy_ns or 0.0
    latency = format_measured(row.measurement)
    told = [f"{row.label}: {latency} ({format_interval(interval)})"]
    told += [f"device busy {format_time(busy)}"] if busy else []
    told += [row.excluded] if row.excluded else []
    faster = row.speedup_ratio is not None and not row.doubt
    unknown = row.doubt or (is_split and row.busy_ns is None)
    return Bar(
        name=f"{row.label} *" if row.excluded else row.label,
        value=format_time(row.latency_ns, longest)
        + (f", {row.speedup_ratio:.2f}x" if faster else ""),
        parts=(
            *([scale.make_part(0.0, busy, "busy")] if busy else []),
            scale.make_part(busy, row.latency_ns, "unsure" if unknown else "tax"),
        ),
        whisker=None if interval is None else scale.measure(interval),
        text="\n".join([*told, ref]),
    )


def _list_groups(found: Found) -> list[tuple[str, tuple[TableView, ...], tuple[str, ...]]]:
    receipt: Receipt = found.record
    gpu = draw_gpu_readings(receipt.readings, receipt.energy_tax())
    groups: list[tuple[str, Sequence[Rows], Sequence[str]]] = [
        ("The ladder as a table", [make_line_table(receipt)], ()),
        (
            "Runtimes compared",
            [*make_runtime_tables(receipt), *make_unavailable_tables(receipt)],
            (),
        ),
        (
            "Evidence from the device",
            [*make_evidence_tables(receipt), *make_top_tables(receipt, limit=_KERNELS)],
            (),
        ),
        ("Energy, utilisation, memory", gpu.tables, (*gpu.notes, *gpu.warnings)),
    ]
    if receipt.operator_costs:
        table = make_operator_table(receipt, limit=_OPERATORS, by_kind=True)
        groups.append(("Operators by host time", [table], ()))
    if tables := make_python_tables(receipt):
        groups.append(("Python by line and by module", tables, (say_how(receipt),)))
    if receipt.floors_ns:
        groups.append(("What the machine itself costs", [_make_floors(receipt)], ()))
    return [
        (title, tuple(TableView(rows=rows, record=found.ref) for rows in tables), tuple(notes))
        for title, tables, notes in groups
        if tables
    ]


def _make_floors(receipt: Receipt) -> Rows:
    cells: dict[str, Cell] = {"what": "0", "time": ("1", "{:,.1f} ns".format)}
    return Rows.of("Floors of the machine", receipt.floors_ns.items(), cells, text=("what",))
