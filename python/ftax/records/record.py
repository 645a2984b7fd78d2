"""Immutable records that check themselves against their own annotations and travel as JSON.

Nobody writes a check for a field. The annotation says type and range (`Annotated[int, Rule("at
least 1", ...)]`), and one checker runs it both when Python builds a record and when a file is read.
A record that exists can therefore be stored, and a file that was read could have been built. A
record's fields may be: str, bool, int, float (finite), None, Literal, unions of these, `tuple[X,
...]`, `Mapping[str, X]`, other records, and `object`, which stands for any JSON value.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, get_type_hints

from ftax.errors import InvalidArgumentError, ResultsError, describe_value
from ftax.records.fields import (
    MismatchError,
    Nested,
    Reader,
    Rule,
    make_plain,
    make_reader,
)

JsonScalar = str | int | float | bool | None
Count = Annotated[int, Rule("an integer of at least 0", lambda value: value >= 0)]
PositiveInt = Annotated[int, Rule("an integer of at least 1", lambda value: value >= 1)]
Name = Annotated[str, Rule("a string that is not empty", lambda value: value != "")]
Ratio = Annotated[float, Rule("a number of at least 0", lambda value: value >= 0)]
Ends = Annotated[tuple[float, ...], Rule("a list of two numbers", lambda ends: len(ends) == 2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Nested):
    """The base of every record: fields are checked and frozen on construction.

    Raises:
        InvalidArgumentError: a field has a wrong type or is out of range.
    """

    def __init_subclass__(cls) -> None:
        inherit_repr(cls)

    def __repr__(self) -> str:
        fields = (
            f"{name}={describe_value(getattr(self, name))}" for name in _make_readers(type(self))
        )
        return f"{type(self).__name__}({', '.join(fields)})"

    def __post_init__(self) -> None:
        readers = _make_readers(type(self))
        for name, read in readers.items():
            given = getattr(self, name)
            try:
                value = read(given)
            except MismatchError as mismatch:
                raise InvalidArgumentError(f"{type(self).__name__}.{name}{mismatch}") from None
            if value is not given:
                object.__setattr__(self, name, value)
        self.check()

    def check(self) -> None:
        """Raise InvalidArgumentError if fields contradict each other. Overridden where they can."""

    def to_dict(self) -> dict[str, object]:
        """Return plain dicts, lists and scalars, ready for `json.dumps`."""
        return {name: make_plain(getattr(self, name)) for name in _make_readers(type(self))}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """Build the record that `to_dict` described.

        Raises:
            ResultsError: a key is missing, unknown, or has a value that the record refuses.
        """
        if not isinstance(data, Mapping):
            raise ResultsError(f"{cls.__name__}{MismatchError(data, 'an object')}")
        _check_keys(cls, data)
        try:
            return cls(**data)
        except InvalidArgumentError as error:
            raise ResultsError(str(error)) from error

    @classmethod
    def read_field(cls, value: object) -> Self:
        """Return `value` if it is such a record already, otherwise the record it describes.

        Through `from_dict`, so that a record which overrides it can be a field of another.
        """
        if isinstance(value, Mapping):
            return cls.from_dict(value)
        return super(Record, cls).read_field(value)


def inherit_repr(cls: type) -> None:
    """Give a class its base's `__repr__`, before the dataclass decorator makes one that writes out
    every field: samples by the million."""
    if "__repr__" not in vars(cls):
        bases = (base for base in cls.__mro__ if "__repr__" in vars(base))
        cls.__repr__ = next(bases).__repr__  # type: ignore[method-assign]


def _check_keys(cls: type[Record], data: Mapping[str, object]) -> None:
    names = set(_make_readers(cls))
    for what, keys in (
        ("lacks", names - set(data)),
        ("has the unknown", set(data) - names),
    ):
        if keys:
            listed = ", ".join(sorted(repr(key) for key in keys))
            raise ResultsError(
                f"{cls.__name__} {what} {listed}; it has to have exactly the fields "
                f"{', '.join(sorted(names))}"
            )


_readers: dict[type, dict[str, Reader]] = {}  # a record class never changes


def _make_readers(cls: type[Record]) -> dict[str, Reader]:
    if cls not in _readers:
        hints = get_type_hints(cls, include_extras=True)
        _readers[cls] = {
            field.name: make_reader(hints[field.name]) for field in dataclasses.fields(cls)
        }
    return _readers[cls]


# --- what is computed of it -----------------------------------------------------------------------

# Between the arithmetic of two builds; anything more is a changed record.
_TOLERANCE_RATIO = 1e-9


class Computed(Record):
    """A record that is stored with what it computes of its own fields.

    Its property ``computed[0]`` is a record, computed of its ``computed[1]``, in words. What is
    stored is for other readers of the file and never believed: it is computed anew on reading, and
    a record whose stored numbers differ from that is refused.
    """

    __slots__ = ()
    computed: ClassVar[tuple[str, str]]

    def to_dict(self) -> dict[str, object]:
        """Return plain dicts, lists and scalars, what is computed with them."""
        name = self.computed[0]
        return {**super().to_dict(), name: getattr(self, name).to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """Build the record that `to_dict` described.

        Raises:
            ResultsError: a field is missing, unknown or refused, or the stored numbers are not
                those that are computed.
        """
        name, source = cls.computed
        fields = dict(data)
        stored: Any = fields.pop(name, None)
        record = super().from_dict(fields)
        try:
            found = getattr(record, name)
        except InvalidArgumentError as error:  # no interval has this confidence, say
            raise ResultsError(str(error)) from error
        known = type(found).from_dict(stored)  # which it is, or an error
        if difference := _find_difference(known, found):
            raise ResultsError(
                f"the stored {name} are not those of the {source}: {difference}; the record was "
                "changed after it was written: measure again, or restore the file"
            )
        return record


def _find_difference(stored: Record, computed: Record) -> str | None:
    """Where and how the two differ by more than rounding; None where they do not."""
    left, right = _flatten(stored.to_dict()), _flatten(computed.to_dict())
    for place in sorted(left.keys() | right.keys()):
        one, other = left.get(place), right.get(place)
        if one is None or other is None:
            same = one is other
        else:
            same = math.isclose(one, other, rel_tol=_TOLERANCE_RATIO)
        if not same:
            return f"{place} is {one!r} where {other!r} was computed"
    return None


def _flatten(value: Any, place: str = "") -> dict[str, float | None]:
    if isinstance(value, dict):
        parts = [(f"{place}.{key}".lstrip("."), item) for key, item in value.items()]
    elif isinstance(value, list):
        parts = [(f"{place}[{index}]", item) for index, item in enumerate(value)]
    else:
        return {place: value}
    return {name: leaf for path, item in parts for name, leaf in _flatten(item, path).items()}
