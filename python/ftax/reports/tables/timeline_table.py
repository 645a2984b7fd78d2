"""Traces as tables: where the wall time went, and which kernels took it."""

from __future__ import annotations

from collections.abc import Sequence

from ftax.instruments.trace.integrity import judge
from ftax.instruments.trace.kernel_set import KernelSet
from ftax.instruments.trace.names import demangle, shorten_all
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.timeline import PARTS, Timeline, compute_timeline
from ftax.reports.numbers import Numbers, Scalar
from ftax.reports.table import Printout, Rows
from ftax.timing.units import format_time

_CELL = ("model", "runtime", "host", "device")
_COLUMNS = (
    "part", *_CELL, "kernel", "grid", "block", "shared_bytes", "count", "total_ns", "median_ns",
    "wall_ns", *PARTS,
)  # fmt: skip
_HEADS = {
    "device_busy_ns": "device busy",
    "before_first_ns": "before first",
    "idle_host_late_ns": "host late",
    "idle_between_ns": "between",
    "idle_unattributed_ns": "idle, no API calls",
    "tail_ns": "tail",
}


def draw_trace(trace: Trace, *, limit: int = 15) -> Printout:
    """The kernels of a trace and where its time went; without them, why it is not reliable."""
    verdict = judge(trace)
    if not verdict.ok:
        return Printout(
            warnings=(f"the trace is {verdict.describe()}",),
            numbers=lambda: Numbers.of(_COLUMNS, []),
        )
    kernels = KernelSet.of(trace)
    return Printout(
        tables=(
            make_kernel_table(kernels, limit=limit),
            make_timeline_table([compute_timeline(trace)]),
        ),
        notes=verdict.notes,
        numbers=lambda: _number_kernels(trace),
    )


def _number_kernels(trace: Trace) -> Numbers:
    """A row a kernel of one inference, longest first, and one of the parts of its wall time."""
    cell: dict[str, Scalar] = {name: getattr(trace, name) for name in _CELL}
    kernels, timeline = KernelSet.of(trace), compute_timeline(trace)
    iterations = len(kernels.sums_ns)
    rows: list[dict[str, Scalar]] = [
        {"part": "timeline", **cell}
        | {name: timeline.median_ns(name) for name in ("wall_ns", *PARTS)}
    ]
    rows += [
        {
            "part": "kernel",
            **cell,
            "kernel": demangle(entry.key.name),
            "grid": "x".join(map(str, entry.key.grid)),
            "block": "x".join(map(str, entry.key.block)),
            "shared_bytes": entry.key.shared_bytes,
            "count": entry.count,
            "total_ns": entry.total_ns / iterations,
            "median_ns": entry.median_ns,
        }
        for entry in kernels.entries
    ]
    return Numbers.of(_COLUMNS, rows)


def make_timeline_table(timelines: Sequence[Timeline]) -> Rows:
    """A row a rung: the median of each part over its iterations."""
    parts = [part for part in PARTS if _is_used(part, timelines)]
    columns = ("wall", *(_HEADS[part] for part in parts), "busy share")
    rows = [
        (
            label,
            format_time(timeline.median_ns("wall_ns")),
            *(format_time(timeline.median_ns(part)) for part in parts),
            f"{timeline.busy_ratio:.1%}",
        )
        for label, timeline in zip(_shorten_labels(timelines), timelines, strict=True)
    ]
    return Rows(
        title="Where the wall time of a traced iteration goes (medians; tracing slows it)",
        columns=("rung", *columns),
        numeric=columns,
        gives_way=("tail", "before first", "device busy"),
        rows=tuple(rows),
    )


def make_kernel_table(kernels: KernelSet, *, limit: int) -> Rows:
    """The kernels that take the most time: runs and time of one iteration."""
    iterations = len(kernels.sums_ns)
    total_ns = sum(kernels.sums_ns) or 1
    top = kernels.entries[:limit]
    short = shorten_all({entry.key.name for entry in top})
    return Rows(
        title=f"Kernels of {kernels.label} by time ({format_time(kernels.sum_ns)} an iteration)",
        columns=("kernel", "count", "total", "mean", "share"),
        numeric=("count", "total", "mean", "share"),
        rows=tuple(
            (
                entry.key.describe(short[entry.key.name]),
                str(entry.count),
                format_time(entry.total_ns / iterations),
                format_time(entry.total_ns / len(entry.durations_ns)),
                f"{entry.total_ns / total_ns:.1%}",
            )
            for entry in top
        ),
    )


def _shorten_labels(timelines: Sequence[Timeline]) -> list[str]:
    """Without the words that all of several labels have: "eager/cpp"."""
    words = [timeline.label.split() for timeline in timelines]
    alike = set.intersection(*map(set, words)) if len(words) > 1 else set()
    return [" ".join(word for word in label if word not in alike) for label in words]


def _is_used(part: str, timelines: Sequence[Timeline]) -> bool:
    """Columns that depend on API calls are left out where no rung has anything in them."""
    if part not in ("idle_host_late_ns", "idle_between_ns", "idle_unattributed_ns"):
        return True
    if part == "idle_unattributed_ns":
        return any(row.idle_unattributed_ns for item in timelines for row in item.rows)
    return any(item.has_api_calls for item in timelines)
