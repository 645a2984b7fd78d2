"""Runs benchmark jobs in fresh processes, so that what differs between processes (memory layout,
thread placement) becomes part of the measured error instead of a hidden bias.

The surprising choice: the processes of one repetition live side by side and take turns, a tenth of
a second each. On a host with neighbours the clock moves by a tenth within seconds; what is compared
has then felt the same of it. Only one ever measures, and the others sleep.

A process waits for a busy neighbour to leave its core, as long as its plan has patience; a
repetition in which one shared the core all the same is run again: it measured the neighbour. What
tells is a probe of the host beside each round, never the latency itself, so the choice does not
depend on what is compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from ftax.errors import FtaxError, RunnerError, check_count
from ftax.machines.gpu_condition import expect_idle
from ftax.steps.setting import Setting
from ftax.timing.interrupts import interruptible
from ftax.timing.measurement import TURNS, Measurement, make_session_id
from ftax.timing.session import Plan, Progress, measure, require
from ftax.workers.child import Line
from ftax.workers.process import Worker, WorkerDied
from ftax.workers.turns import MEASURING, ROUNDS_A_TURN, TurnTaker, take_turns

_MOST_PROCESSES = 10_000  # hours, if each takes as little as it can
_SHARED_RATIO = 1.2  # of the fastest probe: what ran slower had less than a core

Key = TypeVar("Key", bound=Hashable)
Run = TypeVar("Run")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchJob:
    """One benchmark that can be described in JSON: a model by name or path, not in memory."""

    model: str
    runtime: str = "eager"
    hosts: tuple[str, ...] = ("cpp",)
    setting: Setting = field(default_factory=Setting)
    plan: Plan = field(default_factory=Plan)

    def to_dict(self) -> dict[str, Any]:
        """The job as JSON."""
        return {**asdict(self), "setting": self.setting.to_dict()}

    @classmethod
    def from_dict(cls, job: Mapping[str, Any]) -> BenchJob:
        """The job that `to_dict` wrote."""
        setting, plan = Setting(**job["setting"]), Plan.from_dict(job["plan"])
        return cls(**{**job, "hosts": tuple(job["hosts"]), "setting": setting, "plan": plan})


def run_job(job: BenchJob, progress: Progress | None = None) -> tuple[Measurement, ...]:
    """Run a job in this process: one measurement per host, in the same rounds."""
    from ftax.runtimes.prepare import prepare
    from ftax.steps.given import use_threads

    with use_threads(job.setting.threads):
        if progress:
            progress("building the model", 0, 1)
        loaded, preparations = interruptible(
            prepare, job.model, None, None, job.setting, runtime=job.runtime, hosts=job.hosts
        )
        if progress:
            progress(MEASURING, 0, 1)
        in_a_row = not isinstance(progress, TurnTaker)
        return require(measure(loaded, preparations, job.plan, progress, in_a_row=in_a_row))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRuns:
    """The measurements of each job, none of one that did not begin, and what ended them before all
    processes had run."""

    sides: list[list[Measurement]]
    ended: KeyboardInterrupt | FtaxError | None = None


def run_jobs(
    jobs: Sequence[BenchJob], *, processes: int, progress: Progress | None = None
) -> JobRuns:
    """Run each job ``processes`` times.

    With one process the jobs run here, one after the other. With more, every repetition is a fresh
    process, and the jobs of one repetition take turns, so that drift falls on all alike. A process
    that fails, or Ctrl-C, costs its repetition and those after it; here, its job and those after.

    Raises:
        FtaxError: the first job here was stopped by it, or a process of the first repetition;
            RunnerError if it just died.
    """
    check_count("processes", processes, most=_MOST_PROCESSES)
    session = make_session_id()
    if processes == 1:
        plans = [replace(job.plan, session=session) for job in jobs]
        here = [replace(job, plan=plan) for job, plan in zip(jobs, plans, strict=True)]
        return _run_here(here, progress)
    runs: dict[int, list[list[Measurement]]] = {}

    def run(repetition: int) -> list[list[Measurement]]:
        label = f"process {repetition + 1} of {processes}"
        if repetition in runs:
            label += " again, without the neighbour"

        def tell(done: int, total: int) -> None:
            if progress:
                progress(f"rounds, {label}", done, total)

        if progress:
            progress(f"getting ready, {label}", 0, 1)
        probes = [read_probe(side[0]) for sides in runs.values() for side in sides]
        plans = [
            replace(
                job.plan,
                process_index=repetition,
                session=session,
                seed=job.plan.seed + repetition,
                quiet_probe_ns=min(probes, default=0.0),
            )
            for job in jobs
        ]
        return _run_side_by_side(
            [replace(job, plan=plan) for job, plan in zip(jobs, plans, strict=True)],
            random.Random(jobs[0].plan.seed + repetition),
            tell,
        )

    ended: KeyboardInterrupt | FtaxError | None = None
    try:
        for repetition in range(processes):
            runs[repetition] = interruptible(run, repetition)
        interruptible(
            repeat_disturbed,
            runs,
            lambda sides: max(read_probe(side[0]) for side in sides),
            run,
            limit=processes,
        )
    except (KeyboardInterrupt, FtaxError) as error:
        if not runs:
            raise
        ended = error
    sides = [
        [item for found in runs.values() for item in found[place]] for place in range(len(jobs))
    ]
    return JobRuns(sides=sides, ended=ended)


def _run_here(jobs: Sequence[BenchJob], progress: Progress | None) -> JobRuns:
    sides: list[list[Measurement]] = []
    ended: KeyboardInterrupt | FtaxError | None = None
    for job in jobs:
        try:
            sides.append([*run_job(job, progress)])
        except (KeyboardInterrupt, FtaxError) as error:
            if not sides:
                raise
            ended = error
        else:
            if sides[-1][0].stop_reason == "interrupted":
                ended = KeyboardInterrupt()
        if ended is not None:
            break
    return JobRuns(sides=[*sides, *([] for _ in jobs[len(sides) :])], ended=ended)


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


def _run_side_by_side(
    jobs: Sequence[BenchJob], shuffler: random.Random, tell: Callable[[int, int], None]
) -> list[list[Measurement]]:
    workers: list[Worker] = []
    try:
        for _ in jobs:
            workers.append(Worker("ftax.sweeps.processes:run_by_turns"))
        for worker, job in zip(workers, jobs, strict=True):
            worker.wait_until_ready()
            worker.send(job.to_dict())
        said = take_turns(workers, shuffler, tell)
    except WorkerDied as error:
        names = " or ".join(dict.fromkeys(job.model for job in jobs))
        raise RunnerError(f"the worker process for {names} failed: {error}") from error
    finally:
        for worker in workers:
            worker.end()
    return [
        [Measurement.from_dict(answer["measurement"]) for answer in answers] for answers in said
    ]


def run_by_turns(job: Mapping[str, Any], line: Line) -> None:
    """The task of one process: run a job, and answer with its measurements."""
    turns = TurnTaker(line, expect_idle)
    for measurement in run_job(BenchJob.from_dict(job), turns):
        line.say("measured", measurement=mark_turns(measurement, turns).to_dict())


def mark_turns(measurement: Measurement, turns: TurnTaker) -> Measurement:
    """The measurement, which says that it took turns if there was anybody to take them with."""
    if not turns.has_others:
        return measurement
    return replace(measurement, checks={**measurement.checks, TURNS: ROUNDS_A_TURN})
