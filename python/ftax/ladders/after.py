"""What follows the rounds of receipts: a list of instruments, in the one order in which nothing
spoils what comes next, and the one loop that runs it, each over all receipts of the rounds.

Requests are timed before anything else has left its mark, then parts of the model and the machine;
what looks at a GPU follows, and traces are last, since what has been traced is slower for the rest
of the process. The surprising choice: an instrument is a generator. It hands over the scene with
what it has found as soon as it has found it; a fault, or Ctrl-C, costs what was not found yet, and
a warning that says what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from ftax.errors import FAULTS, describe, is_out_of_memory, release
from ftax.instruments.outside import time_outside
from ftax.instruments.phases import time_phases
from ftax.instruments.readings import collect_gpu_readings
from ftax.instruments.trace.records import Trace
from ftax.ladders.floors import measure_floors
from ftax.ladders.job import Job
from ftax.ladders.look import gate_runners, put_reference_first, trace_runners
from ftax.ladders.options import TaxOptions
from ftax.ladders.receipt import OperatorCost, Receipt
from ftax.runtimes.tape.tape import preserve_state
from ftax.runtimes.tape.waits import find_waits
from ftax.runtimes.workspace import Workspace
from ftax.steps.outputs import call_model
from ftax.steps.step_module import StepModule
from ftax.timing.candidate import Candidate, Placed
from ftax.timing.crowd import check_crowd
from ftax.timing.interrupts import interruptible
from ftax.timing.session import Plan, Progress, measure
from ftax.timing.statistics import compute_mean
from ftax.timing.units import format_time

_PROFILE_SECONDS = 1.0
_LEAST_OUTSIDE = 0.05  # of the latency: what tensors take to be freed is less
_THROUGHPUT_ROUNDS = 10
_TAPE = ("eager", "cpp")  # what runs the tape whose operators are timed

_Item = TypeVar("_Item", bound=Placed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is looked at: the receipt of the rounds, the runtimes that came through them, first the
    first rung, and the traces that were taken."""

    workspace: Workspace
    runners: tuple[Candidate, ...]
    options: TaxOptions
    plan: Plan
    progress: Progress | None
    receipt: Receipt
    traces: tuple[Trace, ...] = ()

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

    def add(self, **fields: Any) -> Self:
        """With these fields of the receipt."""
        return replace(self, receipt=replace(self.receipt, **fields))

    def warn(self, *texts: str) -> Self:
        """With what a reader of the receipt has to know."""
        return self.add(warnings=(*self.receipt.warnings, *texts))

    def interrupt(self, text: str) -> Self:
        """With what a reader has to know after Ctrl-C, which the receipt keeps in mind."""
        return self.warn(text).add(preparation={"interrupted": True})


@dataclass(frozen=True, slots=True)
class Instrument:
    """One kind of look.

    Attributes:
        phase: what the progress calls it: "timing operators".
        missing: how the warning begins where it fails: "operators were not timed".
        is_wanted: whether it is asked for, and can be had of this scene.
        look: the scene with what was found, as often as something was.
    """

    phase: str
    missing: str
    is_wanted: Callable[[Scene], bool]
    look: Callable[[Scene], Iterator[Scene]]


def look_closer(instruments: Sequence[Instrument], scenes: Sequence[Scene]) -> list[Scene]:
    """The scenes with all that the instruments, in this order, find of each."""
    scenes = list(scenes)
    for place, instrument in enumerate(instruments):
        for index, scene in enumerate(scenes):
            if not instrument.is_wanted(scene):
                continue
            try:
                interruptible(_look, instrument, scenes, index)
            except FAULTS as error:
                if is_out_of_memory(error):
                    release(error)
                scenes[index] = scenes[index].warn(f"{instrument.missing}: {describe(error)}")
            except KeyboardInterrupt:
                return [
                    _interrupt(scene, instruments[place + (done < index) :])
                    for done, scene in enumerate(scenes)
                ]
    return scenes


def _look(instrument: Instrument, scenes: list[Scene], index: int) -> None:
    """Put the scene with what was found in its place, as often as something was."""
    scene = scenes[index]
    scene.tell(instrument.phase)
    for scenes[index] in instrument.look(scene):
        pass


def _interrupt(scene: Scene, left: Sequence[Instrument]) -> Scene:
    missing = [item.missing for item in left if item.is_wanted(scene)]
    return scene.interrupt(f"interrupted after the rounds: {'; '.join(missing)}")


def _put(items: Iterable[_Item], new: _Item) -> tuple[_Item, ...]:
    """``items`` with ``new`` in the place of the one of its runtime and host, or at the end."""
    return tuple({**{item.place: item for item in items}, new.place: new}.values())


def _check_crowd(scene: Scene) -> Iterator[Scene]:
    receipt = scene.receipt
    runners = [item.runner for item in scene.runners]
    measured = (*receipt.rungs, *receipt.others)
    if found := check_crowd(runners, measured, scene.plan, name=receipt.ladder.top):
        yield scene.warn(found)


def _time_throughput(scene: Scene) -> Iterator[Scene]:
    """A short session of its own, interleaved too, with requests back to back. Where all have to be
    prepared before each request (a cold cache), measuring says so."""
    short = replace(scene.plan, mode="throughput", rounds=_THROUGHPUT_ROUNDS, warmup=None)
    able = [item for item in scene.runners if not item.runner.needs_prepare] or scene.runners
    session = measure(scene.workspace.loaded, able, short, scene.progress)
    yield scene.add(throughputs=tuple(item for item in session.measurements if item)).warn(
        *(
            f"throughput of {item.runtime} was not measured: it has to be prepared before each "
            "request"
            for item in scene.runners
            if item not in able
        )
    )
    if session.stop_reason == "interrupted":
        raise KeyboardInterrupt


