"""Columns of tables, each declared once: how people read it, and what programs get.

A table declares its columns in the order that programs see; the tables for people name those that
they show (`choose`). For programs a kind of result is one table of plain numbers, whose columns
never change (`Numbers`, docs/results.md): times are ns and say so in their name, an interval has
its ends in columns of their own, and nothing is formatted. A column is there even where no row has
a value, since a script relies on the header.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ftax.errors import UnavailableError
from ftax.reports.terminal import clean
from ftax.sweeps.sweep_records import GPU
from ftax.timing.candidate import name_caller
from ftax.timing.cell import Cell as MeasuredCell

# Begins like a formula, and calls something: a function, another program, or a cell elsewhere.
_FORMULA = re.compile(r"\s*[=+@-].*[(|!]", re.DOTALL)
NOTHING = "-"
Scalar = str | int | float | bool | None

# What is read of an item: an attribute, one of an attribute ("summary.p50_ns"), an item of one
# ("interval_ns.0"), or what makes it.
Field = str | Callable[[Any], Any]
# The same, and how it is written for people; a field alone is written as it is.
Cell = Field | tuple[Field, Callable[[Any], str]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        head: its name for people; "" where only programs have it.
        shown: what people read.
        key: its name for programs, with the unit ("latency_ns"), or the names of an interval's two
            ends; "" where only people have it.
        value: what programs read; left out, the field of ``shown``.
        is_text: whether it is aligned to the left and may wrap; a number does neither.
    """

    head: str
    shown: Cell
    key: str | tuple[str, str] = ""
    value: Field | None = None
    is_text: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """Its names for programs."""
        return self.key if isinstance(self.key, tuple) else (self.key,) if self.key else ()

    def write(self, item: object) -> str:
        """For people: a dash where there is nothing."""
        field, write = self.shown if isinstance(self.shown, tuple) else (self.shown, str)
        return or_dash(read(item, field), write)

    def number(self, item: object) -> dict[str, Scalar]:
        """For programs, by key."""
        field = self.value or (self.shown[0] if isinstance(self.shown, tuple) else self.shown)
        value = read(item, field)
        if isinstance(self.key, str):
            return {self.key: value}
        return dict(zip(self.key, value or (None, None), strict=True))


def for_programs(*names: str, **fields: Field) -> list[Column]:
    """Columns that people do not have: attributes by their own names, and fields by key."""
    return [
        Column("", field, key) for key, field in ({name: name for name in names} | fields).items()
    ]


def for_people(columns: Iterable[Column]) -> list[Column]:
    """Those that not only programs have."""
    return [column for column in columns if column.head]


def choose(columns: Iterable[Column], *heads: str) -> list[Column]:
    """Those that people know by these names, in their order."""
    named = {column.head: column for column in columns}
    return [named[head] for head in heads]


def split_alike(
    items: Sequence[object], columns: Iterable[Column]
) -> tuple[list[Column], list[str]]:
    """The columns in which items differ; and what is the same in all of them, for a title:
    ``["dtype fp16", "batch 1"]``."""
    differ, alike = [], []
    for column in columns:
        texts = {column.write(item) for item in items}
        if len(texts) > 1:
            differ.append(column)
        else:
            alike += [f"{column.head} {text}" for text in texts if text != NOTHING]
    return differ, alike


def list_keys(columns: Iterable[Column]) -> tuple[str, ...]:
    """The header for programs."""
    return tuple(key for column in columns for key in column.keys)


def read_all(item: object, columns: Iterable[Column]) -> dict[str, Scalar]:
    """A row for programs, by key."""
    return {
        key: value for column in columns if column.key for key, value in column.number(item).items()
    }


def read(item: Any, field: Field) -> Any:
    """What ``field`` is of an item; None where anything on the way to it is."""
    if callable(field):
        return field(item)
    for name in field.split("."):
        if item is not None:
            item = item[int(name)] if name.isdigit() else getattr(item, name)
    return item


def or_dash(value: Any, write: Callable[[Any], str] = str) -> str:
    """A cell of a table: a dash where there is nothing to write."""
    return NOTHING if value is None else write(value)


# --- for programs ---------------------------------------------------------------------------------


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


# --- what is measured -----------------------------------------------------------------------------

# Options that say nothing new: what models are given unless one asks for something else.
_USUAL: Mapping[str, object] = {
    "seed": 0,
    "inputs": "random",
    "weights": "random",
    "attention": "sdpa",
    "attention_mask": "none",
}


def describe_options(cell: MeasuredCell) -> str:
    """The step, and the options, that tell a cell from the usual one of its model, but for the kind
    of GPU that it asked for, which its machine says; "" if there are none."""
    texts = [] if cell.step == "forward" else [cell.step]
    for name, value in sorted(cell.options.items()):
        if value is None or value is False or _USUAL.get(name) == value or name == GPU:
            continue
        word = name.replace("_", " ")
        texts.append(word if value is True else f"{word} {json.dumps(value).strip(chr(34))}")
    return ", ".join(texts)


# Of items that have a cell; a label is what the user calls a result.
CELL = (
    Column("label", lambda item: getattr(item, "label", ""), "label", is_text=True),
    Column("model", "cell.model", "model", is_text=True),
    Column("runtime", "cell.runtime", "runtime", is_text=True),
    Column("called from", ("cell.host", name_caller), "host", is_text=True),
    Column("device", "cell.device", "device", is_text=True),
    Column("dtype", "cell.dtype", "dtype", is_text=True),
    Column("batch", "cell.batch", "batch"),
    Column("sequence", "cell.sequence", "sequence"),
    Column("step", "cell.step", "step", is_text=True),
    *for_programs(units="cell.units"),
    Column("options", lambda item: describe_options(item.cell) or None, is_text=True),
)
IDENTITY = choose(CELL, "model", "runtime", "called from", "device", "dtype", "batch", "sequence")
# Of items that have a place alone: a runtime, and what calls it.
PLACE = (
    Column("runtime", "runtime", is_text=True),
    Column("called from", ("host", name_caller), is_text=True),
)
