"""Two iterations on a timeline, and the forms in which other programs show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ftax_run import activities
from ftax_run.account import Account, Event, ProcessAccount
from ftax_run.frames import Place, Places, name_place
from ftax_run.sums import Sums
from ftax_run.window import DEVICE_KINDS, Recorded, find_iterations, sort_device

_MOST_EVENTS = 4000


def draw_iterations(recorded: Recorded, places: Places) -> list[Event]:
    """The last two whole iterations of a window: work on the device, calls, and lines of Python."""
    device = sort_device(recorded)
    bounds, _ = find_iterations(recorded, device)
    start, end = int(bounds[max(0, len(bounds) - 3)]), int(bounds[-1])
    records = recorded.records
    chosen = records[(records["start"] >= start) & (records["end"] <= end)][:_MOST_EVENTS]
    events = []
    for record in chosen:
        if record["kind"] in (*DEVICE_KINDS, activities.CALL):
            row = "device" if record["kind"] in DEVICE_KINDS else f"calls {record['stream']}"
            name = recorded.names.get(int(record["symbol"]), "?")
            events.append(
                Event(row, name, float(record["start"] - start), float(record["end"] - start))
            )
    samples = recorded.samples
    samples = samples[(samples["time_ns"] >= start) & (samples["time_ns"] < end)]
    for thread in np.unique(samples["thread"]):
        own = samples[samples["thread"] == thread]
        for sample, following in zip(own, [*own["time_ns"][1:], end], strict=True):
            name = name_place(places.find_users(int(sample["stack"])))
            begin = float(sample["time_ns"] - start)
            events.append(Event(f"Python {thread}", name, begin, float(following - start)))
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
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def write_speedscope(account: Account, path: Path) -> None:
    """For speedscope: a flame graph a process of its exposed idle time, or of its host's."""
    frames: dict[Place, int] = {}
    profiles = []
    for process in account.processes:
        title, stacks = find_stacks(process)
        if stacks:
            samples = [[frames.setdefault(place, len(frames)) for place in key] for key in stacks]
            weights = list(stacks.values())
            profiles.append(
                {"type": "sampled", "name": f"{title}, process {process.pid}",
                 "unit": "nanoseconds", "startValue": 0, "endValue": sum(weights),
                 "samples": samples, "weights": weights}
            )  # fmt: skip
    shared = {"frames": [{"name": name, "file": file, "line": line} for file, line, name in frames]}
    schema = "https://www.speedscope.app/file-format-schema.json"
    path.write_text(json.dumps({"$schema": schema, "shared": shared, "profiles": profiles}))


def find_stacks(process: ProcessAccount) -> tuple[str, Sums[tuple[Place, ...]]]:
    """What a flame graph of a process shows, in ns."""
    if process.windows:
        return "exposed idle", process.find_steady().stacks
    host = process.host
    each = host.wall / max(1, host.total)
    return "main thread", Sums({stack: count * each for stack, count in host.stacks.items()})