def _time_operators(scene: Scene) -> Iterator[Scene]:
    """Each operator of the tape, for about a second."""
    rung = next((rung for rung in scene.receipt.rungs if rung.place == _TAPE), None)
    if rung is None:
        return
    tape, loaded = scene.workspace.taped.tape, scene.workspace.loaded
    repetitions = int(_PROFILE_SECONDS * 1e9 / max(rung.latency_ns, 1.0))
    costs = tape.profile(min(200, max(3, repetitions)), loaded.prepare)
    yield scene.add(
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


def _time_phases(scene: Scene) -> Iterator[Scene]:
    """Of Python eager, as the step is written."""
    loaded = scene.workspace.loaded
    module = loaded.module
    assert isinstance(module, StepModule)

    def run() -> None:  # what the model raises, costs the phases and not the receipt
        call_model(lambda: module.call_on_next(loaded.args, dict(loaded.kwargs)))

    with preserve_state(loaded), loaded.guard():
        phases = time_phases(run, loaded.prepare, loaded.device, module.feeds)
    scene = scene.add(phases=phases)
    yield scene.warn(*_describe_loader(scene.receipt.loader_ns))


def _time_outside(scene: Scene) -> Iterator[Scene]:
    """Of Python eager, how long it is outside of torch; nothing where that is next to nothing."""
    loaded = scene.workspace.loaded
    call = loaded.bind()
    with preserve_state(loaded), loaded.guard():
        found = time_outside(lambda: call_model(call), loaded.prepare)
    if compute_mean(found) >= _LEAST_OUTSIDE * scene.receipt.latency_ns:
        yield scene.add(outside_ns=found)


def _describe_loader(own_ns: float) -> Iterator[str]:
    if own_ns:
        yield (
            f"the loader takes {format_time(own_ns)} more a step, timed after the rounds, in which "
            "each run had the same batch"
        )


def _find_waits(scene: Scene) -> Iterator[Scene]:
    if not scene.workspace.is_compiled:  # or the waits found would be those of what was compiled
        yield scene.add(waits=find_waits(scene.workspace.loaded))


def _time_floors(scene: Scene) -> Iterator[Scene]:
    floors = measure_floors(device=scene.workspace.loaded.device, quick=True)
    yield scene.add(floors_ns={floor.name: floor.time_ns for floor in floors})


def _read_gpu(scene: Scene) -> Iterator[Scene]:
    for item in collect_gpu_readings(scene.runners, device=scene.workspace.loaded.device):
        scene = scene.add(readings=_put(scene.receipt.readings, item))
        yield scene


def _gate(scene: Scene) -> Iterator[Scene]:
    for item in gate_runners(scene.runners, scene.receipt.ladder, scene.progress):
        scene = scene.add(evidence=_put(scene.receipt.evidence, item))
        yield scene


def _trace(scene: Scene) -> Iterator[Scene]:
    job = None
    runners = put_reference_first(scene.runners, scene.receipt.ladder)
    if scene.options.trace == "worker":
        job = Job.of(scene.workspace.loaded, [item.place for item in runners])
        scene.tell("tracing kernels in a process of their own")
    found = trace_runners(
        scene.workspace.loaded,
        runners,
        scene.receipt.evidence,
        job=job,
        progress=scene.progress,
    )
    for item, trace in found:
        scene = scene.add(evidence=_put(scene.receipt.evidence, item))
        scene = replace(scene, traces=(*scene.traces, *([trace] if trace else [])))
        yield scene


def _has_feeds(scene: Scene) -> bool:
    module = scene.workspace.loaded.module
    return isinstance(module, StepModule) and bool(module.feeds)


def _wants_look(scene: Scene) -> bool:
    return scene.on_gpu and scene.options.trace != "none" and scene.is_whole


AFTER: tuple[Instrument, ...] = (
    Instrument(
        "timing the first rung alone and among the others",
        "whether runners disturb each other was not tested",
        lambda scene: scene.is_whole,
        _check_crowd,
    ),
    Instrument(
        "timing requests back to back",
        "throughput was not measured",
        lambda scene: scene.options.throughput and scene.is_whole,
        _time_throughput,
    ),
    Instrument(
        "timing operators",
        "operators were not timed",
        lambda scene: scene.options.operators,
        _time_operators,
    ),
    Instrument(
        "timing phases",
        "the phases of the step were not timed",
        # Of compiled code, which the marks would break into pieces, nothing is timed.
        lambda scene: (
            (scene.workspace.loaded.has_autograd or _has_feeds(scene))
            and scene.is_whole
            and not scene.workspace.is_compiled
        ),
        _time_phases,
    ),
    Instrument(
        "timing Python outside of torch",
        "Python outside of torch was not told apart",
        lambda scene: (
            scene.workspace.loaded.kind == "step"
            and scene.is_whole
            and len(scene.receipt.rungs) > 1
            and not scene.workspace.is_compiled
        ),
        _time_outside,
    ),
    Instrument(
        "finding waits",
        "where it waits for the device was not looked at",
        lambda scene: scene.on_gpu and scene.is_whole,
        _find_waits,
    ),
    Instrument(
        "timing the machine",
        "the floors of this machine were not timed",
        lambda scene: True,
        _time_floors,
    ),
    Instrument(
        "reading the GPU",
        "the GPU was not read",
        lambda scene: scene.options.energy and scene.is_whole,
        _read_gpu,
    ),
    Instrument("holding the device still", "issue times were not measured", _wants_look, _gate),
    Instrument("tracing kernels", "the runtimes were not traced", _wants_look, _trace),
)
