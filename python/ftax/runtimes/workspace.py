"""What the runtimes of one model share, made once and only when somebody asks: the reference
outputs, the tape, the flat program, the captured graph, and artefacts on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from ftax import _core
from ftax.errors import (
    FtaxError,
    InvalidArgumentError,
    UnsupportedError,
    describe,
    name_faults,
)
from ftax.runtimes.cache import Artefact, describe_program, get_or_make, make_key
from ftax.runtimes.cost import Cost, measure_cost
from ftax.runtimes.same_work import WorkWatch
from ftax.steps.collectives import is_distributed, refuse_collectives
from ftax.steps.compiled_graphs import list_called_graphs
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model, flatten_outputs
from ftax.steps.random_states import random_states_as_operators
from ftax.tape.capture import CapturedGraph, capture, make_stream, wrap_runner
from ftax.tape.equality import Spread, allow_unsteady, compare_outputs
from ftax.tape.flat import FlatProgram, make_flat
from ftax.tape.flow import find_dependent_reads, list_collectives
from ftax.tape.recording import describe_place, observe
from ftax.tape.tape import (
    Taped,
    find_unsteady,
    make_tape,
    preserve_state,
    run_eager,
    settle,
)
from ftax.timing.candidate import Preparation
from ftax.timing.checks import Equality

Kept = TypeVar("Kept")

# What only a GPU has, and why.
_ON_GPUS = {"transfers": ", whose memory is the host's", "cold": ""}


class Workspace:
    """The shared parts of preparing ``loaded``, to be run as its setting says."""

    def __init__(self, loaded: LoadedModel) -> None:
        if loaded.is_compiled is None:  # it has not run yet, as a step has
            _refuse_collectives(loaded)
        self.loaded = _choose_check_inputs(loaded) if loaded.pair.is_drawn else loaded
        self.setting = loaded.setting
        self._tape_cost = self._capture_cost = Cost()
        self._variants: dict[str, tuple[Workspace, Preparation]] = {}
        self._kept: dict[str, Any] = {}
        self._unsteady: dict[bool, dict[int, Spread]] = {}  # on the second inputs too
        for name, why in _ON_GPUS.items():
            if getattr(loaded.setting, name) and loaded.device == "cpu":
                raise InvalidArgumentError(
                    f"{name} is asked for, but the device is 'cpu'{why}; give device='cuda'"
                )

    @cached_property
    def is_compiled(self) -> bool:
        """Whether torch.compile made a part of the model."""
        return settle(self.loaded)

    @cached_property
    def runs_compiled(self) -> bool:
        """Whether compiled code is what a call runs; it may be as it was written all the same."""
        return self.is_compiled and bool(self.reference) and self._runs_compiled_now()

    def _runs_compiled_now(self) -> bool:
        with preserve_state(self.loaded), self.loaded.guard():
            return bool(list_called_graphs(self.loaded.call))

    @cached_property
    def reference(self) -> tuple[torch.Tensor, ...]:
        """Eager outputs on the main inputs."""
        _ = self.is_compiled  # for which it is settled
        return run_eager(self.loaded.call, self.loaded)

    @cached_property
    def check_reference(self) -> tuple[torch.Tensor, ...]:
        """Eager outputs on the check inputs."""
        return run_eager(self.loaded.call_check, self.loaded)

    def compare(
        self,
        reference: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        second: bool = False,
    ) -> Equality:
        """``outputs`` with eager's, on the main or on the second inputs. Kernels may sum in another
        order each time: what neither eager nor the tape give twice may be others here too."""
        found = compare_outputs(reference, outputs)
        if found.within_tolerance or not isinstance(self._taped, Taped):
            return found
        if second not in self._unsteady:
            tape = self.taped.tape
            self._unsteady[second] = find_unsteady(self.loaded, tape, second=second)
        return allow_unsteady(found, reference, outputs, self._unsteady[second])

    def watch_work(self) -> WorkWatch:
        """What looks whether later calls are the work of the tape, if one was recorded, or else of
        the first call."""
        taped = self.__dict__.get("_taped")
        if isinstance(taped, Taped):
            calls, share = taped.calls, 0.25
            return WorkWatch(self.loaded, calls, self.reference, share=share, compare=self.compare)
        return WorkWatch(
            self.loaded,
            reference=self.reference,
            is_compiled=self.is_compiled,
            still_compiled=self._runs_compiled_now if self.runs_compiled else None,
        )

    @cached_property
    def _taped(self) -> Taped | FtaxError:
        try:
            with (
                name_faults("the model could not be taped"),
                measure_cost(self.loaded.device) as self._tape_cost,
            ):
                return self._make_tape()
        except FtaxError as error:
            return error

    def _make_tape(self) -> Taped:
        taped = self._make_any_tape()
        if self.loaded.kind != "call":  # a capture decides by what is done with what is read
            _refuse_reads_of_others(taped.tape)
        return taped

    def _make_any_tape(self) -> Taped:
        try:
            return make_tape(self.loaded)
        except UnsupportedError as error:
            step = self.loaded.step
            if step is None or not _sets_random_states(self.loaded):
                raise
            if self.loaded.device != "cpu":
                raise UnsupportedError(
                    "cannot tape this model: it draws random numbers again that it has drawn, as "
                    "torch.utils.checkpoint does of the forward pass, and on a GPU that is not "
                    "recorded: give checkpoint preserve_rng_state=False where nothing draws, or "
                    f"take dropout out of what is checkpointed ({error})"
                ) from error
            step.records_random_states = True
        return make_tape(self.loaded)

    @property
    def waits_for_collectives(self) -> bool:
        """Whether a tape was made, and says that each collective is waited for where it begins."""
        taped = self.__dict__.get("_taped")
        return isinstance(taped, Taped) and not any(
            call["overlaps"] for call in list_collectives(taped.tape)
        )

    @property
    def taped(self) -> Taped:
        """The checked tape. Raises what `make_tape` raised, each time without trying again."""
        if isinstance(self._taped, FtaxError):
            raise self._taped
        return self._taped

    def find_dependent_read(self) -> str:
        """The first call of the tape that reads a number which depends on inputs, state or random
        numbers; "" where none does, or no tape was made."""
        taped = self.__dict__.get("_taped")
        reads = find_dependent_reads(taped.tape) if isinstance(taped, Taped) else ()
        return describe_place(self.taped.tape.calls[reads[0]]) if reads else ""

    @cached_property
    def flat(self) -> FlatProgram:
        """Straight-line Python of the tape."""
        with preserve_state(self.loaded):
            return make_flat(self.taped.tape, self.loaded.flat_inputs())

    @cached_property
    def stream(self) -> torch.cuda.Stream | None:
        """The stream that all runners of this workspace share; None on a CPU."""
        return make_stream(self.loaded.device)

    def on_stream(self, runner: _core.Runner) -> _core.Runner:
        """``runner`` on the shared stream; on a CPU, itself."""
        return wrap_runner(runner, self.stream)

    @cached_property
    def _captured(self) -> CapturedGraph | FtaxError:
        try:
            taped = self.taped  # first, so that its cost is its own
            with measure_cost(self.loaded.device) as self._capture_cost:
                return capture(self.loaded, taped)
        except FtaxError as error:
            return error

    @property
    def graph(self) -> CapturedGraph:
        """The CUDA graph of the tape. Raises what taping or `capture` raised, each time without
        trying again."""
        if isinstance(self._captured, FtaxError):
            raise self._captured
        return self._captured

    def shared_cost(self, *, graph: bool = False) -> Preparation:
        """What the tape cost, and with ``graph`` its capture: for each runtime that needs it,
        whichever came first and waited for it."""
        costs = [self._tape_cost, *([self._capture_cost] if graph else [])]
        hosts = [cost.peak_host_bytes for cost in costs if cost.peak_host_bytes is not None]
        devices = [cost.peak_device_bytes for cost in costs if cost.peak_device_bytes is not None]
        total = Cost(
            seconds=sum(cost.seconds for cost in costs),
            peak_host_bytes=max(hosts, default=None),
            peak_device_bytes=max(devices, default=None),
        )
        return total.to_preparation()

    @cached_property
    def _program(self) -> list[str] | None:
        if isinstance(self._taped, FtaxError):
            return None
        return describe_program(self._taped.tape, self.loaded.module)

    def variant(
        self, name: str, make: Callable[[LoadedModel], LoadedModel]
    ) -> tuple[Workspace, Preparation]:
        """A workspace of a changed form of this model, made once a name, and what making it cost.

        What ``make`` raises is passed on.
        """
        if name not in self._variants:
            with measure_cost(self.loaded.device) as cost:
                loaded = replace(make(self.loaded), again=None)  # no longer what they make
            pair = replace(loaded.pair, is_drawn=False)  # chosen for this model already
            loaded = replace(loaded, pair=pair)
            made = Workspace(loaded)
            self._variants[name] = made, cost.to_preparation()
        return self._variants[name]

    def keep(self, name: str, make: Callable[[], Kept]) -> Kept:
        """What several runtimes of this model need, made by whichever asks first. What ``make``
        raises of ftax's errors is raised each time."""
        if name not in self._kept:
            try:
                self._kept[name] = make()
            except FtaxError as error:
                self._kept[name] = error
        found: Kept | FtaxError = self._kept[name]
        if isinstance(found, FtaxError):
            raise found
        return found

    def artefact(
        self,
        kind: str,
        options: Mapping[str, object],
        make: Callable[[Path], Mapping[str, object]],
    ) -> Artefact:
        """Get or make an artefact of this model; its facts say what making it cost (`Cost`).

        A module that lives only in this process and cannot be taped has nothing to be recognised
        by, so its artefacts are not kept.
        """
        loaded = self.loaded
        program = [] if loaded.identity() else self._program
        key = make_key(kind, loaded, options, program or [])
        return get_or_make(key, kind, self._with_cost(make), keep=program is not None)

    def _with_cost(
        self, make: Callable[[Path], Mapping[str, object]]
    ) -> Callable[[Path], dict[str, object]]:
        def make_with_cost(folder: Path) -> dict[str, object]:
            with measure_cost(self.loaded.device) as cost:
                facts = make(folder)
            return {**facts, **cost.to_preparation().to_dict()}

        return make_with_cost


