"""Traces as tables: where the wall time went, and which kernels took it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ftax.instruments.trace.integrity import judge
from ftax.instruments.trace.kernel_set import KernelSet
from ftax.instruments.trace.names import demangle, shorten_all
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.timeline import PARTS, Timeline, compute_timeline
from ftax.reports.numbers import Field, Numbers, Scalar, read_all
from ftax.reports.table import Printout, Rows
from ftax.timing.units import format_time

_CELL = {name: name for name in ("model", "runtime", "host", "device")}
_KERNEL: Mapping[str, Field] = {
    "kernel": lambda entry: demangle(entry.key.name),
    "grid": lambda entry: "x".join(map(str, entry.key.grid)),
    "block": lambda entry: "x".join(map(str, entry.key.block)),
    "shared_bytes": "key.shared_bytes",
    "count": "count",
    "total_ns": "total_ns",
    "median_ns": "median_ns",
}
_COLUMNS = ("part", *_CELL, *_KERNEL, "wall_ns", *PARTS)
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
    cell = read_all(trace, _CELL)
    kernels, timeline = KernelSet.of(trace), compute_timeline(trace)
    parts = {name: timeline.median_ns(name) for name in ("wall_ns", *PARTS)}
    rows: list[dict[str, Scalar]] = [{"part": "timeline", **cell, **parts}]
    for entry in kernels.entries:
        total_ns = entry.total_ns / len(kernels.sums_ns)
        row = {**read_all(entry, _KERNEL), "total_ns": total_ns}
        rows.append({"part": "kernel", **cell, **row})
    return Numbers.of(_COLUMNS, rows)


def make_timeline_table(timelines: Sequence[Timeline]) -> Rows:
    """A row a rung: the median of each part over its iterations."""
    alike = _find_alike(timelines)
    parts = {
        head: lambda timeline, part=part: format_time(timeline.median_ns(part))
        for part, head in {"wall_ns": "wall", **_HEADS}.items()
        if _is_used(part, timelines)
    }
    return Rows.of(
        "Where the wall time of a traced iteration goes (medians; tracing slows it)",
        timelines,
        {
            "rung": lambda timeline: _shorten(timeline.label, alike),
            **parts,
            "busy share": ("busy_ratio", "{:.1%}".format),
        },
        text=("rung",),
        gives_way=("tail", "before first", "device busy"),
    )


def make_kernel_table(kernels: KernelSet, *, limit: int) -> Rows:
    """The kernels that take the most time: runs and time of one iteration."""
    iterations = len(kernels.sums_ns)
    total_ns = sum(kernels.sums_ns) or 1
    top = kernels.entries[:limit]
    short = shorten_all({entry.key.name for entry in top})
    return Rows.of(
        f"Kernels of {kernels.label} by time ({format_time(kernels.sum_ns)} an iteration)",
        top,
        {
            "kernel": lambda entry: entry.key.describe(short[entry.key.name]),
            "count": "count",
            "total": lambda entry: format_time(entry.total_ns / iterations),
            "mean": lambda entry: format_time(entry.total_ns / len(entry.durations_ns)),
            "share": lambda entry: f"{entry.total_ns / total_ns:.1%}",
        },
        text=("kernel",),
    )


def _find_alike(timelines: Sequence[Timeline]) -> set[str]:
    """The words that all of several labels have; what is left of one is "eager/cpp"."""
    words = [set(timeline.label.split()) for timeline in timelines]
    return set.intersection(*words) if len(words) > 1 else set()


def _shorten(label: str, alike: set[str]) -> str:
    return " ".join(word for word in label.split() if word not in alike)


def _is_used(part: str, timelines: Sequence[Timeline]) -> bool:
    """Columns that depend on API calls are left out where no rung has anything in them."""
    if part not in ("idle_host_late_ns", "idle_between_ns", "idle_unattributed_ns"):
        return True
    if part == "idle_unattributed_ns":
        return any(row.idle_unattributed_ns for item in timelines for row in item.rows)
    return any(item.has_api_calls for item in timelines)
