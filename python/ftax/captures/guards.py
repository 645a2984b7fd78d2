"""Walks from a call to all of Python's state on which its work can depend, and guards each place.

It starts at the functions that ran: closures, defaults and the globals that they name. From there
it goes into modules, optimizers, objects and containers, by the names that `NamesRead` lists. More
is guarded than was read: a guard too many costs a recording, one too few a wrong result. What is
not followed is named, too. Tensors that each call makes anew and leaves in Python (an attribute
that each forward pass sets, the output that a hook puts into a dictionary) are kept, not guarded: a
replay puts its own there.
"""

from __future__ import annotations

import builtins
import functools
import operator
import os
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ftax import _core
from ftax.captures.executed import Executed
from ftax.captures.gradients import Gradients, can_hold_gradient
from ftax.captures.names import (
    NamesRead,
    composes_names,
    is_fixed,
    is_inert,
    is_library_class,
    is_library_name,
    is_of_library,
    list_globals,
    list_imports,
    list_unfollowed,
    reads_environment,
)
from ftax.errors import name_key
from ftax.steps.reach import is_filled, is_installed, is_library, list_slots
from ftax.steps.writes import list_storages

_MOST_ITEMS = 100_000  # of a container that are looked at for each call
_MOST_NUMBERS = 4096  # of an array of numpy, which are compared faster
_SCALER_STATES = "_per_optimizer_states"
# Objects that read attributes by names that stand in no code.
_READERS = (operator.attrgetter, operator.methodcaller)


@dataclass(frozen=True, slots=True, eq=False)
class KeptTensor:
    """A key of a dictionary, such as that of an object's attributes. ``name``: in words."""

    space: dict[Any, Any]
    key: Any
    name: str

    def read(self) -> Any:
        """What is there now."""
        return self.space.get(self.key)

    def write(self, tensor: torch.Tensor) -> None:
        """Leave a tensor there; of an object, no ``__setattr__`` is asked."""
        self.space[self.key] = tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Unguarded:
    """What a call may find changed: attributes and variables of these names, and tensors that each
    call leaves anew."""

    names: frozenset[str] = frozenset()
    places: tuple[KeptTensor, ...] = ()

    def has(self, space: dict[Any, Any], key: Any) -> bool:
        """Whether a key of a dictionary is among them."""
        if key in self.names:
            return True
        return any(item.space is space and item.key == key for item in self.places)

    def choose(self, space: dict[Any, Any], keys: Iterable[Any]) -> list[Any]:
        """Those of ``keys`` that are not among them."""
        if not self.names and not self.places:
            return list(keys)
        return [key for key in keys if not self.has(space, key)]


NOTHING_UNGUARDED = Unguarded()


class Wraps:
    """What stands before a callable of the user's, which decides what it does."""

    original: Any


class _Contents:
    """What an object holds that C++ does not know how to look into. ``now`` is the same object as
    long as all of it is the same: a guard of an attribute, which is a property, tells."""

    def __init__(self, read: Callable[[], list[Any]]) -> None:
        self._read, self._items, self._now = read, read(), object()

    @property
    def now(self) -> object:
        items = self._read()
        if len(items) != len(self._items) or not all(map(_core.is_same_value, self._items, items)):
            self._items, self._now = items, object()
        return self._now


