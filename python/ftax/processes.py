"""Runs benchmark jobs in fresh processes, interleaved, so that what differs between processes
(memory layout, thread placement) becomes part of the measured error instead of a hidden bias.

A process waits for a busy neighbour to leave its core, as long as its plan has patience; one that
shared the core all the same is run again: it measured the neighbour. What tells is a probe of the
host beside each round, never the latency itself, so the choice does not depend on what is compared.

Workers are started with `python -m ftax.processes` and speak JSON: a job on standard input, one
measurement a line on standard output. A worker that dies takes only its own measurement with it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from ftax.errors import InvalidArgumentError, RunnerError
from ftax.measure import Plan, Progress, measure, require
from ftax.results import Measurement
from ftax.results.measurement import make_session_id

_SHARED_RATIO = 1.2  # of the fastest probe: what ran slower had less than a core

Key = TypeVar("Key", bound=Hashable)
Run = TypeVar("Run")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchJob:
    """One benchmark that can be described in JSON: a model by name or path, not in memory."""

    model: str
    runtime: str = "eager"
    hosts: tuple[str, ...] = ("cpp",)
    plan: Plan = field(default_factory=Plan)
    threads: int | None = None
    no_grad: bool = False
    runtime_options: Mapping[str, str] = field(default_factory=dict)
    transfers: bool = False
    model_options: Mapping[str, Any] = field(default_factory=dict)
    inject_slowdown_ratio: float = 0.0  # for validating `compare`: each request this much longer

    def to_json(self) -> str:
        """The job as one line."""
        return json.dumps(
            asdict(
                replace(
                    self,
                    runtime_options=dict(self.runtime_options),
                    model_options=dict(self.model_options),
                )
            )
        )

    @classmethod
    def from_json(cls, text: str) -> BenchJob:
        """The job that `to_json` wrote."""
        data = json.loads(text)
        data["plan"]["cpus"] = tuple(data["plan"]["cpus"])
        plan = Plan(**data.pop("plan"))
        return cls(**{**data, "hosts": tuple(data["hosts"]), "plan": plan})


def run_job(job: BenchJob, progress: Progress | None = None) -> tuple[Measurement, ...]:
    """Run a job in this process: one measurement per host, in the same rounds."""
    from ftax.preparing import prepare, use_threads

    with use_threads(job.threads):
        if progress:
            progress("building the model", 0, 1)
        loaded, preparations = prepare(
            job.model,
            None,
            runtime=job.runtime,
            hosts=job.hosts,
            no_grad=job.no_grad,
            runtime_options=job.runtime_options,
            transfers=job.transfers,
            model_options=dict(job.model_options),
        )
        if job.inject_slowdown_ratio:
            from ftax.intervention import slow_down

            preparations = [slow_down(item, job.inject_slowdown_ratio) for item in preparations]
        return require(measure(loaded, preparations, job.plan, progress))


def run_jobs(
    jobs: Sequence[BenchJob], *, processes: int, progress: Progress | None = None
) -> list[list[Measurement]]:
    """Run each job ``processes`` times and return its measurements, job by job.

    With one process a job runs here. With more, every repetition is a fresh process, and the jobs
    of one repetition run side by side in random order, so that drift falls on all alike.
    """
    if processes < 1:
        raise InvalidArgumentError(f"processes is {processes}; give 1 or more")
    session = make_session_id()
    if processes == 1:
        return [
            list(run_job(replace(job, plan=replace(job.plan, session=session)), progress))
            for job in jobs
        ]
    runs: dict[tuple[int, int], list[Measurement]] = {}

    def run(key: tuple[int, int]) -> list[Measurement]:
        repetition, place = key
        job = jobs[place]
        plan = replace(
            job.plan,
            process_index=repetition,
            session=session,
            seed=job.plan.seed + repetition,
            quiet_probe_ns=min((read_probe(found[0]) for found in runs.values()), default=0.0),
        )
        return _run_worker(replace(job, plan=plan))

    shuffler = random.Random(jobs[0].plan.seed)
    total = processes * len(jobs)
    for repetition in range(processes):
        order = list(range(len(jobs)))
        shuffler.shuffle(order)
        for turn, place in enumerate(order):
            if progress:
                progress("process", repetition * len(jobs) + turn, total)
            runs[repetition, place] = run((repetition, place))
    if progress:
        progress("processes beside a busy neighbour, again", 0, 1)
    repeat_disturbed(runs, lambda found: read_probe(found[0]), run, limit=total)
    return [
        [item for repetition in range(processes) for item in runs[repetition, place]]
        for place in range(len(jobs))
    ]


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


def _run_worker(job: BenchJob) -> list[Measurement]:
    worker = subprocess.run(
        [sys.executable, "-m", "ftax.processes"],
        input=job.to_json(),
        capture_output=True,
        text=True,
        check=False,
    )
    if worker.returncode != 0:
        lines = worker.stderr.strip().splitlines()
        reason = lines[-1] if lines else f"exit code {worker.returncode}"
        raise RunnerError(f"the worker process for {job.model} failed: {reason}")
    return [Measurement.from_dict(json.loads(line)) for line in worker.stdout.splitlines()]


def _work() -> None:
    for measurement in run_job(BenchJob.from_json(sys.stdin.read())):
        print(json.dumps(measurement.to_dict()))


if __name__ == "__main__":
    _work()
