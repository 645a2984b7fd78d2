"""Where the wall time of a traced iteration went: disjoint parts that sum to it exactly.

An idle gap is split, not classified. Up to the end of the API call that launches what comes next,
the device waited for the host; after it, for itself.
`compute_waits` is the other view: how long the host waited for the device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ftax import _core
from ftax.errors import InvalidArgumentError, ResultsError
from ftax.instruments.trace.activities import (
    ApiCall,
    IterationTrace,
    find_launches,
    merge_intervals,
)
from ftax.instruments.trace.records import Trace
from ftax.records.record import Count, Record

PARTS = (
    "device_busy_ns",
    "before_first_ns",
    "idle_host_late_ns",
    "idle_between_ns",
    "idle_unattributed_ns",
    "tail_ns",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRow(Record):
    """One iteration. The six parts are disjoint and sum to `wall_ns`.

    Attributes:
        wall_ns: from begin to end by the host's clock.
        device_busy_ns: at least one kernel, copy or fill ran.
        before_first_ns: idle from begin to the first of them; all of it if there is none.
        idle_host_late_ns: idle while the call that launches what comes next was not made, or had
            not returned. What a call has begun to launch already (the later nodes of a graph) is
            not late.
        idle_between_ns: idle although what comes next had been launched.
        idle_unattributed_ns: idle before something whose launching call is not in the trace.
        tail_ns: idle from the last end until the host knew.
    """

    wall_ns: Count
    device_busy_ns: Count = 0
    before_first_ns: Count = 0
    idle_host_late_ns: Count = 0
    idle_between_ns: Count = 0
    idle_unattributed_ns: Count = 0
    tail_ns: Count = 0

    def check(self) -> None:
        """Raise InvalidArgumentError unless the parts sum to the whole."""
        total_ns = sum(getattr(self, part) for part in PARTS)
        if total_ns != self.wall_ns:
            raise InvalidArgumentError(
                f"the parts of a TimelineRow sum to {total_ns} ns; they have to sum to wall_ns, "
                f"{self.wall_ns}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline(Record):
    """The iterations of a trace, and the median of each part over them.

    Parts of one iteration sum exactly; medians of parts come from different iterations, so they sum
    to the median of the whole only about.
    """

    label: str
    has_api_calls: bool  # if not, idle time between activities is all unattributed
    rows: tuple[TimelineRow, ...]

    def median_ns(self, part: str) -> float:
        """Return the median over iterations of a part, or of "wall_ns"."""
        return _core.compute_median([getattr(row, part) for row in self.rows])

    @property
    def busy_ratio(self) -> float:
        """Median share of the wall time during which the device was busy."""
        return _core.compute_median(
            [row.device_busy_ns / row.wall_ns if row.wall_ns else 0.0 for row in self.rows]
        )


def compute_timeline(trace: Trace) -> Timeline:
    """Partition each iteration of a trace.

    What reaches beyond its iteration is cut off at the edge, so that the parts still sum to the
    whole; `judge` calls such a trace unreliable.

    Raises:
        ResultsError: the trace has no iterations.
    """
    if not trace.iterations:
        raise ResultsError(f"the trace of {trace.label} has no iterations; trace at least one")
    launches = find_launches(trace.api_calls)
    return Timeline(
        label=trace.label,
        has_api_calls=bool(trace.api_calls),
        rows=tuple(partition(part, launches.get) for part in trace.split()),
    )


def partition(part: IterationTrace, find_launch: Callable[[int], ApiCall | None]) -> TimelineRow:
    """Partition one iteration; `find_launch` gives the API call of a correlation id."""
    window = part.window
    activities = part.activities
    if not activities:
        return TimelineRow(wall_ns=window.wall_ns, before_first_ns=window.wall_ns)
    sums = dict.fromkeys(PARTS, 0)
    sums["before_first_ns"] = activities[0].start_ns - window.begin_ns
    covered_ns = activities[0].start_ns  # everything before is accounted for
    started: set[int] = set()
    for item in activities:
        if item.start_ns > covered_ns:
            _split_gap(sums, (covered_ns, item.start_ns), item.correlation_id, started, find_launch)
            covered_ns = item.start_ns
        end_ns = min(item.end_ns, window.end_ns)
        if end_ns > covered_ns:
            sums["device_busy_ns"] += end_ns - covered_ns
            covered_ns = end_ns
        started.add(item.correlation_id)
    sums["tail_ns"] = window.end_ns - covered_ns
    return TimelineRow(wall_ns=window.wall_ns, **sums)


def _split_gap(
    sums: dict[str, int],
    gap_ns: tuple[int, int],
    correlation_id: int,
    started: set[int],
    find_launch: Callable[[int], ApiCall | None],
) -> None:
    begin_ns, end_ns = gap_ns
    launch = find_launch(correlation_id)
    if launch is None:
        sums["idle_unattributed_ns"] += end_ns - begin_ns
        return
    launched_ns = begin_ns if correlation_id in started else launch.end_ns
    split_ns = min(max(launched_ns, begin_ns), end_ns)
    sums["idle_host_late_ns"] += split_ns - begin_ns
    sums["idle_between_ns"] += end_ns - split_ns


_SYNCHRONISE = re.compile(r"cu(da)?(Stream|Device|Event|Ctx)Synchronize(_ptsz)?")
_COPY = re.compile(r"cu(da)?Memcpy\w*")
_ASYNC = re.compile(r"Async(_v2)?(_ptsz)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits(Record):
    """Of each traced request: how many waits, how long they were, and how long the device was busy
    in them, ns."""

    counts: tuple[Count, ...]
    wait_ns: tuple[Count, ...]
    masked_ns: tuple[Count, ...]


def compute_waits(trace: Trace) -> Waits | None:
    """The waits of a trace; None if it has no API calls."""
    if not trace.api_calls:
        return None
    found = [find_waits(part) for part in trace.split()]
    return Waits(
        counts=tuple(len(waits) for waits, _ in found),
        wait_ns=tuple(sum(wait.end_ns - wait.start_ns for wait in waits) for waits, _ in found),
        masked_ns=tuple(sum(_overlap(wait, busy) for wait in waits) for waits, busy in found),
    )


def find_waits(part: IterationTrace) -> tuple[list[ApiCall], list[tuple[int, int]]]:
    """The calls that wait, and when the device was busy. A copy to the host and the synchronise
    that follows it are one wait: a number is read by both."""
    copies = {item.correlation_id: item for item in part.memcpys if item.copy_kind == "DtoH"}
    waits: list[ApiCall] = []
    before: ApiCall | None = None
    for call in list_outermost(part):
        copy = copies.get(call.correlation_id)
        if _SYNCHRONISE.fullmatch(call.name):
            if waits and waits[-1] is before and _COPY.fullmatch(before.name):
                waits.pop()
            waits.append(call)
        elif copy is not None and (not _ASYNC.search(call.name) or call.end_ns >= copy.end_ns):
            waits.append(call)
        before = call
    return waits, merge_intervals(part.activities)


def list_outermost(part: IterationTrace) -> Iterator[ApiCall]:
    """Calls that were made while the request was issued, without those that another made: the
    runtime's are made of the driver's."""
    latest: dict[int, int] = {}  # end of a thread's last call
    for call in sorted(part.api_calls, key=lambda call: (call.start_ns, -call.end_ns)):
        if call.start_ns < part.window.issued_ns and call.end_ns > latest.get(call.thread_id, -1):
            latest[call.thread_id] = call.end_ns
            yield call


def _overlap(wait: ApiCall, busy: list[tuple[int, int]]) -> int:
    return sum(max(0, min(end, wait.end_ns) - max(start, wait.start_ns)) for start, end in busy)
