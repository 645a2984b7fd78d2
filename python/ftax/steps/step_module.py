"""A step as a module: its parts are the modules that it calls, and what it writes is its state.

Both are found by watching the step run. The surprising choice: forward returns, with the outputs,
what was written. So all that checks, records or replays the outputs of a module does the same to
those of a step, weights and optimizer included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from ftax import _core
from ftax.errors import RunnerError, UnsupportedError
from ftax.steps.echoes import PlainMode
from ftax.steps.state import Snapshot
from ftax.steps.step import Step
from ftax.steps.tensors import copy_into, same_bytes

_WATCHED_CALLS = 3  # the first makes an optimizer's state, the second writes it
_SMALL_BYTES = 1 << 16


class StepModule(nn.Module):
    """``written``: the memory that the step writes and did not allocate, whole, as tensors that
    autograd does not see; ``returned``: what of it is compared, as an output is."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        self.written: list[torch.Tensor] = []
        self.returned: list[torch.Tensor] = []
        self._decisive, self._bulky = _core.SavedState([]), _core.SavedState([])
        self._writes = _Writes()

    @property
    def has_state(self) -> bool:
        """Whether there is anything to put back."""
        return bool(self.written) or self.step.reset is not None

    def restore(self) -> None:
        """Have what was written hold what it held before the first call."""
        self._writes.put_back()

    def drop_gradients(self) -> None:
        """Those that the step makes anew: where memory is counted, torch would complain of freeing
        blocks that it does not know."""
        state = {tensor.untyped_storage().data_ptr() for tensor in self.written}
        for weight in self.parameters():
            if weight.grad is not None and weight.grad.untyped_storage().data_ptr() not in state:
                weight.grad = None

    def prepare(self) -> None:
        """Put back what decides which work is done: for whoever calls the step outside a runner."""
        self._decisive.put_back()
        if self.step.reset is None:
            return
        try:
            self.step.reset()
        except (Exception, SystemExit) as error:
            raise RunnerError(
                f"{self.step.name}, being reset, raised {type(error).__name__}: {error}"
            ) from error

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, list[torch.Tensor]]:
        """The step once. What was written is returned where it is on the step's own device."""
        return self.step.function(*args, **kwargs), self.returned

    def find_state(self, call: Callable[[], object]) -> Callable[[], None]:
        """Watch ``call`` run the step; returns what undoes all that these calls left behind.

        Raises UnsupportedError if its work changes from call to call.
        """
        writes = _Writes()
        seen = _Seen(self, writes)
        for tensor in self.step.state:
            writes.keep(tensor)
        for _ in range(_WATCHED_CALLS):
            self.prepare()
            with seen.watch(), writes:
                call()
        self.written = writes.list_memory()
        writes.put_back()
        decisive = [tensor for tensor in self.written if _decides(tensor)]
        chosen = {id(tensor) for tensor in decisive}
        self._decisive = _core.SavedState(decisive)
        self._bulky = _core.SavedState([item for item in self.written if id(item) not in chosen])
        self._check_same_work(call)
        self._writes = writes
        self.restore()
        return seen.make_undo()

    def _check_same_work(self, call: Callable[[], object]) -> None:
        """Raises UnsupportedError if two calls in a row do not make the same operator calls."""
        logs = []
        for _ in range(2):
            self.prepare()
            logs.append(_log(call))
        if what := _describe_change(*logs):
            raise UnsupportedError(
                f"the work of this step changes from call to call: {what}. It keeps something in "
                "Python (a list that grows, a position): bring that back by reset=, a function "
                "without arguments that is called before each run, outside its time"
            )

    def wrap_runner(self, runner: _core.Runner) -> _core.Runner:
        """``runner`` with the state put back outside its time."""
        if not self.has_state:
            return runner
        return _core.StateRunner(runner, self._decisive, self._bulky, self.step.reset)


def _decides(tensor: torch.Tensor) -> bool:
    """Whether its values may decide which work is done: positions, counters, lengths."""
    small = tensor.numel() * tensor.element_size() <= _SMALL_BYTES
    return small and not (tensor.is_floating_point() or tensor.is_complex())


