"""A trace as it lies in a file: strings in a table, launch shapes in another, rows of integers.

The surprising choice: times are stored as distances (a start from the first iteration's begin, an
end from its start), which makes them a third as long. Twenty iterations of 350 kernels with their
API calls take about half a megabyte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

__all__ = ["StoredRows", "pack", "unpack"]

Rows = tuple[tuple[int, ...], ...]

_ACTIVITY = (
    "start_ns",
    "end_ns",
    "stream_id",
    "device_id",
    "correlation_id",
    "graph_id",
    "graph_node_id",
)
_COLUMNS: dict[type[Record], tuple[str, ...]] = {
    Memcpy: ("copy_kind", "bytes", *_ACTIVITY),
    Memset: ("value", "bytes", *_ACTIVITY),
    ApiCall: ("domain", "name", "start_ns", "end_ns", "correlation_id", "thread_id"),
    Overhead: ("overhead_kind", "start_ns", "end_ns"),
}
_STRINGS = ("copy_kind", "domain", "name", "overhead_kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows(Record):
    """The rows of a trace. Columns are those of `_COLUMNS`; kernels have a shape in place of a
    name."""

    origin_ns: int
    iterations: Rows  # begin from the origin, issued and end from begin
    names: tuple[str, ...]
    shapes: Rows  # name, grid x y z, block x y z, static and dynamic shared bytes, registers
    kernels: Rows  # shape, then as in _ACTIVITY
    memcpys: Rows
    memsets: Rows
    api_calls: Rows
    overheads: Rows


def pack(
    *,
    iterations: Sequence[Iteration],
    kernels: Sequence[Kernel],
    memcpys: Sequence[Memcpy],
    memsets: Sequence[Memset],
    api_calls: Sequence[ApiCall],
    overheads: Sequence[Overhead],
) -> StoredRows:
    """Return the rows of these records."""
    origin_ns = iterations[0].begin_ns if iterations else 0
    names: dict[str, int] = {}
    shapes: dict[tuple[int, ...], int] = {}

    def index(text: str) -> int:
        return names.setdefault(text, len(names))

    def pack_kernel(item: Kernel) -> tuple[int, ...]:
        key = (
            index(item.name),
            *item.grid,
            *item.block,
            item.static_shared_bytes,
            item.dynamic_shared_bytes,
            item.registers_per_thread,
        )
        return (shapes.setdefault(key, len(shapes)), *pack_columns(item, _ACTIVITY))

    def pack_columns(item: Any, columns: tuple[str, ...]) -> tuple[int, ...]:
        row = []
        for column in columns:
            value = getattr(item, column)
            if column == "start_ns":
                value -= origin_ns
            elif column == "end_ns":
                value -= item.start_ns
            row.append(index(value) if column in _STRINGS else value)
        return tuple(row)

    def pack_all(items: Sequence[Record]) -> Rows:
        return tuple(pack_columns(item, _COLUMNS[type(item)]) for item in items)

    return StoredRows(
        origin_ns=origin_ns,
        iterations=tuple(
            (it.begin_ns - origin_ns, it.issued_ns - it.begin_ns, it.end_ns - it.begin_ns)
            for it in iterations
        ),
        kernels=tuple(pack_kernel(item) for item in kernels),
        memcpys=pack_all(memcpys),
        memsets=pack_all(memsets),
        api_calls=pack_all(api_calls),
        overheads=pack_all(overheads),
        names=tuple(names),
        shapes=tuple(shapes),
    )


def unpack(stored: StoredRows) -> dict[str, tuple[Record, ...]]:
    """Return the records of these rows, by the name of their field in a trace.

    Raises:
        ResultsError: a row has too few or too many columns, or points outside of a table.
    """
    return {
        "iterations": _read_rows(stored.iterations, "iterations", 3, stored, _unpack_iteration),
        "kernels": _read_rows(
            stored.kernels, "kernels", 1 + len(_ACTIVITY), stored, _unpack_kernel
        ),
        **{
            field: _read_rows(
                getattr(stored, field), field, len(_COLUMNS[kind]), stored, _make_unpacker(kind)
            )
            for field, kind in (
                ("memcpys", Memcpy),
                ("memsets", Memset),
                ("api_calls", ApiCall),
                ("overheads", Overhead),
            )
        },
    }


def _read_rows(
    rows: Rows, field: str, width: int, stored: StoredRows, unpack_row: Any
) -> tuple[Record, ...]:
    records = []
    for number, row in enumerate(rows):
        if len(row) != width:
            raise ResultsError(f"{field}[{number}] has {len(row)} columns; it has to have {width}")
        try:
            records.append(unpack_row(row, stored))
        except (InvalidArgumentError, LookupError) as error:
            raise ResultsError(f"{field}[{number}]: {error}") from error
    return tuple(records)


def _unpack_iteration(row: tuple[int, ...], stored: StoredRows) -> Iteration:
    begin_ns = stored.origin_ns + row[0]
    return Iteration(begin_ns=begin_ns, issued_ns=begin_ns + row[1], end_ns=begin_ns + row[2])


def _unpack_kernel(row: tuple[int, ...], stored: StoredRows) -> Kernel:
    shape = _look_up(stored.shapes, row[0], "shape")
    if len(shape) != 10:
        raise LookupError(f"shape {row[0]} has {len(shape)} columns; it has to have 10")
    return Kernel(
        **_unpack_columns(row[1:], _ACTIVITY, stored),
        name=_look_up(stored.names, shape[0], "name"),
        grid=shape[1:4],
        block=shape[4:7],
        static_shared_bytes=shape[7],
        dynamic_shared_bytes=shape[8],
        registers_per_thread=shape[9],
    )


def _make_unpacker(kind: type[Record]) -> Any:
    columns = _COLUMNS[kind]
    return lambda row, stored: kind(**_unpack_columns(row, columns, stored))


def _unpack_columns(
    row: tuple[int, ...], columns: tuple[str, ...], stored: StoredRows
) -> Mapping[str, Any]:
    fields: dict[str, Any] = {}
    for column, value in zip(columns, row, strict=True):
        if column in _STRINGS:
            fields[column] = _look_up(stored.names, value, "name")
        elif column == "start_ns":
            fields[column] = stored.origin_ns + value
        elif column == "end_ns":
            fields[column] = fields["start_ns"] + value
        else:
            fields[column] = value
    return fields


def _look_up(table: tuple[Any, ...], index: int, what: str) -> Any:
    if not 0 <= index < len(table):
        raise LookupError(f"there is no {what} {index}; the table has {len(table)}")
    return table[index]
