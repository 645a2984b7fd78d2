"""Counts what one call of a step does on a GPU: kernels, launches, and waits for the device, as
CUPTI reports them, also those of libraries that torch knows nothing of.

Places are from a second trace, in which each line of the step is timed; as far as it has the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ftax.budgets.counts import Notes, Tally
from ftax.budgets.places import LineTimes, Place, Places
from ftax.instruments.trace.activities import ApiCall, IterationTrace, find_launches
from ftax.instruments.trace.integrity import judge
from ftax.instruments.trace.names import shorten_all
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.timeline import find_waits, list_outermost
from ftax.instruments.trace.tracer import detach, trace_prepared
from ftax.runtimes.candidates import drive_python
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from ftax.tape.recording import follow_modules

_ITERATIONS = 3
_LAUNCH = re.compile(r"cu(da)?Launch(Cooperative)?Kernel\w*")
_GRAPH_LAUNCH = re.compile(r"cu(da)?GraphLaunch\w*")


def count_on_gpu(loaded: LoadedModel, places: Places | None) -> dict[str, Tally]:
    """By kind of count; without ``places`` no lines are named. Raises UnavailableError where there
    is no CUPTI, or another profiler has it."""
    workspace = Workspace(loaded)
    prepared = find_runtime("eager").prepare(workspace, "python")
    try:
        counted = tally_trace(trace_prepared(loaded, prepared, iterations=_ITERATIONS))
        if places is None:
            return counted
        lines, call = LineTimes(places), loaded.bind()
        with follow_modules(loaded.module, lines.enter):
            watched = replace(
                prepared, runner=drive_python(workspace, "eager", lambda: lines.watch(call))
            )
            trace = trace_prepared(loaded, watched, iterations=_ITERATIONS)
        return place(counted, tally_trace(trace, lines))
    finally:
        detach()


def place(counted: Mapping[str, Tally], placed: Mapping[str, Tally]) -> dict[str, Tally]:
    """What was counted, with places where as much of each was seen when the lines were timed."""
    return {
        kind: replace(tally, facts=placed[kind].facts)
        if _sum_names(tally) == _sum_names(placed[kind])
        else tally
        for kind, tally in counted.items()
    }


def _sum_names(tally: Tally) -> Counter[str]:
    found: Counter[str] = Counter()
    for fact in tally.facts:
        found[fact.what] += fact.count
    return found


def tally_trace(trace: Trace, lines: LineTimes | None = None) -> dict[str, Tally]:
    """What each iteration did; a problem where they differ, or the trace is unreliable."""
    verdict = judge(trace)
    names = shorten_all(kernel.name for kernel in trace.kernels)
    parts = [_count_part(part, names, lines) for part in trace.split()]
    problem = "" if verdict.ok else f"the trace is {verdict.describe()}"
    return {
        kind: Tally(facts=tally.facts, problem=problem or _compare(kind, parts))
        for kind, tally in parts[0].items()
    }


def _count_part(
    part: IterationTrace, names: dict[str, str], lines: LineTimes | None
) -> dict[str, Tally]:
    """What was done in an iteration before its own wait for the device, which its thread ends."""
    notes = {kind: Notes() for kind in ("kernels", "launches", "graph_launches")}
    thread = max(part.api_calls, key=lambda call: call.end_ns, default=None)

    def find_place(call: ApiCall | None) -> Place:
        if call is None or thread is None:
            return Place()
        is_other = call.thread_id != thread.thread_id
        found = lines.find(call.start_ns, in_other_thread=is_other) if lines else Place()
        other = "in another thread" if is_other else ""
        return found._replace(where=f"{other} {found.where}".strip())

    launches = find_launches(part.api_calls)
    for kernel in part.kernels:
        where = find_place(launches.get(kernel.correlation_id)) if lines else Place()
        notes["kernels"].add(names[kernel.name], *where)
    for call in list_outermost(part):
        for kind, pattern in (("launches", _LAUNCH), ("graph_launches", _GRAPH_LAUNCH)):
            if pattern.fullmatch(call.name):
                notes[kind].add(call.name, *find_place(call))
    notes["synchronisations"] = Notes()
    for wait in find_waits(part)[0]:
        notes["synchronisations"].add(wait.name, *find_place(wait))
    return {kind: found.to_tally() for kind, found in notes.items()}


def _compare(kind: str, parts: list[dict[str, Tally]]) -> str:
    totals = [part[kind].total for part in parts]
    if len(set(totals)) == 1:
        return ""
    return f"in {len(parts)} runs of the same work: {', '.join(map(str, totals))}"
