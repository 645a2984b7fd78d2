"""What a module holds and changes while it runs: a snapshot of it, and putting it back.

The surprising choice: what changed is found by looking, not by listening. A write through a view,
through `.data`, by an extension, or a list that grows in an attribute makes no call that anybody
could intercept; the memory and the containers are simply not what they were.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ftax.models.loaded import LoadedModel
from ftax.tensors import find_memory, same_bytes

_DEPTH = 6  # of containers within containers; what lies deeper is not followed
_PLAIN_CONTAINERS = (list, dict, set, deque)


class Snapshot:
    """The attributes of a module and of its parts, and the tensors that are no parameters, as they
    are now; with tensors that the module is given."""

    def __init__(self, module: nn.Module, inputs: Sequence[torch.Tensor] = ()) -> None:
        self._containers: dict[int, tuple[Any, Any]] = {}  # by id: object, copy
        self._tensors: dict[int, tuple[str, torch.Tensor, torch.Tensor]] = {}
        for place, tensor in enumerate(inputs):
            self._keep_tensor(f"input {place}", tensor)
        for path, part in module.named_modules():
            self._keep_container(path or "the model", part.__dict__, 0)

    def put_back(self) -> list[str]:
        """Restore what tensors hold that do not hold what they did; names of them, such as
        "input 0" or "layer.cache"."""
        changed = []
        # Not under the caller's mode: a tensor made before may not be written under grad mode.
        with torch.inference_mode():
            for name, tensor, before in self._tensors.values():
                if tensor.shape != before.shape:  # resized in place
                    tensor.data = before.clone()
                elif same_bytes(tensor, before):
                    continue
                else:
                    find_memory(tensor).copy_(find_memory(before))
                changed.append(name)
        return list(dict.fromkeys(changed))

    def put_back_attributes(self) -> None:
        """Restore which objects attributes, lists and dictionaries hold."""
        for container, before in self._containers.values():
            if not _is_same(container, before):
                _refill(container, before)

    def _keep_tensor(self, name: str, tensor: torch.Tensor) -> None:
        if id(tensor) in self._tensors or tensor.is_nested or tensor.is_meta:
            return
        self._tensors[id(tensor)] = (name, tensor, tensor.detach().clone())

    def _keep_container(self, name: str, container: Any, depth: int) -> None:
        if id(container) in self._containers:
            return
        self._containers[id(container)] = (container, container.copy())
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, value in items:
            if not isinstance(value, nn.Module | nn.Parameter):
                self._keep(_name_inner(name, key), value, depth + 1)

    def _keep(self, name: str, value: Any, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            self._keep_tensor(name, value)
        elif depth > _DEPTH:
            return
        elif isinstance(value, _PLAIN_CONTAINERS):
            self._keep_container(name, value, depth)
        elif isinstance(value, tuple):
            for place, item in enumerate(value):
                self._keep(_name_inner(name, place), item, depth + 1)
        elif _holds_tensors(value):  # such as a cache of keys and values
            self._keep_container(name, value.__dict__, depth)


def _holds_tensors(value: Any) -> bool:
    """Whether it is an object with tensors, or lists of such objects, among its attributes. Others
    (a configuration, a logger) may lead to anything in the process."""
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict) or isinstance(value, type | nn.Module):
        return False
    found = [*attributes.values()]
    for item in attributes.values():
        if isinstance(item, list | tuple):
            found += item
        elif isinstance(item, dict):
            found += item.values()
    return any(isinstance(item, torch.Tensor) for item in found) or any(
        isinstance(inner, torch.Tensor)
        for item in found
        if not isinstance(item, type | nn.Module)
        for inner in getattr(item, "__dict__", {}).values()
    )


def _is_same(container: Any, before: Any) -> bool:
    """By identity: what compares equal may be another object, and tensors do not compare."""
    if len(container) != len(before):
        return False
    if isinstance(container, dict):
        return all(key in container and container[key] is before[key] for key in before)
    if isinstance(container, set):
        return bool(container == before)
    return all(a is b for a, b in zip(container, before, strict=True))


def _refill(container: Any, before: Any) -> None:
    container.clear()
    if isinstance(container, list | deque):
        container.extend(before)
    else:
        container.update(before)


def _name_inner(name: str, key: Any) -> str:
    if key in ("_buffers", "_parameters", "_modules"):
        return name
    return f"{name}.{key}" if isinstance(key, str) else f"{name}[{key!r}]"


@contextmanager
def leave_as_found(*given: Any) -> Iterator[None]:
    """Every module among ``given`` (a LoadedModel's too) is afterwards as it was: training modes,
    which parameters need gradients, attributes, and tensors that are no parameters; tensors among
    ``given`` hold what they held.

    So nothing that was cached under inference mode stays, which training could not save for its
    backward pass. Parameters themselves are not copied.
    """
    modules = [
        item.module if isinstance(item, LoadedModel) else item
        for item in given
        if isinstance(item, LoadedModel | nn.Module)
    ]
    tensors = [tensor for item in given for tensor in _list_given_tensors(item)]
    kept = [
        (
            Snapshot(module, tensors),
            [(part, part.training) for part in module.modules()],
            [(weight, weight.requires_grad) for weight in module.parameters()],
        )
        for module in modules
    ]
    try:
        yield
    finally:
        for snapshot, modes, flags in kept:
            snapshot.put_back_attributes()
            snapshot.put_back()
            for part, training in modes:
                part.training = training
            for weight, needs_grad in flags:
                weight.requires_grad_(needs_grad)


def _list_given_tensors(item: Any) -> list[torch.Tensor]:
    if isinstance(item, LoadedModel):
        return [*item.flat_inputs(), *item.flat_check_inputs()]
    if isinstance(item, torch.Tensor):
        return [item]
    if isinstance(item, list | tuple):
        return [tensor for inner in item for tensor in _list_given_tensors(inner)]
    if isinstance(item, dict):
        return [tensor for inner in item.values() for tensor in _list_given_tensors(inner)]
    return []
