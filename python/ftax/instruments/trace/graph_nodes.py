"""Whether each node of a replayed graph left exactly one activity.

More kernels than kernel nodes may be right. The driver runs a small memset or memcpy node as a
kernel when it likes; as many kernels too many as there are memory nodes too few are allowed and
listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ftax.instruments.trace.activities import Activity, IterationTrace, Kernel, Memcpy, Memset
from ftax.instruments.trace.kernel_set import find_memory_kind
from ftax.instruments.trace.names import shorten

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
