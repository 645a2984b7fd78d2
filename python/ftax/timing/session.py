"""Times prepared runtimes in interleaved rounds and turns the result into measurements.

All timing and all statistics are the C++ core's. What Python adds is silence: while rounds run,
garbage is collected, frozen and its collector off, and progress is reported only between rounds.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch

from ftax import _core
from ftax.errors import RunnerError, UnavailableError, describe
from ftax.machines.environment import collect_environment
from ftax.machines.gpu_watch import watch_gpu
from ftax.machines.host import collect_condition
from ftax.steps.collectives import answered_by
from ftax.steps.loaded import LoadedModel, MeasuredModel
from ftax.steps.state import Snapshot
from ftax.timing.call_inputs import read_inputs
from ftax.timing.candidate import Candidate, Watch
from ftax.timing.cell import Cell
from ftax.timing.checks import SameWork
from ftax.timing.interrupts import hold, interruptible, take
from ftax.timing.measurement import (
    FAULTS,
    QUEUED,
    SYSTEM,
    WAITED,
    Measurement,
    ProcessRecord,
    make_session_id,
)
from ftax.timing.plan import Plan, Progress
from ftax.timing.ranks import Ranks
from ftax.timing.trust import DISTURBED_IN, find_growth

UNSTEADY = "the warm-up reached its time limit before latency was steady; --duration gives it more"
DISTURBANCE = "(steal time, a fixed loop that ran 20 % slower, or requests that waited for a CPU)"

_quiet_blocks = 0  # that are open


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Measurements that were taken in the same rounds, and runners that failed while they ran."""

    measurements: tuple[Measurement | None, ...]  # in the order of the runtimes; None: no round
    errors: tuple[str | None, ...]
    stop_reason: str
    elapsed_s: float
    gc_ms: float  # of collecting all garbage once, before the rounds


@contextmanager
def quiet() -> Iterator[float]:
    """No garbage collection inside; yields what one full collection cost, in ms.

    Blocks nest, and an inner one collects only what was made since the outer one began.
    """
    global _quiet_blocks
    was_enabled, was_frozen = gc.isenabled(), gc.get_freeze_count() > 0 and _quiet_blocks == 0
    start = time.perf_counter()
    gc.collect()
    cost_ms = (time.perf_counter() - start) * 1e3
    gc.freeze()
    gc.disable()
    _quiet_blocks += 1
    try:
        yield cost_ms
    finally:
        _quiet_blocks -= 1
        if _quiet_blocks == 0:
            gc.unfreeze()
            if was_frozen:  # by the user: which objects, nobody can tell
                gc.freeze()
        if was_enabled:
            gc.enable()


def measure(
    loaded: MeasuredModel,
    prepared: Sequence[Candidate],
    plan: Plan,
    progress: Progress | None = None,
    *,
    in_a_row: bool = True,
    ranks: Ranks | None = None,
) -> Session:
    """`measure_together` of one model alone."""
    parts = [(loaded, prepared)]
    (session,) = measure_together(parts, plan, progress, in_a_row=in_a_row, ranks=ranks)
    return session


def require_no_profiler() -> None:
    """Raises UnavailableError under torch's profiler."""
    if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
        raise UnavailableError(
            "torch's profiler (or emit_nvtx) is on, and would be timed too: measure outside of it"
        )


def measure_together(
    parts: Sequence[tuple[MeasuredModel, Sequence[Candidate]]],
    plan: Plan,
    progress: Progress | None = None,
    *,
    in_a_row: bool = True,
    ranks: Ranks | None = None,
) -> list[Session]:
    """Time the candidates of all ``parts``, which have one device, in the same interleaved rounds;
    gives a session a part.

    A runner that fails leaves the measurement with its error; the rounds it completed are kept.
    Meanwhile the first candidate of each part that can be watched is, whether its calls stay the
    same work, the parts by turns; not ``in_a_row`` after the rounds, where another process measures
    then. What the models write beside their weights is put back afterwards.
    ``ranks`` that have met time the same requests in the same rounds, in which the collectives of
    each are the others' to answer; a Ctrl-C of one ends the rounds of all.
    Ctrl-C ends the rounds, and what is told of them is "interrupted", also where it comes after
    them. Raises KeyboardInterrupt only if nothing was measured yet, UnavailableError under torch's
    profiler, and RunnerError where another rank has left.
    """
    require_no_profiler()
    with hold():
        return _measure_held(parts, plan, progress, in_a_row=in_a_row, ranks=ranks)


