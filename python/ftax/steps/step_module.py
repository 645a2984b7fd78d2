"""A step as a module: its parts are the modules that it calls, and what it writes is its state.

Both are found by watching the step run. The surprising choice: forward returns, with the outputs,
what was written. So all that checks, records or replays the outputs of a module does the same to
those of a step, weights and optimizer included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from ftax import _core
from ftax.errors import RunnerError, UnsupportedError
from ftax.steps.collectives import refuse_collectives
from ftax.steps.input_trees import flatten_tensors
from ftax.steps.optimizers import explain_closure, needs_closure
from ftax.steps.own_generators import list_own_generators
from ftax.steps.random_states import random_states_as_operators
from ftax.steps.seen import Seen
from ftax.steps.step import Step
from ftax.steps.writes import Made, Writes, count_kept, find_storage

_WATCHED_CALLS = 3  # the first makes an optimizer's state, the second writes it
_COMPILING_CALLS = 2  # whose operator calls are in part those of the compiler
_SMALL_BYTES = 1 << 16


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
        self.records_random_states = False  # reads and sets them by operators
        self._theirs: list[torch.Tensor] = []  # that steps beside it write, and it does not
        self._decisive_theirs = _core.SavedState([])

    @property
    def has_state(self) -> bool:
        """Whether there is anything to put back."""
        return bool(self.written or self._theirs) or self.step.reset is not None

    def prepare(self) -> None:
        """Put back what decides which work is done: for whoever calls the step outside a runner."""
        self._decisive_theirs.put_back()
        self._decisive.put_back()
        for generator, state in self.generators:
            generator.set_state(state)
        try:
            self._reset()
        except (Exception, SystemExit) as error:
            raise RunnerError(
                f"{self.step.name}, being reset, raised {type(error).__name__}: {error}"
            ) from error

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
            result = self.step.function(*args, **kwargs)
        return result, self.list_returned(args, kwargs)

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
        writes = Writes()
        seen = Seen(self, self.step, writes)
        try:
            self._watch(call, seen, writes)
        except BaseException:  # also Ctrl-C
            seen.undo()
            raise
        return seen.undo

    def _watch(self, call: Callable[[], object], seen: Seen, writes: Writes) -> None:
        for tensor in self.step.state:
            writes.keep(tensor)
        made: list[list[Made]] = []
        for turn in range(_WATCHED_CALLS):
            self.prepare()
            with seen.watch(), writes, ExitStack() as stack:
                if turn == 0:
                    stack.enter_context(refuse_collectives(self.step.name, seen.reached))
                call()
            writes.settle_layouts()
            made.append(writes.take_made())
        self.written = writes.list_memory()
        self.leaves = seen.list_leaves()
        self.generators = writes.list_generators()
        self.is_compiled = writes.met_compiled
        writes.put_back()
        self._follow_closures(seen)
        self.run_beside(())
        self._check_same_work(call, writes)
        held = {find_storage(item) for item in (*self.parameters(), *self.buffers())}
        self.kept_bytes = count_kept(made[1:], held)  # the first call's are those of a state
        writes.put_back()

    def _follow_closures(self, seen: Seen) -> None:
        """Where an optimizer calls its closure as often as values ask for, have all that it finds
        put back before each run. Raises UnsupportedError for a capture, which goes on from there.
        """
        self.varying = next(filter(needs_closure, seen.stepped), None)
        if self.varying is None:
            return
        if self.step.kind == "call":
            raise UnsupportedError(
                f"cannot capture {self.step.name}: {explain_closure(self.varying)}"
            )
        self._rewind = seen.rewind_optimizers

    def run_beside(self, others: Sequence[StepModule]) -> None:
        """From now on put back what other steps write too, all of which is now as it was found: of
        one model that several steps train, each finds it as the first one did."""
        own = {find_storage(item) for item in self.written}
        theirs = {find_storage(item): item for other in others for item in other.written}
        self._theirs = [item for place, item in theirs.items() if place not in own]
        decisive = [item for item in self.written if self.varying is not None or _decides(item)]
        bulky = [item for item in self.written if self.varying is None and not _decides(item)]
        self._decisive = _core.SavedState(decisive)
        self._decisive_theirs = _core.SavedState([item for item in self._theirs if _decides(item)])
        self._bulky = _core.SavedState([*bulky, *self._theirs])

    def _check_same_work(self, call: Callable[[], object], writes: Writes) -> None:
        """Raises UnsupportedError if two calls from the same tensors do not make the same operator
        calls."""
        logs = []
        for _ in range(2 + (_COMPILING_CALLS if self.is_compiled else 0)):
            writes.put_back()
            self.prepare()
            logs.append(_log(call))
        if what := _describe_change(*logs[-2:]):
            raise UnsupportedError(
                f"the work of this step changes from call to call: {what}. It keeps something in "
                "Python (a list that grows, a position, an iterator, random numbers): bring that "
                "back by reset=, a function without arguments that is called before each run, "
                "outside its time"
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


_Logged = tuple[str, list[list[int]], list[int], int, bool]


def _describe_change(first: Sequence[_Logged], second: Sequence[_Logged]) -> str:
    """How the second call differs from the first; "" if it does not."""
    if len(first) != len(second):
        return f"it makes {len(second)} operator calls where the call before made {len(first)}"
    for place, (before, now) in enumerate(zip(first, second, strict=True)):
        if before != now:
            return f"operator call {place} is {_say(now)} where the call before made {_say(before)}"
    return ""


def _log(call: Callable[[], object]) -> Sequence[_Logged]:
    log = _core.CallLog()
    log.start()
    try:
        call()
    finally:
        log.stop()
    return log.calls


def _say(logged: _Logged) -> str:
    name, shapes, integers, *_ = logged
    words = [str(tuple(shape)) for shape in shapes[:3]]
    if len(shapes) > len(words):
        words.append(f"{len(shapes) - len(words)} more")
    words += [str(number) for number in integers[:3]]
    return f"{name} on {', '.join(words)}" if words else name
