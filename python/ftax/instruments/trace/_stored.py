"""A trace as it lies in a file: strings in a table, launch shapes in another, rows of integers.

Times are stored as distances (a start from the first iteration's begin, an end from its start),
which makes them a third as long. Twenty iterations of 350 kernels with their API calls take about
half a megabyte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ftax.errors import InvalidArgumentError, ResultsError
from ftax.instruments.trace.activities import (
    ApiCall,
    Iteration,
    Kernel,
    Memcpy,
    Memset,
    Overhead,
)
from ftax.records.record import Record

Row = tuple[int, ...]
Rows = tuple[Row, ...]

_TIMES = ("start_ns", "end_ns")
_ACTIVITY = (*_TIMES, "stream_id", "device_id", "correlation_id", "graph_id", "graph_node_id")
_SHAPE = ("static_shared_bytes", "dynamic_shared_bytes", "registers_per_thread")
_KINDS: dict[str, tuple[type[Record], tuple[str, ...]]] = {  # field: its records and their columns
    "kernels": (Kernel, ("shape", *_ACTIVITY)),
    "memcpys": (Memcpy, ("copy_kind", "bytes", *_ACTIVITY)),
    "memsets": (Memset, ("value", "bytes", *_ACTIVITY)),
    "api_calls": (ApiCall, ("domain", "name", *_TIMES, "correlation_id", "thread_id")),
    "overheads": (Overhead, ("overhead_kind", *_TIMES)),
}
_STRINGS = ("copy_kind", "domain", "name", "overhead_kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows(Record):
    """The rows of a trace, with the columns of `_KINDS`."""

    origin_ns: int
    iterations: Rows  # begin from the origin, issued and end from begin
    names: tuple[str, ...]
    shapes: Rows  # name, grid x y z, block x y z, static and dynamic shared bytes, registers
    kernels: Rows
    memcpys: Rows
    memsets: Rows
    api_calls: Rows
    overheads: Rows


def pack(iterations: Sequence[Iteration], records: Mapping[str, Sequence[Any]]) -> StoredRows:
    """Return the rows of the iterations and of the records of each field of a trace."""
    origin_ns = iterations[0].begin_ns if iterations else 0
    names: dict[str, int] = {}
    shapes: dict[tuple[int, ...], int] = {}

    def index(text: str) -> int:
        return names.setdefault(text, len(names))

    def pack_column(item: Any, column: str) -> int:
        if column == "shape":
            sizes = (*item.grid, *item.block, *(getattr(item, name) for name in _SHAPE))
            return shapes.setdefault((index(item.name), *sizes), len(shapes))
        value = getattr(item, column)
        if column == "start_ns":
            return int(value - origin_ns)
        if column == "end_ns":
            return int(value - item.start_ns)
        return index(value) if column in _STRINGS else int(value)

    rows = {
        field: tuple(tuple(pack_column(item, column) for column in columns) for item in items)
        for field, items in records.items()
        for _, columns in [_KINDS[field]]
    }
    windows = tuple(
        (it.begin_ns - origin_ns, it.issued_ns - it.begin_ns, it.end_ns - it.begin_ns)
        for it in iterations
    )
    return StoredRows(
        origin_ns=origin_ns,
        iterations=windows,
        names=tuple(names),
        shapes=tuple(shapes),
        **rows,
    )


def unpack(stored: StoredRows) -> dict[str, tuple[Record, ...]]:
    """Return the records of these rows, by the name of their field in a trace.

    Raises:
        ResultsError: a row has too few or too many columns, or points outside of a table.
    """
    found = {"iterations": _read_rows(stored, "iterations", 3, _unpack_iteration)}
    for field, (kind, columns) in _KINDS.items():
        make = partial(_unpack_record, kind, columns)
        found[field] = _read_rows(stored, field, len(columns), make)
    return found


def _read_rows(
    stored: StoredRows, field: str, width: int, unpack_row: Callable[[Row, StoredRows], Record]
) -> tuple[Record, ...]:
    records = []
    for number, row in enumerate(getattr(stored, field)):
        if len(row) != width:
            raise ResultsError(f"{field}[{number}] has {len(row)} columns; it has to have {width}")
        try:
            records.append(unpack_row(row, stored))
        except (InvalidArgumentError, LookupError) as error:
            raise ResultsError(f"{field}[{number}]: {error}") from error
    return tuple(records)


def _unpack_iteration(row: Row, stored: StoredRows) -> Iteration:
    begin_ns = stored.origin_ns + row[0]
    return Iteration(begin_ns=begin_ns, issued_ns=begin_ns + row[1], end_ns=begin_ns + row[2])


def _unpack_record(
    kind: type[Record], columns: tuple[str, ...], row: Row, stored: StoredRows
) -> Record:
    fields: dict[str, Any] = {}
    for column, value in zip(columns, row, strict=True):
        if column == "shape":
            fields |= _unpack_shape(value, stored)
        elif column in _STRINGS:
            fields[column] = _look_up(stored.names, value, "name")
        elif column == "start_ns":
            fields[column] = stored.origin_ns + value
        elif column == "end_ns":
            fields[column] = fields["start_ns"] + value
        else:
            fields[column] = value
    return kind(**fields)


def _unpack_shape(index: int, stored: StoredRows) -> dict[str, Any]:
    shape = _look_up(stored.shapes, index, "shape")
    if len(shape) != 10:
        raise LookupError(f"shape {index} has {len(shape)} columns; it has to have 10")
    name = _look_up(stored.names, shape[0], "name")
    return {
        "name": name, "grid": shape[1:4], "block": shape[4:7],
        **dict(zip(_SHAPE, shape[7:], strict=True)),
    }  # fmt: skip


def _look_up(table: tuple[Any, ...], index: int, what: str) -> Any:
    if not 0 <= index < len(table):
        raise LookupError(f"there is no {what} {index}; the table has {len(table)}")
    return table[index]
