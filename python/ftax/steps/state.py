"""What a module holds and changes while it runs: a snapshot of it, and putting it back.

What changed is found by looking, not by listening. A write through a view, through `.data`, by an
extension, or a list that grows in an attribute makes no call that anybody could intercept; the
memory and the containers are simply not what they were.
"""

from __future__ import annotations

import random
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ftax.errors import UnsupportedError, name_key, name_type
from ftax.steps.input_trees import is_data, read_slots
from ftax.steps.random_states import list_own_generators
from ftax.steps.tensors import copy_into, find_memory, same_bytes

_DEPTH = 6  # of containers within containers; what lies deeper is not followed
_PLAIN_CONTAINERS = (list, dict, set, deque)
# Most of what attributes hold: asked first, since a large model has a hundred thousand of them.
_LEAVES = frozenset(
    (
        *(bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device),
        type(getattr(torch.distributed, "reduce_op", None)),  # warns whatever it is asked
    )
)
_OFTEN_EMPTY = frozenset({dict, list, set, OrderedDict})
_NOT_FOLLOWED = (nn.Module, nn.Parameter)
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by their bytes

# What parameters held that a model was seen to write into, by identity. Others are not copied: they
# may fill the memory that there is.
_written_weights: dict[int, torch.Tensor] = {}


class Snapshot:
    """The attributes of a module and of its parts, the tensors that are no parameters, and torch's
    switches, as they are now; with what the module is given: tensors in lists, tuples and dicts."""

    def __init__(self, module: nn.Module, given: Any = ()) -> None:
        self._containers: dict[int, tuple[Any, Any]] = {}  # by id: object, copy
        self._given: list[tuple[Any, Any]] = []
        self._slotted: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._tensors: dict[int, _KeptTensor] = {}
        self._generators: list[tuple[torch.Generator, torch.Tensor]] = []
        self._switches = Switches()
        self.given_tensors = list(self._keep_given(given))
        for place, tensor in enumerate(self.given_tensors):
            self._keep_tensor(f"input {place}", tensor)
        for path, part in module.named_modules():
            self._keep_container(path or "the model", part.__dict__, 0)
            for name, weight in part._parameters.items():
                if id(weight) in _written_weights:
                    self._keep_tensor(f"{path or 'the model'}.{name}", weight)

    def put_back(self) -> list[str]:
        """Restore what tensors hold that do not hold what they did, containers that were given,
        generators, and switches; names of what was changed, such as "input 0" or "layer.cache"."""
        changed = self._switches.put_back()
        for container, copy in self._given:
            if not is_same_container(container, copy):
                refill(container, copy)
                changed.append(f"{name_type(container)} of its inputs")
        for generator, state in self._generators:
            generator.set_state(state)
        # Not under the caller's mode: a tensor made before may not be written under grad mode.
        with torch.inference_mode():
            changed += [kept.name for kept in self._tensors.values() if kept.put_back()]
        return list(dict.fromkeys(changed))

    def put_back_attributes(self) -> None:
        """Restore which objects attributes, lists and dictionaries hold."""
        for container, before in self._containers.values():
            if not is_same_container(container, before):
                refill(container, before)
        for item, before in self._slotted.values():
            for name, value in read_slots(item).items():
                if name not in before:
                    delattr(item, name)
                elif value is not before[name]:
                    setattr(item, name, before[name])

    def _keep_tensor(self, name: str, tensor: torch.Tensor) -> None:
        if id(tensor) in self._tensors or tensor.is_meta:
            return
        self._tensors[id(tensor)] = _KeptTensor(name, tensor)

    def _keep_given(self, tree: Any) -> Iterator[torch.Tensor]:
        """The tensors of ``tree``; its lists and dictionaries are kept."""
        if isinstance(tree, torch.Tensor):
            yield tree
            return
        if is_data(tree):
            tree = vars(tree) if hasattr(tree, "__dict__") else read_slots(tree)
        if any(tree is container for container, _ in self._given):
            return  # twice, or within itself
        if isinstance(tree, list | dict):
            self._given.append((tree, tree.copy()))
        if isinstance(tree, list | tuple | Mapping):
            for item in tree.values() if isinstance(tree, Mapping) else tree:
                yield from self._keep_given(item)

    def _keep_container(self, name: str, container: Any, depth: int) -> None:
        if id(container) in self._containers:
            return
        self._containers[id(container)] = (container, container.copy())
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, value in items:
            kind = type(value)
            if kind in _OFTEN_EMPTY and not value:  # hooks that nobody has set
                self._containers.setdefault(id(value), (value, value.copy()))
            elif kind not in _LEAVES and not isinstance(value, _NOT_FOLLOWED):
                self._keep(_name_inner(name, key), value, depth + 1)

    def _keep(self, name: str, value: Any, depth: int) -> None:
        if isinstance(value, _PLAIN_CONTAINERS):
            if depth <= _DEPTH:
                self._keep_container(name, value, depth)
        elif isinstance(value, torch.Tensor):
            self._keep_tensor(name, value)
        elif isinstance(value, torch.Generator):
            self._generators.append((value, value.get_state()))
        elif depth > _DEPTH:
            return
        elif isinstance(value, tuple):
            for place, item in enumerate(value):
                self._keep(_name_inner(name, place), item, depth + 1)
        elif slots := read_slots(value):
            if id(value) not in self._slotted:
                self._slotted[id(value)] = (value, slots)
                for key, item in slots.items():
                    self._keep(_name_inner(name, key), item, depth + 1)
        elif _holds_tensors(value):  # such as a cache of keys and values
            self._keep_container(name, value.__dict__, depth)


