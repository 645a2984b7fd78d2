"""Measures a receipt: prepares every rung and alternative, times them together, then looks closer.

The order is the point. Everything is prepared and checked before the first round; the rounds run
alone; what would disturb them (operator timing, the crowd test, gates, traces) comes after, and
what fails there costs a warning and not the rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ftax.errors import InvalidArgumentError, RunnerError, attempt, describe
from ftax.instruments.readings import GpuReadings, collect_gpu_readings
from ftax.instruments.trace.records import Trace
from ftax.ladders.choice import check_options, choose_alternatives, list_rungs, prepare_all
from ftax.ladders.floors import Floor, measure_floors
from ftax.ladders.ladder import RUNGS
from ftax.ladders.look import Look, look_at
from ftax.ladders.receipt import OperatorCost, Receipt, Unavailable
from ftax.ladders.rehearsal import Rehearsal, rehearse
from ftax.ladders.trace_worker import TraceJob
from ftax.ladders.warnings import warn_of_evidence, warn_of_rounds
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.timing.candidate import Candidate, Host
from ftax.timing.crowd import check_crowd, find_round_s
from ftax.timing.measurement import Measurement
from ftax.timing.session import Plan, Progress, Session, measure, quiet

TraceChoice = Literal["worker", "here", "none"]
_PROFILE_SECONDS = 1.0
_THROUGHPUT_ROUNDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxOptions:
    """What a receipt holds beside the rounds; docstring of `ftax.tax`.

    ``keep`` is given the receipt of the rounds before anything looks closer at the GPU, where a
    runtime that faults takes its process with it. ``rehearse`` tries each alternative elsewhere
    first.
    """

    runtimes: str | Sequence[str] = "quick"
    hosts: Sequence[str] = ("python", "cpp")
    operators: bool = True
    trace: TraceChoice = "here"
    energy: bool = False
    throughput: bool = False
    rehearse: bool = False
    keep: Callable[[Receipt], None] | None = None


def run_tax(
    workspace: Workspace, options: TaxOptions, plan: Plan, progress: Progress | None
) -> tuple[Receipt, tuple[Trace, ...]]:
    """Measure the receipt of ``workspace``'s model; with it, the traces behind its evidence.

    Raises only if Python eager itself fails, or an argument is wrong.
    """
    device = workspace.loaded.device
    alternatives = choose_alternatives(options.runtimes, device, options.hosts)
    check_options([*list_rungs(device), *alternatives], workspace.setting.runtime_options)
    started = time.perf_counter()
    fatal = _rehearse(workspace, alternatives, progress) if options.rehearse else []
    excluded = {(item.runtime, item.host) for item in fatal}
    wanted = [*list_rungs(device), *(place for place in alternatives if place not in excluded)]
    prepared, unavailable = prepare_all(workspace, wanted, progress)
    prepared_s = time.perf_counter() - started
    session = measure(workspace.loaded, prepared, plan, progress)
    measurements, failed = _split_failures(prepared, session)
    _require_eager(measurements, failed)
    rungs = tuple(m for m in measurements if _place(m) in RUNGS)
    warnings = warn_of_rounds(
        session.stop_reason,
        len(rungs[0].samples_ns),
        plan,
        round_s=find_round_s(measurements),
    )
    places = {_place(m) for m in measurements}
    survivors = [item for item in prepared if (item.runtime, item.host) in places]
    whole = session.stop_reason != "interrupted"
    with quiet():  # once for all that follows: with a model, each time takes a fifth of a second
        if whole:
            crowded = attempt(
                lambda: check_crowd([item.runner for item in survivors], measurements, plan),
                default=None, what="whether runners disturb each other was not tested",
                warnings=warnings,
            )  # fmt: skip
            warnings += [] if crowded is None else [crowded]
        receipt = Receipt(
            rungs=rungs,
            others=tuple(m for m in measurements if m not in rungs),
            unavailable=(*unavailable, *fatal, *failed),
            warnings=tuple(warnings),
        )
        if (keep := options.keep) is not None:
            attempt(
                lambda: keep(receipt),
                default=None, what="the rounds were not kept meanwhile", warnings=warnings,
            )  # fmt: skip
        after = _look_closer(workspace, survivors, rungs, options, plan, warnings, progress, whole)
    preparation = {
        "prepare_seconds": prepared_s,
        "measure_seconds": session.elapsed_s,
        "total_seconds": time.perf_counter() - started,
        "gc_ms": session.gc_ms,
        "cache": "cold: L2 flushed before each request" if workspace.setting.cold else "warm",
    }
    return _complete(receipt, after, warnings, preparation), after.look.traces


def _rehearse(
    workspace: Workspace,
    alternatives: Sequence[tuple[str, Host]],
    progress: Progress | None,
) -> list[Unavailable]:
    """Alternatives that took down a process in which they were tried alone."""
    loaded = workspace.loaded
    if loaded.again is None:
        raise InvalidArgumentError(
            "rehearse is asked for, but a model that lives in this process cannot be built in "
            "another; give a model by name or path, or rehearse=False"
        )
    possible = [
        (runtime, host)
        for runtime, host in alternatives
        if find_runtime(runtime).find_obstacle(host=host, device=loaded.device) is None
    ]
    job = Rehearsal(model=loaded.again, setting=loaded.setting, places=tuple(possible))
    found = rehearse(job, progress)
    return [
        Unavailable(runtime=runtime, host=host, reason=found[runtime, host])
        for runtime, host in possible
        if (runtime, host) in found
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _After:
    """What was read once the rounds were over."""

    costs: tuple[OperatorCost, ...]
    floors: tuple[Floor, ...]
    throughputs: tuple[Measurement, ...]
    readings: tuple[GpuReadings, ...]
    look: Look


def _complete(
    receipt: Receipt, after: _After, warnings: Sequence[str], preparation: Mapping[str, object]
) -> Receipt:
    """The receipt of the rounds with what was found out after them."""
    return replace(
        receipt,
        operator_costs=after.costs,
        evidence=after.look.evidence,
        readings=after.readings,
        throughputs=after.throughputs,
        floors_ns={floor.name: floor.time_ns for floor in after.floors},
        preparation=preparation,
        warnings=(*warnings, *warn_of_evidence(after.look.evidence)),
    )


def _look_closer(
    workspace: Workspace,
    prepared: Sequence[Candidate],
    rungs: tuple[Measurement, ...],
    options: TaxOptions,
    plan: Plan,
    warnings: list[str],
    progress: Progress | None,
    whole: bool,
) -> _After:
    """All that follows the rounds, in the one order in which nothing spoils what comes next.

    ``whole``: the rounds were not interrupted, so the user still wants to wait.
    """
    device = workspace.loaded.device
    throughputs: tuple[Measurement, ...] = ()
    if options.throughput and whole:  # like the rounds, before anything else has left its mark
        throughputs = attempt(
            lambda: _measure_throughput(workspace, prepared, plan, warnings, progress),
            default=(), what="throughput was not measured", warnings=warnings,
        )  # fmt: skip
    costs, floors = _time_parts(workspace, rungs, options.operators, warnings)
    # Readings before traces: what has been traced is slower for the rest of the process.
    readings: tuple[GpuReadings, ...] = ()
    if options.energy:
        readings = attempt(
            lambda: collect_gpu_readings(prepared, device=device),
            default=(), what="the GPU was not read", warnings=warnings,
        )  # fmt: skip
    found = Look(evidence=(), traces=())
    if device != "cpu" and options.trace != "none" and whole:
        job = make_job(workspace, prepared) if options.trace == "worker" else None
        found = attempt(
            lambda: look_at(workspace.loaded, prepared, job=job, progress=progress),
            default=found, what="the runtimes were not looked at on the GPU", warnings=warnings,
        )  # fmt: skip
    return _After(
        costs=costs, floors=floors, throughputs=throughputs, readings=readings, look=found
    )


def _measure_throughput(
    workspace: Workspace,
    prepared: Sequence[Candidate],
    plan: Plan,
    warnings: list[str],
    progress: Progress | None,
) -> tuple[Measurement, ...]:
    """A short session of its own, interleaved too, with requests back to back. Where all have to be
    prepared before each request (a cold cache), measuring says so."""
    short = replace(plan, mode="throughput", rounds=_THROUGHPUT_ROUNDS, warmup=None)
    able = [item for item in prepared if not item.runner.needs_prepare] or prepared
    warnings += [
        f"throughput of {item.runtime} was not measured: it has to be prepared before each request"
        for item in prepared
        if item not in able
    ]
    found = measure(workspace.loaded, able, short, progress).measurements
    return tuple(item for item in found if item is not None)


def _time_parts(
    workspace: Workspace, rungs: tuple[Measurement, ...], operators: bool, warnings: list[str]
) -> tuple[tuple[OperatorCost, ...], tuple[Floor, ...]]:
    """Operators of the tape, if asked for, and floors; a fault costs a warning."""
    costs: tuple[OperatorCost, ...] = ()
    if operators:
        costs = attempt(
            lambda: _profile_operators(workspace, rungs),
            default=(), what="operators were not timed", warnings=warnings,
        )  # fmt: skip
    floors: tuple[Floor, ...] = attempt(
        lambda: measure_floors(device=workspace.loaded.device, quick=True),
        default=(), what="the floors of this machine were not timed", warnings=warnings,
    )  # fmt: skip
    return costs, floors


def make_job(workspace: Workspace, prepared: Sequence[Candidate]) -> TraceJob | None:
    """What a worker traces; None if it cannot make this model and these inputs again."""
    loaded = workspace.loaded
    if loaded.again is None:
        return None
    return TraceJob(
        model=loaded.again,
        setting=loaded.setting,
        runtimes=tuple((item.runtime, item.host) for item in prepared),
    )


def _place(measurement: Measurement) -> tuple[str, Host]:
    return measurement.cell.runtime, measurement.cell.host


def _split_failures(
    prepared: Sequence[Candidate], session: Session
) -> tuple[list[Measurement], list[Unavailable]]:
    """Runners that failed in a round have fewer rounds than the rest and cannot be compared."""
    rounds = max((len(m.samples_ns) for m in session.measurements if m is not None), default=0)
    complete, failed = [], []
    for item, measurement, error in zip(
        prepared, session.measurements, session.errors, strict=True
    ):
        done = 0 if measurement is None else len(measurement.samples_ns)
        if measurement is not None and done == rounds:
            complete.append(measurement)
        else:
            reason = f"failed after {done} rounds: {describe(str(error))}"
            failed.append(
                Unavailable(
                    runtime=item.runtime, host=item.host, reason=reason, error=str(error or "")
                )
            )
    return complete, failed


def _require_eager(measurements: list[Measurement], failed: list[Unavailable]) -> None:
    if not measurements or _place(measurements[0]) != RUNGS[0]:
        reason = failed[0].reason if failed else "no round was completed"
        raise RunnerError(f"Python eager could not be measured: {reason}")


def _profile_operators(
    workspace: Workspace, rungs: tuple[Measurement, ...]
) -> tuple[OperatorCost, ...]:
    tapes = [m for m in rungs if _place(m) == ("eager", "cpp")]
    if not tapes:
        return ()
    tape = workspace.taped.tape
    repetitions = int(_PROFILE_SECONDS * 1e9 / max(tapes[0].latency_ns, 1.0))
    costs = tape.profile(min(200, max(3, repetitions)))
    return tuple(
        OperatorCost(
            index=index,
            operator=step["operator"],
            module=step["module"],
            build_ns=cost.build_ns,
            call_ns=cost.call_ns,
            release_ns=cost.release_ns,
        )
        for index, (step, cost) in enumerate(zip(tape.steps, costs, strict=True))
    )
