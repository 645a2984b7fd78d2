"""Checks and freezes one value against the annotation of its field; `record.py` has the why.

A reader is the function that an annotation turns into. It takes what Python or `json.loads` gives
(a list passes for a tuple, a dict for a record) and returns the frozen value, or raises
`MismatchError`.
"""

import collections.abc
import functools
import math
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from ftax.errors import describe_value

Reader = Callable[[object], Any]

# Of JSON in a field. What is read has to be written, compared and shown without running out of
# Python's stack; ours is three deep.
_MOST_DEPTH = 50


@dataclass(frozen=True, slots=True)
class Rule:
    """A range for an annotated field: `meaning` completes "it has to be ..."."""

    meaning: str
    holds: Callable[[Any], bool]


class MismatchError(Exception):
    """A value that its annotation refuses; the path grows while the error travels outwards."""

    def __init__(self, value: object, wanted: str) -> None:
        super().__init__()
        self.value = value
        self.wanted = wanted
        self.path = ""

    def __str__(self) -> str:
        return f"{self.path} is {describe_value(self.value)}; it has to be {self.wanted}"


class Nested:
    """What a field may hold besides JSON: a record or another dataclass, which writes itself and is
    made of what it wrote."""

    __slots__ = ()

    @classmethod
    def read_field(cls, value: object) -> Self:
        """Return `value` if it is one already, otherwise what it describes, or raise
        MismatchError."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise MismatchError(value, f"an object with the fields of {cls.__name__}")
        return cls(**value)

    def to_dict(self) -> dict[str, object]:
        """Return plain dicts, lists and scalars."""
        raise NotImplementedError


class FrozenMap(Mapping[str, Any]):
    """A mapping that cannot change, so that a record that holds one cannot change either."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"FrozenMap({self._items!r})"


def make_reader(annotation: Any) -> Reader:
    """Return the function that checks one value of the annotated type and freezes it."""
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation is object:
        return _freeze_json
    if annotation in _SCALAR_READERS:
        return _SCALAR_READERS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Nested):
        return annotation.read_field
    if origin is Annotated:
        return functools.partial(_read_ruled, make_reader(args[0]), args[1])
    if origin is Literal:
        return functools.partial(_read_literal, args)
    if origin in (Union, types.UnionType):
        return functools.partial(_read_union, tuple(make_reader(arg) for arg in args))
    if origin is tuple and args[1:] == (...,):
        return functools.partial(_read_tuple, make_reader(args[0]))
    if origin is collections.abc.Mapping and args[0] is str:
        return functools.partial(_read_mapping, make_reader(args[1]))
    raise TypeError(f"a record cannot have a field of type {annotation!r}; see ftax.records.record")


def _read_exact(kind: type, wanted: str, value: object) -> object:
    # The exact type: True is an int to isinstance, and numpy's float64 a float, yet neither is.
    if type(value) is not kind:
        raise MismatchError(value, wanted)
    return value


def _read_int(value: object) -> int:
    # 64 bits: what the C++ core takes, and what other readers of JSON keep exactly.
    if type(value) is not int or not -(2**63) <= value < 2**64:
        raise MismatchError(value, "an integer of at most 64 bits")
    return value


def _read_float(value: object) -> float:
    if type(value) is int:
        return float(_read_int(value))
    if type(value) is not float or not math.isfinite(value):
        raise MismatchError(value, "a finite number (JSON has no other; use null or a string)")
    return value


_SCALAR_READERS: dict[Any, Reader] = {
    str: functools.partial(_read_exact, str, "a string"),
    bool: functools.partial(_read_exact, bool, "true or false"),
    int: _read_int,
    types.NoneType: functools.partial(_read_exact, types.NoneType, "null"),
    float: _read_float,
}


def _read_ruled(read: Reader, rule: Rule, value: object) -> object:
    value = read(value)
    if not rule.holds(value):
        raise MismatchError(value, rule.meaning)
    return value


def _read_literal(choices: tuple[object, ...], value: object) -> object:
    for choice in choices:
        if type(value) is type(choice) and value == choice:
            return value
    raise MismatchError(value, "one of " + ", ".join(repr(choice) for choice in choices))


def _read_union(readers: tuple[Reader, ...], value: object) -> object:
    wanted = []
    for read in readers:
        try:
            return read(value)
        except MismatchError as mismatch:
            if mismatch.path:  # the right kind of container with something wrong inside
                raise
            wanted.append(mismatch.wanted)
    raise MismatchError(value, " or ".join(wanted))


def _read_tuple(read: Reader, value: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise MismatchError(value, "a list")
    items = []
    for index, item in enumerate(value):
        try:
            items.append(read(item))
        except MismatchError as mismatch:
            mismatch.path = f"[{index}]{mismatch.path}"
            raise
    return tuple(items)


def _read_mapping(read: Reader, value: object) -> FrozenMap:
    if not isinstance(value, Mapping) or not all(type(key) is str for key in value):
        raise MismatchError(value, "an object whose keys are strings")
    items = {}
    for key, item in value.items():
        try:
            items[key] = read(item)
        except MismatchError as mismatch:
            mismatch.path = f"[{key!r}]{mismatch.path}"
            raise
    return FrozenMap(items)


def _freeze_json(value: object, depth: int = 0) -> object:
    if isinstance(value, Mapping | list | tuple):
        if depth >= _MOST_DEPTH:
            raise MismatchError(value, f"nested at most {_MOST_DEPTH} deep")
        freeze = functools.partial(_freeze_json, depth=depth + 1)
        if isinstance(value, Mapping):
            return _read_mapping(freeze, value)
        return _read_tuple(freeze, value)
    if type(value) in (int, float):
        return _SCALAR_READERS[type(value)](value)
    if type(value) not in (str, bool, types.NoneType):
        raise MismatchError(value, "a JSON value (null, true, a number, a string, a list, a dict)")
    return value


def make_plain(value: object) -> object:
    """Return the dicts, lists and scalars that a frozen value was read from."""
    if isinstance(value, Nested):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: make_plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [make_plain(item) for item in value]
    return value
