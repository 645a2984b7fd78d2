"""Which names code reads: of attributes, globals and modules that it imports; which of them an
object, a class or a module has or lacks; and what a guard need not look into.

A string in the code that could be a name counts as one, since `getattr` takes it; where a name may
be put together while the code runs, every attribute may be read. What torch keeps changes all the
time and decides nothing, so that whole library is passed by, except what it has users derive from
or hand their numbers to.
"""

from __future__ import annotations

import copy
import dataclasses
import dis
import enum
import functools
import inspect
import itertools
import logging
import re
import types
from collections import namedtuple
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch import nn

from ftax import _core
from ftax.steps.reach import HOLDERS, is_library, is_library_module, list_co_names, list_codes

_KEPT = 10_000  # pieces of code, whose instructions are looked at once
_ENVIRONMENT = frozenset(("environ", "getenv"))
_BY_NAME = frozenset(
    (
        *("vars", "__dict__", "attrgetter", "methodcaller", "eval", "exec", "format_map"),
        "__getattribute__",
    )
)
_BY_ARGUMENT = frozenset(("getattr", "hasattr"))
# Errors by which code finds out that there is no such attribute or Python module.
_CAUGHT = frozenset(
    (
        *("AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "Exception"),
        *("BaseException", "suppress"),
    )
)
_FIELD = re.compile(r"\{[^{}]*\.[^{}]*\}")  # of str.format, with an attribute
# What code asks that no guard follows, by the name that it is asked by.
_UNFOLLOWED = {
    **dict.fromkeys(
        ("storage_offset", "is_leaf", "grad_fn", "_base", "_is_view", "is_inference"),
        "what a tensor is beside its type, shape, strides, dtype, device and requires_grad",
    ),
    **dict.fromkeys(
        ("import_module", "__import__"), "Python modules that are imported by a name that is made"
    ),
    "grad": "the gradient that a tensor among the arguments brings",
    "__subclasses__": "which classes derive from another",
    "argv": "the arguments of the command line",
}
# Functions of libraries that read attributes by names that stand in no code.
_READERS = frozenset(
    function.__code__
    for function in (
        *(dataclasses.asdict, dataclasses.astuple, inspect.getmembers, copy.copy, copy.deepcopy),
        torch.nn.ParameterDict.__getitem__,
    )
)
_COMPOSING = frozenset(("BUILD_STRING", "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC"))
_PATH = (
    "LOAD_ATTR",
    "LOAD_METHOD",
    "CACHE",
    "PRECALL",
    "PUSH_NULL",
)  # between an object and a name

_MODULE_STATE = frozenset(
    (
        *("training", "forward", "_parameters", "_buffers", "_modules", "_backward_hooks"),
        *("_backward_pre_hooks", "_forward_hooks", "_forward_hooks_with_kwargs"),
        *("_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    )
)
# What counts calls beside a step. Only names that stand in code read it: models of transformers
# make names up, and each count would then be a part of the step.
_COUNTING = (torch.optim.lr_scheduler.LRScheduler,)

# What Python itself keeps in each module, and in each class.
OF_EACH_MODULE = frozenset(vars(types.ModuleType("any"))) | {
    "__builtins__",
    "__file__",
    "__path__",
}
OF_EACH_CLASS = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"),
        *("__slots__", "__match_args__", "__dataclass_fields__", "__dataclass_params__"),
        *("__abstractmethods__", "__parameters__", "__orig_bases__", "__hash__", "__new__"),
        *("__static_attributes__", "__firstlineno__", "__annotate__", "__annotations_cache__"),
    )
)
_Pair = namedtuple("_Pair", "first")
# What cannot be changed, or leads to nothing that a forward pass reads.
_INERT = (type, types.BuiltinFunctionType, types.ModuleType, types.MethodDescriptorType)
_FOLLOWED = (
    *(nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler),
    torch.amp.GradScaler,
)
_FIXED = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodWrapperType, np.generic),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, property, classmethod),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, type(_Pair.first)),
    *(staticmethod, enum.Enum, logging.Logger),
)


def list_names(codes: Collection[CodeType]) -> frozenset[str]:
    """Names by which ``codes`` can have read anything: of attributes and globals, and strings that
    are names, as `getattr` takes them."""
    parts = [part for code in codes for part in list_codes(code)]
    found = {name for part in parts for name in part.co_names}
    return frozenset(found.union(*map(_list_strings, parts)))


def list_asked(codes: Collection[CodeType]) -> frozenset[str]:
    """Names of which code outside torch may ask whether there is such an attribute."""
    asking = (part for part in _list_own(codes) if _BY_ARGUMENT & set(part.co_names))
    caught = (part for part in _list_own(codes) if _CAUGHT & set(part.co_names))
    found = {name for part in asking for name in _list_strings(part)}
    return frozenset(found.union(*(set(part.co_names) - _CAUGHT for part in caught)))