@dataclass(slots=True, kw_only=True)
class GuardedState:
    """Guards, and words for each of them.

    Attributes:
        guards: in C++.
        places: what each guards, in its order: "self.scale".
        frozen: what can be reached and is not looked into.
        tensors: that were reached.
        keys: of dictionaries, that hold tensors, and which.
    """

    guards: _core.Guards = field(default_factory=_core.Guards)
    places: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    keys: list[tuple[KeptTensor, torch.Tensor]] = field(default_factory=list)

    def find_change(self) -> str | None:
        """What is not as it was."""
        place = self.guards.find_change()
        if place < 0:
            return None
        key = self.guards.find_key(place)
        return self.places[place] if key is None else f"{name_key(key)} of {self.places[place]}"

    def name_change(self) -> str:
        """The attribute or variable that is not as it was; "" where it has no name."""
        place = self.guards.find_change()
        key = None if place < 0 else self.guards.find_key(place)
        if isinstance(key, str):
            return key
        name = self.places[place].partition(" of ")[0].partition("[")[0].rpartition(".")[2]
        return name if name.isidentifier() else ""

    def find_kept(self) -> tuple[KeptTensor, ...]:
        """Where there is another tensor than there was."""
        found = ((place, before, place.read()) for place, before in self.keys)
        return tuple(
            place
            for place, before, now in found
            if now is not before and isinstance(now, torch.Tensor)
        )

    def holds_all(self, written: Iterable[torch.Tensor], given: Iterable[torch.Tensor]) -> bool:
        """Whether all memory that is ``written`` is that of a tensor that was reached or given, or
        of its gradient."""
        grads = (item.grad for item in self.tensors if item.grad is not None)
        known = {key for item in (*self.tensors, *given, *grads) for key in list_storages(item)}
        return all(known.issuperset(list_storages(item)) for item in written)


def guard_state(
    roots: Mapping[str, object],
    executed: Executed,
    device: str,
    *,
    functions: Iterable[types.FunctionType],
    has_autograd: bool,
    gradients: Gradients | None = None,
    unguarded: Unguarded = NOTHING_UNGUARDED,
) -> GuardedState:
    """Guards of all that is reached from ``roots`` and from ``functions`` that ran, as it is now,
    but for what is ``unguarded``; where it is known what becomes of ``gradients``, also of those
    that the call can find."""

    def walk_by(read: NamesRead) -> _Walk:
        walk = _Walk(read, gradients, unguarded, has_autograd=has_autograd)
        return _walk(walk, roots, executed, functions, device)

    read = NamesRead(executed.codes, makes_names=composes_names(executed.codes, executed.askers))
    walk = walk_by(read)
    if walk.has_met_readers and not read.makes_names:
        walk = walk_by(NamesRead(executed.codes, makes_names=True))
    return walk.state


def _walk(
    walk: _Walk,
    roots: Mapping[str, object],
    executed: Executed,
    functions: Iterable[types.FunctionType],
    device: str,
) -> _Walk:
    walk.note("torch's switches: grad mode, autocast, precision, attention back ends")
    walk.state.guards.add_switches(device)
    walk.note("the level of forward-mode differentiation")
    walk.state.guards.add_items(vars(torch.autograd.forward_ad), ["_current_level"])
    for path, value in roots.items():
        walk.visit(value, path)
    walk.finish()
    walk.gradients = None  # what follows may be of functions that only have the same code
    for function in functions:
        walk.visit_function(function, function.__qualname__)
    for code, space in executed.spaces:
        walk.visit_globals(code, space)
    walk.state.frozen += list_unfollowed(executed.codes)
    if reads_environment(executed.codes):
        walk.note("environment variables")
        walk.state.guards.add_dict(os.environ._data)  # type: ignore[attr-defined]
    walk.finish()
    return walk


