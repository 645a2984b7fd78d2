"""How often and how long the host waited for the device while it issued a request.

The harness's own wait comes after the request is issued and is none of these. A wait is split by
what the device did meanwhile. What was queued before and ran on is masked; the rest is exposed, and
no faster kernel would give it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ftax.instruments.trace.activities import Activity, ApiCall, IterationTrace
from ftax.instruments.trace.records import Trace
from ftax.records.record import Count, Record

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
    found = [_find_waits(part) for part in trace.split()]
    return Waits(
        counts=tuple(len(waits) for waits, _ in found),
        wait_ns=tuple(sum(wait.end_ns - wait.start_ns for wait in waits) for waits, _ in found),
        masked_ns=tuple(sum(_overlap(wait, busy) for wait in waits) for waits, busy in found),
    )


def _find_waits(part: IterationTrace) -> tuple[list[ApiCall], list[tuple[int, int]]]:
    """The calls that wait, and when the device was busy. A copy to the host and the synchronise
    that follows it are one wait: a number is read by both."""
    copies = {item.correlation_id: item for item in part.memcpys if item.copy_kind == "DtoH"}
    waits: list[ApiCall] = []
    before: ApiCall | None = None
    for call in _list_outermost(part):
        copy = copies.get(call.correlation_id)
        if _SYNCHRONISE.fullmatch(call.name):
            if waits and waits[-1] is before and _COPY.fullmatch(before.name):
                waits.pop()
            waits.append(call)
        elif copy is not None and (not _ASYNC.search(call.name) or call.end_ns >= copy.end_ns):
            waits.append(call)
        before = call
    return waits, _join(part.activities)


def _list_outermost(part: IterationTrace) -> Iterator[ApiCall]:
    """Calls that were made while the request was issued, without those that another made: the
    runtime's are made of the driver's."""
    latest: dict[int, int] = {}  # end of a thread's last call
    for call in sorted(part.api_calls, key=lambda call: (call.start_ns, -call.end_ns)):
        if call.start_ns < part.window.issued_ns and call.end_ns > latest.get(call.thread_id, -1):
            latest[call.thread_id] = call.end_ns
            yield call


def _join(activities: tuple[Activity, ...]) -> list[tuple[int, int]]:
    """Stretches in which anything ran, in order and disjoint."""
    stretches: list[tuple[int, int]] = []
    for item in sorted(activities, key=lambda item: item.start_ns):
        if stretches and item.start_ns <= stretches[-1][1]:
            stretches[-1] = stretches[-1][0], max(stretches[-1][1], item.end_ns)
        else:
            stretches.append((item.start_ns, item.end_ns))
    return stretches


def _overlap(wait: ApiCall, busy: list[tuple[int, int]]) -> int:
    return sum(max(0, min(end, wait.end_ns) - max(start, wait.start_ns)) for start, end in busy)