def _sets_random_states(loaded: LoadedModel) -> bool:
    """Whether a run reads or sets the state of torch's generator."""
    with preserve_state(loaded), loaded.guard(), random_states_as_operators() as calls:
        call_model(loaded.call)
    return calls.count > 0


def _refuse_reads_of_others(tape: _core.Tape) -> None:
    """Raise UnsupportedError for a tape whose collectives may be others than those of a call that
    other ranks answer."""
    collectives = list_collectives(tape)
    if collectives and (reads := find_dependent_reads(tape)):
        raise UnsupportedError(
            "cannot tape this step: it communicates with other ranks, and reads a number "
            f"({describe_place(tape.calls[reads[0]])}) on which its collectives may depend: return "
            "the tensor"
        )
    groups = {call["group"] for call in collectives if call["group"]}
    if len(groups) > 1 and any(call["overlaps"] for call in collectives):
        raise UnsupportedError(
            f"cannot tape this step: it communicates with {len(groups)} process groups, and where "
            "it waits for which no recording tells: wait for each (async_op=False)"
        )


def _refuse_collectives(loaded: LoadedModel) -> None:
    """Raise UnsupportedError for a model that communicates with other processes."""
    if is_distributed():
        with preserve_state(loaded), loaded.guard(), refuse_collectives(loaded.name):
            call_model(loaded.call)