def list_unfollowed(codes: Collection[CodeType]) -> list[str]:
    """What code outside torch asks that no guard follows."""
    names = {name for part in _list_own(codes) for name in part.co_names}
    asked = sorted(names & set(_UNFOLLOWED))
    return [f"{_UNFOLLOWED[name]} ({name})" for name in asked]


def reads_versions(codes: Collection[CodeType]) -> bool:
    """Whether code outside torch asks how often a tensor was written."""
    return any("_version" in part.co_names for part in _list_own(codes))


def composes_names(codes: Collection[CodeType], askers: Collection[CodeType] = ()) -> bool:
    """Whether code outside torch may make up the name of an attribute while it runs. ``askers``
    called `getattr` or one of its kin, maybe by another name than its own."""
    if any(_BY_ARGUMENT.isdisjoint(code.co_names) for code in askers):
        return True
    return not _READERS.isdisjoint(codes) or any(map(_composes, _list_own(codes)))


def reads_environment(codes: Collection[CodeType]) -> bool:
    """Whether code outside torch names the environment."""
    return any(_ENVIRONMENT & set(part.co_names) for part in _list_own(codes))


def list_imports(code: CodeType, space: Mapping[str, Any]) -> Iterator[str]:
    """Python modules that code imports while it runs, by their full names."""
    for name in _list_loads(code, "IMPORT_NAME"):
        yield name
        package = str(space.get("__package__") or "")
        while package:  # from . import settings
            yield f"{package}.{name}".rstrip(".")
            package = package.rpartition(".")[0]


def list_global_names(code: CodeType) -> tuple[str, ...]:
    """Of what code reads as a global, builtins that a global may come to hide included."""
    return _list_loads(code, "LOAD_GLOBAL", "LOAD_NAME")


@functools.lru_cache(_KEPT)
def _list_loads(code: CodeType, *kinds: str) -> tuple[str, ...]:
    """What instructions of these kinds name."""
    items = (item for part in list_codes(code) for item in dis.get_instructions(part))
    return tuple(dict.fromkeys(str(item.argval) for item in items if item.opname in kinds))


def _list_own(codes: Collection[CodeType]) -> list[CodeType]:
    own = (code for code in codes if not is_library(code.co_filename))
    return [part for code in own for part in list_codes(code)]


def _list_strings(code: CodeType) -> list[str]:
    strings = (item for item in code.co_consts if isinstance(item, str))
    return [item for item in strings if item.isidentifier()]


@functools.lru_cache(_KEPT)
def _composes(code: CodeType) -> bool:
    """Whether it may read an attribute by a name that does not stand in it.
    A name is known only where it stands right behind the object, as in ``getattr(a.b, "c")``."""
    if _BY_NAME & set(code.co_names):
        return True
    if any(isinstance(item, str) and _FIELD.search(item) for item in code.co_consts):
        return True
    steps = [item for item in dis.get_instructions(code) if item.opname not in _PATH]
    if any(item.opname == "MATCH_CLASS" for item in steps):
        return True
    if not _BY_ARGUMENT & set(code.co_names):
        return False
    if any(item.opname in _COMPOSING for item in steps):
        return True
    asking = (
        place
        for place, item in enumerate(steps)
        if item.opname.startswith("LOAD") and item.argval in _BY_ARGUMENT
    )
    return not all(_is_asked_by_name(steps[place + 2 : place + 5]) for place in asking)


def _is_asked_by_name(steps: Sequence[dis.Instruction]) -> bool:
    """Whether what stands behind `getattr` and an object is a name, maybe a default, and the
    call."""
    loads = list(itertools.takewhile(lambda item: item.opname.startswith("LOAD"), steps))
    if not loads or loads[0].opname != "LOAD_CONST" or len(loads) == len(steps):
        return False
    call = steps[len(loads)]
    return call.opname.startswith("CALL") and call.argval == 1 + len(loads)