def _measure_held(
    parts: Sequence[tuple[MeasuredModel, Sequence[Candidate]]],
    plan: Plan,
    progress: Progress | None,
    *,
    in_a_row: bool,
    ranks: Ranks | None,
) -> list[Session]:
    device = parts[0][0].device
    environment = collect_environment(device=device)
    before = collect_condition()
    inputs = [read_inputs(loaded) for loaded, _ in parts]
    written: list[list[str]] = []
    with watch_gpu(device) as watch, quiet() as gc_ms, ExitStack() as stack:
        written += [stack.enter_context(_put_back(loaded)) for loaded, _ in parts]
        works = [_find_watch(prepared) for _, prepared in parts]
        watches = [work for work in works if work is not None]
        for work in watches:
            interruptible(work.begin)
        with _count_collections() as collections, answered_by(None):
            result = _run_rounds(
                [item.runner for _, prepared in parts for item in prepared],
                plan,
                _look_between(watch.wrap(progress), watches),
                ranks,
            )
        stop_reason = result.stop_reason
        if in_a_row and stop_reason != "interrupted":
            try:
                for work in watches:
                    share_s = result.elapsed_ns / 1e9 / len(watches)
                    interruptible(work.look_in_a_row, share_s)
            except KeyboardInterrupt:
                stop_reason = "interrupted"
    for work in watches:
        work.compare_outputs()
    if result.stop_reason == "interrupted" and len(result.probes) < 2:
        raise KeyboardInterrupt("interrupted before the first round was complete")
    if take():
        stop_reason = "interrupted"
    shared: dict[str, Any] = {
        "mode": plan.mode,
        "seed": plan.seed,
        "counted": "quiet",
        "stop_reason": stop_reason,
        "environment": environment,
        "conditions": (before, collect_condition()),
        "gpu": watch.to_record(),
        "process": ProcessRecord.current(
            session=plan.session or make_session_id(), index=plan.process_index
        ),
    }
    sessions, runners = [], iter(result.runners)
    for (loaded, prepared), look, changed, given in zip(parts, works, written, inputs, strict=True):
        same_work = None if look is None else look.judge()
        warnings = (*watch.judge(), *_judge_work(loaded, same_work, changed))
        if collections["start"]:
            warnings += (
                "what is measured collects garbage (gc.collect) in a heap that is frozen while it "
                f"is timed: these numbers lack what that costs, here {gc_ms:,.0f} ms of all "
                "objects",
            )
        rounds = list(islice(runners, len(prepared)))
        if stop_reason != "interrupted":
            prepared = [*map(_check_again, prepared, rounds)]
        sessions.append(
            Session(
                measurements=tuple(
                    _make_measurement(item, own, result, same_work, warnings,
                                      cell=make_cell(loaded, item), inputs=given, **shared)
                    if own.values_ns
                    else None
                    for item, own in zip(prepared, rounds, strict=True)
                ),
                errors=tuple(own.error or None for own in rounds),
                stop_reason=stop_reason,
                elapsed_s=result.elapsed_ns / 1e9,
                gc_ms=gc_ms,
            )
        )  # fmt: skip
    return sessions


def _run_rounds(
    runners: Sequence[_core.Runner], plan: Plan, progress: Progress, ranks: Ranks | None
) -> _core.RoundsResult:
    if ranks is None:
        return interruptible(_core.measure_rounds, runners, plan.to_core(), progress)
    # A Ctrl-C in the middle of a request would have the others wait: it is seen between rounds.
    with ranks.explaining():
        return _core.measure_rounds(runners, plan.to_core(), progress, ranks.agree)


@contextmanager
def _count_collections() -> Iterator[Counter[str]]:
    """By phase. Nothing of ftax or of Python itself collects inside of `quiet`."""
    phases: Counter[str] = Counter()

    def count(phase: str, _: dict[str, int]) -> None:
        phases[phase] += 1

    gc.callbacks.append(count)
    try:
        yield phases
    finally:
        gc.callbacks.remove(count)


def _find_watch(prepared: Sequence[Candidate]) -> Watch | None:
    return next((item.watch() for item in prepared if item.watch is not None), None)


def _check_again(prepared: Candidate, rounds: _core.RunnerRounds) -> Candidate:
    """With what is known of its outputs after the rounds, unless it failed in them."""
    if prepared.check_again is None or rounds.error or not rounds.values_ns:
        return prepared
    return replace(prepared, checks=prepared.check_again())


def _make_measurement(
    prepared: Candidate,
    rounds: _core.RunnerRounds,
    result: _core.RoundsResult,
    same_work: SameWork | None,
    warnings: Sequence[str],
    **fields: Any,
) -> Measurement:
    """Of one runner that completed a round. ``warnings`` are of its part, and ``fields`` are not of
    its samples."""
    return Measurement(
        checks={
            **replace(prepared.checks, same_work=same_work).to_dict(),
            **_make_checks(rounds, result),
        },
        warnings=(
            *prepared.warnings,
            *_warn_of_rounds(rounds, result.disturbed_rounds),
            *prepared.judge(),
            *_judge_outputs(prepared),
            *warnings,
        ),
        samples_ns=tuple(tuple(samples) for samples in rounds.samples_ns),
        dropped_per_round=rounds.dropped,
        burst=rounds.burst,
        preparation=prepared.preparation.to_dict(),
        **fields,
    )


