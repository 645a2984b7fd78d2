"""The field's other numbers for a trace, each by its published definition and what differs here.

The surprising choice: none of them enters a receipt. Each mixes host and device time in its own
way, and all come from a traced, hence slowed, run; they stand here so that our traces can be
compared with what others publish.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from ftax import _core
from ftax.errors import ResultsError
from ftax.instruments.trace.activities import (
    Activity,
    ApiCall,
    IterationTrace,
    find_launches,
    sum_busy_ns,
)
from ftax.instruments.trace.records import Trace
from ftax.records.record import Record

# The default of Holistic Trace Analysis, its `consecutive_kernel_delay`.
CONSECUTIVE_KERNEL_NS = 30

FindLaunch = Callable[[int], ApiCall | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Record):
    """Medians over the iterations of a trace; None where API calls are needed and were not traced.

    Attributes:
        wall_ns: from the begin of an iteration to the end of its synchronise.
        busy_ns: union of device activities.
        kernels: kernels of an iteration.
        framework_overhead_ratio: 1 - busy / wall, the share of the wall time in which the device
            did nothing. "The Framework Tax" (arXiv 2302.06117), Figure 3, sums kernel durations
            where this takes their union with copies and fills: the same on one stream without
            copies.
        orchestration_ns: from begin until everything was enqueued. TaxBreak (arXiv 2603.12465) sums
            three host costs over all kernels, which one trace does not tell apart. Ours also holds
            what belongs to no kernel (Python between operators) and any wait for a full queue.
        host_device_balance_ratio: busy / (busy + orchestration): near 1 device-bound, near 0
            host-bound. After TaxBreak's HDBI, whose exact formula we could not establish: not to be
            compared with published values.
        average_kernel_ns: mean duration of a kernel; SKIP's AKD (arXiv 2504.11750).
        inference_latency_ns: from begin to the end of the last kernel; SKIP's IL, which begins at
            the first parent operator, a little later.
        skip_idle_ns: inference latency minus the sum of kernel durations; SKIP's GPU idle time.
        tklqt_ns: sum over kernels of kernel start minus the begin of the call that launches it
            (SKIP). A deep queue makes it grow without bound, since every kernel counts its whole
            wait; in a graph every kernel counts from the one launch of the graph.
        average_launch_ns: TKLQT over the number of kernels in it.
        host_wait_ns, kernel_wait_ns, other_wait_ns: `classify_idle` (Holistic Trace Analysis).
    """

    label: str
    wall_ns: float
    busy_ns: float
    kernels: float
    framework_overhead_ratio: float
    orchestration_ns: float
    host_device_balance_ratio: float
    average_kernel_ns: float
    inference_latency_ns: float
    skip_idle_ns: float
    tklqt_ns: float | None = None
    average_launch_ns: float | None = None
    host_wait_ns: float | None = None
    kernel_wait_ns: float | None = None
    other_wait_ns: float | None = None


def compute_metrics(trace: Trace) -> Metrics:
    """Compute all metrics of a trace.

    Raises:
        ResultsError: the trace has no iterations.
    """
    parts = trace.split()
    if not parts:
        raise ResultsError(f"the trace of {trace.label} has no iterations; trace at least one")
    launches = find_launches(trace.api_calls)
    rows = []
    for part in parts:
        row = _measure_device(part)
        if trace.api_calls:
            row |= {**_measure_launches(part, launches.get), **classify_idle(part, launches.get)}
        rows.append(row)
    medians = {name: _core.compute_median([row[name] for row in rows]) for name in rows[0]}
    return Metrics(label=trace.label, **medians)


def _measure_device(part: IterationTrace) -> dict[str, float]:
    window, kernels = part.window, part.kernels
    busy_ns = sum_busy_ns(part.activities)
    orchestration_ns = window.issued_ns - window.begin_ns
    kernel_ns = sum(kernel.duration_ns for kernel in kernels)
    latency_ns = max((kernel.end_ns - window.begin_ns for kernel in kernels), default=0)
    both_ns = busy_ns + orchestration_ns
    return {
        "wall_ns": window.wall_ns,
        "busy_ns": busy_ns,
        "kernels": len(kernels),
        "framework_overhead_ratio": 1 - busy_ns / window.wall_ns if window.wall_ns else 0.0,
        "orchestration_ns": orchestration_ns,
        "host_device_balance_ratio": busy_ns / both_ns if both_ns else 0.0,
        "average_kernel_ns": kernel_ns / len(kernels) if kernels else 0.0,
        "inference_latency_ns": latency_ns,
        "skip_idle_ns": latency_ns - kernel_ns,
    }


def _measure_launches(part: IterationTrace, find_launch: FindLaunch) -> dict[str, float]:
    times_ns = [
        kernel.start_ns - launch.start_ns
        for kernel in part.kernels
        if (launch := find_launch(kernel.correlation_id)) is not None
    ]
    total_ns = sum(times_ns)
    average_ns = total_ns / len(times_ns) if times_ns else 0.0
    return {"tklqt_ns": total_ns, "average_launch_ns": average_ns}


def classify_idle(
    part: IterationTrace,
    find_launch: FindLaunch,
    *,
    consecutive_kernel_ns: int = CONSECUTIVE_KERNEL_NS,
) -> dict[str, float]:
    """Sort the gaps of each stream into the classes of Holistic Trace Analysis, in ns.

    Its page "Idle Time Breakdown": host wait, if the call that launches the later activity begins
    after the end of the earlier one; otherwise kernel wait, if the gap is shorter than a threshold
    of 30 ns; otherwise other wait. The classes are summed over streams, so with several streams
    they can exceed the wall time, and a stream counts as idle while another is busy. Unlike there,
    only gaps inside an iteration count, and overlaps count nothing instead of negatively.
    """
    sums: dict[str, float] = {"host_wait_ns": 0, "kernel_wait_ns": 0, "other_wait_ns": 0}
    streams: dict[tuple[int, int], list[Activity]] = defaultdict(list)
    for item in part.activities:
        streams[item.device_id, item.stream_id].append(item)
    for items in streams.values():
        for earlier, later in pairwise(items):
            gap_ns = max(0, later.start_ns - earlier.end_ns)
            launch = find_launch(later.correlation_id)
            if launch is not None and launch.start_ns > earlier.end_ns:
                sums["host_wait_ns"] += gap_ns
            elif gap_ns < consecutive_kernel_ns:
                sums["kernel_wait_ns"] += gap_ns
            else:
                sums["other_wait_ns"] += gap_ns
    return sums
