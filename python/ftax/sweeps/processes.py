"""Jobs of `ftax bench`, each of which is repeated in fresh processes.

What differs between processes (memory layout, hash seeds, thread placement) becomes part of the
measured error instead of a hidden bias. A process waits for a busy neighbour to leave its core, as
long as its plan has patience. One that shared the core all the same is run again, since it measured
the neighbour. What tells is a probe of the host beside each round, never the latency itself, so the
choice does not depend on what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ftax.errors import FtaxError, RunnerError, check_count
from ftax.records.record import Record
from ftax.runtimes.prepare import prepare
from ftax.steps.given import use_threads
from ftax.steps.setting import Setting
from ftax.timing.interrupts import interruptible
from ftax.timing.measurement import Measurement, make_session_id
from ftax.timing.plan import Plan, Progress
from ftax.timing.session import measure, require
from ftax.workers.child import Line
from ftax.workers.process import WorkerDied, run_task

_LIMIT_S = 24 * 3600.0  # of one process: to build, to compile, and to measure
_MOST_PROCESSES = 10_000  # hours, if each takes as little as it can
_SHARED_RATIO = 1.2  # of the fastest probe: what ran slower had less than a core

Key = TypeVar("Key", bound=Hashable)
Run = TypeVar("Run")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchJob(Record):
    """One benchmark that can be described in JSON: a model by name or path, not in memory."""

    model: str
    runtime: str = "eager"
    hosts: tuple[str, ...] = ("cpp",)
    setting: Setting = field(default_factory=Setting)
    plan: Plan = field(default_factory=Plan)


def run_bench(job: BenchJob, progress: Progress | None = None) -> tuple[Measurement, ...]:
    """Run a job in this process: one measurement per host, in the same rounds."""
    with use_threads(job.setting.threads):
        if progress:
            progress("building the model", 0, 1)
        loaded, preparations = interruptible(
            prepare, job.model, None, None, job.setting, runtime=job.runtime, hosts=job.hosts
        )
        return require(measure(loaded, preparations, job.plan, progress))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRuns:
    """What was measured, and what ended it before all processes had run."""

    measurements: list[Measurement]
    ended: KeyboardInterrupt | FtaxError | None = None


def run_repeatedly(job: BenchJob, *, processes: int, progress: Progress | None = None) -> JobRuns:
    """Run a job ``processes`` times; with one process it runs here, with more each is a fresh one.

    A process that fails, or Ctrl-C, costs its repetition and those after it.

    Raises:
        FtaxError: the first repetition was stopped by it; RunnerError if its process just died.
    """
    check_count("processes", processes, most=_MOST_PROCESSES)
    plan = replace(job.plan, session=make_session_id())
    if processes == 1:
        found = [*run_bench(replace(job, plan=plan), progress)]
        interrupted = found[0].stop_reason == "interrupted"
        return JobRuns(measurements=found, ended=KeyboardInterrupt() if interrupted else None)
    runs: dict[int, list[Measurement]] = {}

    def run(index: int) -> list[Measurement]:
        if progress:
            again = " again, without the neighbour" if index in runs else ""
            progress(f"process {index + 1} of {processes}{again}", index, processes)
        own = replace(
            plan,
            process_index=index,
            seed=plan.seed + index,
            quiet_probe_ns=min((read_probe(found[0]) for found in runs.values()), default=0.0),
        )
        return _run_apart(replace(job, plan=own))

    ended: KeyboardInterrupt | FtaxError | None = None
    try:
        for index in range(processes):
            runs[index] = interruptible(run, index)
        interruptible(
            repeat_disturbed, runs, lambda found: read_probe(found[0]), run, limit=processes
        )
    except (KeyboardInterrupt, FtaxError) as error:
        if not runs:
            raise
        ended = error
    return JobRuns(measurements=[item for found in runs.values() for item in found], ended=ended)


def _run_apart(job: BenchJob) -> list[Measurement]:
    try:
        answers = list(run_task(f"{__name__}:serve", job.to_dict(), limit_s=_LIMIT_S))
    except WorkerDied as error:
        raise RunnerError(f"the worker process for {job.model} failed: {error}") from error
    return [Measurement.from_dict(answer["measurement"]) for answer in answers]


def serve(job: Mapping[str, Any], line: Line) -> None:
    """The task of one process: run a job, and answer with its measurements."""
    for measurement in run_bench(BenchJob.from_dict(job)):
        line.say("measured", measurement=measurement.to_dict())


def repeat_disturbed(
    runs: dict[Key, Run],
    probe_ns: Callable[[Run], float],
    rerun: Callable[[Key], Run],
    *,
    limit: int,
) -> int:
    """Run again, in place, what ran beside a busy neighbour, the worst first; how often it did.

    ``probe_ns`` is the host probe of a run. At most ``limit`` times: where the neighbour stays, the
    runs stay as they are.
    """
    for done in range(limit):
        probes = {key: probe_ns(run) for key, run in runs.items()}
        worst = max(probes, key=lambda key: probes[key])
        if probes[worst] <= _SHARED_RATIO * min(probes.values()):
            return done
        runs[worst] = rerun(worst)
    return limit


def read_probe(measurement: Measurement) -> float:
    """The probe that a neighbour on the same core slows, ns: beside or within rounds, whichever was
    slower; the median over the rounds that count."""
    probe: Any = measurement.checks["host_probe_ns"]  # a check that `measure` made
    return max(float(probe["wide"]), float(probe.get("within", 0.0)))