def _choose_check_inputs(loaded: LoadedModel) -> LoadedModel:
    """``loaded`` with check inputs that it takes, on the path of its main ones where constants
    decide on that: a mask of ones may be one that the model leaves out."""
    with suppress(Exception):  # which `main` meets again
        settle(loaded)
    second = _try(loaded, loaded.call_check)
    if second.is_good and not loaded.pair.varied:
        return loaded
    main = _try(loaded, loaded.call)
    if main.error:  # which is for whoever runs it first
        return loaded
    if second.is_like(main):
        return loaded
    if loaded.pair.steady_check is not None:
        steady = loaded.keep_constants()
        again = _try(steady, steady.call_check)
        if again.is_good or (main.has_nan and not again.error):
            return steady
        second = again
    if second.error:
        return loaded.check_on_own(f"raised {second.error}")
    if second.has_nan and not main.has_nan:
        return loaded.check_on_own("gives NaN")
    return loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """A call: its operators, whether an output is not a number, and what it raised."""

    names: Sequence[str] = ()
    has_nan: bool = False
    error: str = ""

    @property
    def is_good(self) -> bool:
        return not (self.error or self.has_nan)

    def is_like(self, main: _Tried) -> bool:
        """Whether it took the path of the main inputs, and found numbers where they do."""
        return not self.error and self.names == main.names and self.has_nan <= main.has_nan


def _try(loaded: LoadedModel, call: Callable[[], Any]) -> _Tried:
    outputs: list[Any] = []
    try:
        with preserve_state(loaded):
            calls = observe(lambda: outputs.append(call()), has_autograd=loaded.has_autograd)
            found = flatten_outputs(outputs)
            has_nan = any(bool(item.isnan().any()) for item in found if item.is_floating_point())
    except Exception as error:  # whatever a model raises
        return _Tried(error=describe(error).removeprefix("the model raised "))
    return _Tried(names=[item.name for item in calls], has_nan=has_nan)
