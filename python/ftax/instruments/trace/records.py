"""A trace: what the device and the host's API calls did during a few synchronised iterations.

A trace is never read for latency. Recording slows what it records, so its times say what ran, in
which order and with which gaps; how long a request takes is a measurement's business.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import PurePath
from typing import Any, ClassVar, Literal, Self, TypeVar

from ftax.errors import InvalidArgumentError, ResultsError
from ftax.instruments.trace._stored import StoredRows, pack, unpack
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
