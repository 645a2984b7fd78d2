"""What follows the rounds of a receipt: a list of instruments, in the one order in which nothing
spoils what comes next, and the one loop that runs it.

Requests are timed before anything else has left its mark, then parts of the model and the machine;
what looks at a GPU follows, and traces are last, since what has been traced is slower for the rest
of the process. An instrument adds to the receipt as soon as it has found something; a fault, or
Ctrl-C, costs what was not found yet, and a warning that says what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ftax.errors import FAULTS, describe, is_out_of_memory, release
from ftax.instruments.outside import time_outside
from ftax.instruments.phases import time_phases
from ftax.instruments.python_samples import sample_python
from ftax.instruments.readings import collect_gpu_readings
from ftax.instruments.trace.records import Trace
from ftax.ladders.choice import TaxOptions
from ftax.ladders.floors import measure_floors
from ftax.ladders.look import TraceJob, gate_runners, put_reference_first, trace_runners
from ftax.ladders.receipt import OperatorCost, Receipt
from ftax.ladders.skew import time_collectives
from ftax.runtimes.workspace import Workspace
from ftax.steps.outputs import call_model
from ftax.tape.tape import preserve_state
from ftax.tape.waits import find_waits
from ftax.timing.candidate import Candidate, Placed
from ftax.timing.crowd import check_crowd, find_round_s
from ftax.timing.interrupts import interruptible
from ftax.timing.plan import Plan, Progress
from ftax.timing.ranks import Ranks
from ftax.timing.session import measure
from ftax.timing.statistics import compute_mean
from ftax.timing.units import format_time

_PROFILE_SECONDS = 1.0
_SAMPLE_SECONDS, _LEAST_SAMPLE_SECONDS = 1.0, 0.1
_LEAST_OUTSIDE = 0.05  # of the latency: what tensors take to be freed is less
_THROUGHPUT_ROUNDS = 10
_ALONE = (
    "operators, kernels, lines of Python and phases were looked at on this rank alone: collectives "
    "only copy there"
)
_TAPE = ("eager", "cpp")  # what runs the tape whose operators are timed

_Item = TypeVar("_Item", bound=Placed)


@dataclass(slots=True, kw_only=True)
class AfterRounds:
    """What instruments look at, and add to: the receipt of the rounds, the runtimes that came
    through them, first the first rung, and the traces that were taken."""

    workspace: Workspace
    runners: tuple[Candidate, ...]
    options: TaxOptions
    plan: Plan
    progress: Progress | None
    receipt: Receipt
    traces: tuple[Trace, ...] = ()
    ranks: Ranks | None = None  # that measure with this one

    @property
    def on_gpu(self) -> bool:
        """Whether the device is one."""
        return self.workspace.loaded.device != "cpu"

    @property
    def is_whole(self) -> bool:
        """Whether the rounds were not interrupted, so that the user still wants to wait."""
        return self.receipt.rungs[0].stop_reason != "interrupted"

    def tell(self, phase: str, done: int = 0, total: int = 1) -> None:
        """Report progress."""
        if self.progress:
            self.progress(phase, done, total)

    def add(self, **fields: Any) -> None:
        """Put these fields into the receipt."""
        self.receipt = replace(self.receipt, **fields)

    def warn(self, *texts: str) -> None:
        """Add what a reader of the receipt has to know."""
        self.add(warnings=(*self.receipt.warnings, *texts))

    def interrupt(self, text: str) -> None:
        """Add what a reader has to know after Ctrl-C, which the receipt keeps in mind."""
        self.warn(text)
        self.receipt = self.receipt.with_preparation(interrupted=True)


@dataclass(frozen=True, slots=True)
class Instrument:
    """One kind of look.

    Attributes:
        phase: what the progress calls it: "timing operators".
        missing: how the warning begins where it fails: "operators were not timed".
        is_wanted: whether it is asked for, and can be had of this model.
        look: adds what it finds to the receipt, as often as it finds something.
    """

    phase: str
    missing: str
    is_wanted: Callable[[AfterRounds], bool]
    look: Callable[[AfterRounds], None]


def look_closer(instruments: Sequence[Instrument], after: AfterRounds) -> None:
    """Add all that the instruments, in this order, find."""
    for place, instrument in enumerate(instruments):
        if not instrument.is_wanted(after):
            continue
        after.tell(instrument.phase)
        try:
            interruptible(instrument.look, after)
        except FAULTS as error:
            if is_out_of_memory(error):
                release(error)
            after.warn(f"{instrument.missing}: {describe(error)}")
        except KeyboardInterrupt:
            missing = [item.missing for item in instruments[place:] if item.is_wanted(after)]
            after.interrupt(f"interrupted after the rounds: {'; '.join(missing)}")
            return


def _put(items: Iterable[_Item], new: _Item) -> tuple[_Item, ...]:
    """``items`` with ``new`` in the place of the one of its runtime and host, or at the end."""
    return tuple({**{item.place: item for item in items}, new.place: new}.values())


def _time_collectives(after: AfterRounds) -> None:
    """Of each rung, with the other ranks."""
    assert after.ranks is not None
    rungs = {rung.place: rung.latency_ns for rung in after.receipt.rungs}
    may_hide = after.on_gpu or not after.workspace.waits_for_collectives
    are_waited_for = after.ranks.agree(int(may_hide)) == 0  # on each rank, as far as a tape tells
    after.warn(_ALONE)
    for item in after.runners:
        if latency_ns := rungs.get(item.place):
            found = time_collectives(item, latency_ns, after.ranks, are_waited_for=are_waited_for)
            after.add(collectives=(*after.receipt.collectives, found))


def _check_crowd(after: AfterRounds) -> None:
    receipt = after.receipt
    runners = [item.runner for item in after.runners]
    measured = (*receipt.rungs, *receipt.others)
    if found := check_crowd(runners, measured, after.plan, name=receipt.ladder.top):
        after.warn(found)


def _time_throughput(after: AfterRounds) -> None:
    """A short session of its own, interleaved too, with requests back to back. Where all have to be
    prepared before each request (a cold cache), measuring says so."""
    short = replace(after.plan, mode="throughput", rounds=_THROUGHPUT_ROUNDS, warmup=None)
    able = [item for item in after.runners if not item.runner.needs_prepare] or after.runners
    session = measure(after.workspace.loaded, able, short, after.progress, ranks=after.ranks)
    after.add(throughputs=tuple(item for item in session.measurements if item))
    after.warn(
        *(
            f"throughput of {item.runtime} was not measured: it has to be prepared before each "
            "request"
            for item in after.runners
            if item not in able
        )
    )
    if session.stop_reason == "interrupted":
        raise KeyboardInterrupt


def _time_operators(after: AfterRounds) -> None:
    """Each operator of the tape, for about a second."""
    rung = next((rung for rung in after.receipt.rungs if rung.place == _TAPE), None)
    if rung is None:
        return
    tape, loaded = after.workspace.taped.tape, after.workspace.loaded
    repetitions = int(_PROFILE_SECONDS * 1e9 / max(rung.latency_ns, 1.0))
    costs = tape.profile(min(200, max(3, repetitions)), loaded.prepare)
    after.add(
        operator_costs=tuple(
            OperatorCost(
                index=index,
                operator=call["operator"],
                module=call["module"],
                build_ns=cost.build_ns,
                call_ns=cost.call_ns,
                release_ns=cost.release_ns,
            )
            for index, (call, cost) in enumerate(zip(tape.calls, costs, strict=True))
        )
    )


def _sample_python(after: AfterRounds) -> None:
    """Of Python eager, for a second; where the rounds are of a given number for no longer than
    these."""
    rungs, loaded = after.receipt.rungs, after.workspace.loaded
    rounds_s = find_round_s(rungs) * len(rungs[0].samples_ns)
    longest_s = _SAMPLE_SECONDS if after.plan.rounds is None else rounds_s
    with preserve_state(loaded), loaded.guard():
        found = sample_python(
            loaded.bind(),
            loaded.prepare,
            loaded.module,
            seconds=min(_SAMPLE_SECONDS, max(_LEAST_SAMPLE_SECONDS, longest_s)),
            calls_root=loaded.function is loaded.module,
            device=loaded.device,
        )
    after.add(python_samples=found)


def _time_phases(after: AfterRounds) -> None:
    """Of Python eager, as the step is written."""
    loaded = after.workspace.loaded

    def run() -> None:  # what the model raises, costs the phases and not the receipt
        call_model(loaded.call_on_next)

    with preserve_state(loaded), loaded.guard():
        phases = time_phases(run, loaded.prepare, loaded.device, loaded.feeds)
    after.add(phases=phases)
    after.warn(*_describe_loader(after.receipt.loader_ns))


def _time_outside(after: AfterRounds) -> None:
    """Of Python eager, how long it is outside of torch; nothing where that is next to nothing."""
    loaded = after.workspace.loaded
    call = loaded.bind()
    with preserve_state(loaded), loaded.guard():
        found = time_outside(lambda: call_model(call), loaded.prepare)
    if compute_mean(found) >= _LEAST_OUTSIDE * after.receipt.latency_ns:
        after.add(outside_ns=found)


def _describe_loader(own_ns: float) -> Iterator[str]:
    if own_ns:
        yield (
            f"the loader takes {format_time(own_ns)} more a step, timed after the rounds, in which "
            "each run had the same batch"
        )


def _find_waits(after: AfterRounds) -> None:
    if not after.workspace.is_compiled:  # or the waits found would be those of what was compiled
        after.add(waits=find_waits(after.workspace.loaded))


def _time_floors(after: AfterRounds) -> None:
    floors = measure_floors(device=after.workspace.loaded.device, quick=True)
    after.add(floors_ns={floor.name: floor.time_ns for floor in floors})


def _read_gpu(after: AfterRounds) -> None:
    for item in collect_gpu_readings(after.runners, device=after.workspace.loaded.device):
        after.add(readings=_put(after.receipt.readings, item))


def _gate(after: AfterRounds) -> None:
    for item in gate_runners(after.runners, after.receipt.ladder, after.progress):
        after.add(evidence=_put(after.receipt.evidence, item))


def _trace(after: AfterRounds) -> None:
    job = None
    runners = put_reference_first(after.runners, after.receipt.ladder)
    if after.options.trace == "worker":
        job = TraceJob.of(after.workspace.loaded, [item.place for item in runners])
        after.tell("tracing kernels in a process of their own")
    found = trace_runners(
        after.workspace.loaded,
        runners,
        after.receipt.evidence,
        job=job,
        progress=after.progress,
    )
    for item, trace in found:
        after.add(evidence=_put(after.receipt.evidence, item))
        after.traces = (*after.traces, *([trace] if trace else []))


def _has_feeds(after: AfterRounds) -> bool:
    return bool(after.workspace.loaded.feeds)


def _has_both(after: AfterRounds) -> bool:
    """Whether there is eager with Python and without: what is between them is Python's."""
    wanted = (("eager", "python"), after.receipt.ladder.without_python)
    return {*wanted} <= {rung.place for rung in after.receipt.rungs}


