"""Benchmarks of one runtime: the public functions, which measure in this process, and jobs of
`ftax bench`, which are repeated in fresh processes.

All of them go through the same C++ loop; they differ in what they hand to it. The keywords of the
functions stand in `BenchOptions` for the caller, and in `_measure` with their defaults.

What differs between processes (memory layout, hash seeds, thread placement) becomes part of the
measured error instead of a hidden bias. A process waits for a busy neighbour to leave its core, as
long as its plan has patience. One that shared the core all the same is run again, since it measured
the neighbour. What tells is a probe of the host beside each round, never the latency itself, so the
choice does not depend on what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from ftax.errors import FtaxError, RunnerError, check_count
from ftax.records.record import Record
from ftax.runtimes.prepare import open_capture, prepare
from ftax.steps.given import Model, as_step, measuring, use_threads
from ftax.steps.setting import Setting, SettingOptions, read_setting
from ftax.timing.interrupts import hold, interruptible, take
from ftax.timing.measurement import Measurement, make_session_id
from ftax.timing.session import Plan, Progress, check_label, choose_plan, measure, require
from ftax.timing.watched import ProgressChoice, tell_interrupted, watched
from ftax.workers.child import Line
from ftax.workers.process import WorkerDied, run_task

if TYPE_CHECKING:
    from ftax.timing.differences import HostComparison

_LIMIT_S = 24 * 3600.0  # of one process: to build, to compile, and to measure
_MOST_PROCESSES = 10_000  # hours, if each takes as little as it can
_SHARED_RATIO = 1.2  # of the fastest probe: what ran slower had less than a core

Key = TypeVar("Key", bound=Hashable)
Run = TypeVar("Run")


class BenchOptions(SettingOptions, total=False):
    """Keywords of `cpp_bench` and of its kin."""

    check_inputs: Any
    runtime: str
    plan: Plan | None
    progress: ProgressChoice
    label: str


def cpp_bench(model: Model, inputs: Any = None, **options: Unpack[BenchOptions]) -> Measurement:
    """Time a model inside C++, with no Python in the loop.

    Args:
        model: a zoo name (`ftax models`), an ``nn.Module``, a Hugging Face folder, or a ``.pt`` or
            ``.onnx`` file.
        inputs: for a module or a file: a tensor, a tuple of arguments, a dict of keyword arguments,
            or ``(args, kwargs)``. Zoo models bring their own.
        options:
            check_inputs: others like ``inputs``, on which programs are checked; left out, drawn.
            runtime: `ftax runtimes`; left out, "eager", which replays the model's operator calls
                from a tape, and of a capture "capture".
            plan: an `ftax.Plan`: rounds, precision, time limit, seed.
            progress: called between rounds as ``progress(phase, done, total)``; left out, a bar
                where standard error is a terminal, and in a notebook; False: nothing.
            label: what to call the result; `ftax.compare` reads it.
            dtype, device and the other fields of `ftax.Setting`, no_grad; or ``setting=`` one.

    Returns:
        The measurement; ``latency_ns`` is the mean over rounds of each round's median.

    Raises:
        InvalidArgumentError, UnsupportedError, UnavailableError: as the message says.
        RunnerError: the model failed while it was measured.
    """
    (measurement,) = _measure(model, inputs, ("cpp",), **options)
    return measurement


def py_bench(model: Model, inputs: Any = None, **options: Unpack[BenchOptions]) -> Measurement:
    """Time a model driven from Python: the same C++ loop calls the Python callable.

    Arguments and errors are those of `cpp_bench`.
    """
    (measurement,) = _measure(model, inputs, ("python",), **options)
    return measurement


def compare_hosts(
    model: Model, inputs: Any = None, **options: Unpack[BenchOptions]
) -> HostComparison:
    """Time a runtime under both hosts in the same interleaved rounds.

    Returns:
        Both measurements, and what the host language costs; it unpacks as ``python, cpp``.

    Arguments and errors are those of `cpp_bench`.
    """
    from ftax.timing.differences import HostComparison

    python, cpp = _measure(model, inputs, ("python", "cpp"), **options)
    return HostComparison(python=python, cpp=cpp)


def _measure(
    model: Model,
    inputs: Any,
    hosts: Sequence[str],
    *,
    check_inputs: Any = None,
    runtime: str = "",
    plan: Plan | None = None,
    progress: ProgressChoice = None,
    label: str = "",
    **options: Unpack[SettingOptions],
) -> tuple[Measurement, ...]:
    setting = read_setting(options, _measure.__kwdefaults__)
    check_label(label)
    model, inputs, runtime = open_capture(model, inputs, runtime)
    model, inputs, check_inputs = as_step(model, inputs, check_inputs, setting)
    plan = choose_plan(plan)
    with hold():
        with (
            measuring(model, setting, inputs, check_inputs),
            watched(progress, model, plan) as tell,
        ):
            loaded, prepared = interruptible(
                prepare, model, inputs, check_inputs, setting, runtime=runtime, hosts=hosts
            )
            found = require(measure(loaded, prepared, plan, tell))
        if take():  # too late to cost anything
            found = tuple(replace(item, stop_reason="interrupted") for item in found)
        tell_interrupted(progress, found[0].stop_reason, f"{len(found[0].samples_ns)} rounds")
        return tuple(item.with_label(label) for item in found)


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
