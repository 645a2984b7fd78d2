"""Results for programs: one table of plain numbers a kind of result, whose columns never change.

Times are ns and say so in their name, an interval has its ends in columns of their own, and nothing
is formatted. A column is there even where no row has a value, since a script relies on the header.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ftax.errors import UnavailableError
from ftax.reports.columns import Column, Scalar, list_keys, read_all
from ftax.reports.terminal import clean

# Begins like a formula, and calls something: a function, another program, or a cell elsewhere.
_FORMULA = re.compile(r"\s*[=+@-].*[(|!]", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """A table whose cells are numbers, texts, booleans or nothing."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]

    @classmethod
    def of(cls, items: Iterable[object], columns: Sequence[Column]) -> Self:
        """A row an item."""
        return cls.join(list_keys(columns), (read_all(item, columns) for item in items))

    @classmethod
    def join(cls, columns: Sequence[str], rows: Iterable[Mapping[str, Scalar]]) -> Self:
        """Rows of several parts, as mappings; what one lacks is nothing.

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


def write_csv(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: Sequence[str] = ()
) -> str:
    """A header and a line a row, lines ended by a line feed.

    A text that a spreadsheet would run gets an apostrophe: names come from elsewhere, and
    `=HYPERLINK(...)` may be one. ``numeric`` columns are ours, and written as they are.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(clean, columns))
    for row in rows:
        cells = zip(columns, map(clean, row), strict=True)
        writer.writerow(text if name in numeric else _disarm(text) for name, text in cells)
    return buffer.getvalue()


def _disarm(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) else text


def _write(value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
