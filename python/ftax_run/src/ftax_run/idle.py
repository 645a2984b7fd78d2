"""When a device had nothing to do, whose doing that was, and the stretches of time that are looked
at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ftax_run import activities

_LATER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Spans:
    """Stretches of time in their order, that do not overlap."""

    starts: np.ndarray
    ends: np.ndarray

    def contain(self, times: np.ndarray) -> np.ndarray:
        """Which times are in one of them."""
        times = times.astype(np.int64)
        place = np.searchsorted(self.starts, times, side="right") - 1
        inside: np.ndarray = (place >= 0) & (times < self.ends[place])
        return inside

    def measure(self, records: np.ndarray) -> float:
        """How much of the time of these records is in them."""
        begins, ends = records["start"].astype(np.int64), records["end"].astype(np.int64)
        total = 0.0
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            lengths = np.minimum(ends, end) - np.maximum(begins, start)
            total += float(np.maximum(lengths, 0).sum())
        return total

    def list_between(self, start: int, end: int) -> Spans:
        """What is beside them."""
        return Spans(np.append(start, self.ends), np.append(self.starts, end))


@dataclass(frozen=True, slots=True)
class Idle:
    """From when to when nothing ran, until when that was the host's doing, and the thread that
    ended it."""

    start: np.ndarray
    end: np.ndarray
    host_to: np.ndarray
    thread: np.ndarray

    def cut(self, spans: Spans) -> Idle:
        """What is in them."""
        pieces = []
        for start, end in zip(spans.starts.tolist(), spans.ends.tolist(), strict=True):
            first = np.searchsorted(self.end, start, side="right")
            last = np.searchsorted(self.start, end, side="left")
            times = (self.start[first:last], self.end[first:last], self.host_to[first:last])
            pieces.append((*(np.clip(one, start, end) for one in times), self.thread[first:last]))
        return Idle(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def sort_device(records: np.ndarray) -> np.ndarray:
    """What the device did, in the order in which it was told to."""
    device = records[np.isin(records["kind"], activities.DEVICE_KINDS)]
    ordered: np.ndarray = device[np.argsort(device["correlation"], kind="stable")]
    return ordered


def find_calls(records: np.ndarray) -> np.ndarray:
    """Of calls within calls the outer one: the runtime calls the driver."""
    calls = records[records["kind"] == activities.CALL]
    calls = calls[np.lexsort((calls["start"], calls["correlation"]))]
    is_first = np.ones(len(calls), dtype=bool)
    is_first[1:] = calls["correlation"][1:] != calls["correlation"][:-1]
    first: np.ndarray = calls[is_first]  # by correlation
    return first


def find_launches(device: np.ndarray, calls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """When the call that gave each piece of work ended, and its thread. Work whose call was not
    recorded is the host's until it begins, by the thread that launches most."""
    issued = device["start"].astype(np.int64)
    usual = _find_most(calls["stream"]) if len(calls) else 0
    thread = np.full(len(device), usual, dtype=np.int64)
    if len(calls):
        place = np.searchsorted(calls["correlation"], device["correlation"])
        place = np.minimum(place, len(calls) - 1)
        known = calls["correlation"][place] == device["correlation"]
        issued[known] = calls["end"][place[known]].astype(np.int64)
        thread[known] = calls["stream"][place[known]]
    return issued, thread


def find_known_end(device: np.ndarray, launches: np.ndarray, end: int) -> int:
    """Until when is known what the device did, at most ``end``: work that had not ended when the
    records were taken has none, and may run or wait from its launch on."""
    open_ = launches["end"][launches["correlation"] > device["correlation"].max()]
    if not len(open_):
        return end
    return min(end, max(int(open_.min()), int(device["end"].max())))


def find_idle(device: np.ndarray, issued: np.ndarray, thread: np.ndarray) -> Idle:
    """Before and after each piece of work. ``issued``: when each was launched, by which thread."""
    order = np.argsort(device["start"], kind="stable")
    busy_until = np.maximum.accumulate(device["end"][order].astype(np.int64))
    idle_from = np.concatenate([[0], busy_until])
    idle_to = np.append(device["start"][order].astype(np.int64), _LATER)
    is_idle = idle_to > idle_from
    issued = np.append(issued[order], _LATER)
    thread = np.append(thread[order], _find_most(thread))
    idle_from, idle_to = idle_from[is_idle], idle_to[is_idle]
    host_to = np.clip(issued[is_idle], idle_from, idle_to)
    return Idle(idle_from, idle_to, host_to, thread[is_idle])


def _find_most(values: np.ndarray) -> int:
    found, counts = np.unique(values, return_counts=True)
    return int(found[np.argmax(counts)])
