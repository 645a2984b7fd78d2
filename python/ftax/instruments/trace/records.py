"""A trace: what the device and the host's API calls did during a few synchronised iterations.

A trace is never read for latency. Recording slows what it records, so its times say what ran, in
which order and with which gaps; how long a request takes is a measurement's business.

In a file a trace is tables: strings, launch shapes, and rows of integers, with times as distances
(a start from the first iteration's begin, an end from its start), a third as long.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import PurePath
from typing import Any, ClassVar, Literal, Self, TypeVar

from ftax.errors import InvalidArgumentError, ResultsError
from ftax.instruments.trace.activities import (
    Activity,
    ApiCall,
    Iteration,
    IterationTrace,
    Kernel,
    Memcpy,
    Memset,
    Overhead,
)
from ftax.machines.environment import Device, Environment
from ftax.records.fields import make_plain
from ftax.records.record import Count, Name, Record
from ftax.records.result import Result

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


_RAW_KINDS: dict[str, type[Record]] = {
    "kernels": Kernel,
    "memcpys": Memcpy,
    "memsets": Memset,
    "api_calls": ApiCall,
    "overheads": Overhead,
}

_Timed = TypeVar("_Timed", Kernel, Memcpy, Memset, ApiCall, Overhead)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(Result):
    """Everything recorded while one rung ran its iterations, each enqueued and synchronised.

    Attributes:
        api_calls: empty if none were recorded.
        dropped_records: that the tracer lost for want of buffers.
        cupti_file: file name of the CUPTI that traced, without its folder.
        problems: what the tracer itself found wrong.
        environment: where it was recorded; None if not collected.
    """

    kind: ClassVar[str] = "trace"

    model: Name
    runtime: Name
    host: Literal["python", "cpp"]
    device: Device
    iterations: tuple[Iteration, ...]
    kernels: tuple[Kernel, ...]
    memcpys: tuple[Memcpy, ...] = ()
    memsets: tuple[Memset, ...] = ()
    api_calls: tuple[ApiCall, ...] = ()
    overheads: tuple[Overhead, ...] = ()
    dropped_records: Count = 0
    buffers: Count = 0
    cupti_file: str = ""
    cupti_version: Count = 0
    problems: tuple[str, ...] = ()
    environment: Environment | None = None

    def check(self) -> None:
        """Raise InvalidArgumentError if iterations overlap: they were run one after the other."""
        for index, (one, other) in enumerate(pairwise(self.iterations)):
            if other.begin_ns < one.end_ns:
                raise InvalidArgumentError(
                    f"Trace.iterations[{index + 1}] begins at {other.begin_ns} ns, before the end "
                    f"of the one before it, {one.end_ns}; they have to be in order"
                )

    @classmethod
    def from_raw(
        cls,
        raw: Any,
        *,
        model: str,
        runtime: str,
        host: str,
        device: str,
        environment: Environment | None = None,
    ) -> Self:
        """Build the trace that `_core.trace_runner` returned as `raw`.

        Any object with the attributes of `_core.RawTrace` will do. Of the path of CUPTI only the
        file name is kept, so that a results file can be published as it is.

        Raises:
            InvalidArgumentError: `raw` has a value that a record refuses.
        """
        return cls(
            model=model,
            runtime=runtime,
            host=host,  # type: ignore[arg-type]  # checked by the record
            device=device,
            environment=environment,
            iterations=tuple(
                Iteration(begin_ns=begin, issued_ns=issued, end_ns=end)
                for begin, issued, end in raw.iterations
            ),
            **{field: _copy_raw(getattr(raw, field), kind) for field, kind in _RAW_KINDS.items()},
            dropped_records=raw.dropped_records,
            buffers=raw.buffers,
            cupti_file=PurePath(raw.cupti_file).name,
            cupti_version=raw.cupti_version,
            problems=tuple(raw.problems),
        )

    @property
    def label(self) -> str:
        """A short form for people, such as "bert-base eager/cpp cuda"."""
        return f"{self.model} {self.runtime}/{self.host} {self.device}"

    @property
    def activities(self) -> tuple[Activity, ...]:
        """Kernels, copies and fills, each kind as it was recorded."""
        return (*self.kernels, *self.memcpys, *self.memsets)

    def describe(self) -> str:
        """What was traced, in a line."""
        counts = [(len(self.iterations), "iterations"), (len(self.kernels), "kernels"),
                  (len(self.memcpys) + len(self.memsets), "copies and fills")]  # fmt: skip
        return f"{self.label}: " + ", ".join(f"{count} {what}" for count, what in counts)

    def split(self) -> tuple[IterationTrace, ...]:
        """Return all iterations with what started in each: every one was synchronised, so what
        belongs to it starts between its begin and its end."""
        columns = {field: self._assign(getattr(self, field)) for field in _RAW_KINDS}
        return tuple(
            IterationTrace(
                index=index,
                window=window,
                **{field: tuple(parts[index]) for field, parts in columns.items()},
            )
            for index, window in enumerate(self.iterations)
        )

    def find_outside(self) -> tuple[Activity, ...]:
        """Return the device activities that belong to no iteration."""
        inside = {id(item) for part in self.split() for item in part.activities}
        return tuple(item for item in self.activities if id(item) not in inside)

    def _assign(self, items: Sequence[_Timed]) -> list[list[_Timed]]:
        """What starts in each window; edges are looked up once a window: API calls are many."""
        ordered = sorted(items, key=attrgetter("start_ns", "end_ns"))
        starts = [item.start_ns for item in ordered]
        edges = [bisect_left(starts, window.begin_ns) for window in self.iterations]
        edges.append(len(ordered))
        ends = [bisect_right(starts, window.end_ns) for window in self.iterations]
        return [
            ordered[first : min(end, following)]
            for (first, following), end in zip(pairwise(edges), ends, strict=True)
        ]

    def to_dict(self) -> dict[str, object]:
        """Return plain dicts, lists and scalars: few strings, and rows of integers."""
        records = {name: getattr(self, name) for name in _RAW_KINDS}
        rest = {
            field.name: make_plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.name not in ("iterations", *records)
        }
        return {**rest, "rows": pack(self.iterations, records).to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """Build the trace that `to_dict` described.

        Raises:
            ResultsError: a field or a row is missing, unknown or refused.
        """
        fields = dict(data)
        rows = fields.pop("rows", None)
        if not isinstance(rows, Mapping):
            raise ResultsError(f"Trace.rows is {rows!r}; it has to be an object")
        # Named, not bare: slots=True makes a new class, which a bare super() does not know.
        return super(Trace, cls).from_dict({**fields, **unpack(StoredRows.from_dict(rows))})


def _copy_raw(items: Sequence[Any], kind: type[Record]) -> tuple[Any, ...]:
    columns = [field.name for field in dataclasses.fields(kind)]
    return tuple(kind(**{column: getattr(item, column) for column in columns}) for item in items)
