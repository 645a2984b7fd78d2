"""What each rung did on the GPU, as tables: the evidence that they did the same."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from ftax.ladders.evidence import RungEvidence
from ftax.ladders.receipt import Receipt
from ftax.reports.table import Rows
from ftax.reports.tables.timeline_table import make_timeline_table
from ftax.timing.units import format_time

_SAME = {True: "yes", False: "no", None: "not known"}


def make_evidence_tables(receipt: Receipt) -> list[Rows]:
    """Kernels and issue times of each rung, and where their traced time went; none on a CPU."""
    if not receipt.evidence:
        return []
    tables = [_make_evidence(receipt)]
    if any(item.waits and any(item.waits.counts) for item in receipt.evidence):
        tables.append(_make_waits(receipt))
    timelines = receipt.timeline()
    if timelines:
        tables.append(make_timeline_table(timelines))
    return tables


def make_top_tables(receipt: Receipt, *, limit: int) -> list[Rows]:
    """The kernels that take the most time on the lowest rung; none without a reliable trace."""
    traced = {item.place: item for item in receipt.evidence if item.top}
    found = [traced[rung.place] for rung in receipt.rungs if rung.place in traced]
    if not found:
        return []
    lowest = found[-1]
    total_ns = median(lowest.kernel_ns) or 1.0
    return [
        Rows.of(
            f"Kernels of {lowest.place} by time ({format_time(total_ns)})",
            lowest.top[:limit],
            {
                "kernel": "kernel",
                "count": "count",
                "total": ("total_ns", format_time),
                "share": lambda cost: f"{cost.total_ns / total_ns:.1%}",
            },
            text=("kernel",),
        )
    ]


def _make_evidence(receipt: Receipt) -> Rows:
    where = "a process of its own" if receipt.evidence[0].traced_in == "worker" else "this process"
    return Rows.of(
        f"What each runtime ran (traced in {where} after the rounds; gated before that)",
        receipt.evidence,
        {
            "runtime": "place",
            "kernels": _of_trace(lambda item: item.kernels),
            "copies, fills": _of_trace(lambda item: item.copies + item.fills),
            "kernel time": (_of_trace(lambda item: median(item.kernel_ns)), format_time),
            "device busy": (_of_trace(lambda item: median(item.busy_ns)), format_time),
            "eager's kernels": lambda item: _SAME[item.same_kernels if item.kernel_ns else None],
            "durations": (_of_trace(lambda item: item.duration_ratio), "{:.3f}x".format),
            "issue, gated": ("issue_ns", format_time),
            "device, gated": ("device_ns", format_time),
        },
        text=("runtime", "eager's kernels"),
        gives_way=("durations", "copies, fills", "kernel time"),
    )


def _make_waits(receipt: Receipt) -> Rows:
    return Rows.of(
        "Waits for the device while a request is issued (traced: times are longer than they are)",
        [item for item in receipt.evidence if item.waits is not None],
        {
            "runtime": "place",
            "waits": lambda item: median(item.waits.counts),
            "waited": (lambda item: median(item.waits.wait_ns), format_time),
            "device busy meanwhile": (lambda item: median(item.waits.masked_ns), format_time),
            "exposed": (
                lambda item: median(item.waits.wait_ns) - median(item.waits.masked_ns),
                format_time,
            ),
        },
        text=("runtime",),
    )


def _of_trace(field: Callable[[RungEvidence], Any]) -> Callable[[RungEvidence], Any]:
    return lambda item: field(item) if item.kernel_ns else None
