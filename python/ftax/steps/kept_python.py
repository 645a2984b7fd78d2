"""Puts back what Python keeps and a call that was only tried out changed: numbers in closures,
globals, attributes of objects, functions and classes, containers, generators of random numbers.

It is looked up by names alone, before anything runs, so it may miss things. Modules, optimizers and
tensors are put back by whoever runs the call.
"""

from __future__ import annotations

import contextvars
import copy
import dis
import functools
import pickle
import random
import sys
import threading
import types
from collections import UserDict, UserList, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ftax.steps.reach import (
    CONTAINERS,
    HOLDERS,
    is_filled,
    is_installed,
    is_library,
    is_library_module,
    list_cells,
    list_co_names,
    list_codes,
    list_parts,
    list_slots,
)
from ftax.steps.state import is_same_container, refill

_MOST = 10_000  # objects that are looked at
_MOST_BYTES = 1 << 26  # of arrays that are copied
_ENDS = (nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Generator, types.ModuleType)
_ABSENT = object()


@contextmanager
def keep_python(*starts: object, own_code: bool = False) -> Iterator[list[tuple[Any, bool]]]:
    """What ``starts`` lead to is afterwards as it was; yields the sources of random numbers that
    are not torch's, those of the process too, and of each whether it was met. With ``own_code``,
    nothing of installed packages: they keep much that they fill once. Of arrays, 64 MB in all."""
    walk = _Walk(starts, own_code=own_code)
    undo = list(walk.keep())
    met = walk.list_draws()
    own = vars(random)["_inst"], np.random.mtrand._rand
    others = [item for item in own if all(item is not one for one in met)]
    try:
        yield [*((item, True) for item in met), *((item, False) for item in others)]
    finally:
        for put_back in undo:
            with suppress(Exception):  # one that refuses (a frozen object) keeps what it has
                put_back()


@contextmanager
def keep_draws(*starts: object) -> Iterator[None]:
    """Generators of random numbers that ``starts`` lead to are afterwards as they were, and they
    alone: what hooks of the user's write down stays."""
    walk = _Walk(starts, own_code=True, copies=False)
    for _ in walk.keep():
        pass
    with keep_python(*walk.list_draws(), own_code=True):
        yield


def read_draws(source: Any) -> bytes:
    """What tells whether a source of random numbers was drawn from."""
    if isinstance(source, random.Random):
        return pickle.dumps(source.getstate())
    if isinstance(source, np.random.RandomState):
        return pickle.dumps(source.get_state(legacy=False))
    return pickle.dumps(source.bit_generator.state)


def find_changes(call: Callable[[], object], *starts: object) -> tuple[str, ...]:
    """What ``call`` changes of what ``starts`` lead to, each with the line that does it where it is
    found: "Trainer.position (train.py, line 12)"."""
    walk = _Walk(starts, own_code=True)
    kept = list(walk.keep())
    draws = [(source, read_draws(source)) for source in walk.list_sources()]
    call()
    names = _Names(walk.list_seen())
    found = [name for put_back in kept for name in names.list_changed(put_back)]
    found += [
        f"random numbers of {type(source).__module__.partition('.')[0]}"
        for source, before in draws
        if read_draws(source) != before
    ]
    return tuple(dict.fromkeys(found))


class _Names:
    """What the user calls what an undo of `_Walk` would change, and where that is written."""

    def __init__(self, seen: list[object]) -> None:
        self._functions = [item for item in seen if isinstance(item, types.FunctionType)]
        self._owners: dict[int, str] = {}  # of a dictionary of attributes: the class
        self._holders: dict[int, tuple[str, str]] = {}  # of a container: its name, and in code
        for item in seen:
            space = getattr(item, "__dict__", None)
            if isinstance(item, type | types.FunctionType) or not isinstance(space, dict):
                continue
            self._owners[id(space)] = type(item).__name__
            for key, value in space.items():
                self._holders.setdefault(id(value), (f"{type(item).__name__}.{key}", str(key)))
        self._cells: dict[int, str] = {}
        for function in self._functions:
            names = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            for name, cell in names:
                self._cells[id(cell)] = name
                if is_filled(cell):
                    self._holders.setdefault(id(cell.cell_contents), (name, name))
            for name, _ in _list_globals(function.__code__):
                if name in function.__globals__:
                    value = function.__globals__[name]
                    self._holders.setdefault(id(value), (name, name))

    def list_changed(self, put_back: Callable[[], None]) -> Iterator[str]:
        if not isinstance(put_back, functools.partial):
            return
        what, arguments = put_back.func, put_back.args
        if what is _refill and not is_same_container(*arguments):
            name, key = self._holders.get(id(arguments[0]), ("", ""))
            if name:
                yield self._place(name, key)
        elif what is _put_items and (owner := self._owners.get(id(arguments[0]))):
            space, before = arguments
            for key in dict.fromkeys((*before, *space)):
                if space.get(key, _ABSENT) is not before.get(key, _ABSENT):
                    yield self._place(f"{owner}.{key}", key)
        elif what is _put_item:
            space, key, before = arguments
            if space.get(key, _ABSENT) is not before:
                yield self._place(key, key)
        elif what is _put_place:
            owner, key, before = arguments
            if getattr(owner, key, _ABSENT) is not before:
                key = self._cells.get(id(owner), key)
                is_cell = isinstance(owner, types.CellType)
                yield self._place(key if is_cell else f"{_name_class(owner)}.{key}", key)

    def _place(self, name: str, key: str) -> str:
        """With the line that writes ``key``, or else the first that names it."""
        for writes in (True, False):
            for function in self._functions:
                for code in list_codes(function.__code__):
                    for item in dis.get_instructions(code):
                        if item.argval == key and item.opname.startswith("STORE_") == writes:
                            line = item.positions.lineno if item.positions else None
                            return f"{name} ({Path(code.co_filename).name}, line {line})"
        return name


