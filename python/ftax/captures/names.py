"""Which names code reads: of attributes, globals and modules that it imports.

A string in the code that could be a name counts as one, since `getattr` takes it; where a name may
be put together while the code runs, every attribute may be read.
"""

from __future__ import annotations

import copy
import dataclasses
import dis
import functools
import inspect
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

import torch

from ftax.steps.reach import is_library, list_codes

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
