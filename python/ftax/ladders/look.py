"""Looks at every runtime on the GPU once the rounds are over: gate first, trace last.

The order is forced. A gate must not be held under a profiler, and a trace leaves one behind; both
slow what they look at, so neither may come before the last round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from ftax.errors import FtaxError, describe
from ftax.instruments.gate import try_gate
from ftax.instruments.trace.integrity import NODE_TYPES
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.tracer import ITERATIONS, trace_each
from ftax.ladders.evidence import RungEvidence
from ftax.ladders.ladder import EAGER, Ladder
from ftax.ladders.trace_worker import TraceJob, trace_in_worker
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate
from ftax.timing.session import Progress

_REPETITIONS = 20
# Of one runtime: a step of thousands is traced so often that its receipt need not wait for it.
_TRACED_LAUNCHES = 5000
_LEAST_TRACED = 5
_LEAST_OF_BUSY = 0.5  # device time behind the gate has all gaps in it, so it is longer than busy


def gate_runners(
    runners: Sequence[Candidate], ladder: Ladder = EAGER, progress: Progress | None = None
) -> Iterator[RungEvidence]:
    """Evidence of each runtime that has its gate, and nothing else yet."""
    launches = _find_launches(runners)
    for place, runner in enumerate(runners):
        if progress:
            progress("holding the device still", place, len(runners))
        is_rung = runner.place in ladder.places
        gate = try_gate(runner, repetitions=_REPETITIONS, launches=launches if is_rung else None)
        yield RungEvidence(runtime=runner.runtime, host=runner.host, gate=gate)


def trace_runners(
    loaded: LoadedModel,
    runners: Sequence[Candidate],
    gated: Iterable[RungEvidence] = (),
    *,
    job: TraceJob | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[RungEvidence, Trace | None]]:
    """Evidence of each runtime, and the trace behind it, if there is one. The first is the one
    whose kernels the others are compared with. With a ``job`` traces are its worker's."""
    gates = {item.place: item.gate for item in gated}
    where: Literal["worker", "this process"]
    found: Iterable[Trace | FtaxError]
    times = _choose_iterations(runners)
    if job is None:
        found = trace_each(loaded, runners, iterations=times, progress=progress)
        where = "this process"
    else:
        found, where = trace_in_worker(job, iterations=times), "worker"
    reference = None
    for place, (runner, trace) in enumerate(zip(runners, found, strict=True)):
        gate = gates.get(runner.place)
        if isinstance(trace, FtaxError):
            yield RungEvidence(
                runtime=runner.runtime, host=runner.host, problems=(describe(trace),), gate=gate,
                traced_in=where,
            ), None  # fmt: skip
            continue
        item, kernels = RungEvidence.of(
            trace,
            reference=reference,
            expected_nodes=_count_nodes(runner, runners),
            gate=gate,
            traced_in=where,
        )
        if place == 0:
            reference = kernels
        elif reference is None and kernels is not None:
            item = replace(item, same_kernels=None)  # as what? the first one's are not known
        yield _drop_gate_beside_the_work(item), trace


def put_reference_first(runners: Sequence[Candidate], ladder: Ladder) -> list[Candidate]:
    """In the order in which they are traced."""
    return sorted(runners, key=lambda runner: runner.place != ladder.reference[0])


def _drop_gate_beside_the_work(item: RungEvidence) -> RungEvidence:
    """A runtime with a stream of its own runs past the gate, whose times are then of nothing."""
    if item.gate is None or item.device_ns is None or item.problems or not item.busy_ns:
        return item
    if item.device_ns >= _LEAST_OF_BUSY * item.compute_busy()[0]:
        return item
    reason = "it did not wait for the gate: it runs on another stream than torch's current one"
    gate = replace(item.gate, repetitions=(), reason=reason)
    return replace(item, gate=gate)


def _choose_iterations(runners: Sequence[Candidate]) -> int:
    launches = _find_launches(runners) or 1
    return max(_LEAST_TRACED, min(ITERATIONS, _TRACED_LAUNCHES // launches))


def _find_launches(rungs: Sequence[Candidate]) -> int | None:
    """Launches of one inference, as launch replay counts them; every rung makes about as many."""
    found = (rung.preparation.launches for rung in rungs)
    return next((launches.count for launches in found if launches is not None), None)


def _count_nodes(runner: Candidate, runners: Sequence[Candidate]) -> dict[str, int] | None:
    """Nodes of the graph that ``runner`` launches as a whole, as another runtime counts them that
    launches the same capture one by one; None if none does."""
    for other in runners:
        launches = other.preparation.launches
        same = other.buffers is not None and other.buffers is runner.buffers
        if launches is not None and same and other is not runner:
            return {name: launches.types.get(name, 0) for name in NODE_TYPES}
    return None
