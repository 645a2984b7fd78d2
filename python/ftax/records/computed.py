"""A record that is stored with what it computes of its own fields.

What is stored so is for other readers of the file and never believed. It is computed anew on
reading, and a record whose stored numbers differ from that is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from ftax.errors import InvalidArgumentError, ResultsError
from ftax.records.record import Record

# Between the arithmetic of two builds; anything more is a changed record.
_TOLERANCE_RATIO = 1e-9


class Computed(Record):
    """Its property ``computed[0]`` is a record, computed of its ``computed[1]``, in words."""

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
