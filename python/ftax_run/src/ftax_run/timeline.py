"""Two iterations on a timeline, and the forms in which other programs show them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from ftax_run import activities
from ftax_run.account import Account, Event
from ftax_run.findings import find
from ftax_run.frames import Place, Places, name_place
from ftax_run.idle import sort_device
from ftax_run.records import write_text
from ftax_run.window import Recorded, find_iterations

_MOST_EVENTS = 4000
# The first words of rows; streams and threads follow as numbers.
ITERATIONS, DEVICE, CALLS, PYTHON = (
    "iterations",
    "device stream",
    "calls of thread",
    "Python thread",
)


def draw_iterations(recorded: Recorded, places: Places) -> list[Event]:
    """The last two whole iterations of a window: work on the device, calls, and lines of Python;
    less where there is too much of it."""
    stretches, kinds = find_iterations(recorded, sort_device(recorded.records))
    last = stretches[-1][-3:].astype(np.int64)
    start, end = int(last[0]), int(last[-1])
    kinds_drawn = (*activities.DEVICE_KINDS, activities.CALL)
    records = recorded.records[np.isin(recorded.records["kind"], kinds_drawn)]
    begins, ends = records["start"].astype(np.int64), records["end"].astype(np.int64)
    chosen = np.flatnonzero((ends > start) & (begins < end))
    chosen = chosen[np.argsort(begins[chosen], kind="stable")]
    if len(chosen) > _MOST_EVENTS:
        end = int(begins[chosen[_MOST_EVENTS]])
        chosen = chosen[:_MOST_EVENTS]
    events = [
        Event(ITERATIONS, "iteration", float(begin - start), float(min(stop, end) - start))
        for begin, stop in itertools.pairwise(last)
        if kinds and begin < end
    ]
    for record, begin, stop in zip(
        records[chosen],
        np.maximum(begins[chosen], start) - start,
        np.minimum(ends[chosen], end) - start,
        strict=True,
    ):
        kind = DEVICE if record["kind"] in activities.DEVICE_KINDS else CALLS
        name = recorded.names.get(int(record["symbol"]), "?")
        events.append(Event(f"{kind} {record['stream']}", name, float(begin), float(stop)))
    return events + _draw_samples(recorded, places, start, end)


def _draw_samples(recorded: Recorded, places: Places, start: int, end: int) -> list[Event]:
    """From the first sample at a line to the next at another."""
    events = []
    samples = recorded.samples
    samples = samples[(samples["time_ns"] >= start) & (samples["time_ns"] < end)]
    for thread in np.unique(samples["thread"]):
        own = samples[samples["thread"] == thread]
        names = [name_place(places.find_users(int(stack))) for stack in own["stack"]]
        first = [place for place in range(len(own)) if names[place] != names[max(0, place - 1)]]
        bounds = [*own["time_ns"][[0, *first]], end]
        for place, begin, stop in zip([0, *first], bounds[:-1], bounds[1:], strict=True):
            events.append(
                Event(f"{PYTHON} {thread}", names[place], float(begin - start), float(stop - start))
            )
    return events


def write_chrome(account: Account, path: Path) -> None:
    """For chrome://tracing and Perfetto: a process a group, a row a thread."""
    events: list[dict[str, Any]] = []
    for process in account.processes:
        events += [
            {"name": event.name, "ph": "X", "pid": process.pid, "tid": event.row,
             "ts": event.start / 1e3, "dur": (event.end - event.start) / 1e3}
            for event in process.timeline
        ]  # fmt: skip
    write_text(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def write_speedscope(account: Account, path: Path) -> None:
    """For speedscope: a flame graph a process, of its exposed idle or of its main thread's time."""
    frames: dict[Place, int] = {}
    profiles = []
    for process in account.processes:
        found = find(process)
        if found.stacks:
            samples = [
                [frames.setdefault(place, len(frames)) for place in stack] for stack in found.stacks
            ]
            weights = list(found.stacks.values())
            what = "main thread" if found.busy is None else "exposed idle"
            profiles.append(
                {"type": "sampled", "name": f"{what} {found.unit}, process {process.pid}",
                 "unit": "nanoseconds", "startValue": 0, "endValue": sum(weights),
                 "samples": samples, "weights": weights}
            )  # fmt: skip
    shared = {"frames": [{"name": name, "file": file, "line": line} for file, line, name in frames]}
    schema = "https://www.speedscope.app/file-format-schema.json"
    write_text(path, json.dumps({"$schema": schema, "shared": shared, "profiles": profiles}))
