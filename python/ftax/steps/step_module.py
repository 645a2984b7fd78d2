"""A step as a module: its parts are the modules that it calls, and what it writes is its state.

Both are found by watching the step run. Forward returns, with the outputs, what was written. So all
that checks, records or replays the outputs of a module does the same to those of a step, weights
and optimizer included.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from ftax import _core
from ftax.errors import RunnerError, UnsupportedError, describe_fault
from ftax.steps.collectives import refuse_collectives
from ftax.steps.feeds import Feed, put_feeds
from ftax.steps.input_trees import flatten_tensors
from ftax.steps.kept_python import find_changes
from ftax.steps.module_calls import describe_change, log_operators, watch_module_calls
from ftax.steps.outputs import find_tensors
from ftax.steps.random_states import list_own_generators, random_states_as_operators
from ftax.steps.seen import Seen
from ftax.steps.setting import GradMode
from ftax.steps.step import Step
from ftax.steps.train import explain_closure, needs_closure
from ftax.steps.user_inputs import split_inputs
from ftax.steps.writes import Made, Writes, count_kept, find_storage

_WATCHED_CALLS = 3  # the first makes an optimizer's state, the second writes it; two show growth
_WATCHED_CALLS_OF_A_CAPTURE = 2  # whose replays leave nothing behind
_COMPILING_CALLS = 2  # whose operator calls are in part those of the compiler
_SMALL_BYTES = 1 << 16
_MOST_CHANGES = 5  # in a message


class StepModule(nn.Module):
    """``written``: the memory that the step writes and did not allocate, whole, as tensors that
    autograd does not see; ``returned``: what of it is compared, as an output is; ``generators``:
    those of the user's from which it draws, with the states that they have before each call."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        self.written: list[torch.Tensor] = []
        self.returned: list[torch.Tensor] = []
        self.written_inputs: tuple[int, ...] = ()  # places among the tensors of the inputs
        self.leaves: list[torch.Tensor] = []  # of autograd, which it was seen to reach
        self.kept_bytes = 0  # that each call leaves behind in Python, of what it makes
        self.generators: list[tuple[torch.Generator, torch.Tensor]] = []
        self._decisive, self._bulky = _core.SavedState([]), _core.SavedState([])
        self.is_compiled = False  # in part, by torch.compile
        self.varying: Optimizer | None = None  # whose state decides how much work is done
        self._rewind: Callable[[], None] | None = None  # puts back what optimizers keep in Python
        self.iterators: tuple[
            str, ...
        ] = ()  # from which it takes, and which give the same each time
        self._feeds: list[Feed] = []
        self.records_random_states = False  # reads and sets them by operators
        self.grad_modes: frozenset[GradMode | None] = frozenset()  # in which operators were called
        self._returns_tensors: bool | None = None  # not known yet

    @property
    def has_state(self) -> bool:
        """Whether there is anything to put back."""
        keeps = self.step.reset is not None or self._rewind is not None
        return keeps or bool(self.written)

    @property
    def mixes_inference(self) -> bool:
        """Whether it enters inference mode beside operators that autograd records."""
        return {"grad", "inference"} <= self.grad_modes

    def prepare(self) -> None:
        """Put back what decides which work is done: for whoever calls the step outside a runner."""
        self._decisive.put_back()
        for generator, state in self.generators:
            generator.set_state(state)
        try:
            self._reset()
        except (Exception, SystemExit) as error:
            raise RunnerError(
                f"{self.step.name}, being reset, raised {describe_fault(error)}"
            ) from error

    def put_back(self) -> None:
        """Put back all that was written, weights too: for whoever calls the step outside a
        runner."""
        self._bulky.put_back()
        self.prepare()

    def _reset(self) -> None:
        if self._rewind is not None:
            self._rewind()
        if self.step.reset is not None:
            self.step.reset()

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, list[torch.Tensor]]:
        """The step once. What was written is returned where it is on the step's own device; of
        its inputs, those that it was called with."""
        # Beside other threads no state of a generator of theirs is set.
        as_operators = self.records_random_states or list_own_generators()
        with random_states_as_operators() if as_operators else nullcontext():
            result = self.collect(lambda: self.step.function(*args, **kwargs))
        return result, self.list_returned(args, kwargs)

    def collect(self, call: Callable[[], Any]) -> Any:
        """What ``call`` of the step is compared by: of any result its tensors; of one without any,
        what the outermost modules gave, each at its last call."""
        if self.step.kind == "call":
            return call()
        if self._returns_tensors:
            return find_tensors(call())
        given: dict[int, Any] = {}
        depth = 0

        def enter(_part: nn.Module, _args: Any) -> None:
            nonlocal depth
            depth += 1

        def leave(part: nn.Module, _args: Any, output: Any) -> None:
            nonlocal depth
            depth -= 1
            if depth == 0:
                given[id(part)] = output

        with watch_module_calls(enter, leave):
            result = call()
        found = find_tensors(result)
        if self._returns_tensors is None:
            self._returns_tensors = bool(found)
        return found or find_tensors(list(given.values()))

    def list_returned(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """What is compared, as outputs are, after a call on these inputs."""
        if not self.written_inputs:
            return self.returned
        inputs = flatten_tensors((args, kwargs))
        return [*self.returned, *(inputs[place].detach() for place in self.written_inputs)]

    def choose_returned(self, device: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """From now on return what was written on ``device``. The memory of inputs, and of their
        gradients, is not that of another input."""
        inputs = flatten_tensors((args, kwargs))
        written = {find_storage(item) for item in self.written}
        self.written_inputs = tuple(
            place for place, item in enumerate(inputs) if find_storage(item) in written
        )
        theirs = {find_storage(item) for item in inputs}
        theirs |= {find_storage(item.grad) for item in inputs if item.grad is not None}
        self.returned = [
            item
            for item in self.written
            if str(item.device) == device and find_storage(item) not in theirs
        ]

    def find_state(self, call: Callable[[], object]) -> Callable[[], None]:
        """Watch ``call`` run the step; returns what undoes all that these calls left behind.

        Raises UnsupportedError if its work changes from call to call.
        """
        feeds, take_out = put_feeds(self.step.function) if self.step.kind != "call" else ([], None)
        writes = Writes()
        seen = Seen(self, self.step, writes)

        def undo() -> None:
            seen.undo()
            if take_out is not None:
                take_out()

        try:
            self._watch(call, seen, writes)
        except BaseException:  # also Ctrl-C
            undo()
            raise
        self.iterators = tuple(name for feed, name in feeds if feed.was_asked)
        self._feeds = [feed for feed, _ in feeds if feed.was_asked]
        return undo

    @property
    def feeds(self) -> list[Feed]:
        """Where its batches come from."""
        return self._feeds if self.step.feed is None else [*self._feeds, self.step.feed]

    def call_on_next(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The step on the next batch of its loader; on these inputs where it has none."""
        if self.step.feed is not None:
            args, kwargs = split_inputs(next(self.step.feed))
        return self.step.function(*args, **kwargs)

    def _watch(self, call: Callable[[], object], seen: Seen, writes: Writes) -> None:
        for tensor in self.step.state:
            writes.keep(tensor)
        made: list[list[Made]] = []
        is_call = self.step.kind == "call"
        for turn in range(_WATCHED_CALLS_OF_A_CAPTURE if is_call else _WATCHED_CALLS):
            self.prepare()
            with seen.watch(), writes, ExitStack() as stack:
                if turn == 0:
                    stack.enter_context(refuse_collectives(self.step.name, seen.reached))
                call()
            writes.settle_layouts()
            made.append(writes.take_made())
            if turn == 0 and not any(map(needs_closure, seen.stepped)):
                seen.note_progress()  # the first call has made what an optimizer keeps
        self.written = writes.list_memory()
        self.leaves = seen.list_leaves()
        self.generators = writes.list_generators()
        self.is_compiled = writes.met_compiled
        self.grad_modes = frozenset(writes.grad_modes)
        writes.put_back()
        self._follow_optimizers(seen)
        self._save_written()
        self._check_same_work(call, writes)
        held = {find_storage(item) for item in (*self.parameters(), *self.buffers())}
        # The first call's are those of a state.
        self.kept_bytes = 0 if is_call else count_kept(made[1:], held)
        writes.put_back()

    def _follow_optimizers(self, seen: Seen) -> None:
        """Have what optimizers and schedules keep in Python put back before each run; where one
        calls its closure as often as values ask for, all that it finds. Raises UnsupportedError for
        a capture of that, which goes on from there.
        """
        self.varying = next(filter(needs_closure, seen.stepped), None)
        if self.step.kind != "call" and seen.has_progressed:
            self._rewind = seen.rewind
        if self.varying is None:
            return
        if self.step.kind == "call":
            raise UnsupportedError(
                f"cannot capture {self.step.name}: {explain_closure(self.varying)}"
            )

    def _save_written(self) -> None:
        """From now on put back what is written, all of which is now as it was found."""
        decisive = [item for item in self.written if self.varying is not None or _decides(item)]
        bulky = [item for item in self.written if self.varying is None and not _decides(item)]
        self._decisive = _core.SavedState(decisive)
        self._bulky = _core.SavedState(bulky)

    def _check_same_work(self, call: Callable[[], object], writes: Writes) -> None:
        """Raises UnsupportedError if two calls from the same tensors do not make the same operator
        calls."""
        logs = []
        for _ in range(2 + (_COMPILING_CALLS if self.is_compiled else 0)):
            writes.put_back()
            self.prepare()
            logs.append(log_operators(call))
        if what := describe_change(*logs[-2:]):
            is_capture = self.step.kind == "call"
            whose = (
                f"cannot capture {self.step.name}: its work"
                if is_capture
                else "the work of this step"
            )
            raise UnsupportedError(
                f"{whose} changes from call to call: {what}. {self.say_changes(call)}"
            )

    def say_changes(self, call: Callable[[], object]) -> str:
        """What ``call`` changes that is not put back, and what to do."""

        def run() -> None:
            call()
            self.prepare()

        found = find_changes(run, self.step.function, self.step.inputs)
        named = ", ".join(found[:_MOST_CHANGES])
        what = f"Each call changes {named}" if named else "What it keeps in Python was not found"
        return (
            f"{what}: bring that back by reset=, a function without arguments that is called "
            "before each run, outside its time"
        )

    def wrap_runner(self, runner: _core.Runner) -> _core.Runner:
        """``runner`` with the state put back outside its time."""
        if not self.has_state:
            return runner
        reset = self.step.reset if self._rewind is None else self._reset
        return _core.StateRunner(runner, self._decisive, self._bulky, reset)


def _decides(tensor: torch.Tensor) -> bool:
    """Whether its values may decide which work is done: positions, counters, lengths."""
    small = tensor.numel() * tensor.element_size() <= _SMALL_BYTES
    return small and not (tensor.is_floating_point() or tensor.is_complex())
