"""Looks at every runtime on the GPU once the rounds are over: gate first, trace last.

The order is forced. A gate must not be held under a profiler, and a trace leaves one behind; both
slow what they look at, so neither may come before the last round.

A trace leaves CUPTI initialised in its process, and torch.profiler, used there later over replays
of a CUDA graph, has crashed. So traces are taken, where the model can be built again, in a process
that is thrown away. It answers for each runtime as soon as it is done; if it dies, that costs the
one runtime that it was at, and a new process goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from ftax.errors import FtaxError, RunnerError, describe, is_out_of_memory
from ftax.instruments.gate import try_gate
from ftax.instruments.trace.integrity import NODE_TYPES
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.tracer import ITERATIONS, trace_each, trace_prepared
from ftax.ladders.evidence import RungEvidence
from ftax.ladders.ladder import EAGER, Ladder
from ftax.runtimes.catalogue import check_host, find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting
from ftax.timing.candidate import Candidate
from ftax.timing.plan import Progress
from ftax.workers.child import Line
from ftax.workers.process import run_task
from ftax.workers.time_limit import default_seconds

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


_MOST_WORKERS = 4
_TRACE_S = 60.0  # generous, for one runtime that is ready


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """What the process is given: ``model``, of which `load_model` makes the same again, and the
    runtimes with who calls them."""

    model: str
    places: tuple[tuple[str, str], ...]
    setting: Setting = field(default_factory=Setting)

    @classmethod
    def of(cls, loaded: LoadedModel, places: Iterable[tuple[str, str]]) -> Self | None:
        """None if another process cannot make this model and these inputs again."""
        if loaded.again is None:
            return None
        return cls(model=loaded.again, setting=loaded.setting, places=tuple(places))

    def to_dict(self) -> dict[str, Any]:
        """The job as JSON."""
        return {**asdict(self), "setting": self.setting.to_dict()}


def trace_in_worker(job: TraceJob, *, iterations: int = ITERATIONS) -> list[Trace | FtaxError]:
    """`trace_each` in a fresh process, for a model that can be built there again.

    What a worker traced before it died is kept, what it died of leaves that error, and the rest is
    given to another worker, up to four in all.
    """
    answers: dict[int, Trace | FtaxError] = {}
    for _ in range(_MOST_WORKERS):
        left = [place for place in range(len(job.places)) if place not in answers]
        found, death = _run_worker(
            replace(job, places=tuple(job.places[i] for i in left)), iterations
        )
        answers |= {left[place]: answer for place, answer in found.items()}
        if not found or len(answers) == len(job.places):  # without any, the next dies as early
            break
    missing = RunnerError(f"the tracing process failed: {death}")
    return [answers.get(place, missing) for place in range(len(job.places))]


def _run_worker(job: TraceJob, iterations: int) -> tuple[dict[int, Trace | FtaxError], str]:
    """Answers by place, that of a runtime which killed the worker among them, and its death."""
    data = {**job.to_dict(), "iterations": iterations}
    limit_s = (default_seconds() + _TRACE_S) * (1 + len(job.places))  # the model counts for one
    found: dict[int, Trace | FtaxError] = {}
    at = None
    try:
        for answer in run_task("ftax.ladders.look:run_trace_job", data, limit_s=limit_s):
            at = answer["place"]
            if answer["say"] == "traced":
                found[at] = _read_trace(answer["trace"])
            elif answer["say"] == "failed":
                found[at] = RunnerError(answer["reason"])
    except FtaxError as error:
        death = describe(error)
        if is_out_of_memory(death):
            death += ", or trace='here', which needs no second copy of the model"
        if at is not None and at not in found:
            place = "/".join(job.places[at])
            found[at] = RunnerError(f"the tracing process failed at {place}: {death}")
        return found, death
    return found, "it ended without an answer"


def _read_trace(data: Mapping[str, object]) -> Trace | FtaxError:
    try:
        return Trace.from_dict(data)
    except FtaxError as fault:
        return RunnerError(f"the tracing process failed: {describe(fault)}")


def run_trace_job(data: Mapping[str, Any], line: Line) -> None:
    """The task of the process: each runtime made ready and traced."""
    workspace = Workspace(load_model(data["model"], **data["setting"]))
    for place, (runtime, host) in enumerate(data["places"]):
        line.say("begin", place=place)
        try:
            prepared = find_runtime(runtime).prepare(workspace, check_host(host))
            trace = trace_prepared(workspace.loaded, prepared, iterations=data["iterations"])
        except (FtaxError, RuntimeError) as error:
            line.say("failed", place=place, reason=describe(error) or repr(error))
        else:
            line.say("traced", place=place, trace=trace.to_dict())
