"""The receipt of a workload as tables: the lines of its mean, its parts, and the runtimes."""

from __future__ import annotations

from collections.abc import Iterator

from ftax.ladders.lines import Line
from ftax.ladders.means import MeanRow
from ftax.ladders.mix_receipt import MixReceipt
from ftax.ladders.receipt import Receipt
from ftax.reports.numbers import Numbers, Scalar
from ftax.reports.table import NOTHING, Cell, Printout, Rows
from ftax.reports.tables.receipt_numbers import COLUMNS, list_rows, number_lines
from ftax.reports.tables.receipt_table import (
    draw_lines,
    list_threads,
    name_work,
    say_first,
)
from ftax.reports.tables.runtime_table import tell_why
from ftax.timing.candidate import name_caller
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import (
    format_clock,
    format_interval,
    format_latency,
    format_measured,
    format_rounds,
    format_time,
)


def draw_mix(mix: MixReceipt) -> Printout:
    """The mean as a receipt is printed, and a line a part."""
    return Printout(
        head=say_first(mix),
        tables=(*make_mix_tables(mix), *_make_unavailable_tables(mix)),
        notes=(mix.recommendation,),
        warnings=tuple(mix.collect_warnings()),
        numbers=lambda: number_mix(mix),
    )


def make_mix_tables(mix: MixReceipt) -> list[Rows]:
    """The lines of the mean, the parts, and the runtimes that all of them have."""
    return [_make_line_table(mix), _make_part_table(mix), _make_runtime_table(mix)]


def _make_line_table(mix: MixReceipt) -> Rows:
    tops = [part.rungs[0] for part in mix.parts]
    dtypes = " and ".join(dict.fromkeys(top.cell.dtype for top in tops))
    words = [
        f"mean of {len(tops)} part{'' if len(tops) == 1 else 's'}",
        tops[0].cell.device,
        dtypes,
        *list_threads(tops[0]),
        f"{format_rounds(tops[0])} rounds{format_clock(tops[0])}",
    ]
    return draw_lines(mix, f"Receipt: {mix.name}, {', '.join(words)}", mix.units, _find_unit(mix))


def _find_unit(mix: MixReceipt) -> str:
    """The word for what a run makes several of, if that is one for all parts; else ""."""
    cells = [part.rungs[0].cell for part in mix.parts]
    units = {cell.unit for cell in cells}
    return units.pop() if len(units) == 1 and any(cell.units > 1 for cell in cells) else ""


def _make_part_table(mix: MixReceipt) -> Rows:
    last, unit = mix.lines[-1], _find_unit(mix)
    what = "tax" if last.is_kernels else "Python"
    # Where the calls of a part differ, its parts have no line by which it could be told.
    rest = "" if mix.work_problem else last.name
    kinds = {name_work(part.rungs[0].cell, "") for part in mix.parts}
    rows = []
    for name, share, part in zip(mix.names, mix.shares, mix.parts, strict=True):
        top = part.rungs[0]
        of_mean = share * part.latency_ns / mix.latency_ns
        rows.append(
            {
                "part": name_work(top.cell, name) if len(kinds) > 1 else name,
                "weight": f"{share:.1%}",
                "latency": format_measured(top),
                **({f"a {unit}": format_time(part.latency_ns / top.cell.units)} if unit else {}),
                "95 % interval": format_interval(top.interval_ns),
                "of the mean": f"{of_mean:.1%}" if not top.doubt else NOTHING,
                what: _format_tax(part, last),
                **({rest: _format_rest(part, rest)} if rest else {}),
            }
        )
    columns = tuple(rows[0])
    return Rows(
        title="Its parts" if len(kinds) > 1 else f"Its parts{kinds.pop()}",
        columns=columns,
        numeric=columns[1:],
        gives_way=(f"a {unit}", rest, "95 % interval"),
        rows=tuple(tuple(row.values()) for row in rows),
    )


def _format_tax(part: Receipt, last: Line) -> str:
    """The share of its latency that is tax or, without busy time, what Python costs."""
    if last.is_kernels:
        own = part.lines[-1]
        if not own.is_kernels:
            return NOTHING
        return NOT_RESOLVED if own.doubt else f"{1 - own.share_ratio:.1%}"
    tax = part.python_tax_ns
    if tax is None:
        return NOTHING
    time_ns, interval = tax
    if part.rungs[0].doubt or interval is None or interval[0] <= 0 <= interval[1]:
        return NOT_RESOLVED
    return f"{time_ns / part.latency_ns:.1%}"


def _format_rest(part: Receipt, rest: str) -> str:
    """What no rung takes away, if it is the same in this part as in the mean."""
    own = part.lines[-1]
    return format_latency(own.time_ns, own.doubt) if own.name == rest else NOTHING


def _make_runtime_table(mix: MixReceipt) -> Rows:
    rows = mix.runtimes
    if not mix.others:  # rungs alone stay in the order of the ladder
        rows = tuple(sorted(rows, key=lambda row: mix.rungs.index(row.mean)))
    return Rows.of(
        "Runtimes in the mean, fastest first" if mix.others else "Rungs in the mean",
        rows,
        {
            "runtime": "mean.place.runtime",
            "called from": ("mean.place.host", name_caller),
            "latency": lambda row: format_measured(row.mean),
            "95 % interval": lambda row: format_interval(row.mean.interval_ns),
            "speed-up": _format_speedup,
            "outputs": _describe_outputs,
        },
        text=("runtime", "called from", "outputs"),
    )


def _format_speedup(row: MeanRow) -> str:
    return NOT_RESOLVED if row.doubt else f"{row.speedup_ratio:.2f}x"


def _describe_outputs(row: MeanRow) -> str:
    is_reference = all(part.is_reference and part.outputs_equal for part in row.rows)
    return "the reference" if is_reference else row.outputs.removeprefix("equal ")


def _make_unavailable_tables(mix: MixReceipt) -> list[Rows]:
    items = [
        (name, item)
        for name, part in zip(mix.names, mix.parts, strict=True)
        for item in part.unavailable
    ]
    cells: dict[str, Cell] = {
        "part": "0",
        "runtime": "1.runtime",
        "called from": ("1.host", name_caller),
        "why": ("1", tell_why),
    }
    return [Rows.of("Not measured", items, cells, text=cells)] if items else []


def number_mix(mix: MixReceipt) -> Numbers:
    """The lines of the mean, and each part's rows; ``mix_part`` is empty for the mean."""
    return Numbers.of(("mix_part", "weight_ratio", *COLUMNS), _list_rows(mix))


def _list_rows(mix: MixReceipt) -> Iterator[dict[str, Scalar]]:
    for row in number_lines(mix, {"label": mix.label, "model": mix.name}):
        yield {"mix_part": "", "weight_ratio": 1.0, **row}
    for name, share, part in zip(mix.names, mix.shares, mix.parts, strict=True):
        for row in list_rows(part):
            yield {"mix_part": name, "weight_ratio": share, **row}
