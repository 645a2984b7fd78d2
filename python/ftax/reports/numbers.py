"""Results for programs: one table of plain numbers a kind of result, whose columns never change.

Times are ns and say so in their name, an interval has its ends in columns of their own, and nothing
is formatted. The surprising choice: a column is there even where no row has a value, since a script
relies on the header and not on what one machine happened to have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from ftax.errors import UnavailableError
from ftax.reports.csv_text import write_csv

Scalar = str | int | float | bool | None

# How a column is read: an attribute, one of an attribute ("summary.p50_ns"), an item of one
# ("interval_ns.0"), or what makes it.
Field = str | Callable[[Any], Any]

_CELL = ("model", "runtime", "host", "device", "dtype", "batch", "sequence", "step", "units")
# What a row is of. A label is what the user calls the result.
CELL: Mapping[str, Field] = MappingProxyType(
    {"label": "label", **{name: f"cell.{name}" for name in _CELL}}
)
# The same of a result that has no label.
BARE_CELL: Mapping[str, Field] = MappingProxyType({**CELL, "label": lambda _: ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """A table whose cells are numbers, texts, booleans or nothing."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]

    @classmethod
    def of(cls, columns: Collection[str], rows: Iterable[Mapping[str, Scalar]]) -> Self:
        """From one mapping a row; what it lacks is nothing.

        Raises KeyError for a name that is no column: it would be lost.
        """
        found = []
        for row in rows:
            if unknown := row.keys() - set(columns):
                raise KeyError(f"{sorted(unknown)} are no columns")
            found.append(tuple(row.get(name) for name in columns))
        return cls(columns=tuple(columns), rows=tuple(found))

    def to_csv(self) -> str:
        """A header, and a line a row: nothing is empty, a boolean is true or false."""
        return write_csv(self.columns, [[_write(value) for value in row] for row in self.rows])

    def to_dataframe(self) -> Any:
        """As a pandas.DataFrame. Raises UnavailableError without pandas."""
        try:
            import pandas  # no package of ftax's own
        except ImportError as error:
            raise UnavailableError(
                "to_dataframe needs pandas, which is not installed: pip install pandas, or save "
                "the numbers with --csv"
            ) from error
        return pandas.DataFrame(list(self.rows), columns=list(self.columns))


def read(item: Any, field: Field) -> Any:
    """What ``field`` is of an item; None where anything on the way to it is."""
    if callable(field):
        return field(item)
    for name in field.split("."):
        if item is not None:
            item = item[int(name)] if name.isdigit() else getattr(item, name)
    return item


def read_all(item: object, fields: Mapping[str, Field]) -> dict[str, Scalar]:
    """By column, what each field is."""
    return {column: read(item, field) for column, field in fields.items()}


def _write(value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
