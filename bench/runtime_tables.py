"""Cells of runtimes as tables.

The surprising choice: what is missing is printed a line each, since a reason is a sentence that no
column holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runtime_cells import Cell, explain_absence

from record import progress, show


def show_runtimes(cell: Cell) -> None:
    """All rows, fastest first, then what is missing and how Table 3's order fares."""
    rows = [
        (
            f"{row['runtime']}/{row['host']}",
            f"{row['latency_us']:.1f}",
            _span(row["interval_us"], ".1f"),
            f"{row['saved_us']:+.1f}",
            _span(row["saved_interval_us"], "+.1f"),
            _format(row["preparation"]["ready_seconds"], ".1f"),
            _describe_outputs(row["outputs"]),
        )
        for row in sorted(cell["rows"], key=lambda row: row["latency_us"])
    ]
    title = f"{cell['model']}, {cell['device']}, {cell['dtype']}, batch {cell['batch']}, us"
    columns = ("runtime", "latency", "95 %", "saved", "95 %", "ready, s", "outputs")
    show(title, columns, rows)
    order = [
        (item["relation"], _format(item.get("difference_us"), "+.1f"),
         _span(item.get("interval_us"), "+.1f"), _format(item.get("ratio"), ".2f"),
         item["verdict"])
        for item in cell["table_3"]
    ]  # fmt: skip
    show("order of the paper's Table 3", ("relation", "us", "95 %", "ratio", "verdict"), order)
    for item in cell["unavailable"]:
        why = explain_absence(cell, item["runtime"], item["host"], item["reason"])
        label = "MISSING" if why is None else f"left out ({why})"
        progress(f"{cell['model']}: {item['runtime']}/{item['host']} {label}: {item['reason']}")


def show_hosts(cell: Cell) -> None:
    """C++ against Python, a row a runtime."""
    rows = [
        (
            item["runtime"],
            f"{item['python_us']:.1f}",
            f"{item['cpp_us']:.1f}",
            f"{item['difference_us']:+.1f}",
            _span(item["interval_us"], "+.1f"),
            "no worse" if item["no_worse"] else "WORSE",
        )
        for item in cell["hosts"]
    ]
    columns = ("runtime", "Python", "C++", "C++ minus Python", "95 %", "C++ is")
    show(f"hosts: {cell['model']}, batch {cell['batch']}, us", columns, rows)


def _describe_outputs(outputs: Mapping[str, Any] | None) -> str:
    if outputs is None:
        return "not checked"
    if outputs["bitwise"]:
        return "bitwise"
    return "within tolerance" if outputs["within_tolerance"] else "DIFFER"


def _format(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def _span(ends: Sequence[float] | None, spec: str) -> str:
    return "-" if ends is None else " to ".join(format(end, spec) for end in ends)
