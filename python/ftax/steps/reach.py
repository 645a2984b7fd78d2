"""What a function can get at by its names: its closure, its defaults, the object of which it is a
method, and the globals that its code names.

This is allowed to miss things. What a step writes is found by watching it run; here is only looked
up, before its first call, what such watching sees too late (a gradient that `zero_grad` drops
before any module is entered) or not at all (the epoch of a schedule).
"""

from __future__ import annotations

import argparse
import functools
import gc
import re
import sys
import sysconfig
import types
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import ftax

_DEPTH = 5  # of names within what names lead to
_MOST_ITEMS = 100_000  # of a container that are looked at
CONTAINERS = (list, dict, set, deque)
PACKAGES = tuple(
    str(Path(module.__file__).parent) for module in (torch, ftax) if module.__file__
)  # of which nobody is a user
_STANDARD = sysconfig.get_path("stdlib")
# Those of the Python that an environment was made of lie within its own library.
_PACKAGES = re.compile(r"[/\\](site|dist)-packages[/\\]")
# Of Python's own library, what people keep their options and tables in.
HOLDERS = (types.SimpleNamespace, argparse.Namespace, UserDict, UserList, ChainMap)
_LEAVES = (type, types.ModuleType, str, bytes, bool, int, float, complex, type(None))
_ENDS = (nn.Module, torch.optim.Optimizer, torch.Tensor, torch.Generator)


def is_library(file: str) -> bool:
    """Whether a file is torch's, ftax's or Python's own. What was typed in ("<stdin>") is not."""
    if file.startswith((*PACKAGES, "<frozen ")):
        return True
    return file.startswith(_STANDARD) and not is_installed(file)


def is_library_module(name: object) -> bool:
    """Whether a Python module of this name is torch's, ftax's or Python's own, which one of the
    user's may be named like. A name that is no string is that of something built in."""
    if not isinstance(name, str):
        return True
    top = name.partition(".")[0]
    return top in ("torch", "ftax") or _is_standard(top)


def _is_standard(name: str) -> bool:
    if name not in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is None or is_library(file)


def is_installed(file: str | None) -> bool:
    """Whether a file came with a package that somebody else wrote."""
    return bool(file) and bool(_PACKAGES.search(str(file)))


def find_reached(*starts: object) -> list[Any]:
    """Modules, optimizers, tensors, generators, lists and dictionaries, and objects that can load
    their state (schedules, scalers); each once, in the order in which they are met."""
    found: dict[int, Any] = {}
    seen: dict[int, object] = {}  # holds what is made on the way, so that no id is used again
    queue = deque((start, 0) for start in starts)
    while queue:
        value, depth = queue.popleft()
        if id(value) in seen or issubclass(type(value), _LEAVES):
            continue
        seen[id(value)] = value
        try:
            if _is_wanted(value):
                found[id(value)] = value
            if depth < _DEPTH and not isinstance(value, _ENDS):
                queue.extend([(inner, depth + 1) for inner in _list_inner(value)])
        except Exception:  # an object need not take being looked at: a dead weakref.proxy does not
            continue
    return list(found.values())


def copy_containers(value: Any, copies: dict[int, tuple[Any, Any]], depth: int = 0) -> None:
    """Add to ``copies``, by identity, lists and dictionaries that ``value`` is made of, with what
    they hold."""
    if not isinstance(value, CONTAINERS) or id(value) in copies or depth > _DEPTH:
        return
    copies[id(value)] = (value, value.copy())
    for inner in value.values() if isinstance(value, dict) else value:
        copy_containers(inner, copies, depth + 1)


def _is_wanted(value: object) -> bool:
    return isinstance(value, (*_ENDS, *CONTAINERS)) or can_load(value)


def can_load(value: object) -> bool:
    """Whether it is an object with a state, as torch's schedules and scalers are."""
    return hasattr(type(value), "load_state_dict") and hasattr(value, "__dict__")


def _list_inner(value: Any) -> Iterator[Any]:
    if isinstance(value, types.FunctionType):
        yield from _list_names(value)
    elif (parts := list_parts(value)) is not None:
        yield from parts[:_MOST_ITEMS]
    elif is_ours(value):  # what a capture or a step is of
        yield getattr(value, "original", None)
        yield getattr(value, "function", None)
    elif _is_users(value):
        yield from list(vars(value).values())


def is_ours(value: object) -> bool:
    """Whether it is an object of ftax, which keeps nothing of the user's but what it is of."""
    return str(type(value).__module__).startswith("ftax.")


def _is_users(value: object) -> bool:
    """Whether it is an object of the user's own; what a logger or a lock leads to is no state."""
    module = type(value).__module__
    library = not isinstance(module, str) or _is_standard(module.partition(".")[0])
    return isinstance(getattr(value, "__dict__", None), dict) and (not library or can_load(value))


def _list_names(function: types.FunctionType) -> Iterator[Any]:
    if (function.__module__ or "").partition(".")[0] in ("torch", "ftax"):
        # Its globals are of the library; what was handed to it is not.
        names: set[str] = set()
    else:
        names = list_co_names(function.__code__)
    yield from (function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).values()
    for _, cell in list_cells(function):
        yield cell.cell_contents
    for name in sorted(names):
        if name in function.__globals__:
            yield function.__globals__[name]


def list_parts(value: Any) -> list[Any] | None:
    """What a method, a `functools.partial` or a container holds; None for any other object."""
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset | deque):
        return list(value)
    return None


def list_slots(kind: type) -> Iterator[str]:
    """The attributes in slots of a class and its bases, under the names they are stored by: a
    private one has that of its class before it."""
    for base in kind.__mro__:
        slots = vars(base).get("__slots__") or ()
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                yield f"_{base.__name__.lstrip('_')}{name}"
            elif name not in ("__dict__", "__weakref__"):
                yield name


def list_cells(function: types.FunctionType) -> Iterator[tuple[str, types.CellType]]:
    """The variables of a closure that have a value, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return ((name, cell) for name, cell in cells if is_filled(cell))


def is_filled(cell: types.CellType) -> bool:
    """Whether a variable of a closure has a value."""
    try:
        cell.cell_contents  # noqa: B018  (an empty one raises)
    except ValueError:
        return False
    return True


def list_co_names(code: types.CodeType) -> set[str]:
    """The names of globals and of attributes in ``code`` and in the code within it."""
    return {name for part in list_codes(code) for name in part.co_names}


def list_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """``code``, and that of the functions and classes within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from list_codes(constant)


def list_living_objects() -> list[object]:
    """Those that the garbage collector tracks."""
    frozen = gc.get_freeze_count() > 0
    if frozen:
        gc.unfreeze()
    found = gc.get_objects()
    if frozen:
        gc.freeze()
    return found
