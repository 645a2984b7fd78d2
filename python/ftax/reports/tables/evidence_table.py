"""What each rung did on the GPU, as tables: the evidence that they did the same."""

from __future__ import annotations

import statistics

from ftax.ladders.evidence import RungEvidence
from ftax.ladders.receipt import Receipt
from ftax.reports.table import Rows
from ftax.reports.tables.timeline_table import make_timeline_table
from ftax.timing.units import format_time

_NOTHING = "-"


def make_evidence_tables(receipt: Receipt) -> list[Rows]:
    """Kernels and issue times of each rung, and where their traced time went; none on a CPU."""
    if not receipt.evidence:
        return []
    tables = [_make_evidence(receipt)]
    timelines = receipt.timeline()
    if timelines:
        tables.append(make_timeline_table(timelines))
    return tables


def make_top_table(receipt: Receipt, *, limit: int) -> Rows | None:
    """The kernels that take the most time on the lowest rung; None without a reliable trace."""
    rungs = [rung.place for rung in receipt.rungs]
    traced = [item for item in receipt.evidence if item.top and item.place in rungs]
    if not traced:
        return None
    lowest = traced[-1]
    total_ns = statistics.median(lowest.kernel_ns) or 1.0
    return Rows(
        title=f"Kernels of {lowest.place} by time ({format_time(total_ns)})",
        columns=("kernel", "count", "total", "share"),
        numeric=("count", "total", "share"),
        rows=tuple(
            (
                cost.kernel,
                str(cost.count),
                format_time(cost.total_ns),
                f"{cost.total_ns / total_ns:.1%}",
            )
            for cost in lowest.top[:limit]
        ),
    )


def _make_evidence(receipt: Receipt) -> Rows:
    where = "a process of its own" if receipt.evidence[0].traced_in == "worker" else "this process"
    return Rows(
        title=f"What each runtime ran (traced in {where} after the rounds; gated before that)",
        columns=(
            "runtime",
            "kernels",
            "copies, fills",
            "kernel time",
            "device busy",
            "eager's kernels",
            "durations",
            "issue, gated",
            "device, gated",
        ),
        numeric=(
            "kernels",
            "copies, fills",
            "kernel time",
            "device busy",
            "durations",
            "issue, gated",
            "device, gated",
        ),
        gives_way=("durations", "copies, fills", "kernel time"),
        rows=tuple(_describe(item) for item in receipt.evidence),
    )


def _describe(item: RungEvidence) -> tuple[str, ...]:
    gate = tuple(
        _NOTHING if value is None else format_time(value)
        for value in (item.issue_ns, item.device_ns)
    )
    name = str(item.place)
    if not item.kernel_ns:
        return (name, *([_NOTHING] * 4), "not known", _NOTHING, *gate)
    same = {True: "yes", False: "no", None: "not known"}[item.same_kernels]
    ratio = _NOTHING if item.duration_ratio is None else f"{item.duration_ratio:.3f}x"
    return (
        name,
        str(item.kernels),
        str(item.copies + item.fills),
        format_time(statistics.median(item.kernel_ns)),
        format_time(statistics.median(item.busy_ns)),
        same,
        ratio,
        *gate,
    )
