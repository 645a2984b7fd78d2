"""Comparisons as tables: what each result takes against the first one, and what changed in which
line of a receipt or which cell of a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ftax.errors import say_count
from ftax.reports.columns import (
    CELL,
    IDENTITY,
    NOTHING,
    Column,
    Numbers,
    Scalar,
    choose,
    for_people,
    for_programs,
    read_all,
    split_alike,
)
from ftax.reports.table import Printout, Rows
from ftax.reports.tables.measurement_table import COLUMNS, make_measurement_table
from ftax.timing.comparison import Comparison, LineChange
from ftax.timing.differences import HostComparison
from ftax.timing.measurement import describe_slow_calls
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_interval, format_latency, format_time, name_interval

if TYPE_CHECKING:
    from ftax.sweeps.comparison import CellChange, SweepComparison

_MOST_ROWS = 60  # of a terminal, which then shows what changed alone; --csv has all

_KEYS = (
    "part", "name", "a", "b", "cell_a", "cell_b", "a_ns", "b_ns", "ratio", "ratio_low",
    "ratio_high", "difference_ns", "difference_low_ns", "difference_high_ns", "confidence",
    "verdict", "unit", "units_a", "units_b", "units_needed", "doubt",
)  # fmt: skip


def draw_comparisons(*comparisons: Comparison) -> Printout:
    """Comparisons of some results with the same first one."""
    first = comparisons[0]
    cells: dict[str, list[str]] = {first.a: [first.name_a]}
    for item in comparisons:
        cells.setdefault(item.b, []).append(item.name_b)
    head = [item.describe() for item in comparisons]
    head += [f"{', '.join(names)}: {cell}" for cell, names in cells.items()]
    tables = [make_line_change_table(item) for item in comparisons if item.lines]
    if len(comparisons) > 1 or first.runtimes:
        tables.append(make_change_table(comparisons))
    warnings = [text for item in comparisons for text in _collect_warnings(item)]
    return Printout(
        head=tuple(head),
        tables=tuple(tables),
        notes=tuple(text for item in comparisons if (text := describe_largest(item))),
        warnings=tuple(dict.fromkeys(warnings)),
        numbers=lambda: Numbers.join(_KEYS, _list_rows(comparisons)),
    )


def _list_rows(comparisons: Sequence[Comparison]) -> Iterator[dict[str, Scalar]]:
    """A row a runtime and a line, of each result against the first one."""
    for whole in comparisons:
        sides: dict[str, Scalar] = {"a": whole.name_a, "b": whole.name_b}
        for item in (whole, *whole.runtimes):
            columns = _make_runtime_columns(item.confidence)
            yield {"part": "runtime", **sides, **read_all(item, columns)}
        for line in whole.lines:
            yield {"part": "line", **sides, **read_all(line, _make_line_columns(whole))}


def _collect_warnings(comparison: Comparison) -> Iterator[str]:
    yield from comparison.warnings
    for item in comparison.runtimes:
        yield from item.problems
    doubted: dict[str, list[str]] = {}
    for name, doubt in (
        *((item.runtime, item.doubt) for item in comparison.runtimes),
        *((line.name, line.doubt) for line in comparison.lines),
    ):
        if doubt:
            doubted.setdefault(doubt, []).append(name)
    for doubt, names in doubted.items():
        yield f"{NOT_RESOLVED} for {', '.join(names)}: {doubt}"


def draw_hosts(comparison: HostComparison) -> Printout:
    """Both hosts and the cost of Python between them, as they are printed."""
    return Printout(
        tables=(make_measurement_table([*comparison]),),
        notes=(comparison.describe(),),
        warnings=tuple(describe_slow_calls([*comparison])),
        numbers=lambda: Numbers.of([*comparison], COLUMNS),
    )


def make_change_table(comparisons: Sequence[Comparison]) -> Rows:
    """Every runtime that the results have, a row a result: how it compares with the first one."""
    rows = []
    columns = for_people(_make_runtime_columns(comparisons[0].confidence))
    by_label: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        for item in (comparison, *comparison.runtimes):
            by_label.setdefault(item.runtime, []).append(item)
    for label, items in by_label.items():
        rows.append((label, items[0].name_a, format_time(items[0].latency_a_ns), *[NOTHING] * 3))
        rows += [
            (
                "",
                item.name_b,
                format_time(item.latency_b_ns),
                *(column.write(item) for column in columns),
            )
            for item in items
        ]
    heads = [column.head for column in columns]
    return Rows(
        title=f"Against {comparisons[0].name_a}",
        columns=("runtime", "result", "latency", *heads),
        numeric=("latency", *heads[:-1]),
        rows=tuple(rows),
    )


def make_line_change_table(comparison: Comparison) -> Rows:
    """What changed in which line, and in all: a row a line."""
    a, b = comparison.name_a, comparison.name_b
    low, high = comparison.ratio_interval
    whole_ns = comparison.latency_a_ns
    whole = LineChange(
        name=f"= {comparison.runtime}",
        a_ns=comparison.latency_a_ns,
        b_ns=comparison.latency_b_ns,
        interval_ns=(whole_ns * (low - 1), whole_ns * (high - 1)),
        verdict=comparison.verdict,
    )
    columns = _make_line_columns(comparison)
    return Rows.of_columns(f"{b} against {a}, line by line", [*comparison.lines, whole], columns)


def describe_largest(comparison: Comparison) -> str:
    """The line that changed most for certain, in a sentence; "" if none did."""
    changed = [
        line
        for line in comparison.lines
        if line.verdict in ("faster", "slower") and line.difference_ns is not None
    ]
    if not changed:
        return ""
    line = max(changed, key=lambda line: abs(line.difference_ns or 0.0))
    time = format_time(abs(line.difference_ns or 0.0))
    less = "less" if line.verdict == "faster" else "more"
    a, b = comparison.name_a, comparison.name_b
    return f"What changed most is {line.name}: {time} {less} in {b} than in {a}."


def _make_runtime_columns(confidence: float) -> list[Column]:
    """Of a comparison of one runtime."""
    return [
        *for_programs("confidence", "unit", "units_a", "units_b", "units_needed", "doubt"),
        *for_programs(
            name="runtime", cell_a="a", cell_b="b", a_ns="latency_a_ns", b_ns="latency_b_ns"
        ),
        Column("change", ("ratio", lambda ratio: f"{ratio - 1:+.1%}"), "ratio"),
        Column(
            name_interval(confidence),
            ("ratio_interval", _format_ratios),
            ("ratio_low", "ratio_high"),
        ),
        _VERDICT,
    ]


def _make_line_columns(comparison: Comparison) -> list[Column]:
    """Of a line of two receipts."""
    return [
        Column("what", "name", "name", is_text=True),
        Column(comparison.name_a, ("a_ns", format_time), "a_ns"),
        Column(comparison.name_b, ("b_ns", format_time), "b_ns"),
        Column("difference", ("difference_ns", _format_difference), "difference_ns"),
        Column(
            name_interval(comparison.confidence),
            ("interval_ns", format_interval),
            ("difference_low_ns", "difference_high_ns"),
        ),
        _VERDICT,
        *for_programs("doubt", confidence=lambda _: comparison.confidence),
    ]


_VERDICT = Column("verdict", ("verdict", lambda text: text.replace("-", " ")), "verdict",
                  is_text=True)  # fmt: skip


def _format_ratios(ends: tuple[float, float]) -> str:
    return "{:+.1f} to {:+.1f}%".format(*(100 * (end - 1) for end in ends))


def _format_difference(time_ns: float) -> str:
    return f"{'+' if time_ns > 0 else ''}{format_time(time_ns)}"


# --- sweeps ---------------------------------------------------------------------------------------


def draw_sweep_comparisons(
    comparisons: Sequence[SweepComparison], *, is_whole: bool = False
) -> Printout:
    """How sweeps, or machines of one, compare with the first; unless it ``is_whole``, of too many
    cells those that changed."""
    tables = [make_cell_change_table(item, is_whole=is_whole) for item in comparisons]
    warnings = [text for item in comparisons for text in _list_sweep_warnings(item)]
    return Printout(
        head=tuple(item.describe() for item in comparisons),
        tables=tuple(table for table in tables if table.rows),
        warnings=tuple(dict.fromkeys(warnings)),
        numbers=lambda: Numbers.join(_KEYS, _list_cells(comparisons)),
    )


def make_cell_change_table(comparison: SweepComparison, *, is_whole: bool = False) -> Rows:
    """A row a cell; what all cells have in common stands in the title."""
    every = comparison.changes
    shown = list(every)
    title = f"{comparison.name_b} against {comparison.name_a}"
    if len(every) > _MOST_ROWS and not is_whole:
        shown = [item for item in every if item.result.verdict in ("faster", "slower")]
        title += f": the {len(shown)} of {len(every)} cells that changed"
    machine, _ = split_alike(every, [Column("machine", "machine", is_text=True)])
    differ, alike = split_alike(every, [*IDENTITY, *choose(CELL, "options")])
    results = [
        replace(column, shown=lambda item, column=column: column.write(item.result))
        for column in for_people(_make_runtime_columns(every[0].result.confidence))
    ]
    sides = [
        Column(comparison.name_a, lambda item: _format_side(item, "a")),
        Column(comparison.name_b, lambda item: _format_side(item, "b")),
    ]
    return Rows.of_columns(
        ", ".join([title, *alike]),
        shown,
        [*machine, *differ, *sides, *results],
        gives_way=(results[1].head,),
    )


def _format_side(item: CellChange, side: str) -> str:
    cell = item.a if side == "a" else item.b
    latency = item.result.latency_a_ns if side == "a" else item.result.latency_b_ns
    doubt = item.result.doubt.startswith(f"{side}: ")
    return format_latency(latency, "doubt" if doubt else "", cell.disturbance)


def _list_cells(comparisons: Sequence[SweepComparison]) -> Iterator[dict[str, Scalar]]:
    for whole in comparisons:
        sides: dict[str, Scalar] = {"part": "cell", "a": whole.name_a, "b": whole.name_b}
        for item in whole.changes:
            columns = _make_runtime_columns(item.result.confidence)
            yield {**sides, **read_all(item.result, columns)}


def _list_sweep_warnings(comparison: SweepComparison) -> Iterator[str]:
    """What to know before believing it: of the machines first."""
    if comparison.differences:
        yield "not of the code alone: " + "; ".join(comparison.differences)
    changes = comparison.changes
    for item in changes:
        yield from item.result.problems
    doubts = (item.result.doubt.partition(": ")[2] for item in changes)
    for doubt, count in Counter(filter(None, doubts)).items():
        yield f"not resolved for {say_count(count, 'cell')}: {doubt}"
    clocks = sum(item.is_clock_other for item in changes)
    if clocks:
        yield (
            f"in {say_count(clocks, 'cell')} the host's core ran at another clock (by more than "
            "3 %): what the host decides takes another time for that alone"
        )
    between_rounds = sum(item.result.unit == "round" for item in changes)
    if between_rounds:
        yield (
            f"{say_count(between_rounds, 'cell')} compared between rounds of one run each: another "
            "run may differ by more (repetitions in both grids test between runs)"
        )
    by_chance = len(changes) * (1 - changes[0].result.confidence)
    if by_chance >= 1:
        yield (
            f"of {len(changes)} cells that did not change about {by_chance:.0f} would be called "
            "faster or slower by chance"
        )
    yield from comparison.left_out