def _make_checks(rounds: _core.RunnerRounds, result: _core.RoundsResult) -> dict[str, object]:
    return {
        "warmup": {
            "iterations": rounds.warmup.iterations,
            "seconds": rounds.warmup.elapsed_ns / 1e9,
            "steady": rounds.warmup.steady,
        },
        "disturbed_rounds": list(result.disturbed_rounds),
        QUEUED: [round(ratio, 3) for ratio in rounds.queued_ratios],
        WAITED: rounds.waited_ns,
        FAULTS: [use.page_faults for use in rounds.kernel_use],
        SYSTEM: [use.system_ns for use in rounds.kernel_use],
        "host_probe_ns": _summarise_probes(result),
        "waited_for_core_s": sum(item.waited_ns for item in result.probes) / 1e9,
    }


def _warn_of_rounds(rounds: _core.RunnerRounds, disturbed: Sequence[int]) -> Iterator[str]:
    if not rounds.warmup.steady:
        yield UNSTEADY
    if rounds.error:
        yield f"failed after {len(rounds.values_ns)} rounds: {describe(rounds.error)}"
    if rebuilt := len(rounds.rebuilt_rounds):
        yield (
            f"in {rebuilt} of {len(rounds.values_ns)} rounds it recorded or compiled inside of its "
            "calls, also when they were repeated: its latency is that of calls that do so"
        )
    if disturbed:
        yield _describe_disturbance(len(rounds.values_ns), disturbed)
    values_ns = rounds.values_ns
    counted = _core.choose_rounds(len(values_ns), disturbed)
    if (growth := find_growth([values_ns[place] for place in counted])) is not None:
        yield (
            f"its rounds became longer all along, the last {growth:.2f} times as long as the "
            "first: either its Python does more from call to call (reset= puts such state back), "
            "or the machine became slower; its latency is that of these rounds alone"
        )


def _look_between(progress: Progress | None, works: Sequence[Watch]) -> Progress:
    """``progress``, after which one of ``works`` looks, by turns, once a round, where no sample is
    under way. A Ctrl-C that waits ends the rounds."""

    def tell(phase: str, done: int, total: int) -> None:
        if take():
            raise KeyboardInterrupt
        if progress is not None:
            progress(phase, done, total)
        if works and phase == "round" and done > 0:
            with answered_by(_core.Answer.alone):
                works[done % len(works)].look()

    return tell


@contextmanager
def _put_back(loaded: MeasuredModel) -> Iterator[list[str]]:
    """Whatever the model holds beside its weights, and its inputs, are afterwards as they were;
    yields the names of what was not, once that is known."""
    written: list[str] = []
    if not isinstance(loaded, LoadedModel):
        yield written
        return
    before = Snapshot(loaded.module, loaded.given())
    try:
        yield written
    finally:
        written += before.put_back()


def _judge_outputs(prepared: Candidate) -> Iterator[str]:
    """What a reader has to know of outputs that are not eager's."""
    label = str(prepared.place)
    if (outputs := prepared.checks.judge_outputs()).problem:
        what = "other outputs than eager"
        if label == "eager/python":
            what = "other outputs when it is called again"
        yield f"{label} gives {what}: {outputs.problem}"


def _judge_work(
    loaded: MeasuredModel, work: SameWork | None, written: Sequence[str]
) -> Iterator[str]:
    """What a reader has to know of calls that differ, and of what a forward pass writes."""
    if work is not None and work.problem:
        yield f"not the same work: {work.problem}; latencies are of calls that differ"
    if written and loaded.kind == "forward":
        yield f"the model writes into {', '.join(written[:3])}, which was put back after measuring"


def _summarise_probes(result: _core.RoundsResult) -> dict[str, float]:
    """The median of each probe, ns: over the quiet rounds if they are a third of all, or else over
    all, also where enough of them count: `sweeps.processes` is to see that a neighbour was busy."""
    disturbed = set(result.disturbed_rounds)
    ends = result.probes[1:]
    quiet = [probe for place, probe in enumerate(ends) if place not in disturbed]
    if 3 * len(quiet) >= len(ends):
        ends = quiet
    return {
        name: statistics.median(getattr(probe, f"{name}_ns") for probe in ends)
        for name in ("loop", "wide", "within")
        if ends
    }


def require(session: Session) -> tuple[Measurement, ...]:
    """All measurements of ``session``. Raises RunnerError if any runner failed."""
    for error in session.errors:
        if error is not None:
            raise RunnerError(describe(error)) from RunnerError(error)
    return tuple(item for item in session.measurements if item is not None)


def make_cell(loaded: MeasuredModel, prepared: Candidate) -> Cell:
    """The cell that ``prepared`` measures."""
    return Cell.of(
        loaded.setting,
        model=loaded.name,
        runtime=prepared.runtime,
        host=prepared.host,
        options={**loaded.options, **prepared.options},
        step=loaded.kind,
        units=loaded.units,
    )


def _describe_disturbance(rounds: int, disturbed: Sequence[int]) -> str:
    left_out = rounds - len(_core.choose_rounds(rounds, disturbed))
    if left_out:
        return f"{left_out} of {rounds} rounds do not count: the host was disturbed {DISTURBANCE}"
    return (
        f"{DISTURBED_IN} {len(disturbed)} of {rounds} rounds {DISTURBANCE}, too many to "
        "leave out; --patience waits for it to be quiet"
    )
