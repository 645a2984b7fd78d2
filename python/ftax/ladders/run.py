"""Measures receipts: prepares every rung and alternative, times them together, then looks closer.

The order is the point, and it is the same for one model and for the parts of a mix. Everything is
prepared and checked before the first round; the rounds run alone; what would disturb them (operator
timing, the crowd test, gates, traces) comes after, and what fails there costs a warning and not the
rounds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ftax.errors import InvalidArgumentError, RunnerError, describe
from ftax.instruments.trace.records import Trace
from ftax.ladders.after import AFTER, Scene, look_closer
from ftax.ladders.choice import check_options, choose_alternatives, prepare_all
from ftax.ladders.job import Job
from ftax.ladders.ladder import FITTING, LIBRARY, Ladder, find_ladder, name_ladder
from ftax.ladders.options import TaxOptions
from ftax.ladders.receipt import Receipt, Unavailable
from ftax.ladders.rehearsal import rehearse
from ftax.ladders.warnings import warn_of_evidence, warn_of_rounds
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.given import name_parts
from ftax.timing.candidate import Candidate, Place
from ftax.timing.crowd import find_round_s
from ftax.timing.interrupts import interruptible
from ftax.timing.measurement import Measurement
from ftax.timing.session import (
    Plan,
    Progress,
    Session,
    measure_together,
    quiet,
    require_no_profiler,
)
from ftax.timing.trust import FEW_ROUNDS, find_doubt_of_waits

_TRIAL_S = 2.0  # of rounds that tell whether requests wait for CPUs


def run_tax(
    workspaces: Sequence[Workspace], options: TaxOptions, plan: Plan, progress: Progress | None
) -> tuple[tuple[Receipt, ...], tuple[Trace, ...]] | None:
    """Measure the receipts of models of one device and one ladder, all in the same rounds; with
    them, the traces behind their evidence. None where requests waited for CPUs, if that is asked.

    Raises only if a first rung itself fails, or an argument is wrong. Ctrl-C before the rounds is
    raised; after them it costs what was not looked at yet.
    """
    require_no_profiler()  # before what takes minutes
    ladder = _choose_ladder(workspaces, options)
    places = ladder.list_places(workspaces[0].loaded.device)
    alternatives = _choose_alternatives(workspaces, options, ladder)
    for workspace in workspaces:
        check_options([*places, *alternatives], workspace.setting.runtime_options)
    started = time.perf_counter()
    parts = [
        interruptible(_prepare, workspace, name, places, alternatives, options, progress, ladder)
        for workspace, name in zip(workspaces, _name_parts(workspaces), strict=True)
    ]
    parts = _keep_what_all_have(parts, ladder)
    prepared_s = time.perf_counter() - started
    subjects = [(part.workspace.loaded, part.prepared) for part in parts]
    if not options.may_wait and plan.duration_s >= 5 * _TRIAL_S:
        trial = replace(plan, duration_s=_TRIAL_S, rounds=FEW_ROUNDS, patience_s=0.0)
        sessions = measure_together(subjects, trial, progress, in_a_row=False)
        if sessions[0].stop_reason == "interrupted":
            raise KeyboardInterrupt("interrupted before the rounds")
        if _has_waited(_split_failures(parts, sessions), ladder):
            return None
    sessions = measure_together(subjects, plan, progress)
    measured = _split_failures(parts, sessions)
    if not options.may_wait and _has_waited(measured, ladder):
        return None
    round_s = find_round_s([item for measurements, _ in measured for item in measurements])
    scenes = []
    for part, (measurements, failed) in zip(parts, measured, strict=True):
        _require_top(ladder, measurements, failed)
        rounds = len(measurements[0].samples_ns)
        warnings = warn_of_rounds(
            sessions[0].stop_reason,
            rounds,
            plan,
            round_s=round_s,
            whole_s=sessions[0].elapsed_s / rounds if rounds else 0.0,
        )
        receipt = Receipt(
            ladder_name=ladder.name,
            rungs=tuple(m for m in measurements if m.place in ladder.places),
            others=tuple(m for m in measurements if m.place not in ladder.places),
            unavailable=(*part.unavailable, *failed),
            warnings=tuple(warnings),
        )
        share = replace(plan, duration_s=plan.duration_s / len(parts))
        scenes.append(part.make_scene(receipt, options, share))
        if options.keep is not None:
            options.keep(receipt)
    with quiet():  # once for all that follows: with a model, each time takes a fifth of a second
        scenes = look_closer(AFTER, scenes)
    seconds = {
        "prepare_seconds": prepared_s,
        "measure_seconds": sessions[0].elapsed_s,
        "total_seconds": time.perf_counter() - started,
        "gc_ms": sessions[0].gc_ms,
    }
    receipts = []
    for scene in scenes:
        receipt = scene.warn(*warn_of_evidence(scene.receipt.evidence, ladder)).receipt
        cold = scene.workspace.setting.cold
        cache = "cold: L2 flushed before each request" if cold else "warm"
        preparation = {**receipt.preparation, **seconds, "cache": cache}
        receipts.append(replace(receipt, preparation=preparation))
    return tuple(receipts), tuple(trace for scene in scenes for trace in scene.traces)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One of the models that are measured together, ready to be."""

    workspace: Workspace
    name: str
    prepared: list[Candidate]
    unavailable: tuple[Unavailable, ...]
    progress: Progress | None

    def make_scene(self, receipt: Receipt, options: TaxOptions, plan: Plan) -> Scene:
        """What is looked at after the rounds, of which this is the receipt."""
        measured = {item.place for item in (*receipt.rungs, *receipt.others)}
        return Scene(
            workspace=self.workspace,
            runners=tuple(item for item in self.prepared if item.place in measured),
            options=options,
            plan=plan,
            progress=self.progress,
            receipt=receipt,
        )


