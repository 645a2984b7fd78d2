"""Inputs as trees of tensors: through lists, tuples and dictionaries as torch's pytree goes, and
through objects of data, such as a graph or a batch, by their attributes.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ftax.steps.reach import list_slots

Path = tuple[Any, ...]
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_MOST = 10_000  # places that are looked at in one object
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
# What acts, and is known by its identity: not what it holds is handed over, but itself.
_ACTING = (nn.Module, torch.optim.Optimizer, torch.Generator, type, types.ModuleType)


def is_data(value: object) -> bool:
    """Whether an object is known by the tensors in its attributes: it has some, also in containers
    or in objects within, and holds nothing that acts, such as a module or a function."""
    if isinstance(value, (torch.Tensor, *_PLAIN)) or _acts(value):
        return False
    if not (isinstance(getattr(value, "__dict__", None), dict) or read_slots(value)):
        return False
    found = False
    for count, leaf in enumerate(_walk(value)):
        if count == _MOST or _acts(leaf):
            return False
        found = found or isinstance(leaf, torch.Tensor)
    return found


def _acts(value: object) -> bool:
    if isinstance(value, torch.Tensor | weakref.ref):
        return False
    return isinstance(value, _ACTING) or callable(value)


def list_leaves(tree: Any) -> list[tuple[Path, Any]]:
    """The leaves of ``tree`` with their places, in the order of pytree; of an object of data, what
    it holds in its place, once."""
    found: list[tuple[Path, Any]] = []
    seen: dict[int, object] = {}

    def visit(start: Path, tree: Any) -> None:
        for path, leaf in pytree.tree_leaves_with_path(tree):
            if not is_data(leaf):
                found.append(((*start, *path), leaf))
            elif id(leaf) not in seen:
                seen[id(leaf)] = leaf
                for key, value in _list_parts(leaf):
                    visit((*start, *path, key), value)

    visit((), tree)
    return found


def map_leaves(change: Callable[[Path, Any], Any], tree: Any) -> Any:
    """``tree`` with other leaves, its containers and objects of data being new ones."""
    made: dict[int, Any] = {}

    def rebuild(start: Path, tree: Any) -> Any:
        def visit(path: Path, leaf: Any) -> Any:
            path = (*start, *path)
            if isinstance(leaf, weakref.ref) and id(leaf()) in made:
                return weakref.ref(made[id(leaf())])
            if not is_data(leaf):
                return change(path, leaf)
            if id(leaf) not in made:
                made[id(leaf)] = twin = _copy_contents(leaf)
                for key, value in _list_parts(leaf):
                    _put(twin, key, rebuild((*path, key), value))
            return made[id(leaf)]

        return pytree.tree_map_with_path(visit, tree)

    return rebuild((), tree)


def flatten_tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors among the leaves of `tree`."""
    return [leaf for _, leaf in list_leaves(tree) if isinstance(leaf, torch.Tensor)]


def read_slots(value: Any) -> dict[str, Any]:
    """The attributes of an object that has slots instead of a dictionary, of a class in Python."""
    kind = type(value)
    if hasattr(value, "__dict__") or isinstance(value, type) or not hasattr(kind, "__slots__"):
        return {}
    return {name: getattr(value, name) for name in list_slots(kind) if hasattr(value, name)}


def _list_parts(value: Any) -> list[tuple[Any, Any]]:
    """What an object holds, by its place in it: attributes, and items where it is a container."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = ((pytree.MappingKey(key), item) for key, item in value.items())
    elif isinstance(value, list):
        items = ((pytree.SequenceKey(place), item) for place, item in enumerate(value))
    attributes = _read_attributes(value).items()
    return [*((pytree.GetAttrKey(name), item) for name, item in attributes), *items]


def _put(value: Any, place: Any, item: Any) -> None:
    if isinstance(place, pytree.GetAttrKey):
        object.__setattr__(value, place.name, item)
    elif isinstance(place, pytree.SequenceKey):
        list.__setitem__(value, place.idx, item)
    else:
        _find_built_in(type(value)).__setitem__(value, place.key, item)


def _copy_contents(value: Any) -> Any:
    """A new object of the same class, with the same items where it is a container."""
    kind = type(value)
    base = _find_built_in(kind)
    twin = base.__new__(kind, *((value,) if isinstance(value, tuple) else ()))
    if isinstance(value, list):
        base.extend(twin, value)
    elif isinstance(value, dict):
        for key, item in value.items():
            base.__setitem__(twin, key, item)
    return twin


def _find_built_in(kind: type) -> Any:
    """The first class among those that ``kind`` derives from that is not made by Python code."""
    return next(base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE)


def _read_attributes(value: Any) -> dict[str, Any]:
    return {**getattr(value, "__dict__", {}), **read_slots(value)}


def _walk(value: Any) -> Iterator[Any]:
    """What an object of data would hold, through its containers and the objects within."""
    seen: dict[int, object] = {}
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        if isinstance(item, (torch.Tensor, weakref.ref, *_PLAIN)) or _acts(item):
            yield item
            continue
        inner = [*_read_attributes(item).values()]
        if isinstance(item, dict):
            inner += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            inner += item
        waiting += inner
        if not inner:
            yield item