def _name_class(owner: Any) -> str:
    return (owner if isinstance(owner, type) else type(owner)).__name__


class _Walk:
    """With ``copies=False`` containers and arrays are looked into and not kept."""

    def __init__(self, starts: tuple[object, ...], *, own_code: bool, copies: bool = True) -> None:
        self._queue, self._own_code, self._copies = deque(starts), own_code, copies
        self._bytes_left = _MOST_BYTES
        self._seen: dict[int, object] = {}
        self._classes: set[type] = set()

    def keep(self) -> Iterator[Callable[[], None]]:
        while self._queue and len(self._seen) < _MOST:
            value = self._queue.popleft()
            if id(value) not in self._seen:
                self._seen[id(value)] = value
                with suppress(Exception):  # of code of the user's, such as a __getattr__
                    yield from self._keep(value)

    def list_seen(self) -> list[object]:
        """All that was met."""
        return list(self._seen.values())

    def list_sources(self) -> list[object]:
        """`list_draws`, and those of the process."""
        met, own = self.list_draws(), (vars(random)["_inst"], np.random.mtrand._rand)
        return [*met, *(item for item in own if all(item is not one for one in met))]

    def list_draws(self) -> list[object]:
        """Sources of random numbers that were met."""
        kinds = (random.Random, np.random.Generator, np.random.RandomState)
        found = (item for item in self._seen.values() if isinstance(item, kinds))
        return [item for item in found if not isinstance(item, random.SystemRandom)]

    def _keep(self, value: Any) -> Iterator[Callable[[], None]]:
        if isinstance(value, types.FunctionType):
            yield from self._keep_function(value)
        elif (parts := list_parts(value)) is not None:
            self._queue += parts
            if self._copies and type(value) in CONTAINERS and len(value) < _MOST:
                yield functools.partial(_refill, value, copy.copy(value))
        elif isinstance(value, random.SystemRandom):
            return  # it has no state
        elif isinstance(value, random.Random):
            yield functools.partial(value.setstate, value.getstate())
        elif isinstance(value, np.random.RandomState):
            yield functools.partial(value.set_state, value.get_state(legacy=False))
        elif isinstance(value, np.random.Generator):
            yield functools.partial(
                setattr, value.bit_generator, "state", value.bit_generator.state
            )
        elif isinstance(value, bytearray):
            yield functools.partial(_refill_bytes, value, bytes(value))
        elif isinstance(value, contextvars.ContextVar):
            yield functools.partial(_set_variable, value, _read_variable(value))
        elif isinstance(value, UserList | UserDict):
            self._queue.append(getattr(value, "data", None))
        elif isinstance(value, threading.local):
            yield functools.partial(_put_items, vars(value), dict(vars(value)))
            self._queue += list(vars(value).values())
        elif isinstance(value, np.ndarray):
            if self._copies and value.nbytes <= self._bytes_left and value.flags.writeable:
                self._bytes_left -= value.nbytes
                yield functools.partial(np.copyto, value, value.copy())
        elif isinstance(value, type):
            yield from self._keep_class(value)
        elif isinstance(value, types.BuiltinMethodType):
            self._queue.append(value.__self__)  # of a method, what it is of
        elif isinstance(value, torch.Tensor):
            yield functools.partial(_put_items, vars(value), dict(vars(value)))
        elif isinstance(value, nn.Module):
            yield functools.partial(setattr, value, "__class__", type(value))
            yield from self._keep_class(type(value))
            self._queue += list(vars(value).values())
            self._queue += list(value._modules.values())
        elif isinstance(value, torch.optim.Optimizer):  # the rest of it is put back by who runs it
            self._queue += (value._optimizer_step_pre_hooks, value._optimizer_step_post_hooks)
        elif not isinstance(value, _ENDS) and self._is_users(type(value)):
            yield from self._keep_object(value)

    def _keep_function(self, function: types.FunctionType) -> Iterator[Callable[[], None]]:
        file = function.__code__.co_filename
        if (function.__module__ or "").startswith("ftax."):  # what it was handed is the user's
            self._queue += [cell.cell_contents for _, cell in list_cells(function)]
        if is_library(file) or (self._own_code and is_installed(file)):
            return
        for _, cell in list_cells(function):
            yield from self._keep_place(cell, "cell_contents")
            yield from self._keep_python_module(cell.cell_contents, function.__code__)
        self._queue += (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        yield functools.partial(_put_items, function.__dict__, dict(function.__dict__))
        self._queue += list(function.__dict__.values())
        for name, is_written in _list_globals(function.__code__):
            space = function.__globals__
            if name in space:
                self._queue.append(space[name])
                yield from self._keep_python_module(space[name], function.__code__)
            if is_written:
                yield functools.partial(_put_item, space, name, space.get(name, _ABSENT))

    def _keep_python_module(
        self, value: object, code: types.CodeType
    ) -> Iterator[Callable[[], None]]:
        """What ``code`` names of a Python module of the user's."""
        if not isinstance(value, types.ModuleType) or is_library_module(value.__name__):
            return
        space = vars(value)
        for name in list_co_names(code):
            if name in space and not isinstance(space[name], types.ModuleType):
                self._queue.append(space[name])
                yield functools.partial(_put_item, space, name, space[name])

    def _keep_object(self, value: Any) -> Iterator[Callable[[], None]]:
        space = getattr(value, "__dict__", None)
        if isinstance(space, dict):
            yield functools.partial(setattr, value, "__class__", type(value))
            self._queue += list(space.values())
            yield functools.partial(_put_items, space, dict(space))
        for name in list_slots(type(value)):
            yield from self._keep_place(value, name)
        yield from self._keep_class(type(value))

    def _keep_class(self, kind: type) -> Iterator[Callable[[], None]]:
        if kind in self._classes or not self._is_users(kind):
            return
        self._classes.add(kind)
        yield functools.partial(_drop_attributes, kind, set(vars(kind)))
        for key, value in list(vars(kind).items()):
            if isinstance(value, types.FunctionType):
                self._queue.append(value)
            elif not key.startswith("__") and not hasattr(type(value), "__get__"):
                yield from self._keep_place(kind, key)

    def _is_users(self, kind: type) -> bool:
        if kind in HOLDERS:
            return True
        if is_library_module(kind.__module__):
            return False
        module = sys.modules.get(kind.__module__)
        return not (self._own_code and is_installed(getattr(module, "__file__", None)))

    def _keep_place(self, owner: Any, name: str) -> Iterator[Callable[[], None]]:
        try:
            value = getattr(owner, name)
        except Exception:  # a slot or a cell that is not filled, or code of the user's
            return
        self._queue.append(value)
        yield functools.partial(_put_place, owner, name, value)


def _refill(container: Any, before: Any) -> None:
    if not is_same_container(container, before):
        refill(container, before)


def _put_place(owner: Any, name: str, value: Any) -> None:
    with suppress(AttributeError, ValueError):  # a slot or a cell that is empty now
        if getattr(owner, name) is value:
            return
    setattr(owner, name, value)


def _refill_bytes(value: bytearray, before: bytes) -> None:
    if value != before:
        value[:] = before


def _read_variable(variable: contextvars.ContextVar[Any]) -> Any:
    try:
        return variable.get()  # or its default
    except LookupError:
        return _ABSENT


def _set_variable(variable: contextvars.ContextVar[Any], before: Any) -> None:
    if before is not _ABSENT and variable.get(before) is not before:
        variable.set(before)


def _drop_attributes(kind: type, before: set[str]) -> None:
    """Those that a class did not have."""
    for key in [key for key in vars(kind) if key not in before and not key.startswith("__")]:
        delattr(kind, key)


def _put_item(space: dict[str, Any], name: str, value: Any) -> None:
    if value is _ABSENT:
        space.pop(name, None)
    elif space.get(name, _ABSENT) is not value:
        space[name] = value


def _put_items(space: dict[str, Any], before: dict[str, Any]) -> None:
    for name in [name for name in space if name not in before]:
        del space[name]
    for name, value in before.items():
        _put_item(space, name, value)


@functools.lru_cache(_MOST)
def _list_globals(code: types.CodeType) -> tuple[tuple[str, bool], ...]:
    """Names of globals, and whether the code writes them."""
    items = (item for part in list_codes(code) for item in dis.get_instructions(part))
    kinds = ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL")
    found = ((str(i.argval), i.opname != "LOAD_GLOBAL") for i in items if i.opname in kinds)
    return tuple(dict.fromkeys(found))