class NamesRead:
    """Names that ``codes`` can have read; any name, if the code ``makes_names``."""

    def __init__(self, codes: Collection[types.CodeType], *, makes_names: bool) -> None:
        self.makes_names = makes_names
        self._ran = frozenset(map(id, codes))
        self._written, self._asked = list_names(codes), list_asked(codes)

    def has_run(self, code: object) -> bool:
        """Whether this code ran."""
        return id(code) in self._ran

    def can_be(self, name: str) -> bool:
        """Whether code can have read this name of something."""
        return self.makes_names or name in self._written

    def can_be_any(self, owner: object) -> bool:
        """Whether code can have read every attribute of ``owner``."""
        return self.makes_names and not isinstance(owner, _COUNTING)

    def list_asked(self, space: Mapping[str, object]) -> list[str]:
        """Names that code asks for and that are not there."""
        return sorted(self._asked.difference(space))

    def list_in_module(self, space: Mapping[str, object]) -> list[str]:
        """Those of a Python module; of modules in it, those that stand in code."""
        return [
            key
            for key, value in space.items()
            if key not in OF_EACH_MODULE
            and (key in self._written if isinstance(value, types.ModuleType) else self.can_be(key))
        ]

    def list_in_object(self, owner: object, space: Mapping[str, object]) -> list[str]:
        """Those of the attributes of ``owner``."""
        if self.can_be_any(owner):
            return list(space)
        state: frozenset[str] = _MODULE_STATE if isinstance(owner, nn.Module) else frozenset()
        return [key for key in space if key in self._written or key in state]

    def list_missing(self, owner: object, space: Mapping[str, object]) -> list[str]:
        """Names that code reads of ``owner`` and that are not there: those for which it asks, those
        of the class, which an attribute of the object would hide, and, of an object that is a bag
        of attributes or makes them up, all."""
        if isinstance(owner, HOLDERS) or _makes_attributes(type(owner)):
            return [key for key in self._written if key not in space]
        found = [key for kind in type(owner).__mro__ for key in vars(kind)]
        known = [key for key in dict.fromkeys(found) if key in self._written and key not in space]
        missing = [key for key in known if not key.startswith("__")]
        return [*missing, *sorted(self._asked.difference(space, missing))]

    def list_in_class(
        self, space: Mapping[str, object], behind: Mapping[str, object]
    ) -> tuple[list[str], list[str]]:
        """Those of a class, methods too; and those that it lacks: of classes that come later, whose
        names are in ``behind``, or of none."""
        keys = [key for key, value in space.items() if self._is_read(key, value)]
        missing = [key for key, value in behind.items() if self._is_read(key, value)]
        return keys, [key for key in (*missing, *sorted(self._asked)) if key not in space]

    def _is_read(self, key: str, value: object) -> bool:
        """Whether code that ran can have read this of a class."""
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if self.has_run(getattr(function, "__code__", None)):
            return True
        is_own = key.startswith("__") and (callable(value) or hasattr(type(value), "__get__"))
        if is_own or key in OF_EACH_CLASS:
            return False
        return self.can_be(key)


def list_globals(code: types.CodeType, space: Mapping[str, object]) -> list[str]:
    """Globals that ``code`` can have read, without functions and classes of libraries: no program
    replaces those between two calls, and there are thousands."""
    own = not is_library(code.co_filename)
    named = set(list_global_names(code) if own else list_co_names(code))
    if own and "globals" in named:  # by any name
        named.update(key for key in space if not is_inert_global(space[key]))
    return [
        name
        for name in sorted(named)
        if name not in OF_EACH_MODULE
        and (own or (name in space and not is_inert_global(space[name])))
    ]


def _makes_attributes(kind: type) -> bool:
    """Whether a method of the user's answers for attributes that are not there."""
    owner = next((base for base in kind.__mro__ if "__getattr__" in vars(base)), None)
    return owner is not None and not is_library_class(owner)


def is_fixed(value: object) -> bool:
    """Whether an object is a function, or another thing of which nothing can change that a result
    may depend on."""
    return isinstance(value, _FIXED)


def is_inert(value: object) -> bool:
    """Whether nothing that a result may depend on can be reached from it."""
    return value is None or isinstance(value, _INERT) or _core.is_plain_value(value)


def is_inert_global(value: object) -> bool:
    """A function, class or module, of which no more than its identity could be said."""
    return isinstance(value, (types.FunctionType, *_INERT))


def is_of_library(value: object) -> bool:
    """Whether an object is of torch or of Python's own library, which keep much that changes and
    decides nothing; not so what torch has users derive from or hand their numbers to."""
    if isinstance(value, (*_FOLLOWED, *HOLDERS)):
        return False
    if isinstance(value, types.ModuleType):
        return is_library_name(value.__name__)
    return is_library_class(type(value))


def is_library_class(kind: type) -> bool:
    """Whether a class and all that it derives from are of a library; that of a
    `torch.fx.GraphModule` is made for it, as libraries make classes that derive from a user's
    (`register_parametrization`, `types.new_class`)."""
    is_made = issubclass(kind, torch.fx.GraphModule) and kind is not torch.fx.GraphModule
    return not is_made and all(is_library_name(base.__module__) for base in kind.__mro__)


def is_library_name(module: object) -> bool:
    """Whether a Python module of this name is torch's, Python's or ftax's."""
    return is_library_module(module) or str(module).startswith("_pytest.")