class _KeptTensor:
    """A tensor, where its memory is, and what is in it."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self.name, self._tensor = name, tensor
        self._memory = tensor.detach()
        self._bits = _view_bits(self._memory)
        self._values = (self._memory if self._bits is None else self._bits).clone()

    def put_back(self) -> bool:
        """Whether there was anything to put back."""
        tensor, memory = self._tensor, self._memory
        moved = _find_place(tensor) != _find_place(memory)
        if moved:  # resized, transposed in place, or given other memory
            tensor.data = memory
        if self._bits is not None:
            if torch.equal(self._bits, self._values):
                return moved
            self._bits.copy_(self._values)
            return True
        if same_bytes(tensor, self._values):
            return moved
        copy_into([tensor], [self._values])
        return True


def _view_bits(tensor: torch.Tensor) -> torch.Tensor | None:
    """The same memory as integers; None where that takes more than one look."""
    is_plain = tensor.layout == torch.strided and not (tensor.is_complex() or tensor.is_quantized)
    is_lazy = tensor.is_nested or tensor.is_neg() or find_memory(tensor) is not tensor
    integer = _INTEGERS.get(tensor.element_size()) if is_plain and not is_lazy else None
    return None if integer is None else tensor.view(integer)


def _find_place(tensor: torch.Tensor) -> tuple[object, ...]:
    if tensor.is_nested:
        return ()
    if tensor.layout != torch.strided:
        return (tensor.shape,)
    return (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.untyped_storage()._cdata)


def _find_default_device() -> torch.device | None:
    """None if there is none: torch.get_default_device() says "cpu" then, as where that was set."""
    mode = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if mode is None else mode.device


def _set_deterministic(switches: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(switches[0], warn_only=switches[1])


# From torch 2.9 on; before, the second is not there.
_NEW_SWITCHES: tuple[Any, ...] = (
    torch.backends.cuda.matmul,
    getattr(torch.backends.mkldnn, "matmul", None),
)


def _read_precision() -> tuple[str | None, ...]:
    """By the one switch for all, if it tells, and by backend, where torch has that."""
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # it was set by backend
        precision = None
    return (precision, *(getattr(item, "fp32_precision", None) for item in _NEW_SWITCHES))


def _set_precision(precisions: tuple[str | None, ...]) -> None:
    precision, *by_backend = precisions
    if precision is not None:
        torch.set_float32_matmul_precision(precision)
        return
    for item, value in zip(_NEW_SWITCHES, by_backend, strict=True):
        item.fp32_precision = value


def _read_autocast() -> list[tuple[bool, torch.dtype]]:
    return [
        (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda")
    ]


def _set_autocast(switches: list[tuple[bool, torch.dtype]]) -> None:
    for device, (is_on, dtype) in zip(("cpu", "cuda"), switches, strict=True):
        torch.set_autocast_enabled(device, is_on)
        torch.set_autocast_dtype(device, dtype)


def _set_cudnn(switches: tuple[bool, bool]) -> None:
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = switches


def _read_attention() -> tuple[bool, ...]:
    backends = torch.backends.cuda
    return (
        *(backends.flash_sdp_enabled(), backends.mem_efficient_sdp_enabled()),
        *(backends.math_sdp_enabled(), backends.cudnn_sdp_enabled()),
        torch.backends.mha.get_fastpath_enabled(),
    )


def _set_attention(switches: tuple[bool, ...]) -> None:
    backends = torch.backends.cuda
    writers = (
        *(backends.enable_flash_sdp, backends.enable_mem_efficient_sdp),
        *(backends.enable_math_sdp, backends.enable_cudnn_sdp),
        torch.backends.mha.set_fastpath_enabled,
    )
    for write, is_on in zip(writers, switches, strict=True):
        write(is_on)


# What a forward pass may change for all that comes after it: name, how to read it, how to write it.
_SWITCHES: tuple[tuple[str, Callable[[], Any], Callable[[Any], object]], ...] = (
    ("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
    ("torch's default device", _find_default_device, torch.set_default_device),
    ("torch's number of threads", torch.get_num_threads, torch.set_num_threads),
    ("torch's grad mode", torch.is_grad_enabled, torch._C._set_grad_enabled),
    (
        "torch's choice of deterministic algorithms",
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        _set_deterministic,
    ),
    ("torch's autocast", _read_autocast, _set_autocast),
    ("torch's precision of products", _read_precision, _set_precision),
    (
        "torch's choice of cuDNN's algorithms",
        lambda: (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic),
        _set_cudnn,
    ),
    (
        "torch's anomaly mode",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda switches: torch.set_anomaly_enabled(*switches),
    ),
    ("torch's choice of attention", _read_attention, _set_attention),
)


class Switches:
    """Those of torch, as they are now."""

    def __init__(self) -> None:
        self._before = [read() for _, read, _ in _SWITCHES]

    def put_back(self) -> list[str]:
        """The names of those that were not as they were."""
        changed = []
        for (name, read, write), before in zip(_SWITCHES, self._before, strict=True):
            if read() != before:
                write(before)
                changed.append(name)
        return changed


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


def is_same_container(container: Any, before: Any) -> bool:
    """By identity: what compares equal may be another object, and tensors do not compare."""
    if len(container) != len(before):
        return False
    if isinstance(container, dict):
        return all(key in container and container[key] is before[key] for key in before)
    if isinstance(container, set):
        return bool(container == before)
    return all(a is b for a, b in zip(container, before, strict=True))


def refill(container: Any, before: Any) -> None:
    """Have a list or dictionary hold what ``before`` holds."""
    container.clear()
    if isinstance(container, list | deque):
        container.extend(before)
    else:
        container.update(before)


def _name_inner(name: str, key: Any) -> str:
    if key in ("_buffers", "_parameters", "_modules"):
        return name
    return f"{name}.{key}" if isinstance(key, str) else f"{name}[{name_key(key)}]"


def keep_weight(weight: torch.Tensor) -> None:
    """Copy a parameter that is about to be written for the first time."""
    if id(weight) not in _written_weights:
        _written_weights[id(weight)] = weight.detach().clone()
        weakref.finalize(weight, _written_weights.pop, id(weight), None)


def put_weights_back(weights: Iterable[torch.Tensor], *, forget: bool = False) -> None:
    """Restore those of which `keep_weight` was told."""
    for weight in weights:
        before = _written_weights.get(id(weight))
        if before is not None:
            copy_into([weight], [before])
            if forget:
                del _written_weights[id(weight)]


@contextmanager
def keep_torch_generators() -> Iterator[None]:
    """The states of torch's generators are afterwards as they were, unless they are shared."""
    if list_own_generators():
        yield
        return
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        yield


@contextmanager
def keep_generators() -> Iterator[None]:
    """The states of random numbers, of torch, Python and numpy, are afterwards as they were, unless
    they are shared."""
    if list_own_generators():
        yield
        return
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with keep_torch_generators():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def refuse_lazy(part: nn.Module, where: str) -> None:
    """Raises UnsupportedError for a module that makes its own weights at the first call."""
    own = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
    if any(is_lazy(item) for item in own):
        raise UnsupportedError(
            f"{where} is lazy ({type(part).__name__}) and has no weights yet: call the module "
            "once, so that it makes them"
        )
