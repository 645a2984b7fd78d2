"""Writes traces for chrome://tracing and Perfetto: a process for each rung, an arrow a launch.

The surprising choice: every rung starts at zero. Rungs are traced one after the other, and only
side by side can one see which of them leaves the device waiting.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ftax.errors import InvalidArgumentError
from ftax.instruments.trace.activities import Activity, Kernel, Memcpy, Memset, find_launches
from ftax.instruments.trace.names import demangle, shorten
from ftax.instruments.trace.records import Trace

__all__ = ["make_chrome_events", "write_chrome_trace"]

Event = dict[str, Any]

_ITERATIONS, _OVERHEADS, _FIRST_THREAD, _FIRST_STREAM = 0, 1, 10, 1000  # rows of a process


def write_chrome_trace(traces: Sequence[Trace], path: str | Path) -> None:
    """Write traces as one JSON file, gzipped if `path` ends in ".gz". Times are in us.

    Raises:
        InvalidArgumentError: there is no trace.
        OSError: the file cannot be written.
    """
    if not traces:
        raise InvalidArgumentError("there are no traces to write; pass at least one")
    content = {"displayTimeUnit": "ns", "traceEvents": make_chrome_events(traces)}
    data = json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
    # No time stamp inside: the same traces make the same file.
    Path(path).write_bytes(gzip.compress(data, 6, mtime=0) if str(path).endswith(".gz") else data)


def make_chrome_events(traces: Sequence[Trace]) -> list[Event]:
    """Return the events of the traces, process 1 for the first."""
    events: list[Event] = []
    for pid, trace in enumerate(traces, start=1):
        origin_ns = trace.iterations[0].begin_ns if trace.iterations else 0
        rows = _Rows(pid, origin_ns)
        events += rows.name_process(trace.label)
        events += _make_host_events(trace, rows)
        events += _make_device_events(trace, rows)
        events += _make_flows(trace, rows)
        events += rows.name_rows()
    return events


class _Rows:
    """The rows (in the format's words threads) of one process, numbered as they are met."""

    def __init__(self, pid: int, origin_ns: int) -> None:
        self._pid = pid
        self._origin_ns = origin_ns
        self._names: dict[int, str] = {}
        self._threads: dict[int, int] = {}
        self._streams: dict[tuple[int, int], int] = {}

    def name_process(self, name: str) -> list[Event]:
        head = {"ph": "M", "pid": self._pid, "tid": 0}
        return [
            {**head, "name": "process_name", "args": {"name": name}},
            {**head, "name": "process_sort_index", "args": {"sort_index": self._pid}},
        ]

    def name_rows(self) -> Iterator[Event]:
        for tid, name in sorted(self._names.items()):
            head = {"ph": "M", "pid": self._pid, "tid": tid}
            yield {**head, "name": "thread_name", "args": {"name": name}}
            yield {**head, "name": "thread_sort_index", "args": {"sort_index": tid}}

    def fixed(self, tid: int, name: str) -> int:
        self._names[tid] = name
        return tid

    def of_thread(self, thread_id: int) -> int:
        tid = _FIRST_THREAD + self._threads.setdefault(thread_id, len(self._threads))
        return self.fixed(tid, f"API calls, thread {thread_id}")

    def of_stream(self, item: Activity) -> int:
        key = (item.device_id, item.stream_id)
        tid = _FIRST_STREAM + self._streams.setdefault(key, len(self._streams))
        return self.fixed(tid, f"device {item.device_id}, stream {item.stream_id}")

    def at(self, time_ns: int) -> float:
        return (time_ns - self._origin_ns) / 1e3

    def slice(self, name: str, tid: int, span_ns: tuple[int, int], **args: object) -> Event:
        return {
            "ph": "X",
            "name": name,
            "pid": self._pid,
            "tid": tid,
            "ts": self.at(span_ns[0]),
            "dur": max(0, span_ns[1] - span_ns[0]) / 1e3,
            "args": args,
        }

    def arrow(self, number: int, call: tuple[int, int], work: tuple[int, int]) -> list[Event]:
        # Ids of arrows are shared by all processes of a file.
        head = {"name": "launch", "cat": "launch", "pid": self._pid, "id": f"{self._pid}.{number}"}
        return [
            {**head, "ph": "s", "tid": call[0], "ts": self.at(call[1])},
            {**head, "ph": "f", "bp": "e", "tid": work[0], "ts": self.at(work[1])},
        ]


def _make_host_events(trace: Trace, rows: _Rows) -> Iterator[Event]:
    for index, window in enumerate(trace.iterations):
        tid = rows.fixed(_ITERATIONS, "iterations")
        yield rows.slice(f"iteration {index}", tid, (window.begin_ns, window.end_ns))
        yield rows.slice("enqueue", tid, (window.begin_ns, window.issued_ns))
        yield rows.slice("synchronize", tid, (window.issued_ns, window.end_ns))
    for overhead in trace.overheads:
        tid = rows.fixed(_OVERHEADS, "profiler overhead")
        yield rows.slice(overhead.overhead_kind, tid, (overhead.start_ns, overhead.end_ns))
    for call in trace.api_calls:
        yield rows.slice(
            call.name,
            rows.of_thread(call.thread_id),
            (call.start_ns, call.end_ns),
            domain=call.domain,
            correlation=call.correlation_id,
        )


def _make_device_events(trace: Trace, rows: _Rows) -> Iterator[Event]:
    for item in (*trace.kernels, *trace.memcpys, *trace.memsets):
        name, args = _describe(item)
        if item.graph_node_id:
            args |= {"graph": item.graph_id, "node": item.graph_node_id}
        span_ns = (item.start_ns, item.end_ns)
        yield rows.slice(
            name, rows.of_stream(item), span_ns, correlation=item.correlation_id, **args
        )


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


def _make_flows(trace: Trace, rows: _Rows) -> Iterator[Event]:
    launches = find_launches(trace.api_calls)
    for number, item in enumerate((*trace.kernels, *trace.memcpys, *trace.memsets)):
        call = launches.get(item.correlation_id)
        if call is not None:
            yield from rows.arrow(
                number,
                (rows.of_thread(call.thread_id), call.start_ns),
                (rows.of_stream(item), item.start_ns),
            )
