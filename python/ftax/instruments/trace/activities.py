"""What a tracer records, one record each: device activities, API calls, profiler overhead.

Times that make no sense (zero, reversed) are accepted here. A bad trace has to survive a file, so
that `integrity.judge` can say in words what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from ftax.errors import InvalidArgumentError
from ftax.records.fields import Rule
from ftax.records.record import Count, Name, Record

Extent = Annotated[tuple[Count, ...], Rule("three sizes: x, y, z", lambda size: len(size) == 3)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity(Record):
    """Something that the device did; times are CLOCK_MONOTONIC, in ns."""

    start_ns: int
    end_ns: int
    stream_id: Count
    device_id: Count
    correlation_id: Count  # of the API call that asked for it; 0: unknown
    graph_id: Count = 0  # 0: no graph launched it
    graph_node_id: Count = 0

    @property
    def duration_ns(self) -> int:
        """End minus start."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(Activity):
    """One kernel."""

    name: Name  # mangled
    grid: Extent
    block: Extent
    static_shared_bytes: Count
    dynamic_shared_bytes: Count
    registers_per_thread: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Memcpy(Activity):
    """One copy; "HtoD", "DtoH", "DtoD", "PtoP" or "other"."""

    copy_kind: Name
    bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Memset(Activity):
    """One fill of memory."""

    value: Count
    bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall(Record):
    """One call of the host into the CUDA runtime or driver."""

    domain: Literal["runtime", "driver"]
    name: Name
    start_ns: int
    end_ns: int
    correlation_id: Count
    thread_id: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead(Record):
    """Time that the profiler says it took for itself."""

    overhead_kind: Name
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration(Record):
    """One traced inference by the host's clock: enqueued from begin to issued, then waited for."""

    begin_ns: int
    issued_ns: int
    end_ns: int

    def check(self) -> None:
        """Raise InvalidArgumentError if time runs backwards: these three are our own readings."""
        if not 0 <= self.begin_ns <= self.issued_ns <= self.end_ns:
            raise InvalidArgumentError(
                f"Iteration has begin {self.begin_ns}, issued {self.issued_ns}, end {self.end_ns} "
                "ns; they have to be in this order and not negative"
            )

    @property
    def wall_ns(self) -> int:
        """From begin to end."""
        return self.end_ns - self.begin_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationTrace:
    """What started in the window of one iteration, each kind in the order of its start."""

    index: int
    window: Iteration
    kernels: tuple[Kernel, ...]
    memcpys: tuple[Memcpy, ...]
    memsets: tuple[Memset, ...]
    api_calls: tuple[ApiCall, ...]
    overheads: tuple[Overhead, ...]

    @property
    def activities(self) -> tuple[Activity, ...]:
        """Kernels, copies and fills in the order of their start."""
        return sort_by_start((*self.kernels, *self.memcpys, *self.memsets))


def sort_by_start(activities: Iterable[Activity]) -> tuple[Activity, ...]:
    """Return the activities in the order of their start."""
    return tuple(sorted(activities, key=lambda item: (item.start_ns, item.end_ns)))


def find_launches(api_calls: Iterable[ApiCall]) -> dict[int, ApiCall]:
    """Return the API call behind each correlation id.

    A runtime call and the driver call inside it may share one id; the outer one counts.
    """
    launches: dict[int, ApiCall] = {}
    for call in api_calls:
        known = launches.get(call.correlation_id)
        if known is None or (call.start_ns, -call.end_ns) < (known.start_ns, -known.end_ns):
            launches[call.correlation_id] = call
    launches.pop(0, None)
    return launches


def merge_intervals(activities: Sequence[Activity]) -> list[tuple[int, int]]:
    """Return the union of what the activities cover as disjoint intervals in order.

    A reversed interval covers nothing.
    """
    merged: list[tuple[int, int]] = []
    for item in sort_by_start(activities):
        if item.end_ns <= item.start_ns:
            continue
        if merged and item.start_ns <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], item.end_ns))
        else:
            merged.append((item.start_ns, item.end_ns))
    return merged


def sum_busy_ns(activities: Sequence[Activity]) -> int:
    """Return for how long at least one of the activities ran."""
    return sum(end - start for start, end in merge_intervals(activities))
