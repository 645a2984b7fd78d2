"""The field's other numbers for a trace, each by its published definition and what differs here.

The surprising choice: none of them enters a receipt. Each mixes host and device time in its own
way, and all come from a traced, hence slowed, run; they stand here so that our traces can be
compared with what others publish.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
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
from ftax.records.record import Count, Record

__all__ = ["CONSECUTIVE_KERNEL_NS", "IdleClasses", "Metrics", "compute_metrics"]

# The default of Holistic Trace Analysis, its `consecutive_kernel_delay`.
CONSECUTIVE_KERNEL_NS = 30

FindLaunch = Callable[[int], ApiCall | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleClasses(Record):
    """Idle time of streams by the classes of Holistic Trace Analysis; see `classify_idle`."""

    host_wait_ns: Count
    kernel_wait_ns: Count
    other_wait_ns: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Record):
    """Medians over the iterations of a trace; None where API calls are needed and were not traced.

    Attributes:
        wall_ns: from the begin of an iteration to the end of its synchronise.
        busy_ns: union of device activities.
        kernels: kernels of an iteration.
        framework_overhead_ratio: `compute_framework_overhead`.
        orchestration_ns: `compute_orchestration`.
        host_device_balance_ratio: `compute_balance`.
        average_kernel_ns: `compute_average_kernel` (SKIP: AKD).
        inference_latency_ns: `compute_inference_latency` (SKIP: IL).
        skip_idle_ns: inference latency minus the sum of kernel durations (SKIP: GPU idle time).
        tklqt_ns: `compute_tklqt` (SKIP: TKLQT).
        average_launch_ns: TKLQT over the number of kernels in it: the average time from the begin
            of a launch call to the start of its kernel.
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
    tklqt_ns: float | None
    average_launch_ns: float | None
    host_wait_ns: float | None
    kernel_wait_ns: float | None
    other_wait_ns: float | None


def compute_metrics(trace: Trace) -> Metrics:
    """Compute all metrics of a trace.

    Raises:
        ResultsError: the trace has no iterations.
    """
    parts = trace.split()
    if not parts:
        raise ResultsError(f"the trace of {trace.label} has no iterations; trace at least one")

    def median(compute: Callable[[IterationTrace], float]) -> float:
        return _core.compute_median([compute(part) for part in parts])

    return Metrics(
        label=trace.label,
        wall_ns=median(lambda part: part.window.wall_ns),
        busy_ns=median(lambda part: sum_busy_ns(part.activities)),
        kernels=median(lambda part: len(part.kernels)),
        framework_overhead_ratio=median(compute_framework_overhead),
        orchestration_ns=median(compute_orchestration),
        host_device_balance_ratio=median(compute_balance),
        average_kernel_ns=median(compute_average_kernel),
        inference_latency_ns=median(compute_inference_latency),
        skip_idle_ns=median(lambda part: compute_inference_latency(part) - _sum_kernels_ns(part)),
        **_compute_launch_metrics(trace, parts),
    )


def compute_framework_overhead(part: IterationTrace) -> float:
    """Return the share of the wall time in which the device did nothing: 1 - busy / wall.

    "The Framework Tax" (arXiv 2302.06117), Figure 3, sets the GPU kernel time of a forward pass
    against its latency and calls the rest framework overhead. The figure sums kernel durations;
    here it is their union with copies and fills, the same on one stream without copies.
    """
    wall_ns = part.window.wall_ns
    return 1 - sum_busy_ns(part.activities) / wall_ns if wall_ns else 0.0


def compute_orchestration(part: IterationTrace) -> int:
    """Return the host time from begin until everything was enqueued, ns.

    TaxBreak (arXiv 2603.12465) sums three host costs over all kernels: framework translation, CUDA
    library translation, and the launch path. One trace does not tell these apart. Ours is the time
    of the whole enqueue, which also holds what belongs to no kernel (Python between operators) and
    any wait for a full launch queue.
    """
    return part.window.issued_ns - part.window.begin_ns


