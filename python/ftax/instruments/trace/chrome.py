"""Writes traces for chrome://tracing and Perfetto: a process for each rung, an arrow a launch.

Every rung starts at zero. Rungs are traced one after the other, and only side by side can one see
which of them leaves the device waiting.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ftax.errors import InvalidArgumentError
from ftax.instruments.trace.activities import (
    Activity,
    ApiCall,
    Kernel,
    Memcpy,
    Memset,
    find_launches,
)
from ftax.instruments.trace.names import demangle, shorten
from ftax.instruments.trace.records import Trace
from ftax.records.whole_file import write_whole

Event = dict[str, Any]

_ITERATIONS, _OVERHEADS, _FIRST_THREAD, _FIRST_STREAM = 0, 1, 10, 1000  # rows of a process


def write_chrome_trace(traces: Sequence[Trace], path: str | Path) -> None:
    """Write traces as one JSON file, gzipped if `path` ends in ".gz". Times are in us.

    Raises:
        InvalidArgumentError: there is no trace.
        OSError: the file cannot be written; it is as it was.
    """
    if not traces:
        raise InvalidArgumentError("there are no traces to write; pass at least one")
    content = {"displayTimeUnit": "ns", "traceEvents": make_chrome_events(traces)}
    data = json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
    # No time stamp inside: the same traces make the same file.
    write_whole(path, gzip.compress(data, 6, mtime=0) if str(path).endswith(".gz") else data)


def make_chrome_events(traces: Sequence[Trace]) -> list[Event]:
    """Return the events of the traces, process 1 for the first."""
    return [event for pid, trace in enumerate(traces, 1) for event in _make_events(trace, pid)]


def _make_events(trace: Trace, pid: int) -> Iterator[Event]:
    origin_ns = trace.iterations[0].begin_ns if trace.iterations else 0
    rows = _Rows()
    yield from _name_row("process", pid, 0, trace.label, pid)

    def slice_(name: str, tid: int, start_ns: int, end_ns: int, **args: object) -> Event:
        times = {"ts": (start_ns - origin_ns) / 1e3, "dur": max(0, end_ns - start_ns) / 1e3}
        return {"ph": "X", "name": name, "pid": pid, "tid": tid, **times, "args": args}

    for index, window in enumerate(trace.iterations):
        tid = rows.fixed(_ITERATIONS, "iterations")
        yield slice_(f"iteration {index}", tid, window.begin_ns, window.end_ns)
        yield slice_("enqueue", tid, window.begin_ns, window.issued_ns)
        yield slice_("synchronize", tid, window.issued_ns, window.end_ns)
    for overhead in trace.overheads:
        tid = rows.fixed(_OVERHEADS, "profiler overhead")
        yield slice_(overhead.overhead_kind, tid, overhead.start_ns, overhead.end_ns)
    for call in trace.api_calls:
        yield slice_(
            call.name, rows.of_thread(call), call.start_ns, call.end_ns,
            domain=call.domain, correlation=call.correlation_id,
        )  # fmt: skip
    launches = find_launches(trace.api_calls)
    for number, item in enumerate(trace.activities):
        name, args = _describe(item)
        if item.graph_node_id:
            args |= {"graph": item.graph_id, "node": item.graph_node_id}
        args["correlation"] = item.correlation_id
        work = slice_(name, rows.of_stream(item), item.start_ns, item.end_ns, **args)
        yield work
        if (launch := launches.get(item.correlation_id)) is not None:
            # Ids of arrows are shared by all processes of a file.
            head = {"name": "launch", "cat": "launch", "pid": pid, "id": f"{pid}.{number}"}
            begin_us = (launch.start_ns - origin_ns) / 1e3
            yield {**head, "ph": "s", "tid": rows.of_thread(launch), "ts": begin_us}
            yield {**head, "ph": "f", "bp": "e", "tid": work["tid"], "ts": work["ts"]}
    for tid, name in sorted(rows.names.items()):
        yield from _name_row("thread", pid, tid, name, tid)


def _name_row(what: str, pid: int, tid: int, name: str, place: int) -> Iterator[Event]:
    head = {"ph": "M", "pid": pid, "tid": tid}
    yield {**head, "name": f"{what}_name", "args": {"name": name}}
    yield {**head, "name": f"{what}_sort_index", "args": {"sort_index": place}}


class _Rows:
    """The rows (in the format's words threads) of one process, numbered as they are met."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._threads: dict[int, int] = {}
        self._streams: dict[tuple[int, int], int] = {}

    def fixed(self, tid: int, name: str) -> int:
        self.names[tid] = name
        return tid

    def of_thread(self, call: ApiCall) -> int:
        tid = _FIRST_THREAD + self._threads.setdefault(call.thread_id, len(self._threads))
        return self.fixed(tid, f"API calls, thread {call.thread_id}")

    def of_stream(self, item: Activity) -> int:
        key = (item.device_id, item.stream_id)
        tid = _FIRST_STREAM + self._streams.setdefault(key, len(self._streams))
        return self.fixed(tid, f"device {item.device_id}, stream {item.stream_id}")


def _describe(item: Activity) -> tuple[str, dict[str, object]]:
    if isinstance(item, Kernel):
        return shorten(item.name), {
            "kernel": demangle(item.name),
            "grid": list(item.grid),
            "block": list(item.block),
            "static shared bytes": item.static_shared_bytes,
            "dynamic shared bytes": item.dynamic_shared_bytes,
            "registers per thread": item.registers_per_thread,
        }
    if isinstance(item, Memcpy):
        return f"memcpy {item.copy_kind}", {"bytes": item.bytes}
    if isinstance(item, Memset):
        return "memset", {"bytes": item.bytes, "value": item.value}
    return type(item).__name__, {}
