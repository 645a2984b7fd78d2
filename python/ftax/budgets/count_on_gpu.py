"""Counts what one call of a step does on a GPU: kernels, launches, and waits for the device, as
CUPTI reports them, also those of libraries that torch knows nothing of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ftax.budgets.counts import Notes, Tally
from ftax.instruments.trace.activities import ApiCall, IterationTrace
from ftax.instruments.trace.integrity import judge
from ftax.instruments.trace.names import shorten_all
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.timeline import find_waits, list_outermost
from ftax.instruments.trace.tracer import detach, trace_prepared
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel

_ITERATIONS = 3
_LAUNCH = re.compile(r"cu(da)?Launch(Cooperative)?Kernel\w*")
_GRAPH_LAUNCH = re.compile(r"cu(da)?GraphLaunch\w*")


def count_on_gpu(loaded: LoadedModel) -> dict[str, Tally]:
    """By kind of count. Raises UnavailableError where there is no CUPTI, or another profiler has
    it."""
    prepared = find_runtime("eager").prepare(Workspace(loaded), "python")
    try:
        return tally_trace(trace_prepared(loaded, prepared, iterations=_ITERATIONS))
    finally:
        detach()


def tally_trace(trace: Trace) -> dict[str, Tally]:
    """What each iteration did; a problem where they differ, or the trace is unreliable."""
    verdict = judge(trace)
    names = shorten_all(kernel.name for kernel in trace.kernels)
    parts = [_count_part(part, names) for part in trace.split()]
    problem = "" if verdict.ok else f"the trace is {verdict.describe()}"
    return {
        kind: Tally(facts=tally.facts, problem=problem or _compare(kind, parts))
        for kind, tally in parts[0].items()
    }


def _count_part(part: IterationTrace, names: dict[str, str]) -> dict[str, Tally]:
    """What was done in an iteration before its own wait for the device."""
    notes = {kind: Notes() for kind in ("kernels", "launches", "graph_launches")}
    for kernel in part.kernels:
        notes["kernels"].add(names[kernel.name])
    for call in list_outermost(part):
        for kind, pattern in (("launches", _LAUNCH), ("graph_launches", _GRAPH_LAUNCH)):
            if pattern.fullmatch(call.name):
                notes[kind].add(call.name, _say_thread(call, part.api_calls))
    notes["synchronisations"] = Notes()
    for wait in find_waits(part)[0]:
        notes["synchronisations"].add(wait.name, _say_thread(wait, part.api_calls))
    return {kind: found.to_tally() for kind, found in notes.items()}


def _say_thread(call: ApiCall, calls: Sequence[ApiCall]) -> str:
    """Whether it is another thread than the one that makes most calls."""
    ((usual, _),) = Counter(item.thread_id for item in calls).most_common(1)
    return "" if call.thread_id == usual else "in another thread"


def _compare(kind: str, parts: Sequence[dict[str, Tally]]) -> str:
    totals = [part[kind].total for part in parts]
    if len(set(totals)) == 1:
        return ""
    return f"in {len(parts)} runs of the same work: {', '.join(map(str, totals))}"
