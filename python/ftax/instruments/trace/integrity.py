"""Whether a trace can be believed; if not, why, in words.

Nothing is repaired and no tolerance is granted. A trace that lost one record of ten thousand is
unreliable, since nobody knows which one it lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ftax.instruments.trace.activities import (
    Activity,
    IterationTrace,
    Kernel,
    Memcpy,
    find_launches,
    sum_busy_ns,
)
from ftax.instruments.trace.graph_nodes import (
    check_node_uses,
    check_nodes,
    list_findings,
    note_memory_kernels,
)
from ftax.instruments.trace.kernel_set import KernelKey, WorkKey, count_work, describe_memory
from ftax.instruments.trace.names import shorten
from ftax.instruments.trace.records import Trace
from ftax.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Record):
    """Whether a trace is reliable.

    Attributes:
        reasons: why it is not; empty if it is.
        notes: what one should know of a trace all the same.
    """

    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the trace."""
        return not self.reasons

    def describe(self) -> str:
        """Return "reliable", or "unreliable: " and the reasons."""
        return "reliable" if self.ok else f"unreliable: {'; '.join(self.reasons)}"


def judge(trace: Trace, *, expected_nodes: Mapping[str, int] | None = None) -> Verdict:
    """Check a trace against itself and, for a graph rung, against the nodes of its graph.

    Args:
        trace: any trace.
        expected_nodes: nodes of one replay by type, out of "kernel", "memcpy" and "memset"; nodes
            of other types leave no device activity.
    """
    parts = trace.split()
    reasons = [*trace.problems]
    for check in (_check_completeness, _check_times, _check_launches):
        reasons += check(trace)
    for check_parts in (_check_windows, _check_counts, check_node_uses):
        reasons += check_parts(parts)
    notes = _note_missing_launches(trace)
    if expected_nodes is not None:
        reasons += check_nodes(parts, expected_nodes)
        notes += note_memory_kernels(parts, expected_nodes)
    return Verdict(reasons=tuple(dict.fromkeys(reasons)), notes=tuple(notes))


def _name(item: Activity) -> str:
    if isinstance(item, Kernel):
        return f"kernel {shorten(item.name)}"
    return f"memcpy {item.copy_kind}" if isinstance(item, Memcpy) else "memset"


def _check_completeness(trace: Trace) -> Iterator[str]:
    if trace.dropped_records:
        yield f"the tracer dropped {trace.dropped_records} records: give it more buffers"
    if not trace.iterations:
        yield "no iteration was traced"
    elif not trace.activities:
        yield "no device activity was recorded"
    outside = trace.find_outside()
    if outside:
        yield (
            f"{len(outside)} device records lie in no iteration, the first is "
            f"{_name(outside[0])} at {outside[0].start_ns} ns"
        )


def _check_times(trace: Trace) -> list[str]:
    findings = []
    for item in trace.activities:
        if item.start_ns <= 0 or item.end_ns <= 0:
            findings.append(f"{_name(item)} has no timestamp")
        elif item.end_ns < item.start_ns:
            findings.append(f"{_name(item)} ends {-item.duration_ns} ns before its start")
    for call in trace.api_calls:
        if call.start_ns <= 0 or call.end_ns < call.start_ns:
            findings.append(f"the API call {call.name} has no timestamp or a reversed one")
    return list_findings(findings)


def _check_launches(trace: Trace) -> list[str]:
    launches = find_launches(trace.api_calls)
    findings = []
    for item in trace.activities:
        call = launches.get(item.correlation_id)
        if call is not None and item.start_ns < call.start_ns:
            findings.append(
                f"{_name(item)} starts {call.start_ns - item.start_ns} ns before {call.name}, "
                "which launched it"
            )
    return list_findings(findings)


def _check_windows(parts: Sequence[IterationTrace]) -> list[str]:
    findings = []
    for part in parts:
        late = [item for item in part.activities if item.end_ns > part.window.end_ns]
        if late:
            findings.append(
                f"iteration {part.index}: {_name(late[-1])} ends "
                f"{max(item.end_ns for item in late) - part.window.end_ns} ns after the "
                "synchronise that waited for it"
            )
        busy_ns = sum_busy_ns(part.activities)
        if busy_ns > part.window.wall_ns:
            findings.append(
                f"iteration {part.index}: the device was busy for {busy_ns} ns of "
                f"{part.window.wall_ns}: its clock is not the host's"
            )
    return list_findings(findings)


def _check_counts(parts: Sequence[IterationTrace]) -> list[str]:
    counts = [count_work(part) for part in parts]
    findings = [
        f"iteration {index} has {other[key]} of {_describe_work(key)} where iteration 0 has "
        f"{counts[0][key]}"
        for index, other in enumerate(counts)
        for key in dict.fromkeys((*counts[0], *other))
        if other[key] != counts[0][key]
    ]
    return list_findings(findings)


def _describe_work(key: WorkKey) -> str:
    if isinstance(key, KernelKey):
        return key.describe(shorten(key.name))
    return describe_memory(key)


def _note_missing_launches(trace: Trace) -> list[str]:
    if not trace.api_calls:
        return ["no API calls were recorded, so launches were not checked"]
    launches = find_launches(trace.api_calls)
    missing = [item for item in trace.activities if item.correlation_id not in launches]
    return [f"{len(missing)} device records have no API call that launched them"] if missing else []