def _wants_look(after: AfterRounds) -> bool:
    return after.on_gpu and after.options.trace != "none" and after.is_whole


AFTER: tuple[Instrument, ...] = (
    Instrument(
        "timing collectives with the other ranks",
        "waiting for other ranks was not told from communication",
        lambda after: after.is_whole and after.ranks is not None,
        _time_collectives,
    ),
    Instrument(
        "timing the first rung alone and among the others",
        "whether runners disturb each other was not tested",
        lambda after: after.is_whole and after.ranks is None,
        _check_crowd,
    ),
    Instrument(
        "timing requests back to back",
        "throughput was not measured",
        lambda after: after.options.throughput and after.is_whole,
        _time_throughput,
    ),
    Instrument(
        "timing operators",
        "operators were not timed",
        lambda after: after.options.operators,
        _time_operators,
    ),
    Instrument(
        "sampling Python",
        "where Python's time goes was not sampled",
        lambda after: (
            after.options.operators
            and after.is_whole
            and not after.workspace.is_compiled
            and _has_both(after)
        ),
        _sample_python,
    ),
    Instrument(
        "timing phases",
        "the phases of the step were not timed",
        # Of compiled code, which the marks would break into pieces, nothing is timed.
        lambda after: (
            (after.workspace.loaded.has_autograd or _has_feeds(after))
            and after.is_whole
            and not after.workspace.is_compiled
        ),
        _time_phases,
    ),
    Instrument(
        "timing Python outside of torch",
        "Python outside of torch was not told apart",
        lambda after: (
            after.workspace.loaded.kind == "step"
            and after.is_whole
            and len(after.receipt.rungs) > 1
            and not after.workspace.is_compiled
        ),
        _time_outside,
    ),
    Instrument(
        "finding waits",
        "where it waits for the device was not looked at",
        lambda after: after.on_gpu and after.is_whole,
        _find_waits,
    ),
    Instrument(
        "timing the machine",
        "the floors of this machine were not timed",
        lambda after: True,
        _time_floors,
    ),
    Instrument(
        "reading the GPU",
        "the GPU was not read",
        lambda after: after.options.energy and after.is_whole,
        _read_gpu,
    ),
    Instrument("holding the device still", "issue times were not measured", _wants_look, _gate),
    Instrument("tracing kernels", "the runtimes were not traced", _wants_look, _trace),
)
