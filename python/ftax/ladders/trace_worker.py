"""Traces runtimes in a process of its own, which is thrown away afterwards.

A trace leaves CUPTI initialised in its process, and torch.profiler, used there later over replays
of a CUDA graph, has crashed; a notebook should not. Every runtime is answered for as soon as it is
done. A process that dies then costs the one runtime that it was at, and a new process goes on with
the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from ftax.errors import FtaxError, RunnerError, describe, is_out_of_memory
from ftax.instruments.trace.records import Trace
from ftax.instruments.trace.tracer import ITERATIONS, trace_prepared
from ftax.runtimes.catalogue import check_host, find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting
from ftax.workers.child import Line
from ftax.workers.process import run_task
from ftax.workers.time_limit import default_seconds

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
        for answer in run_task("ftax.ladders.trace_worker:trace_each", data, limit_s=limit_s):
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


def trace_each(data: Mapping[str, Any], line: Line) -> None:
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