def compute_balance(part: IterationTrace) -> float:
    """Return busy / (busy + orchestration): near 1 device-bound, near 0 host-bound.

    After the host-device balance index (HDBI) of TaxBreak (arXiv 2603.12465), of which the abstract
    says that it relates device-active execution to host-visible orchestration. We could not
    establish its exact formula, so this ratio is ours, made of `sum_busy_ns` and
    `compute_orchestration`; its values are not to be compared with published ones.
    """
    busy_ns = sum_busy_ns(part.activities)
    total_ns = busy_ns + compute_orchestration(part)
    return busy_ns / total_ns if total_ns else 0.0


def compute_average_kernel(part: IterationTrace) -> float:
    """Return the mean duration of a kernel, ns; SKIP's AKD (arXiv 2504.11750, Section on SKIP)."""
    return _sum_kernels_ns(part) / len(part.kernels) if part.kernels else 0.0


def compute_inference_latency(part: IterationTrace) -> int:
    """Return the time from the begin of the iteration to the end of its last kernel, ns.

    SKIP's IL (arXiv 2504.11750) begins at the first parent operator. A trace of kernels and API
    calls has no operators; ours begins where the host begins, a little earlier.
    """
    if not part.kernels:
        return 0
    return max(kernel.end_ns for kernel in part.kernels) - part.window.begin_ns


def compute_tklqt(part: IterationTrace, find_launch: FindLaunch) -> tuple[int, int]:
    """Return total kernel launch and queuing time in ns, and the number of kernels in it.

    SKIP (arXiv 2504.11750): the sum over kernels of kernel start minus the begin of the call that
    launches it. A deep queue makes it grow without bound, since every kernel counts its whole wait.
    In a graph every kernel counts from the one launch of the graph.
    """
    times = [
        kernel.start_ns - launch.start_ns
        for kernel in part.kernels
        if (launch := find_launch(kernel.correlation_id)) is not None
    ]
    return sum(times), len(times)


def classify_idle(
    part: IterationTrace,
    find_launch: FindLaunch,
    *,
    consecutive_kernel_ns: int = CONSECUTIVE_KERNEL_NS,
) -> IdleClasses:
    """Sort the gaps of each stream into the classes of Holistic Trace Analysis.

    Its page "Idle Time Breakdown": host wait, if the call that launches the later activity begins
    after the end of the earlier one; otherwise kernel wait, if the gap is shorter than a threshold
    of 30 ns; otherwise other wait. The classes are summed over streams, so with several streams
    they can exceed the wall time, and a stream counts as idle while another is busy. Unlike there,
    only gaps inside an iteration count, and overlaps count nothing instead of negatively.
    """
    sums = {"host": 0, "kernel": 0, "other": 0}
    streams: dict[tuple[int, int], list[Activity]] = defaultdict(list)
    for item in part.activities:
        streams[item.device_id, item.stream_id].append(item)
    for items in streams.values():
        for earlier, later in pairwise(items):
            gap_ns = later.start_ns - earlier.end_ns
            if gap_ns <= 0:
                continue
            launch = find_launch(later.correlation_id)
            if launch is not None and launch.start_ns > earlier.end_ns:
                sums["host"] += gap_ns
            elif gap_ns < consecutive_kernel_ns:
                sums["kernel"] += gap_ns
            else:
                sums["other"] += gap_ns
    return IdleClasses(
        host_wait_ns=sums["host"], kernel_wait_ns=sums["kernel"], other_wait_ns=sums["other"]
    )


def _compute_launch_metrics(
    trace: Trace, parts: Sequence[IterationTrace]
) -> dict[str, float | None]:
    names = ("tklqt_ns", "average_launch_ns", "host_wait_ns", "kernel_wait_ns", "other_wait_ns")
    if not trace.api_calls:
        return dict.fromkeys(names)
    find_launch = find_launches(trace.api_calls).get
    rows = []
    for part in parts:
        total_ns, count = compute_tklqt(part, find_launch)
        idle = classify_idle(part, find_launch)
        average_ns = total_ns / count if count else 0.0
        rows.append((total_ns, average_ns, *idle.to_dict().values()))
    return {
        name: _core.compute_median(column)
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }


def _sum_kernels_ns(part: IterationTrace) -> int:
    return sum(kernel.duration_ns for kernel in part.kernels)
