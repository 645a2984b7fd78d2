"""Measures a receipt: prepares every rung and alternative, times them together, then looks closer.

The order is the point. Everything is prepared and checked before the first round; the rounds run
alone; what would disturb them (operator timing, the crowd test, gates, traces) comes after, and
what fails there costs a warning and not the rounds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from ftax.errors import InvalidArgumentError, RunnerError, describe
from ftax.instruments.trace.records import Trace
from ftax.ladders.after import AFTER, Scene, look_closer
from ftax.ladders.choice import check_options, choose_alternatives, prepare_all
from ftax.ladders.job import Job
from ftax.ladders.ladder import Ladder, find_ladder, name_ladder
from ftax.ladders.options import TaxOptions
from ftax.ladders.receipt import Receipt, Unavailable
from ftax.ladders.rehearsal import rehearse
from ftax.ladders.warnings import warn_of_evidence, warn_of_rounds
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.timing.candidate import Candidate, Place
from ftax.timing.crowd import find_round_s
from ftax.timing.measurement import Measurement
from ftax.timing.session import Plan, Progress, Session, measure, quiet


def run_tax(
    workspace: Workspace, options: TaxOptions, plan: Plan, progress: Progress | None
) -> tuple[Receipt, tuple[Trace, ...]]:
    """Measure the receipt of ``workspace``'s model; with it, the traces behind its evidence.

    Raises only if the first rung itself fails, or an argument is wrong.
    """
    loaded = workspace.loaded
    device, ladder = loaded.device, find_ladder(options.ladder or name_ladder(loaded))
    alternatives = choose_alternatives(options.runtimes, device, options.hosts, ladder, loaded.kind)
    check_options([*ladder.list_places(device), *alternatives], workspace.setting.runtime_options)
    started = time.perf_counter()
    fatal = _rehearse(workspace, alternatives, progress) if options.rehearse else []
    excluded = {item.place for item in fatal}
    wanted = [
        *ladder.list_places(device),
        *(place for place in alternatives if place not in excluded),
    ]
    prepared, unavailable = prepare_all(workspace, wanted, progress, ladder)
    prepared_s = time.perf_counter() - started
    session = measure(loaded, prepared, plan, progress)
    measurements, failed = _split_failures(prepared, session)
    _require_top(ladder, measurements, failed)
    rungs = tuple(m for m in measurements if m.place in ladder.places)
    others = tuple(m for m in measurements if m.place not in ladder.places)
    warnings = warn_of_rounds(
        session.stop_reason,
        len(rungs[0].samples_ns),
        plan,
        round_s=find_round_s(measurements),
    )
    receipt = Receipt(
        ladder_name=ladder.name,
        rungs=rungs,
        others=others,
        unavailable=(*unavailable, *fatal, *failed),
        warnings=tuple(warnings),
    )
    places = {m.place for m in measurements}
    scene = Scene(
        workspace=workspace,
        runners=tuple(item for item in prepared if item.place in places),
        options=options,
        plan=plan,
        progress=progress,
        receipt=receipt,
    )
    with quiet():  # once for all that follows: with a model, each time takes a fifth of a second
        scene = look_closer(AFTER, scene)
    receipt = scene.warn(*warn_of_evidence(scene.receipt.evidence, ladder)).receipt
    preparation = {
        **receipt.preparation,
        "prepare_seconds": prepared_s,
        "measure_seconds": session.elapsed_s,
        "total_seconds": time.perf_counter() - started,
        "gc_ms": session.gc_ms,
        "cache": "cold: L2 flushed before each request" if workspace.setting.cold else "warm",
    }
    return replace(receipt, preparation=preparation), scene.traces


def _rehearse(
    workspace: Workspace, alternatives: Sequence[Place], progress: Progress | None
) -> list[Unavailable]:
    """Alternatives that took down a process in which they were tried alone."""
    device = workspace.loaded.device
    possible = [
        place
        for place in alternatives
        if find_runtime(place.runtime).find_obstacle(host=place.host, device=device) is None
    ]
    job = Job.of(workspace.loaded, possible)
    if job is None:
        raise InvalidArgumentError(
            "rehearse is asked for, but a model that lives in this process cannot be built in "
            "another; give a model by name or path, or rehearse=False"
        )
    found = rehearse(job, progress)
    return [
        Unavailable(runtime=place.runtime, host=place.host, reason=found[place])
        for place in possible
        if place in found
    ]


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


def _require_top(
    ladder: Ladder, measurements: list[Measurement], failed: list[Unavailable]
) -> None:
    if not measurements or measurements[0].place != ladder.places[0]:
        reason = failed[0].reason if failed else "no round was completed"
        raise RunnerError(f"{ladder.top} could not be measured: {reason}")
