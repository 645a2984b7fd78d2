"""Comparisons as tables: what each result takes against the first one, and what changed in which
line of a receipt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ftax.reports.numbers import Field, Numbers, Scalar, read_all
from ftax.reports.table import NOTHING, Printout, Rows, say
from ftax.reports.tables.measurement_table import make_measurement_table, number_measurements
from ftax.timing.comparison import Comparison, LineChange
from ftax.timing.host_comparison import HostComparison
from ftax.timing.measurement import describe_slow_calls
from ftax.timing.trust import NOT_RESOLVED
from ftax.timing.units import format_interval, format_time, name_interval

COLUMNS = (
    "part", "name", "a", "b", "cell_a", "cell_b", "a_ns", "b_ns", "ratio", "ratio_low",
    "ratio_high", "difference_ns", "difference_low_ns", "difference_high_ns", "confidence",
    "verdict", "unit", "units_a", "units_b", "units_needed", "doubt",
)  # fmt: skip
RUNTIME: Mapping[str, Field] = {
    "name": "runtime",
    "cell_a": "a",
    "cell_b": "b",
    "a_ns": "latency_a_ns",
    "b_ns": "latency_b_ns",
    "ratio": "ratio",
    "ratio_low": "ratio_interval.0",
    "ratio_high": "ratio_interval.1",
    **{name: name for name in COLUMNS[COLUMNS.index("confidence") :]},
}
_LINE: Mapping[str, Field] = {
    "name": "name",
    "a_ns": "a_ns",
    "b_ns": "b_ns",
    "difference_ns": "difference_ns",
    "difference_low_ns": "interval_ns.0",
    "difference_high_ns": "interval_ns.1",
    "verdict": "verdict",
    "doubt": "doubt",
}


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
        numbers=lambda: Numbers.of(COLUMNS, _list_numbers(comparisons)),
    )


def _list_numbers(comparisons: Sequence[Comparison]) -> Iterator[dict[str, Scalar]]:
    """A row a runtime and a line, of each result against the first one."""
    for whole in comparisons:
        sides = {"a": whole.name_a, "b": whole.name_b}
        for item in (whole, *whole.runtimes):
            yield {"part": "runtime", **sides, **read_all(item, RUNTIME)}
        for line in whole.lines:
            own = {"confidence": whole.confidence, **read_all(line, _LINE)}
            yield {"part": "line", **sides, **own}


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
        numbers=lambda: number_measurements([*comparison]),
    )


def make_change_table(comparisons: Sequence[Comparison]) -> Rows:
    """Every runtime that the results have, a row a result: how it compares with the first one."""
    rows = []
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
                f"{item.ratio - 1:+.1%}",
                "{:+.1f} to {:+.1f}%".format(*(100 * (end - 1) for end in item.ratio_interval)),
                _format_verdict(item.verdict),
            )
            for item in items
        ]
    interval = name_interval(comparisons[0].confidence)
    return Rows(
        title=f"Against {comparisons[0].name_a}",
        columns=("runtime", "result", "latency", "change", interval, "verdict"),
        numeric=("latency", "change", interval),
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
    interval = name_interval(comparison.confidence)
    return Rows(
        title=f"{b} against {a}, line by line",
        columns=("what", a, b, "difference", interval, "verdict"),
        numeric=(a, b, "difference", interval),
        rows=tuple(
            (
                line.name,
                say(line.a_ns, format_time),
                say(line.b_ns, format_time),
                say(line.difference_ns, _format_difference),
                format_interval(line.interval_ns),
                _format_verdict(line.verdict),
            )
            for line in (*comparison.lines, whole)
        ),
    )


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


def _format_verdict(verdict: str) -> str:
    return verdict.replace("-", " ")


def _format_difference(time_ns: float) -> str:
    return f"{'+' if time_ns > 0 else ''}{format_time(time_ns)}"
