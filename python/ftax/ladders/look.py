"""Looks at every runtime on the GPU once the rounds are over: gate first, trace last.

The order is forced. A gate must not be held under a profiler, and a trace leaves one behind; both
slow what they look at, so neither may come before the last round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ftax.errors import FtaxError, describe
from ftax.instruments.gate import Gated, measure_gate
from ftax.instruments.trace.kernel_set import KernelSet
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.run import trace_all
from ftax.ladders.evidence import RungEvidence
from ftax.ladders.ladder import EAGER, Ladder
from ftax.ladders.trace_worker import TraceJob, trace_in_worker
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate
from ftax.timing.session import Progress

_REPETITIONS = 20
_WATCHDOG_MS = 2000
_LEAST_OF_BUSY = 0.5  # device time behind the gate has all gaps in it, so it is longer than busy
_NODE_TYPES = ("kernel", "memcpy", "memset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was found: evidence a runtime, and the traces behind it."""

    evidence: tuple[RungEvidence, ...]
    traces: tuple[Trace, ...]


def look_at(
    loaded: LoadedModel,
    runners: Sequence[Candidate],
    ladder: Ladder = EAGER,
    *,
    job: TraceJob | None,
    progress: Progress | None,
) -> Look:
    """Gate and trace ``runners``, the first rung first. With a ``job`` traces are its worker's."""
    launches = _find_launches(runners)
    gates: list[Gated] = []
    for place, runner in enumerate(runners):
        if progress:
            progress("holding the device still", place, len(runners))
        is_rung = runner.place in ladder.places
        gates.append(_gate(runner, launches if is_rung else None))
    where: Literal["worker", "this process"]
    if job is None:
        found, where = trace_all(loaded, runners, progress=progress), "this process"
    else:
        if progress:
            progress("tracing kernels in a process of their own", 0, 1)
        found, where = trace_in_worker(job), "worker"
    evidence: list[RungEvidence] = []
    reference: KernelSet | None = None
    for runner, gate, trace in zip(runners, gates, found, strict=True):
        if isinstance(trace, FtaxError):
            item = RungEvidence(
                runtime=runner.runtime, host=runner.host, problems=(describe(trace),), gate=gate,
                traced_in=where,
            )  # fmt: skip
        else:
            item, kernels = RungEvidence.of(
                trace,
                reference=reference,
                expected_nodes=_count_nodes(runners) if runner.runtime == "cuda-graph" else None,
                gate=gate,
                traced_in=where,
            )
            if len(evidence) == 0:
                reference = kernels
            elif reference is None and kernels is not None:
                item = replace(item, same_kernels=None)  # as what? eager's are not known
        evidence.append(_drop_gate_beside_the_work(item))
    return Look(
        evidence=tuple(evidence),
        traces=tuple(trace for trace in found if isinstance(trace, Trace)),
    )


def _drop_gate_beside_the_work(item: RungEvidence) -> RungEvidence:
    """A runtime with a stream of its own runs past the gate, whose times are then of nothing."""
    if item.gate is None or item.device_ns is None or item.problems or not item.busy_ns:
        return item
    if item.device_ns >= _LEAST_OF_BUSY * item.compute_busy()[0]:
        return item
    reason = "it did not wait for the gate: it runs on another stream than torch's current one"
    gate = replace(item.gate, repetitions=(), reason=reason)
    return replace(item, gate=gate)


def _gate(rung: Candidate, launches: int | None) -> Gated:
    """What fails here has no issue time, and the reason stands in its place."""
    try:
        return measure_gate(
            rung, repetitions=_REPETITIONS, watchdog_ms=_WATCHDOG_MS, launches=launches
        )
    except (FtaxError, RuntimeError) as error:
        return Gated(
            repetitions=(), watchdog_ms=_WATCHDOG_MS, launches=launches, reason=describe(error)
        )


def _find_launches(rungs: Sequence[Candidate]) -> int | None:
    """Launches of one inference, as launch replay counts them; every rung makes about as many."""
    for rung in rungs:
        launches = rung.facts.get("launches")
        if isinstance(launches, int):
            return launches
    return None


def _count_nodes(rungs: Sequence[Candidate]) -> dict[str, int] | None:
    for rung in rungs:
        types = rung.facts.get("launch_types")
        if isinstance(types, dict):
            return {name: types.get(name, 0) for name in _NODE_TYPES}
    return None
