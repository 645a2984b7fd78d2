"""Traces as tables: where the wall time went, which kernels took it, and of a receipt the evidence
that all rungs did the same on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

from ftax.instruments.trace.integrity import judge
from ftax.instruments.trace.kernel_set import KernelSet
from ftax.instruments.trace.names import demangle, shorten_all
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.timeline import Timeline, compute_timeline
from ftax.ladders.evidence import RungEvidence
from ftax.ladders.receipt import Receipt
from ftax.reports.columns import Column, Numbers, Scalar, for_programs, list_keys, read_all
from ftax.reports.table import Printout, Rows
from ftax.timing.units import format_time


def _find_median(part: str, timeline: Timeline) -> float:
    return timeline.median_ns(part)


# Parts of the wall time of a traced iteration, in the order of `PARTS`.
TIMELINE = [
    Column(head, (partial(_find_median, part), format_time), part)
    for part, head in {
        "wall_ns": "wall",
        "device_busy_ns": "device busy",
        "before_first_ns": "before first",
        "idle_host_late_ns": "host late",
        "idle_between_ns": "between",
        "idle_unattributed_ns": "idle, no API calls",
        "tail_ns": "tail",
    }.items()
]
_CELL = for_programs("model", "runtime", "host", "device")
# What programs get of a kernel; people read a shorter name.
_KERNEL = for_programs(
    "count",
    "median_ns",
    kernel=lambda entry: demangle(entry.key.name),
    grid=lambda entry: "x".join(map(str, entry.key.grid)),
    block=lambda entry: "x".join(map(str, entry.key.block)),
    shared_bytes="key.shared_bytes",
)
_KEYS = (
    "part", *list_keys(_CELL), "kernel", "grid", "block", "shared_bytes", "count", "total_ns",
    "median_ns", *list_keys(TIMELINE),
)  # fmt: skip
_SAME = {True: "yes", False: "no", None: "not known"}


def draw_trace(trace: Trace, *, limit: int = 15) -> Printout:
    """The kernels of a trace and where its time went; without them, why it is not reliable."""
    verdict = judge(trace)
    if not verdict.ok:
        return Printout(
            warnings=(f"the trace is {verdict.describe()}",),
            numbers=lambda: Numbers.join(_KEYS, []),
        )
    kernels = KernelSet.of(trace)
    return Printout(
        tables=(
            make_kernel_table(kernels, limit=limit),
            make_timeline_table([compute_timeline(trace)]),
        ),
        notes=verdict.notes,
        numbers=lambda: Numbers.join(_KEYS, _list_rows(trace)),
    )


def _list_rows(trace: Trace) -> Iterator[dict[str, Scalar]]:
    """The parts of its wall time, and a row a kernel of one inference, longest first."""
    cell, kernels = read_all(trace, _CELL), KernelSet.of(trace)
    yield {"part": "timeline", **cell, **read_all(compute_timeline(trace), TIMELINE)}
    for entry in kernels.entries:
        total_ns = entry.total_ns / len(kernels.sums_ns)
        yield {"part": "kernel", **cell, **read_all(entry, _KERNEL), "total_ns": total_ns}


def make_timeline_table(timelines: Sequence[Timeline]) -> Rows:
    """A row a rung: the median of each part over its iterations."""
    alike = _find_alike(timelines)
    rung = Column("rung", lambda timeline: _shorten(timeline.label, alike), is_text=True)
    return Rows.of_columns(
        "Where the wall time of a traced iteration goes (medians; tracing slows it)",
        timelines,
        [
            rung,
            *(column for column in TIMELINE if _is_used(column.keys[0], timelines)),
            Column("busy share", ("busy_ratio", "{:.1%}".format)),
        ],
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


# --- evidence of a receipt ------------------------------------------------------------------------


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
    return Rows.of_columns(
        f"What each runtime ran (traced in {where} after the rounds; gated before that)",
        receipt.evidence,
        [Column("runtime", "place", is_text=True), *EVIDENCE],
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


EVIDENCE = (
    Column("kernels", _of_trace(lambda item: item.kernels)),
    Column("copies, fills", _of_trace(lambda item: item.copies + item.fills)),
    *for_programs("copies", "fills"),
    Column("kernel time", (_of_trace(lambda item: median(item.kernel_ns)), format_time)),
    Column("device busy", (_of_trace(lambda item: median(item.busy_ns)), format_time)),
    Column(
        "eager's kernels",
        lambda item: _SAME[item.same_kernels if item.kernel_ns else None],
        "same_kernels",
        "same_kernels",
        is_text=True,
    ),
    Column(
        "durations",
        (_of_trace(lambda item: item.duration_ratio), "{:.3f}x".format),
        "duration_ratio",
        "duration_ratio",
    ),
    Column("issue, gated", ("issue_ns", format_time)),
    Column("device, gated", ("device_ns", format_time), "device_ns"),
)
