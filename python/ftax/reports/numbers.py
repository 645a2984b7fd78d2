"""Results for programs: one table of plain numbers a kind of result, whose columns never change.

Times are ns and say so in their name, an interval has its ends in columns of their own, and nothing
is formatted. The surprising choice: a column is there even where no row has a value, since a script
relies on the header and not on what one machine happened to have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ftax.errors import UnavailableError
from ftax.reports.csv_text import write_csv
from ftax.timing.cell import Cell

Scalar = str | int | float | bool | None

# What a row is of. A label is what the user calls the result.
CELL = ("label", "model", "runtime", "host", "device", "dtype", "batch", "sequence")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """A table whose cells are numbers, texts, booleans or nothing."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]

    @classmethod
    def of(cls, columns: Sequence[str], rows: Iterable[Mapping[str, Scalar]]) -> Self:
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


def describe_cell(cell: Cell, label: str = "") -> dict[str, Scalar]:
    """The columns `CELL` of a row."""
    fields: dict[str, Scalar] = {name: getattr(cell, name) for name in CELL[1:]}
    return {"label": label, **fields}


def split_ends(name: str, ends: Sequence[float] | None, unit: str = "") -> dict[str, Scalar]:
    """An interval as two columns, ``name`` and its unit with low and high."""
    low, high = ends if ends is not None else (None, None)
    return {f"{name}low{unit}": low, f"{name}high{unit}": high}


def _write(value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
