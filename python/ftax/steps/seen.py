"""What a step uses, modules and optimizers, and making it what it was before.

Two looks, since each misses something. What the function's names lead to is looked up before its
first call; modules that it calls are met by torch's global hooks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from ftax.steps.module_calls import watch_module_calls
from ftax.steps.reach import can_load, copy_containers, find_reached
from ftax.steps.state import Snapshot, is_same_container, refill, refuse_lazy
from ftax.steps.step import Step
from ftax.steps.writes import MOST_KEPT_BYTES, Writes, count_bytes, find_storage


class Seen:
    """The modules and optimizers that a step was seen to use, and what they were like before; with
    them what its function can get at, which is looked up before the first call."""

    def __init__(self, owner: nn.Module, step: Step, writes: Writes) -> None:
        self._owner, self._step, self._writes = owner, step, writes
        self._depth, self._bytes_left = 0, MOST_KEPT_BYTES
        self._snapshots: list[Snapshot] = []
        self._covered: dict[int, nn.Module] = {}  # modules of which there is a snapshot
        self._in_training: list[nn.Module] = []  # which the step is to run in eval mode
        self._leaves: dict[int, _KeptLeaf] = {}
        self.stepped: list[Optimizer] = []
        self._keepers: list[Any] = []  # optimizers, and what else has a state to load
        self._progress: dict[int, tuple[Any, Any]] = {}  # of these, as `_containers`
        self._containers: dict[int, tuple[Any, Any]] = {}  # by id: object, copy
        self.reached = find_reached(step.function, step.reset, step.inputs)
        for found in self.reached:
            self._keep_reached(found)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Look on inside."""
        optimizers = register_optimizer_step_pre_hook(self._see_step)
        try:
            with watch_module_calls(self._enter, self._leave):
                yield
        finally:
            optimizers.remove()

    def note_progress(self) -> None:
        """Have `rewind` bring back what is now, in the place of what was found."""
        self._progress.clear()
        for keeper in self._keepers:
            self._copy_progress(keeper)

    @property
    def has_progressed(self) -> bool:
        """Whether `rewind` would change anything."""
        return any(not is_same_container(*pair) for pair in self._progress.values())

    def rewind(self) -> None:
        """Bring back what optimizers, schedules and scalers keep in Python: learning rates, counts,
        histories, which tensors are whose."""
        _refill_changed(self._progress)

    def undo(self) -> None:
        """Make all of it as it was."""
        for snapshot in self._snapshots:  # what their memory held is among the writes
            snapshot.put_back_attributes()
        for part in self._in_training:
            part.training = True
        _refill_changed(self._containers)
        for leaf in self._leaves.values():
            leaf.put_back()
        self._writes.list_memory()  # where watching was cut short, nobody asked yet
        self._writes.undo()

    def list_leaves(self) -> list[torch.Tensor]:
        """Weights and other leaves of autograd that were met, wherever Python keeps them."""
        return [leaf.tensor for leaf in self._leaves.values()]

    def _keep_reached(self, found: Any) -> None:
        if isinstance(found, nn.Module):
            self._keep_module(found)
        elif isinstance(found, torch.optim.Optimizer):
            self._keep_optimizer(found)
        elif isinstance(found, torch.Tensor):
            if found.is_leaf:
                self._keep_leaves([found])
        elif isinstance(found, torch.Generator):
            self._writes.keep_generator(found)
        elif can_load(found):
            copy_containers(vars(found), self._containers)
            self._add_keeper(found)
        else:
            copy_containers(found, self._containers)

    def _keep_module(self, part: nn.Module) -> None:
        if id(part) in self._covered or _is_swapped(part):
            return
        for inner in part.modules():
            refuse_lazy(inner, "a module that the step calls")
        self._covered.update({id(inner): inner for inner in part.modules()})
        self._snapshots.append(Snapshot(part))
        self._keep_leaves(part.parameters())
        for buffer in part.buffers():
            self._watch_late(buffer)

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
            if self._step.kind == "decode":
                self._in_training += [inner for inner in part.modules() if inner.training]
                part.eval()
        self._depth += 1

    def _leave(self, part: nn.Module, _args: Any, _output: Any) -> None:
        self._depth -= part is not self._owner

    def _see_step(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self._keep_optimizer(optimizer)
        if all(optimizer is not known for known in self.stepped):
            self.stepped.append(optimizer)

    def _keep_optimizer(self, optimizer: Optimizer) -> None:
        self._add_keeper(optimizer)
        copy_containers(vars(optimizer), self._containers)
        for group in optimizer.param_groups:
            self._keep_leaves(group["params"])

    def _add_keeper(self, keeper: Any) -> None:
        if all(keeper is not known for known in self._keepers):
            self._keepers.append(keeper)
            self._copy_progress(keeper)

    def _copy_progress(self, keeper: Any) -> None:
        if isinstance(keeper, Optimizer):
            copy_containers([keeper.state, keeper.param_groups], self._progress)
        copy_containers(vars(keeper), self._progress)

    def _keep_leaves(self, tensors: Any) -> None:
        for tensor in tensors:
            if is_lazy(tensor):
                continue  # its module is refused, once it is met
            self._watch_late(tensor)
            # By then a first backward pass may have run: what it made was not there before.
            grad = None if self._depth else tensor.grad
            if id(tensor) not in self._leaves:
                self._leaves[id(tensor)] = _KeptLeaf(tensor, tensor.data, grad)

    def _watch_late(self, tensor: torch.Tensor) -> None:
        """Copy what may be written after the calls that are watched, as by every fourth one."""
        if (size := count_bytes(tensor)) <= self._bytes_left:
            self._bytes_left -= size
            self._writes.suspect(tensor)


def _refill_changed(kept: dict[int, tuple[Any, Any]]) -> None:
    for container, before in kept.values():
        if not is_same_container(container, before):
            refill(container, before)


class _KeptLeaf:
    """A weight or another leaf of autograd: where its memory was, and its gradient."""

    def __init__(
        self, tensor: torch.Tensor, memory: torch.Tensor, grad: torch.Tensor | None
    ) -> None:
        self.tensor, self._memory, self._grad = tensor, memory, grad
        self._needs_grad = tensor.requires_grad

    def put_back(self) -> None:
        tensor = self.tensor
        place = find_storage(tensor)
        if place is not None and place != find_storage(self._memory):
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
