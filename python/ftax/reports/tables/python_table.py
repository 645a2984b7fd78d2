"""Python's time of a receipt by line or by module: `ftax ops --by line`, and two tables of all of a
receipt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ftax.ladders.python_time import (
    By,
    PythonRow,
    PythonTime,
    compute_python_time,
    find_doubt,
    find_problem,
    sum_rows,
)
from ftax.ladders.receipt import Receipt
from ftax.reports.columns import Column, Numbers, choose, for_programs
from ftax.reports.table import Printout, Rows
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_interval, format_time

_TOP = 10  # rows among all of a receipt

COLUMNS = (
    *for_programs("part"),
    Column("line", "name", "name", is_text=True),
    Column("module", lambda row: _name_module(row), is_text=True),
    Column("in module", "kind", "kind", "kind", is_text=True),
    Column("class", "kind", is_text=True),
    Column("calls", ("calls", str), "calls"),
    Column("Python", ("time_ns", format_time), "time_ns"),
    Column("95 % interval", ("interval_ns", format_interval), ("low_ns", "high_ns")),
    Column("share", ("share_ratio", "{:.1%}".format), "share_ratio"),
    Column("operators", ("operators_ns", format_time), "operators_ns"),
)


def draw_python(receipt: Receipt, *, by: By, limit: int) -> Printout:
    """Python's time as it is printed; for programs all rows. Only where there is no problem
    (`find_problem`)."""
    doubt = find_doubt(receipt)
    return Printout(
        head=(f"Nothing below is resolved: {doubt}.", "") if doubt else (),
        tables=(make_python_table(receipt, by=by, limit=limit),),
        notes=(say_how(receipt),),
        numbers=lambda: Numbers.of(compute_python_time(receipt, by).rows, COLUMNS),
    )


def make_python_tables(receipt: Receipt) -> list[Rows]:
    """The first rows by line and by module; none where there is a problem."""
    if find_problem(receipt):
        return []
    return [make_python_table(receipt, by=by, limit=_TOP) for by in ("line", "module")]


def make_python_table(receipt: Receipt, *, by: By, limit: int) -> Rows:
    """The longest rows, the others as one, and the lines of the receipt that they sum to."""
    found = compute_python_time(receipt, by)
    heads = {
        "line": ("line", "in module", "Python", "95 % interval", "share"),
        "module": ("module", "class", "calls", "Python", "95 % interval", "share", "operators"),
    }[by]
    doubt = f" ({NOT_RESOLVED})" if find_doubt(receipt) else ""
    table = Rows.of_columns(
        f"Python of {receipt.rungs[0].cell.model} by {by}, a call{doubt}",
        _shorten(receipt, found, limit),
        choose(COLUMNS, *heads),
        gives_way=("in module", "class", "share", "calls", "operators"),
    )
    total = {
        by: f"= {' + '.join(found.names)}",
        "Python": format_time(found.time_ns),
        "95 % interval": format_interval(found.interval_ns),
        "share": f"{found.time_ns / found.latency_ns:.1%}",
    }
    return replace(table, rows=(*table.rows, tuple(total.get(head, "") for head in heads)))


def say_how(receipt: Receipt) -> str:
    """What the samples are of, and what they cost."""
    samples = receipt.python_samples
    assert samples is not None
    return (
        f"{samples.samples:,} samples of {samples.calls:,} calls after the rounds, each "
        f"{format_time(samples.call_ns)} while it was sampled."
    )


def _shorten(receipt: Receipt, found: PythonTime, limit: int) -> Sequence[PythonRow]:
    *rows, rest = found.rows
    if len(rows) <= limit + 1:
        return found.rows
    assert receipt.python_samples is not None
    others = sum_rows(rows[limit:], receipt.python_samples, found.latency_ns)
    return (*rows[:limit], others, rest)


def _name_module(row: PythonRow) -> str:
    return row.name or "(model)"
