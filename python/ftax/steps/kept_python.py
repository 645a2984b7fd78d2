"""Puts back what Python keeps and a call that was only tried out changed: numbers in closures,
globals, attributes of objects, functions and classes, generators of random numbers.

The surprising choice: it is looked up by names alone, before anything runs, so it may miss things.
Modules, optimizers, lists, dictionaries and tensors are put back by whoever runs the call.
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
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from ftax.steps.reach import HOLDERS, is_library, list_codes
from ftax.steps.state import refill

_MOST = 10_000  # objects that are looked at
_MOST_BYTES = 1 << 24  # of an array that is copied
_ENDS = (nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Generator, types.ModuleType)
_ABSENT = object()


@contextmanager
def keep_python(*starts: object) -> Iterator[list[Any]]:
    """What ``starts`` lead to is afterwards as it was; yields the sources of random numbers that
    are not torch's, those of the process too."""
    walk = _Walk(starts)
    undo = list(walk.keep())
    own = vars(random)["_inst"], np.random.mtrand._rand
    kinds = (random.Random, np.random.Generator, np.random.RandomState)
    found = [item for item in walk.list_seen() if isinstance(item, kinds)]
    try:
        yield [*own, *(item for item in found if all(item is not one for one in own))]
    finally:
        for put_back in undo:
            put_back()


def read_draws(source: Any) -> bytes:
    """What tells whether a source of random numbers was drawn from."""
    if isinstance(source, random.Random):
        return pickle.dumps(source.getstate())
    if isinstance(source, np.random.RandomState):
        return pickle.dumps(source.get_state(legacy=False))
    return pickle.dumps(source.bit_generator.state)


class _Walk:
    def __init__(self, starts: tuple[object, ...]) -> None:
        self._queue = deque(starts)
        self._seen: dict[int, object] = {}

    def keep(self) -> Iterator[Callable[[], None]]:
        while self._queue and len(self._seen) < _MOST:
            value = self._queue.popleft()
            if id(value) not in self._seen:
                self._seen[id(value)] = value
                yield from self._keep(value)

    def list_seen(self) -> list[object]:
        return list(self._seen.values())

    def _keep(self, value: Any) -> Iterator[Callable[[], None]]:
        if isinstance(value, types.FunctionType):
            yield from self._keep_function(value)
        elif isinstance(value, types.MethodType):
            self._queue += (value.__self__, value.__func__)
        elif isinstance(value, functools.partial):
            self._queue += (value.func, *value.args, *value.keywords.values())
        elif isinstance(value, dict):
            self._queue += list(value.values())
        elif isinstance(value, list | tuple | set | frozenset | deque):
            self._queue += list(value)
        elif isinstance(value, random.Random):
            yield functools.partial(value.setstate, value.getstate())
        elif isinstance(value, np.random.Generator):
            yield functools.partial(
                setattr, value.bit_generator, "state", value.bit_generator.state
            )
        elif isinstance(value, bytearray):
            yield functools.partial(_refill_bytes, value, bytes(value))
        elif isinstance(value, contextvars.ContextVar):
            yield functools.partial(_set_variable, value, _read_variable(value))
        elif isinstance(value, UserList | UserDict):
            yield functools.partial(refill, value.data, copy.copy(value.data))
            self._queue.append(value.data)
        elif isinstance(value, threading.local):
            yield functools.partial(_put_items, vars(value), dict(vars(value)))
            self._queue += list(vars(value).values())
        elif isinstance(value, np.ndarray):
            if value.nbytes <= _MOST_BYTES and value.flags.writeable:
                yield functools.partial(np.copyto, value, value.copy())
        elif isinstance(value, type):
            yield from self._keep_class(value)
        elif isinstance(value, nn.Module):
            yield from self._keep_class(type(value))
            self._queue += list(vars(value).values())
            self._queue += list(value._modules.values())
        elif not isinstance(value, _ENDS) and _is_users(type(value)):
            yield from self._keep_object(value)

    def _keep_function(self, function: types.FunctionType) -> Iterator[Callable[[], None]]:
        if is_library(function.__code__.co_filename):
            return
        for cell in function.__closure__ or ():
            yield from self._keep_place(cell, "cell_contents")
        self._queue += (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        for key in list(function.__dict__):
            yield from self._keep_place(function, key)
        for name, is_written in _list_globals(function.__code__):
            space = function.__globals__
            if name in space:
                self._queue.append(space[name])
            if is_written:
                yield functools.partial(_put_item, space, name, space.get(name, _ABSENT))

    def _keep_object(self, value: Any) -> Iterator[Callable[[], None]]:
        space = getattr(value, "__dict__", None)
        if isinstance(space, dict):
            self._queue += list(space.values())
            yield functools.partial(_put_items, space, dict(space))
        for kind in type(value).__mro__:
            slots = vars(kind).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if not name.startswith("__"):
                    yield from self._keep_place(value, name)
        yield from self._keep_class(type(value))

    def _keep_class(self, kind: type) -> Iterator[Callable[[], None]]:
        if not _is_users(kind):
            return
        yield functools.partial(_drop_attributes, kind, set(vars(kind)))
        for key, value in list(vars(kind).items()):
            if isinstance(value, types.FunctionType):
                self._queue.append(value)
            elif not key.startswith("__") and not hasattr(type(value), "__get__"):
                yield from self._keep_place(kind, key)

    def _keep_place(self, owner: Any, name: str) -> Iterator[Callable[[], None]]:
        try:
            value = getattr(owner, name)
        except (AttributeError, ValueError):  # a slot or a cell that is not filled
            return
        self._queue.append(value)

        def put_back() -> None:
            if getattr(owner, name, _ABSENT) is not value:
                setattr(owner, name, value)

        yield put_back


def _is_users(kind: type) -> bool:
    top = (kind.__module__ or "").partition(".")[0]
    return kind in HOLDERS or (top not in ("torch", "ftax") and top not in sys.stdlib_module_names)


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


def _list_globals(code: types.CodeType) -> Iterator[tuple[str, bool]]:
    """Names of globals, and whether the code writes them."""
    for part in list_codes(code):
        for item in dis.get_instructions(part):
            if item.opname in ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"):
                yield str(item.argval), item.opname != "LOAD_GLOBAL"
