"""Measures a receipt: prepares every rung and alternative, times them together, then looks closer.

The order is the point. Everything is prepared and checked before the first round; the rounds run
alone; what would disturb them (operator timing, the crowd test, gates, traces) comes after, and
what fails there costs a warning and not the rounds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from ftax.errors import InvalidArgumentError, RunnerError, UnsupportedError, describe
from ftax.instruments.trace.records import Trace
from ftax.ladders.after import AFTER, AfterRounds, look_closer
from ftax.ladders.choice import TaxOptions, check_options, choose_alternatives, prepare_all
from ftax.ladders.evidence import warn_of_evidence, warn_of_rounds
from ftax.ladders.ladder import FITTING, Ladder, find_ladder, name_ladder
from ftax.ladders.receipt import Receipt, Unavailable
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate, Place
from ftax.timing.crowd import find_round_s
from ftax.timing.interrupts import interruptible
from ftax.timing.measurement import Measurement
from ftax.timing.plan import Plan, Progress
from ftax.timing.ranks import Ranks
from ftax.timing.session import Session, measure, quiet, require_no_profiler
from ftax.timing.trust import FEW_ROUNDS, find_doubt_of_waits

_COMMUNICATES = (
    "the step communicates with other ranks, with which the rungs alone are measured: measure this "
    "runtime of a part that needs one rank"
)
_TRIAL_S = 2.0  # of rounds that tell whether requests wait for CPUs


def run_tax(
    workspace: Workspace,
    options: TaxOptions,
    plan: Plan,
    progress: Progress | None,
    ranks: Ranks | None = None,
) -> tuple[Receipt, tuple[Trace, ...]] | None:
    """Measure the receipt of a model; with it, the traces behind its evidence. None where requests
    waited for CPUs, if that is asked. With ``ranks``, each of which measures it, the alternatives
    are left out.

    Raises only if the first rung itself fails, or an argument is wrong. Ctrl-C before the rounds is
    raised; after them it costs what was not looked at yet.
    """
    require_no_profiler()  # before what takes minutes
    loaded = workspace.loaded
    ladder = _choose_ladder(loaded, options)
    places = ladder.list_places(loaded.device)
    alternatives = choose_alternatives(
        options.runtimes, loaded.device, options.hosts, ladder, loaded.kind
    )
    wanted = [*places, *alternatives]
    check_options(wanted, workspace.setting.runtime_options)
    started = time.perf_counter()
    if ranks is not None:
        _require_own_ladder(ladder)
        wanted = places
    prepared, unavailable = interruptible(prepare_all, workspace, wanted, progress, ladder)
    if ranks is not None:
        prepared, missing = interruptible(_meet, ranks, prepared, plan, options)
        unavailable += [*missing, *(_leave_out(place, _COMMUNICATES) for place in alternatives)]
    prepared_s = time.perf_counter() - started
    if not options.may_wait and plan.duration_s >= 5 * _TRIAL_S:
        trial = replace(plan, duration_s=_TRIAL_S, rounds=FEW_ROUNDS, patience_s=0.0)
        session = measure(loaded, prepared, trial, progress, in_a_row=False)
        if session.stop_reason == "interrupted":
            raise KeyboardInterrupt("interrupted before the rounds")
        if _has_waited(_split_failures(prepared, session)[0], ladder):
            return None
    session = measure(loaded, prepared, plan, progress, ranks=ranks)
    measured, failed = _split_failures(prepared, session)
    if not options.may_wait and _has_waited(measured, ladder):
        return None
    _require_top(ladder, measured, failed)
    rounds = len(measured[0].samples_ns)
    warnings = warn_of_rounds(
        session.stop_reason,
        rounds,
        plan,
        round_s=find_round_s(measured),
        whole_s=session.elapsed_s / rounds if rounds else 0.0,
    )
    receipt = Receipt(
        ladder_name=ladder.name,
        rungs=tuple(item for item in measured if item.place in ladder.places),
        others=tuple(item for item in measured if item.place not in ladder.places),
        unavailable=(*unavailable, *failed),
        warnings=tuple(warnings),
    )
    if options.keep is not None:
        options.keep(receipt)
    complete = {item.place for item in measured}
    after = AfterRounds(
        workspace=workspace,
        runners=tuple(item for item in prepared if item.place in complete),
        options=options,
        plan=plan,
        progress=progress,
        receipt=receipt,
        ranks=ranks,
    )
    with quiet():  # once for all that follows: with a model, each time takes a fifth of a second
        look_closer(AFTER, after)
    after.warn(*warn_of_evidence(after.receipt.evidence, ladder))
    receipt = after.receipt.with_preparation(
        prepare_seconds=prepared_s,
        measure_seconds=session.elapsed_s,
        total_seconds=time.perf_counter() - started,
        gc_ms=session.gc_ms,
        cache="cold: L2 flushed before each request" if workspace.setting.cold else "warm",
    )
    return receipt, after.traces


def _require_own_ladder(ladder: Ladder) -> None:
    if ladder not in FITTING:
        raise UnsupportedError(
            f"the step communicates with other ranks, and the ladder {ladder.name!r} is not "
            "measured with them: leave it out"
        )


def _meet(
    ranks: Ranks, prepared: Sequence[Candidate], plan: Plan, options: TaxOptions
) -> tuple[list[Candidate], list[Unavailable]]:
    """What all ranks have made ready, and what one of them has not."""
    ready = [item.place for item in prepared]
    missing = ranks.meet(plan, ready, throughput=options.throughput)
    return (
        [item for item in prepared if item.place not in missing],
        [_leave_out(place, why) for place, why in missing.items()],
    )


def _leave_out(place: Place, reason: str) -> Unavailable:
    return Unavailable(runtime=place.runtime, host=place.host, reason=reason)


def _choose_ladder(loaded: LoadedModel, options: TaxOptions) -> Ladder:
    """Raises InvalidArgumentError for one that fits another kind of step."""
    name = name_ladder(loaded)
    if options.ladder and options.ladder != name:
        chosen = find_ladder(options.ladder)
        if chosen in FITTING:
            raise InvalidArgumentError(
                f"ladder is {chosen.name!r}, and this has the ladder {name!r}: leave it out"
            )
        return chosen
    return find_ladder(name)


def _split_failures(
    prepared: Sequence[Candidate], session: Session
) -> tuple[list[Measurement], list[Unavailable]]:
    """Runners that failed in a round have fewer rounds than the rest and cannot be compared."""
    rounds = max((len(item.samples_ns) for item in session.measurements if item), default=0)
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


def _has_waited(measured: Sequence[Measurement], ladder: Ladder) -> bool:
    """Whether requests of a rung waited for a CPU, in rounds that nobody interrupted."""
    return any(
        find_doubt_of_waits(item.queued_ratio) and item.stop_reason != "interrupted"
        for item in measured
        if item.place in ladder.places
    )


def _require_top(
    ladder: Ladder, measurements: list[Measurement], failed: list[Unavailable]
) -> None:
    if not measurements or measurements[0].place != ladder.places[0]:
        reason = failed[0].reason if failed else "no round was completed"
        raise RunnerError(f"{ladder.top} could not be measured: {reason}")
