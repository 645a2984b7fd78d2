"""A step as a module: its parts are the modules that it calls, and what it writes is its state.

Both are found by watching the step run. The surprising choice: forward returns, with the outputs,
what was written. So all that checks, records or replays the outputs of a module does the same to
those of a step, weights and optimizer included.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree

from ftax import _core
from ftax.errors import RunnerError, UnsupportedError
from ftax.steps.echoes import PlainMode
from ftax.steps.reach import can_load, copy_containers, find_reached
from ftax.steps.state import Snapshot, is_same_container, refill
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
        self._written_inputs: list[int] = []  # places among the tensors of the inputs
        self.kept_bytes = 0  # that each call leaves behind in Python, of what it makes
        self._generators: list[tuple[torch.Generator, torch.Tensor]] = []
        self._decisive, self._bulky = _core.SavedState([]), _core.SavedState([])

    @property
    def has_state(self) -> bool:
        """Whether there is anything to put back."""
        return bool(self.written) or self.step.reset is not None

    def prepare(self) -> None:
        """Put back what decides which work is done: for whoever calls the step outside a runner."""
        self._decisive.put_back()
        for generator, state in self._generators:
            generator.set_state(state)
        if self.step.reset is None:
            return
        try:
            self.step.reset()
        except (Exception, SystemExit) as error:
            raise RunnerError(
                f"{self.step.name}, being reset, raised {type(error).__name__}: {error}"
            ) from error

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, list[torch.Tensor]]:
        """The step once. What was written is returned where it is on the step's own device; of
        its inputs, those that it was called with."""
        result = self.step.function(*args, **kwargs)
        return result, self.list_returned(args, kwargs)

    def list_returned(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """What is compared, as outputs are, after a call on these inputs."""
        if not self._written_inputs:
            return self.returned
        inputs = _list_inputs(args, kwargs)
        return [*self.returned, *(inputs[place].detach() for place in self._written_inputs)]

    def choose_returned(self, device: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """From now on return what was written on ``device``. The memory of inputs, and of their
        gradients, is not that of another input."""
        inputs = _list_inputs(args, kwargs)
        written = {_find_storage(item) for item in self.written}
        self._written_inputs = [
            place for place, item in enumerate(inputs) if _find_storage(item) in written
        ]
        theirs = {_find_storage(item) for item in inputs}
        theirs |= {_find_storage(item.grad) for item in inputs if item.grad is not None}
        self.returned = [
            item
            for item in self.written
            if str(item.device) == device and _find_storage(item) not in theirs
        ]

    def find_state(self, call: Callable[[], object]) -> Callable[[], None]:
        """Watch ``call`` run the step; returns what undoes all that these calls left behind.

        Raises UnsupportedError if its work changes from call to call.
        """
        writes = _Writes()
        seen = _Seen(self, writes)
        try:
            self._watch(call, seen, writes)
        except BaseException:  # also Ctrl-C
            seen.undo()
            raise
        return seen.undo

    def _watch(self, call: Callable[[], object], seen: _Seen, writes: _Writes) -> None:
        for tensor in self.step.state:
            writes.keep(tensor)
        made: list[list[_Made]] = []
        for _ in range(_WATCHED_CALLS):
            self.prepare()
            with seen.watch(), writes:
                call()
            made.append(writes.take_made())
        self.written = writes.list_memory()
        self._generators = writes.list_generators()
        writes.put_back()
        decisive = [tensor for tensor in self.written if _decides(tensor)]
        chosen = {id(tensor) for tensor in decisive}
        self._decisive = _core.SavedState(decisive)
        self._bulky = _core.SavedState([item for item in self.written if id(item) not in chosen])
        self._check_same_work(call)
        held = {_find_storage(item) for item in (*self.parameters(), *self.buffers())}
        self.kept_bytes = _count_kept(made[1:], held)  # the first call's are those of a state
        writes.put_back()

    def _check_same_work(self, call: Callable[[], object]) -> None:
        """Raises UnsupportedError if two calls in a row do not make the same operator calls."""
        logs = []
        for _ in range(2):
            self.prepare()
            logs.append(_log(call))
        if what := _describe_change(*logs):
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
        return _core.StateRunner(runner, self._decisive, self._bulky, self.step.reset)


def _list_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves((args, kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _decides(tensor: torch.Tensor) -> bool:
    """Whether its values may decide which work is done: positions, counters, lengths."""
    small = tensor.numel() * tensor.element_size() <= _SMALL_BYTES
    return small and not (tensor.is_floating_point() or tensor.is_complex())


class _Made(NamedTuple):
    """Memory that a call has made, and how many bytes it is."""

    memory: StorageWeakRef
    size: int


class _Writes(PlainMode):
    """Keeps what memory held before an operator call first wrote into it, unless a call made it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made: dict[int, _Made] = {}  # so held, an address is not used again
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._suspected: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._generators: dict[int, tuple[torch.Generator, torch.Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            for place, argument in enumerate(func._schema.arguments):
                value = args[place] if place < len(args) else kwargs.get(argument.name)
                if argument.alias_info is not None and argument.alias_info.is_write:
                    for tensor in _list_tensors(value):
                        self.keep(tensor)
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Generator):
                self.keep_generator(value)
        result = func(*args, **kwargs)
        given = {_find_storage(item) for item in _list_tensors((*args, *kwargs.values()))}
        for tensor in _list_tensors(result):
            storage = _find_storage(tensor)
            if storage is None or storage in given or storage in self._kept:
                continue
            if storage not in self._made:
                memory = tensor.untyped_storage()
                self._made[storage] = _Made(StorageWeakRef(memory), memory.nbytes())
        return result

    def take_made(self) -> list[_Made]:
        """What was made since the last call of this: it is not of the next call's making."""
        made = list(self._made.values())
        self._made.clear()
        return made

    def keep_generator(self, generator: torch.Generator) -> None:
        """Note the state of one that is not torch's own, which every check seeds."""
        own = (torch.default_generator, *torch.cuda.default_generators)
        if all(generator is not one for one in own):
            self._generators.setdefault(id(generator), (generator, generator.get_state()))

    def list_generators(self) -> list[tuple[torch.Generator, torch.Tensor]]:
        """Those that were drawn from, with their states before."""
        return list(self._generators.values())

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
        for generator, state in self._generators.values():
            generator.set_state(state)


def _count_kept(made: Sequence[Sequence[_Made]], held: Set[int | None]) -> int:
    """Bytes that live on of what a call has made, if that is so of each of these calls. ``held``:
    memory of modules that were seen, which live on because they were."""
    met = Counter(item.memory.cdata for call in made for item in call)
    own = [
        [item for item in call if met[item.memory.cdata] == 1 and item.memory.cdata not in held]
        for call in made
    ]

    def count() -> int:
        return min(sum(item.size for item in c if not item.memory.expired()) for c in own)

    if count():
        gc.collect()  # a cycle is no growth
    return count()


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
    """The modules and optimizers that a step was seen to use, and what they were like before; with
    them what its function can get at, which is looked up before the first call."""

    def __init__(self, owner: StepModule, writes: _Writes) -> None:
        self._owner, self._writes = owner, writes
        self._depth = 0
        self._snapshots: list[Snapshot] = []
        self._covered: dict[int, nn.Module] = {}  # modules of which there is a snapshot
        self._in_training: list[nn.Module] = []  # which the step is to run in eval mode
        self._leaves: dict[int, _KeptLeaf] = {}
        self._containers: dict[int, tuple[Any, Any]] = {}  # by id: object, copy
        step = owner.step
        for found in find_reached(step.function, step.reset, step.inputs):
            self._keep_reached(found)

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

    def undo(self) -> None:
        """Make all of it as it was."""
        for snapshot in self._snapshots:  # what their memory held is among the writes
            snapshot.put_back_attributes()
        for part in self._in_training:
            part.training = True
        for container, before in self._containers.values():
            if not is_same_container(container, before):
                refill(container, before)
        for leaf in self._leaves.values():
            leaf.put_back()
        self._writes.list_memory()  # where watching was cut short, nobody asked yet
        self._writes.put_back()

    def _keep_reached(self, found: Any) -> None:
        if isinstance(found, nn.Module):
            self._keep_module(found)
        elif isinstance(found, torch.optim.Optimizer):
            self._see_optimizer(found, (), {})
        elif isinstance(found, torch.Tensor):
            if found.is_leaf:
                self._keep_leaves([found])
        elif isinstance(found, torch.Generator):
            self._writes.keep_generator(found)
        else:
            copy_containers(vars(found) if can_load(found) else found, self._containers)

    def _keep_module(self, part: nn.Module) -> None:
        if id(part) in self._covered or _is_swapped(part):
            return
        self._covered.update({id(inner): inner for inner in part.modules()})
        self._snapshots.append(Snapshot(part))
        self._keep_leaves(part.parameters())

    def _enter(self, part: nn.Module, _args: Any) -> None:
        if part is self._owner:
            return
        if self._depth == 0 and all(part is not known for known in self._owner.modules()):
            name = type(part).__name__
            taken = sum(known.startswith(name) for known, _ in self._owner.named_children())
            self._keep_module(part)
            self._owner.add_module(f"{name}{taken + 1}" if taken else name, part)
            for buffer in part.buffers():
                self._writes.suspect(buffer)
            if self._owner.step.kind == "decode":
                self._in_training += [inner for inner in part.modules() if inner.training]
                part.eval()
        self._depth += 1

    def _leave(self, part: nn.Module, _args: Any, _output: Any) -> None:
        self._depth -= part is not self._owner

    def _see_optimizer(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        copy_containers(vars(optimizer), self._containers)
        for group in optimizer.param_groups:
            self._keep_leaves(group["params"])

    def _keep_leaves(self, tensors: Any) -> None:
        for tensor in tensors:
            # By then a first backward pass may have run: what it made was not there before.
            grad = None if self._depth else tensor.grad
            if id(tensor) not in self._leaves:
                self._leaves[id(tensor)] = _KeptLeaf(tensor, tensor.data, grad)


class _KeptLeaf:
    """A weight or another leaf of autograd: where its memory was, and its gradient."""

    def __init__(
        self, tensor: torch.Tensor, memory: torch.Tensor, grad: torch.Tensor | None
    ) -> None:
        self._tensor, self._memory, self._grad = tensor, memory, grad
        self._needs_grad = tensor.requires_grad

    def put_back(self) -> None:
        tensor = self._tensor
        place = _find_storage(tensor)
        if place is not None and place != _find_storage(self._memory):
            tensor.data = self._memory  # it was given other memory, by `.data = ` or `to`
        tensor.grad = self._grad
        if tensor.is_leaf and tensor.requires_grad != self._needs_grad:
            tensor.requires_grad_(self._needs_grad)


def _is_swapped(module: nn.Module) -> bool:
    """Whether it stands with other weights for one call, as in `torch.func.functional_call`."""
    return any(
        weight is not None and not isinstance(weight, nn.Parameter)
        for part in module.modules()
        for weight in part._parameters.values()
    )


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
