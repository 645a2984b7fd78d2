"""What of Python a call can have read, from which its work may follow; and what is not followed.

From the functions that ran, closures, defaults and the globals that they name; from there, into
modules, optimizers, objects and containers. The surprising choice: more is guarded than was read. A
guard too many costs a capture anew, one too few a wrong result.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ftax import _core
from ftax.runtimes.capture.executed import Executed, is_library
from ftax.steps.writes import find_storage

_MOST_ITEMS = 1000  # of a container that are looked at for each call
_MODULE_STATE = frozenset(
    (
        *("training", "forward", "_parameters", "_buffers", "_modules", "_backward_hooks"),
        *("_backward_pre_hooks", "_forward_hooks", "_forward_hooks_with_kwargs"),
        *("_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    )
)
# What cannot be changed, or leads to nothing that a forward pass reads.
_INERT = (type, types.BuiltinFunctionType, types.ModuleType, types.MethodDescriptorType)
_FOLLOWED = (nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)


@dataclass(slots=True, kw_only=True)
class GuardedState:
    """Guards, and words for each of them.

    Attributes:
        guards: in C++.
        places: what each guards, in its order: "self.scale".
        frozen: what can be reached and is not looked into.
        tensors: that were reached.
    """

    guards: _core.Guards = field(default_factory=_core.Guards)
    places: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)

    def find_change(self) -> str | None:
        """What is not as it was."""
        place = self.guards.find_change()
        if place < 0:
            return None
        key = self.guards.find_key(place)
        return self.places[place] if key is None else f"{key!r} of {self.places[place]}"

    def holds_all(self, written: Iterable[torch.Tensor], given: Iterable[torch.Tensor]) -> bool:
        """Whether all memory that is ``written`` is that of a tensor that was reached or given, or
        of its gradient."""
        known = {find_storage(item) for item in (*self.tensors, *given)}
        known |= {find_storage(item.grad) for item in self.tensors if item.grad is not None}
        return all(find_storage(item) in known for item in written)


def guard_state(
    roots: Mapping[str, object],
    executed: Executed,
    device: str,
    *,
    has_autograd: bool,
    accumulating: Iterable[torch.Tensor] = (),
) -> GuardedState:
    """Guards of all that is reached from ``roots`` and from functions that ran, as it is now; of
    ``accumulating`` leaves also of which tensor their gradient is."""
    walk = _Walk(executed, accumulating, has_autograd=has_autograd)
    walk.note("torch's switches: grad mode, autocast, precision, attention back ends")
    walk.state.guards.add_switches(device)
    for path, value in roots.items():
        walk.visit(value, path)
    for function in executed.list_functions():
        walk.visit_function(function, function.__qualname__)
    walk.finish()
    return walk.state


class _Walk:
    def __init__(
        self, executed: Executed, accumulating: Iterable[torch.Tensor], *, has_autograd: bool
    ) -> None:
        self.state = GuardedState()
        self._accumulating = {id(leaf) for leaf in accumulating}
        self._codes, self._has_autograd = executed.codes, has_autograd
        self._names = None if executed.composes_names else executed.list_names()
        self._seen: dict[int, object] = {}  # holds what is made on the way
        self._globals: dict[int, set[str]] = {}  # keys that are guarded, by namespace
        self._queue: deque[tuple[object, str]] = deque()

    def note(self, path: str) -> None:
        self.state.places.append(path)

    def visit(self, value: object, path: str) -> None:
        if id(value) not in self._seen and not _is_inert(value):
            self._seen[id(value)] = value
            self._queue.append((value, path))

    def finish(self) -> None:
        while self._queue:
            self._look(*self._queue.popleft())

    def _look(self, value: Any, path: str) -> None:
        guards = self.state.guards
        if isinstance(value, torch.Tensor):
            self._look_at_tensor(value, path)
        elif isinstance(value, types.FunctionType):
            self.visit_function(value, path)
        elif isinstance(value, types.MethodType):
            self.visit(value.__self__, path)
            self.visit(value.__func__, path)
        elif isinstance(value, functools.partial):
            self.visit(value.func, f"{path}.func")
            self.visit(value.args, f"{path}.args")
            self.visit(value.keywords, f"{path}.keywords")
        elif isinstance(value, types.CellType):
            if _is_filled(value):
                self.note(path)
                guards.add_cell(value)
                self.visit(value.cell_contents, path)
        elif isinstance(value, dict):
            if self._is_short(value, path):
                self.note(path)
                guards.add_dict(value)
                self._visit_all(((f"{path}[{key!r}]", item) for key, item in value.items()))
        elif isinstance(value, list | tuple):
            if self._is_short(value, path):
                if isinstance(value, list):
                    self.note(path)
                    guards.add_sequence(value)
                self._visit_all((f"{path}[{place}]", item) for place, item in enumerate(value))
        elif isinstance(value, set | frozenset):
            if self._is_short(value, path):
                self.note(path)
                guards.add_set(value)
        else:
            self._look_at_object(value, path)

    def _visit_all(self, inner: Iterable[tuple[str, object]]) -> None:
        for path, value in inner:
            self.visit(value, path)

    def _is_short(self, container: Any, path: str) -> bool:
        if len(container) <= _MOST_ITEMS:
            return True
        self.state.frozen.append(f"the {len(container):,} items of {path}")
        return False

    def visit_function(self, function: types.FunctionType, path: str) -> None:
        if function.__code__ not in self._codes:
            return
        self._seen[id(function)] = function
        own = not is_library(function.__code__.co_filename)
        names = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in names:
            if own or (_is_filled(cell) and not _is_of_library(cell.cell_contents)):
                self.visit(cell, f"{name} of {path}")
        self.visit(function.__defaults__, f"the defaults of {path}")
        self.visit(function.__kwdefaults__, f"the defaults of {path}")
        self._visit_globals(function, own=own)

    def _visit_globals(self, function: types.FunctionType, *, own: bool) -> None:
        """Those that the code names. Functions and classes of libraries are not guarded: nobody
        replaces them between two calls, and there are thousands."""
        space = function.__globals__
        keys = [
            name
            for name in sorted(set(_list_names(function.__code__)))
            if name in space
            and not name.startswith("__")
            and (own or not _is_inert_global(space[name]))
        ]
        if not keys:
            return
        module = space.get("__name__", "?")
        known = self._globals.setdefault(id(space), set())
        if new := [key for key in keys if key not in known]:
            known.update(new)
            self.note(f"globals of {module}: {', '.join(new)}")
            self.state.guards.add_items(space, new)
        for key in keys:
            value = space[key]
            if isinstance(value, types.ModuleType) and not _is_of_library(value):
                self._visit_python_module(value)
            else:
                self.visit(value, f"{module}.{key}")

    def _visit_python_module(self, module: types.ModuleType) -> None:
        """Numbers and containers of a module of the user that is named by code."""
        space = vars(module)
        keys = [
            key
            for key, value in space.items()
            if (self._names is None or key in self._names)
            and not key.startswith("__")
            and not _is_inert_global(value)
        ]
        if keys and id(space) not in self._seen:
            self._seen[id(space)] = space
            self.note(f"globals of {module.__name__}: {', '.join(keys)}")
            self.state.guards.add_items(space, keys)
            self._visit_all((f"{module.__name__}.{key}", space[key]) for key in keys)

    def _look_at_tensor(self, tensor: torch.Tensor, path: str) -> None:
        self.note(path)
        self.state.tensors.append(tensor)
        self.state.guards.add_tensor(tensor, id(tensor) in self._accumulating)
        if self._has_autograd and tensor.is_leaf and tensor.requires_grad:
            for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                self.note(f"{path}.{name}")
                self.state.guards.add_attribute(tensor, name)
                self.visit(getattr(tensor, name, None), f"{path}.{name}")

    def _look_at_object(self, value: Any, path: str) -> None:
        space = getattr(value, "__dict__", None)
        if _is_of_library(value) or not isinstance(space, dict):
            if not callable(value) or isinstance(space, dict):
                self.state.frozen.append(f"{path}, a {type(value).__qualname__}")
            return
        keys = [key for key in space if self._reads(value, key)]
        missing = [] if self._names is None else _list_missing(value, space, self._names)
        self.note(path)
        self.state.guards.add_items(space, [*keys, *missing])
        self._visit_all((f"{path}.{key}", space[key]) for key in keys)
        self._look_at_slots(value, path)
        for kind in type(value).__mro__:
            self._look_at_class(kind)

    def _reads(self, owner: object, key: str) -> bool:
        if self._names is None or key in self._names:
            return True
        return isinstance(owner, nn.Module) and key in _MODULE_STATE

    def _look_at_slots(self, value: object, path: str) -> None:
        for kind in type(value).__mro__:
            slots = vars(kind).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    self.note(f"{path}.{name}")
                    self.state.guards.add_attribute(value, name)
                    self.visit(getattr(value, name), f"{path}.{name}")

    def _look_at_class(self, kind: type) -> None:
        """Numbers, strings and containers that stand in the class of an object."""
        if id(kind) in self._seen or _is_library_name(kind.__module__):
            return
        self._seen[id(kind)] = kind
        keys = [
            key
            for key, value in vars(kind).items()
            if (self._names is None or key in self._names)
            and not (key.startswith("__") or _is_inert_global(value) or _is_descriptor(value))
        ]
        if keys:
            self.note(f"{kind.__qualname__}: {', '.join(keys)}")
            self.state.guards.add_class_items(kind, keys)
            self._visit_all((f"{kind.__qualname__}.{key}", vars(kind)[key]) for key in keys)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (an empty one raises)
    except ValueError:
        return False
    return True


def _is_inert(value: object) -> bool:
    return value is None or isinstance(value, _INERT) or _core.is_plain_value(value)


def _is_inert_global(value: object) -> bool:
    """A function, class or module, of which no more than its identity could be said."""
    return isinstance(value, (types.FunctionType, *_INERT))


def _is_descriptor(value: object) -> bool:
    return hasattr(type(value), "__get__")


def _is_of_library(value: object) -> bool:
    """Whether an object is of torch or of Python's own library, which keep much that changes and
    decides nothing; not so what torch has users derive from or hand their numbers to."""
    if isinstance(value, _FOLLOWED):
        return False
    if isinstance(value, types.ModuleType):
        return _is_library_name(value.__name__)
    return _is_library_name(type(value).__module__)


def _is_library_name(module: str | None) -> bool:
    top = (module or "").partition(".")[0]
    return top in ("torch", "ftax", "_pytest") or top in sys.stdlib_module_names


def _list_missing(owner: object, space: Mapping[str, object], names: frozenset[str]) -> list[str]:
    """Names that code reads of the class, which an attribute of the object would hide."""
    found = []
    for kind in type(owner).__mro__:
        if not _is_library_name(kind.__module__):
            found += [key for key in vars(kind) if key in names and key not in space]
    return [key for key in dict.fromkeys(found) if not key.startswith("__")]


def _list_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _list_names(constant)
