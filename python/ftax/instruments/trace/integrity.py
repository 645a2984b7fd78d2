"""Whether a trace can be believed; if not, why, in words.

Nothing is repaired and no tolerance is granted. A trace that lost one record of ten thousand is
unreliable, since which one it lost is not known.

Each node of a replayed graph has to leave exactly one activity. The driver may run a small memset
or memcpy node as a kernel: as many kernels too many as memory nodes too few are allowed and listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ftax.instruments.trace.activities import (
    Activity,
    IterationTrace,
    Kernel,
    Memcpy,
    Memset,
    find_launches,
    sum_busy_ns,
)
from ftax.instruments.trace.kernel_set import (
    KernelKey,
    WorkKey,
    count_work,
    describe_memory,
    find_memory_kind,
)
from ftax.instruments.trace.names import shorten
from ftax.instruments.trace.records import Trace
from ftax.records.record import Record

NODE_TYPES = ("kernel", "memcpy", "memset")

_TYPE_OF: dict[type[Activity], str] = {Kernel: "kernel", Memcpy: "memcpy", Memset: "memset"}
_MEMORY = ("memset", "memcpy")
_LISTED = 3  # findings of one kind that are spelled out


def list_findings(findings: Sequence[str]) -> list[str]:
    """Return the first few findings, and how many more there are."""
    if len(findings) <= _LISTED:
        return list(findings)
    return [*findings[:_LISTED], f"and {len(findings) - _LISTED} more like the last"]


def check_node_uses(parts: Iterable[IterationTrace]) -> list[str]:
    """Return which nodes have more than one activity in one launch of their graph."""
    findings = []
    for part in parts:
        uses = Counter(
            (item.correlation_id, item.graph_id, item.graph_node_id)
            for item in part.activities
            if item.graph_node_id
        )
        findings += [
            f"iteration {part.index}: node {node_id} of graph {graph_id} has {count} activities in "
            "one replay"
            for (_, graph_id, node_id), count in uses.items()
            if count > 1
        ]
    return list_findings(findings)


def check_nodes(parts: Sequence[IterationTrace], expected: Mapping[str, int]) -> list[str]:
    """Return where a replay has other nodes than expected, or than the first one."""
    findings = []
    nodes = [_find_nodes(part) for part in parts]
    for part, found in zip(parts, nodes, strict=True):
        counts = _count_types(found)
        wanted = {kind: expected.get(kind, 0) for kind in NODE_TYPES}
        for kind in _MEMORY:
            turned = max(0, wanted[kind] - counts[kind])
            wanted[kind] -= turned
            wanted["kernel"] += turned
        findings += [
            f"iteration {part.index}: {counts[kind]} {kind} nodes left a record; it has to be "
            f"{wanted[kind]}"
            for kind in NODE_TYPES
            if counts[kind] != wanted[kind]
        ]
        if found.keys() != nodes[0].keys():
            findings.append(f"iteration {part.index} ran other graph nodes than iteration 0")
    return list_findings(findings)


def note_memory_kernels(parts: Sequence[IterationTrace], expected: Mapping[str, int]) -> list[str]:
    """Return how many memset and memcpy nodes ran as kernels, with names where they tell."""
    if not parts:
        return []
    found = _find_nodes(parts[0])
    kernels = [item for item in found.values() if isinstance(item, Kernel)]
    notes = []
    for kind in _MEMORY:
        turned = expected.get(kind, 0) - _count_types(found)[kind]
        names = sorted({shorten(item.name) for item in kernels if find_memory_kind(item) == kind})
        listed = f": {', '.join(names)}" if names else ""
        if turned > 0:
            notes.append(f"the driver ran {turned} {kind} nodes as kernels{listed}")
    return notes


def _find_nodes(part: IterationTrace) -> dict[tuple[int, int], Activity]:
    return {
        (item.graph_id, item.graph_node_id): item for item in part.activities if item.graph_node_id
    }


def _count_types(nodes: Mapping[tuple[int, int], Activity]) -> Counter[str]:
    return Counter(_TYPE_OF[type(item)] for item in nodes.values())


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