class _Walk:
    def __init__(
        self,
        read: NamesRead,
        gradients: Gradients | None,
        unguarded: Unguarded,
        *,
        has_autograd: bool,
    ) -> None:
        self.state = GuardedState()
        self._unguarded = unguarded
        self.gradients = gradients if read.can_be("grad") or has_autograd else None
        self._read, self._has_autograd = read, has_autograd
        self.has_met_readers = False
        self._seen: dict[int, object] = {}  # holds what is made on the way
        self._functions: dict[int, object] = {}
        self._guarded: dict[int, set[str]] = {}  # keys, by the namespace that they are in
        self._queue: deque[tuple[object, str]] = deque()

    def note(self, path: str) -> None:
        self.state.places.append(path)

    def visit(self, value: object, path: str) -> None:
        if isinstance(value, type):
            self._look_at_classes(value)
        elif isinstance(value, types.ModuleType):
            if not is_of_library(value):
                self._visit_python_module(value)
        elif isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            if not isinstance(value.__self__, types.ModuleType | type | None):  # a bound method
                self.visit(value.__self__, f"{path}.__self__")
        elif id(value) not in self._seen and not is_inert(value):
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
            self._look_at_attributes(value, vars(value), path)
        elif isinstance(value, types.CellType):
            self.note(path)
            guards.add_cell(value)
            if is_filled(value):
                self.visit(value.cell_contents, path)
        elif isinstance(value, dict):
            if self._is_short(value, path):
                self._guard_dict(value, path)
                self._visit_all((f"a key of {path}", key) for key in value)
                self._visit_items(value, value, path, as_items=True)
                if isinstance(value, OrderedDict) and len(value) > 1:  # has an order of its own
                    self.note(path)
                    guards.add_attribute(_Contents(functools.partial(list, value)), "now")
            self._look_at_subclass(value, path, dict, OrderedDict)
        elif isinstance(value, list | tuple):
            if self._is_short(value, path):
                if isinstance(value, list):
                    self.note(path)
                    guards.add_sequence(value)
                self._visit_all((f"{path}[{place}]", item) for place, item in enumerate(value))
            self._look_at_subclass(value, path, list, tuple)
        elif type(value) is set:
            if self._is_short(value, path):
                self.note(path)
                guards.add_set(value)
                self._visit_all((f"{path}[{place}]", item) for place, item in enumerate(value))
        elif (read := _find_contents(value)) is not None:
            if self._is_short(value, path):
                self.note(path)
                guards.add_attribute(_Contents(read), "now")
                self._visit_all((f"{path}[{place}]", item) for place, item in enumerate(read()))
            self._look_at_subclass(value, path, set, frozenset, deque, bytearray, np.ndarray)
        elif isinstance(value, Wraps):
            self.visit(value.original, f"{path}.original")
        else:
            self._look_at_object(value, path)

    def _guard_dict(self, space: dict[Any, Any], path: str) -> None:
        """All of it, and that there is no more; but for what is unguarded."""
        self.note(path)
        if len(keys := self._unguarded.choose(space, space)) == len(space):
            self.state.guards.add_dict(space)
        else:
            self.state.guards.add_items(space, keys)

    def _visit_items(
        self, space: dict[Any, Any], keys: Iterable[Any], path: str, *, as_items: bool = False
    ) -> None:
        """What these keys hold, and which of them are tensors."""
        for key in self._unguarded.choose(space, keys):
            value = space[key]
            name = f"{path}[{name_key(key)}]" if as_items else f"{path}.{key}"
            if isinstance(value, torch.Tensor):
                self.state.keys.append((KeptTensor(space, key, name), value))
            self.visit(value, name)

    def _visit_all(self, inner: Iterable[tuple[str, object]]) -> None:
        for path, value in inner:
            self.visit(value, path)

    def _look_at_subclass(self, value: object, path: str, *plain: type) -> None:
        """Attributes of a container of a class of its own."""
        if type(value) not in plain and not is_library_class(type(value)):
            self._look_at_object(value, path)

    def _is_short(self, container: Any, path: str) -> bool:
        is_array = isinstance(container, np.ndarray)
        count = container.size if is_array else len(container)
        if count <= (_MOST_NUMBERS if is_array else _MOST_ITEMS):
            return True
        self.state.frozen.append(f"the {count:,} items of {path}")
        return False

    def visit_function(self, function: types.FunctionType, path: str) -> None:
        # What torch or Python wraps around a function of the user has that one's attributes.
        is_users = not is_library_name(function.__module__)
        if not self._read.has_run(function.__code__):
            if function.__dict__ and is_users:
                self.visit(function.__dict__, f"attributes of {path}")
            return
        if id(function) in self._functions:
            return
        self._functions[id(function)] = self._seen[id(function)] = function
        own = not is_library(function.__code__.co_filename)
        if own:
            self.note(f"the code of {path}")
            self.state.guards.add_function(function)
        if own or is_users:
            self.visit(function.__dict__, f"attributes of {path}")
        self.visit(getattr(function, "registry", None), f"{path}.registry")  # of singledispatch
        names = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in names:
            if name in self._unguarded.names:
                continue
            if own or (is_filled(cell) and not is_of_library(cell.cell_contents)):
                self.visit(cell, f"{name} of {path}")
        self.visit(function.__defaults__, f"the defaults of {path}")
        self.visit(function.__kwdefaults__, f"the defaults of {path}")
        self.visit_globals(function.__code__, function.__globals__)

    def visit_globals(self, code: types.CodeType, space: dict[str, Any]) -> None:
        """Those that the code names."""
        own = not is_library(code.co_filename)
        keys = self._unguarded.choose(space, list_globals(code, space))
        module = space.get("__name__", "?")
        self._guard_items(space, keys, f"globals of {module}")
        if own:
            found = [key for key in keys if key not in space and key in vars(builtins)]
            self._guard_items(vars(builtins), found, "builtins")
        self._visit_items(space, [key for key in keys if key in space], module)
        if own:
            for name in list_imports(code, space):
                imported = sys.modules.get(name)  # or code finds out that it is not there
                if imported is None or not is_of_library(imported):
                    self._guard_items(sys.modules, [name], "Python modules")
                self.visit(imported, name)

    def _guard_items(self, space: dict[str, Any], keys: Iterable[str], title: str) -> None:
        known = self._guarded.setdefault(id(space), set())
        if new := [key for key in keys if key not in known]:
            known.update(new)
            self.note(f"{title}: {', '.join(new)}")
            self.state.guards.add_items(space, new)

    def _visit_python_module(self, module: types.ModuleType) -> None:
        """What code names of a module of the user."""
        space = vars(module)
        if id(space) in self._seen:
            return
        self._seen[id(space)] = space
        keys = self._unguarded.choose(space, self._read.list_in_module(space))
        missing = self._read.list_asked(space)
        if keys or missing:
            self.note(f"globals of {module.__name__}: {', '.join(keys)}")
            self.state.guards.add_items(space, [*keys, *missing])
            self._visit_items(space, keys, module.__name__)

    def _look_at_tensor(self, tensor: torch.Tensor, path: str) -> None:
        self.note(path)
        self.state.tensors.append(tensor)
        is_followed = self._has_autograd and tensor.is_leaf and tensor.requires_grad
        self.state.guards.add_tensor(tensor, self._finds_gradient(tensor), is_followed)
        self._look_at_attributes_of_tensor(tensor, path)
        if is_followed:
            for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                self.note(f"{path}.{name}")
                self.state.guards.add_attribute(tensor, name)
                self.visit(getattr(tensor, name, None), f"{path}.{name}")

    def _look_at_attributes_of_tensor(self, tensor: torch.Tensor, path: str) -> None:
        """Those of Python, which no operator call tells of."""
        space = vars(tensor)
        keys = self._unguarded.choose(space, filter(self._read.can_be, space))
        missing = self._read.list_asked(space)
        if keys or missing:
            self.note(f"attributes of {path}")
            self.state.guards.add_items(space, [*keys, *missing])
            self._visit_items(space, keys, path)

    def _finds_gradient(self, tensor: torch.Tensor) -> bool:
        """Whether what the call does can depend on which gradient is there, or that none is."""
        if self.gradients is None or not can_hold_gradient(tensor):
            return False
        return id(tensor) not in self.gradients.own

    def _look_at_object(self, value: Any, path: str) -> None:
        if isinstance(value, _READERS):
            self.has_met_readers = True
            return
        space = getattr(value, "__dict__", None)
        has_slots = any("__slots__" in vars(kind) for kind in type(value).__mro__)
        if is_of_library(value) or not (isinstance(space, dict) or has_slots):
            if not is_fixed(value):
                self.state.frozen.append(f"{path}, a {type(value).__qualname__}")
            return
        if isinstance(value, torch.jit.ScriptModule):
            kind = type(value).__qualname__
            self.state.frozen.append(f"attributes, modes and weights of {path}, a {kind}")
        self.note(f"the class of {path}")
        self.state.guards.add_class(value)
        if isinstance(space, dict):
            self._look_at_attributes(value, space, path)
        self._look_at_slots(value, path)
        self._look_at_classes(type(value))

    def _look_at_attributes(self, value: object, space: dict[str, Any], path: str) -> None:
        keys = self._unguarded.choose(space, self._read.list_in_object(value, space))
        # Of a GradScaler there is a new one after each update, and none where it is switched off.
        if isinstance(value, torch.amp.GradScaler) and _SCALER_STATES in keys:
            keys.remove(_SCALER_STATES)
            self.note(f"the stages of {path}")
            self.state.guards.add_attribute(_Contents(lambda: _list_stages(value)), "now")
            self.state.guards.add_items(space, keys)
            self.note(path)
        elif self._read.can_be_any(value):
            self._guard_dict(space, path)
        else:
            missing = self._read.list_missing(value, space)
            self.note(path)
            self.state.guards.add_items(space, [*keys, *missing])
        if self.state.guards.add_dict_of(value):
            self.note(f"which dictionary has the attributes of {path}")
        self._visit_items(space, keys, path)

    def _look_at_slots(self, value: object, path: str) -> None:
        for name in list_slots(type(value)):
            self.note(f"{path}.{name}")
            self.state.guards.add_attribute(value, name)
            self.visit(getattr(value, name, None), f"{path}.{name}")

    def _look_at_classes(self, kind: type) -> None:
        """What code names of a class of the user and of those that it derives from, methods too."""
        if id(kind) in self._seen or is_library_class(kind):
            return
        self._seen[id(kind)] = kind
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if not is_installed(file):  # nobody gives a package's class other bases
            self.note(f"the bases of {kind.__qualname__}")
            self.state.guards.add_attribute(kind, "__mro__")
        behind: dict[str, object] = {}  # what a class that comes later would be asked for
        for base in reversed(kind.__mro__):
            if not is_library_class(base):
                self._look_at_class(base, behind)
            behind |= vars(base)
        if type(kind) is not type:
            self._look_at_classes(type(kind))

    def _look_at_class(self, kind: type, behind: Mapping[str, object]) -> None:
        space = vars(kind)
        keys, missing = self._read.list_in_class(space, behind)
        known = self._guarded.setdefault(id(kind), set())
        if new := [key for key in (*keys, *missing) if key not in known]:
            known.update(new)
            self._seen[id(kind)] = kind
            self.note(f"{kind.__qualname__}: {', '.join(keys)}")
            self.state.guards.add_class_items(kind, new)
        self._visit_all((f"{kind.__qualname__}.{key}", space[key]) for key in keys)


def _find_contents(value: Any) -> Callable[[], list[Any]] | None:
    """How to list what a container of another kind holds; None for what is none."""
    if isinstance(value, deque | set | frozenset):
        return lambda: list(value)
    if isinstance(value, types.MappingProxyType):
        return lambda: [*value, *value.values()]
    if isinstance(value, bytearray):
        return lambda: [bytes(value)]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return lambda: [value.tobytes(), str(value.dtype), str(value.shape)]
    return None


def _list_stages(scaler: torch.amp.GradScaler) -> list[Any]:
    states: dict[int, dict[str, Any]] = getattr(scaler, _SCALER_STATES)
    return [item for key, state in states.items() for item in (key, state["stage"].value)]