class _Writes(PlainMode):
    """Keeps what memory held before an operator call first wrote into it, unless a call made it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made: dict[int, StorageWeakRef] = {}  # so held, an address is not used again
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._suspected: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            for place, argument in enumerate(func._schema.arguments):
                value = args[place] if place < len(args) else kwargs.get(argument.name)
                if argument.alias_info is not None and argument.alias_info.is_write:
                    for tensor in _list_tensors(value):
                        self.keep(tensor)
        result = func(*args, **kwargs)
        given = {_find_storage(item) for item in _list_tensors((*args, *kwargs.values()))}
        for tensor in _list_tensors(result):
            storage = _find_storage(tensor)
            if storage is not None and storage not in given and storage not in self._kept:
                self._made.setdefault(storage, StorageWeakRef(tensor.untyped_storage()))
        return result

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._made.clear()  # what lives on is not of the next call's making

    def keep(self, tensor: torch.Tensor) -> None:
        """Copy the memory of ``tensor``, unless it is known."""
        place = _find_storage(tensor)
        if place is None or place in self._made or place in self._kept:
            return
        known = self._suspected.pop(place) if place in self._suspected else None
        self._kept[place] = known or _copy_memory(tensor)

    def suspect(self, tensor: torch.Tensor) -> None:
        """Copy what may be written by a call that does not say so: batch norm's statistics are."""
        place = _find_storage(tensor)
        if place is not None and place not in self._kept:
            self._suspected.setdefault(place, _copy_memory(tensor))

    def list_memory(self) -> list[torch.Tensor]:
        """All that was written."""
        for place, (memory, before) in list(self._suspected.items()):
            if not same_bytes(memory, before):
                self._kept[place] = self._suspected.pop(place)
        return [memory for memory, _ in self._kept.values()]

    def put_back(self) -> None:
        """Have all of it hold what it held."""
        for memory, before in self._kept.values():
            copy_into([memory], [before])


def _list_tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _list_tensors(item)


def _find_storage(tensor: torch.Tensor) -> int | None:
    """What tells its memory from other memory; None for tensors that have none of their own."""
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
        return None
    found: int = tensor.untyped_storage()._cdata
    return found


def _copy_memory(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        memory = _find_whole_memory(tensor)
        return memory, memory.clone()


def _find_whole_memory(tensor: torch.Tensor) -> torch.Tensor:
    """All of the memory that ``tensor`` is in, under its own shape where it is all of that."""
    plain = tensor.detach()
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    if plain.numel() == count and torch.ops.aten.is_non_overlapping_and_dense(plain):
        return plain
    return plain.as_strided((count,), (1,), 0)


class _Seen:
    """The modules and optimizers that a step was seen to use, and what they were like before."""

    def __init__(self, owner: StepModule, writes: _Writes) -> None:
        self._owner, self._writes = owner, writes
        self._depth = 0
        self._snapshots: list[Snapshot] = []
        self._in_training: list[nn.Module] = []  # which the step is to run in eval mode
        self._grads: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        self._optimizers: dict[int, tuple[Optimizer, dict[Any, Any], list[dict[str, Any]]]] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Look on inside."""
        handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
            register_optimizer_step_pre_hook(self._see_optimizer),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def make_undo(self) -> Callable[[], None]:
        """What makes all of it as it was."""

        def undo() -> None:
            for snapshot in self._snapshots:  # what their memory held is among the writes
                snapshot.put_back_attributes()
            for part in self._in_training:
                part.training = True
            for optimizer, state, groups in self._optimizers.values():
                optimizer.state.clear()
                optimizer.state.update(state)
                for group, before in zip(optimizer.param_groups, groups, strict=True):
                    group.update(before)
            for tensor, grad in self._grads.values():
                tensor.grad = grad
            self._writes.put_back()

        return undo

    def _enter(self, part: nn.Module, _args: Any) -> None:
        if part is self._owner:
            return
        if self._depth == 0 and all(part is not known for known in self._owner.modules()):
            name = type(part).__name__
            taken = sum(known.startswith(name) for known, _ in self._owner.named_children())
            self._snapshots.append(Snapshot(part))
            self._owner.add_module(f"{name}{taken + 1}" if taken else name, part)
            self._note_grads(part.parameters())
            for buffer in part.buffers():
                self._writes.suspect(buffer)
            if self._owner.step.kind == "decode":
                self._in_training += [inner for inner in part.modules() if inner.training]
                part.eval()
        self._depth += 1

    def _leave(self, part: nn.Module, _args: Any, _output: Any) -> None:
        self._depth -= part is not self._owner

    def _see_optimizer(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if id(optimizer) in self._optimizers:
            return
        groups = [
            {name: value for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ]
        self._optimizers[id(optimizer)] = optimizer, dict(optimizer.state), groups
        for group in optimizer.param_groups:
            self._note_grads(group["params"])

    def _note_grads(self, tensors: Any) -> None:
        for tensor in tensors:
            # By then a first backward pass may have run: what it made was not there before.
            self._grads.setdefault(id(tensor), (tensor, None if self._depth else tensor.grad))


_Logged = tuple[str, list[list[int]], list[int], int]


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
    name, shapes, integers, _ = logged
    words = [str(tuple(shape)) for shape in shapes[:3]]
    if len(shapes) > len(words):
        words.append(f"{len(shapes) - len(words)} more")
    words += [str(number) for number in integers[:3]]
    return f"{name} on {', '.join(words)}" if words else name
