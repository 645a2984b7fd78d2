"""What `gpu_receipts.py` reads off a receipt of a GPU, and what has to hold of it.

The surprising choice: a cell is plain JSON, and the checks read nothing else, so a file of cells
can be judged again without the GPU, and without the receipts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ftax import Receipt
from ftax.records.store import read_records
from ftax.timing.differences import estimate_rounds
from record import Figure, progress, show

_HALF_WIDTH_LIMIT = 2.0  # percent of eager
_DURATION_LIMIT = 5.0  # percent between the rungs
AGREEMENT_LIMIT = 5.0  # percent
_SUM_LIMIT = 1e-9  # of eager: what adding floating-point numbers may lose

Cell = Mapping[str, Any]


def describe(receipt: Receipt) -> dict[str, Any]:
    """What a receipt says, and what is checked of it."""
    lines, first, top_ns = receipt.lines, receipt.rungs[0], receipt.latency_ns
    ends = first.interval_ns
    found = {(item.runtime, item.host): item for item in receipt.evidence}
    traced = [found.get((rung.cell.runtime, rung.cell.host)) for rung in receipt.rungs]
    # Eager is what the others are compared with, so it has no ratio of its own.
    ratios = [1.0, *(None if item is None else item.duration_ratio for item in traced[1:])]
    known = [ratio for ratio in ratios if ratio is not None]
    return {
        "eager_us": top_ns / 1e3,
        "half_width_percent": None if ends is None else 50 * (ends[1] - ends[0]) / top_ns,
        "rounds": len(first.values_ns),
        "rounds_needed": estimate_rounds(
            len(first.values_ns), ends, top_ns * _HALF_WIDTH_LIMIT / 100
        ),
        "stop_reason": first.stop_reason,
        "rungs_us": {
            f"{rung.cell.runtime}/{rung.cell.host}": rung.latency_ns / 1e3 for rung in receipt.rungs
        },
        "lines_us": {line.name: line.time_ns / 1e3 for line in lines},
        "unresolved": [line.name for line in lines if not line.resolved],
        "problems": [line.problem for line in lines if line.problem],
        "sum_error_ratio": abs(math.fsum(line.time_ns for line in lines) - top_ns) / top_ns,
        "same_kernels": [None if item is None else item.same_kernels for item in traced],
        "kernels": [None if item is None else item.kernels for item in traced],
        "duration_ratios": ratios,
        "duration_spread_percent": (
            100 * (max(known) / min(known) - 1)
            if len(known) == len(ratios) and min(known)
            else None
        ),
        "unavailable": [f"{u.runtime}/{u.host}: {u.reason}" for u in receipt.unavailable],
        "warnings": [*receipt.warnings, *first.warnings],
    }


CHECKS: dict[str, Callable[[Cell], bool]] = {
    f"half-width of eager at most {_HALF_WIDTH_LIMIT:g} %": lambda cell: (
        cell["half_width_percent"] is not None and cell["half_width_percent"] <= _HALF_WIDTH_LIMIT
    ),
    "lines sum to eager": lambda cell: cell["sum_error_ratio"] <= _SUM_LIMIT,
    "same kernels on every rung": lambda cell: all(same is True for same in cell["same_kernels"]),
    f"kernel durations of rungs within {_DURATION_LIMIT:g} %": lambda cell: (
        cell["duration_spread_percent"] is not None
        and cell["duration_spread_percent"] <= _DURATION_LIMIT
    ),
    "receipt, py_bench and a plain loop agree": lambda cell: all(
        item["agrees"] not in ("no", "cannot tell") for item in cell["agreement"].values()
    ),
    "no loop disagrees": lambda cell: all(
        item["agrees"] != "no" for item in cell["agreement"].values()
    ),
}


def show_cells(cells: Sequence[Cell]) -> None:
    """Two tables: the receipts, and what stands behind them."""
    names = list(dict.fromkeys(line for cell in cells for line in cell["lines_us"]))
    rows, proofs = [], []
    for cell in cells:
        title, lines = f"{cell['model']}, {cell['batch']}", cell["lines_us"]
        rows.append(
            (
                title,
                f"{cell['eager_us']:.0f}",
                _format(cell["half_width_percent"], ".2f"),
                _format(cell["rounds"], "d"),
                _format(cell.get("rounds_needed"), "d"),
                *(_format(lines.get(name), ".0f") for name in names),
            )
        )
        proofs.append(
            (
                title,
                f"{cell['wall_s']:.0f}",
                f"{sum(same is True for same in cell['same_kernels'])}/{len(cell['same_kernels'])}",
                " ".join(_format(ratio, ".3f") for ratio in cell["duration_ratios"]),
                *(
                    "{:+.1f} % ({:+.1f} to {:+.1f}; {})".format(
                        item["difference_percent"], *item["interval_percent"], item["agrees"]
                    )
                    for item in cell["agreement"].values()
                ),
                str(len(cell["warnings"])),
            )
        )
    show(
        "receipts, us, fp16",
        ("model, batch", "eager", "+-%", "rounds", f"for {_HALF_WIDTH_LIMIT:g} %", *names),
        rows,
    )
    columns = ("model, batch", "wall, s", "same kernels", "durations over eager's", "py_bench")
    show("behind them", (*columns, "plain loop", "warnings"), proofs)
    for cell in cells:
        for warning in cell["warnings"]:
            progress(f"gpu_receipts: {cell['model']}, batch {cell['batch']}: {warning}")


def show_spread(path: Path) -> None:
    """Of each cell the smallest, the middle and the largest total among its receipts in a file, and
    the line of the middle one: of an even number, of the smaller of the two."""
    found = read_records(path)
    cells: dict[str, list[tuple[float, int]]] = {}
    for receipt, line in zip(found.records, found.lines, strict=True):
        if isinstance(receipt, Receipt):
            cell = receipt.rungs[0].cell
            label = f"{cell.model}, {cell.dtype}, {cell.batch}"
            cells.setdefault(label, []).append((receipt.latency_ns / 1e6, line))
    rows = []
    for label, totals in cells.items():
        middle_ms, line = statistics.median_low(totals)
        ends = (min(totals)[0], max(totals)[0])
        rows.append((label, str(len(totals)), f"{ends[0]:.2f}", f"{middle_ms:.2f}", str(line),
                     f"{ends[1]:.2f}", f"{ends[1] / ends[0]:.2f}"))  # fmt: skip
    columns = (
        "model, dtype, batch",
        "receipts",
        "least, ms",
        "middle",
        "its line",
        "most",
        "most / least",
    )
    show(f"receipts in {path.name}", columns, rows)


def _format(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def make_figures(cells: Sequence[Cell], asked: int) -> list[Figure]:
    """How many cells pass each check, of all that were asked for, and the worst values."""
    figures = [Figure(name="cells", values=(float(len(cells)),), unit="cells", at_least=asked)]
    for name, holds in CHECKS.items():
        count = float(sum(holds(cell) for cell in cells))
        figures.append(Figure(name=name, values=(count,), unit="cells", at_least=asked))
    worst = {
        "widest half-width of eager": [cell["half_width_percent"] for cell in cells],
        "widest spread of kernel durations": [cell["duration_spread_percent"] for cell in cells],
        "largest difference of py_bench or plain loop": [
            abs(item["difference_percent"]) for cell in cells for item in cell["agreement"].values()
        ],
    }
    for name, values in worst.items():
        known = [value for value in values if value is not None]
        if known:
            figures.append(Figure(name=name, values=(max(known),), unit="%"))
    walls = tuple(cell["wall_s"] for cell in cells)
    return [*figures, Figure(name="wall time of a cell", values=walls, unit="s")]
