"""Sweeps against each other, as tables: a row a cell that both have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ftax.reports.numbers import Numbers, Scalar, read_all
from ftax.reports.options import COLUMNS as CELL_COLUMNS
from ftax.reports.options import describe_options, read_column
from ftax.reports.table import NOTHING, Cell, Printout, Rows, say
from ftax.reports.tables.comparison_table import COLUMNS, RUNTIME
from ftax.timing.units import format_latency, name_interval

if TYPE_CHECKING:
    from ftax.sweeps.comparison import CellChange, SweepComparison

_TEXT = ("machine", *CELL_COLUMNS[:5], "options", "verdict")
_MOST_ROWS = 60  # of a terminal, which then shows what changed alone; --csv has all


def draw_sweep_comparisons(
    comparisons: Sequence[SweepComparison], *, is_whole: bool = False
) -> Printout:
    """How sweeps, or machines of one, compare with the first; unless it ``is_whole``, of too many
    cells those that changed."""
    tables = [make_cell_change_table(item, is_whole=is_whole) for item in comparisons]
    warnings = [text for item in comparisons for text in _list_warnings(item)]
    return Printout(
        head=tuple(item.describe() for item in comparisons),
        tables=tuple(table for table in tables if table.rows),
        warnings=tuple(dict.fromkeys(warnings)),
        numbers=lambda: Numbers.of(COLUMNS, _list_numbers(comparisons)),
    )


def make_cell_change_table(comparison: SweepComparison, *, is_whole: bool = False) -> Rows:
    """A row a cell; what all cells have in common stands in the title."""
    every = comparison.changes
    shown = list(every)
    title = f"{comparison.name_b} against {comparison.name_a}"
    if len(every) > _MOST_ROWS and not is_whole:
        shown = [item for item in every if item.result.verdict in ("faster", "slower")]
        title += f": the {len(shown)} of {len(every)} cells that changed"
    texts = {
        "machine": [item.machine for item in every],
        **{name: [say(read_column(item.cell, name)) for item in every] for name in CELL_COLUMNS},
        "options": [describe_options(item.cell) or NOTHING for item in every],
    }
    told = {name: values for name, values in texts.items() if len(set(values)) > 1}
    alike = [
        f"{name} {values[0]}"
        for name, values in texts.items()
        if name not in told and name != "machine" and values[0] != NOTHING
    ]
    columns: dict[str, Cell] = {}
    for name, values in told.items():
        known = dict(zip(map(id, every), values, strict=True))
        columns[name] = lambda item, known=known: known[id(item)]
    interval = name_interval(every[0].result.confidence)
    columns |= {
        comparison.name_a: lambda item: _format_side(item, "a"),
        comparison.name_b: lambda item: _format_side(item, "b"),
        "change": ("result.ratio", lambda ratio: f"{ratio - 1:+.1%}"),
        interval: (
            "result.ratio_interval",
            lambda ends: "{:+.1f} to {:+.1f}%".format(*(100 * (end - 1) for end in ends)),
        ),
        "verdict": ("result.verdict", lambda verdict: verdict.replace("-", " ")),
    }
    return Rows.of(", ".join([title, *alike]), shown, columns, text=_TEXT, gives_way=(interval,))


def _format_side(item: CellChange, side: str) -> str:
    cell = item.a if side == "a" else item.b
    latency = item.result.latency_a_ns if side == "a" else item.result.latency_b_ns
    doubt = item.result.doubt.startswith(f"{side}: ")
    return format_latency(latency, "doubt" if doubt else "", cell.disturbance)


def _list_numbers(comparisons: Sequence[SweepComparison]) -> Iterator[dict[str, Scalar]]:
    for whole in comparisons:
        sides = {"part": "cell", "a": whole.name_a, "b": whole.name_b}
        for item in whole.changes:
            yield {**sides, **read_all(item.result, RUNTIME)}


def _list_warnings(comparison: SweepComparison) -> Iterator[str]:
    """What to know before believing it: of the machines first."""
    if comparison.differences:
        yield "not of the code alone: " + "; ".join(comparison.differences)
    changes = comparison.changes
    for item in changes:
        yield from item.result.problems
    for doubt, count in _count(item.result.doubt.partition(": ")[2] for item in changes).items():
        yield f"not resolved for {_name_cells(count)}: {doubt}"
    clocks = sum(item.is_clock_other for item in changes)
    if clocks:
        yield (
            f"in {_name_cells(clocks)} the host's core ran at another clock (by more than 3 %): "
            "what the host decides takes another time for that alone"
        )
    between_rounds = sum(item.result.unit == "round" for item in changes)
    if between_rounds:
        yield (
            f"{_name_cells(between_rounds)} compared between rounds of one run each: another run "
            "may differ by more (repetitions in both grids test between runs)"
        )
    by_chance = len(changes) * (1 - changes[0].result.confidence)
    if by_chance >= 1:
        yield (
            f"of {len(changes)} cells that did not change about {by_chance:.0f} would be called "
            "faster or slower by chance"
        )
    yield from comparison.left_out


def _count(texts: Iterator[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        if text:
            found[text] = found.get(text, 0) + 1
    return found


def _name_cells(count: int) -> str:
    return f"{count} cell{'' if count == 1 else 's'}"