def _name_parts(workspaces: Sequence[Workspace]) -> tuple[str, ...]:
    """Beside each other; "" for one alone."""
    if len(workspaces) == 1:
        return ("",)
    return name_parts([workspace.loaded for workspace in workspaces])


def _choose_ladder(workspaces: Sequence[Workspace], options: TaxOptions) -> Ladder:
    """Raises InvalidArgumentError for models of different ladders."""
    names = [name_ladder(workspace.loaded) for workspace in workspaces]
    if options.ladder:
        chosen = find_ladder(options.ladder)
        if chosen in FITTING and {chosen.name} != set(names):
            raise InvalidArgumentError(
                f"ladder is {chosen.name!r}, and this has the ladder {names[0]!r}: leave it out"
            )
        return chosen
    if len(set(names)) > 1:
        told = ", ".join(map("{} has {}".format, _name_parts(workspaces), names))
        remedy = "give parts of one kind"
        if LIBRARY.name in names:
            remedy += ", or decode without generate(): dataclasses.replace(step, "
            remedy += "through_library=None)"
        raise InvalidArgumentError(
            f"the parts of a mix have different ladders, and so no lines in common ({told}): "
            f"{remedy}"
        )
    return find_ladder(names[0])


def _choose_alternatives(
    workspaces: Sequence[Workspace], options: TaxOptions, ladder: Ladder
) -> list[Place]:
    """What is measured beside the ladder: those that all kinds of step among them can have."""
    kinds = dict.fromkeys(workspace.loaded.kind for workspace in workspaces)
    device = workspaces[0].loaded.device
    first, *rest = (
        choose_alternatives(options.runtimes, device, options.hosts, ladder, kind) for kind in kinds
    )
    return [place for place in first if all(place in places for places in rest)]


def _prepare(
    workspace: Workspace,
    name: str,
    places: Sequence[Place],
    alternatives: Sequence[Place],
    options: TaxOptions,
    progress: Progress | None,
    ladder: Ladder,
) -> _Part:
    """One model under all that is to be measured and that it can have."""
    tell = progress if progress is None or not name else _tell_of(progress, name)
    fatal = _rehearse(workspace, alternatives, tell) if options.rehearse else []
    excluded = {item.place for item in fatal}
    wanted = [*places, *(place for place in alternatives if place not in excluded)]
    prepared, unavailable = prepare_all(workspace, wanted, tell, ladder)
    return _Part(
        workspace=workspace,
        name=name,
        prepared=prepared,
        unavailable=(*unavailable, *fatal),
        progress=tell,
    )


def _tell_of(progress: Progress, name: str) -> Progress:
    return lambda phase, done, total: progress(f"{name}: {phase}", done, total)


def _keep_what_all_have(parts: Sequence[_Part], ladder: Ladder) -> list[_Part]:
    """Without alternatives that a part lacks: they say nothing of the mean, and take rounds."""
    lacking = {
        item.place: part.name
        for part in parts
        for item in part.unavailable
        if item.place not in ladder.places
    }
    return [
        replace(
            part,
            prepared=[item for item in part.prepared if item.place not in lacking],
            unavailable=(
                *part.unavailable,
                *(
                    Unavailable(
                        runtime=item.runtime,
                        host=item.host,
                        reason=f"{lacking[item.place]} cannot have it",
                    )
                    for item in part.prepared
                    if item.place in lacking
                ),
            ),
        )
        for part in parts
    ]


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
    parts: Sequence[_Part], sessions: Sequence[Session]
) -> list[tuple[list[Measurement], list[Unavailable]]]:
    """Runners that failed in a round have fewer rounds than the rest and cannot be compared."""
    rounds = max(
        (len(m.samples_ns) for session in sessions for m in session.measurements if m is not None),
        default=0,
    )
    return [
        _split(part.prepared, session, rounds)
        for part, session in zip(parts, sessions, strict=True)
    ]


def _split(
    prepared: Sequence[Candidate], session: Session, rounds: int
) -> tuple[list[Measurement], list[Unavailable]]:
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


def _has_waited(
    measured: Sequence[tuple[list[Measurement], list[Unavailable]]], ladder: Ladder
) -> bool:
    """Whether requests of a rung waited for a CPU, in rounds that nobody interrupted."""
    rungs = [item for items, _ in measured for item in items if item.place in ladder.places]
    return any(
        find_doubt_of_waits(item.queued_ratio) and item.stop_reason != "interrupted"
        for item in rungs
    )


def _require_top(
    ladder: Ladder, measurements: list[Measurement], failed: list[Unavailable]
) -> None:
    if not measurements or measurements[0].place != ladder.places[0]:
        reason = failed[0].reason if failed else "no round was completed"
        raise RunnerError(f"{ladder.top} could not be measured: {reason}")
