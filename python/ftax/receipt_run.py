"""Measures a receipt: prepares every rung and alternative, times them together, then looks closer.

The order is the point. Everything is prepared and checked before the first round; the rounds run
alone; what would disturb them (operator timing, the crowd test, gates, traces) comes after, and
what fails there costs a warning and not the rounds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from ftax import _core
from ftax.errors import FtaxError, InvalidArgumentError, RunnerError, UnsupportedError
from ftax.faults import attempt, describe, name_faults
from ftax.floors import Floor, measure_floors
from ftax.gpu import GpuReadings, collect_gpu_readings
from ftax.ladder import CPU_RUNGS, RUNGS
from ftax.measure import Plan, Progress, Session, measure
from ftax.receipt import OperatorCost, Receipt, Unavailable
from ftax.receipt_gpu import Look, look_at_rungs
from ftax.receipt_warnings import warn_of_evidence, warn_of_rounds
from ftax.results import Measurement
from ftax.runtimes import Host, Prepared, Workspace, find_runtime, list_runtimes
from ftax.tracing import Trace
from ftax.tracing.run import TraceJob

TraceChoice = Literal["worker", "here", "none"]
_PROFILE_SECONDS = 1.0


def run_tax(
    workspace: Workspace,
    *,
    runtimes: str | Sequence[str],
    plan: Plan,
    operators: bool = True,
    look: TraceChoice = "here",
    model: str | None = None,
    model_options: Mapping[str, object] | None = None,
    energy: bool = False,
    cold: bool = False,
    progress: Progress | None,
) -> tuple[Receipt, tuple[Trace, ...]]:
    """Measure the receipt of ``workspace``'s model; with it, the traces behind its evidence.

    ``model`` and ``model_options`` build the model again where ``look`` is "worker". Raises only if
    Python eager itself fails.
    """
    device = workspace.loaded.device
    wanted = [*list_rungs(device), *choose_alternatives(runtimes, device)]
    started = time.perf_counter()
    prepared, unavailable = _prepare_all(workspace, wanted, progress)
    if cold:
        with name_faults("the cold cache could not be prepared"):
            prepared = [replace(item, runner=_core.ColdRunner(item.runner)) for item in prepared]
    prepared_s = time.perf_counter() - started
    session = measure(workspace.loaded, prepared, plan, progress)
    measurements, failed = _split_failures(prepared, session)
    _require_eager(measurements, failed)
    rungs = tuple(m for m in measurements if (m.cell.runtime, m.cell.host) in RUNGS)
    warnings = [*warn_of_rounds(workspace.loaded, rungs, plan, prepared, session)]
    places = {(m.cell.runtime, m.cell.host) for m in measurements}
    survivors = [item for item in prepared if (item.runtime, item.host) in places]
    costs, floors = _time_parts(workspace, rungs, operators, warnings)
    # Readings before traces: what has been traced is slower for the rest of the process.
    readings: tuple[GpuReadings, ...] = ()
    if energy:
        readings = attempt(
            lambda: collect_gpu_readings(survivors, device=device),
            default=(), what="the GPU was not read", warnings=warnings,
        )  # fmt: skip
    found = Look(evidence=(), traces=())
    if device != "cpu" and look != "none" and session.stop_reason != "interrupted":
        standing = [item for item in survivors if (item.runtime, item.host) in RUNGS]
        worker = model is not None and look == "worker"
        job = make_job(workspace, standing, str(model), model_options or {}) if worker else None
        found = attempt(
            lambda: look_at_rungs(workspace.loaded, standing, job=job, progress=progress),
            default=found, what="the rungs were not looked at on the GPU", warnings=warnings,
        )  # fmt: skip
    receipt = Receipt(
        rungs=rungs,
        others=tuple(m for m in measurements if m not in rungs),
        unavailable=(*unavailable, *failed),
        operator_costs=costs,
        evidence=found.evidence,
        readings=readings,
        floors_ns={floor.name: floor.time_ns for floor in floors},
        preparation={
            "prepare_seconds": prepared_s,
            "measure_seconds": session.elapsed_s,
            "total_seconds": time.perf_counter() - started,
            "gc_ms": session.gc_ms,
            "cache": "cold: L2 flushed before each request" if cold else "warm",
        },
        warnings=(*warnings, *warn_of_evidence(found.evidence)),
    )
    return receipt, found.traces


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


def make_job(
    workspace: Workspace,
    rungs: Sequence[Prepared],
    model: str,
    options: Mapping[str, object],
) -> TraceJob | None:
    """What a worker traces; None if it cannot make this model and these inputs again."""
    if not workspace.loaded.reproducible:
        return None
    return TraceJob(
        model=model,
        runtimes=tuple((item.runtime, item.host) for item in rungs),
        # The device by name: it may have been given as an object, which does not travel.
        model_options={**options, "device": workspace.loaded.device},
        no_grad=workspace.no_grad,
        transfers=workspace.transfers,
    )


def list_rungs(device: str) -> list[tuple[str, Host]]:
    """The rungs that a device can have."""
    return [*RUNGS] if device != "cpu" else [*CPU_RUNGS]


def choose_alternatives(runtimes: str | Sequence[str], device: str) -> list[tuple[str, Host]]:
    """(runtime, host) pairs beside the ladder. Raises InvalidArgumentError for an unknown name."""
    if runtimes == "none":
        return []
    kind = device.split(":")[0]
    specs = [spec for spec in list_runtimes() if kind != "cpu" or "cpu" in spec.devices]
    if runtimes not in ("available", "all"):
        names = [runtimes] if isinstance(runtimes, str) else list(runtimes)
        if not names:
            raise InvalidArgumentError("runtimes is empty; give names, 'available' or 'none'")
        specs = [find_runtime(name) for name in names]
    return [
        (spec.name, host) for spec in specs for host in spec.hosts if (spec.name, host) not in RUNGS
    ]


def _prepare_all(
    workspace: Workspace, wanted: Sequence[tuple[str, Host]], progress: Progress | None
) -> tuple[list[Prepared], list[Unavailable]]:
    prepared: list[Prepared] = []
    unavailable: list[Unavailable] = []
    for place, (runtime, host) in enumerate(wanted):
        if progress:
            progress(f"preparing {runtime} ({host})", place, len(wanted))
        try:
            prepared.append(find_runtime(runtime).prepare(workspace, host))
        except FtaxError as error:
            if not prepared and (runtime, host) == RUNGS[0]:
                raise  # the model itself does not run
            if runtime == "tape-without-host-reads" and isinstance(error, UnsupportedError):
                continue  # the model reads nothing back: there is no such rung
            unavailable.append(Unavailable(runtime=runtime, host=host, reason=describe(error)))
    if progress:
        progress("preparing", len(wanted), len(wanted))
    return prepared, unavailable


def _split_failures(
    prepared: Sequence[Prepared], session: Session
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
            failed.append(Unavailable(runtime=item.runtime, host=item.host, reason=reason))
    return complete, failed


def _require_eager(measurements: list[Measurement], failed: list[Unavailable]) -> None:
    if not measurements or (measurements[0].cell.runtime, measurements[0].cell.host) != RUNGS[0]:
        reason = failed[0].reason if failed else "no round was completed"
        raise RunnerError(f"Python eager could not be measured: {reason}")


def _profile_operators(
    workspace: Workspace, rungs: tuple[Measurement, ...]
) -> tuple[OperatorCost, ...]:
    tapes = [m for m in rungs if (m.cell.runtime, m.cell.host) == ("eager", "cpp")]
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
