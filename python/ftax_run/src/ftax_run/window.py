"""One stretch of time in which everything was recorded: when the device was busy, when it was idle,
and what the host did meanwhile.

An idle stretch that ends with work launched after it began was the host's doing, and the samples
of the thread that launched it say where the host was. What was launched before it began is a gap of
the device's own; a long one is work that waits, for another process, stream or host function.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from ftax_run import activities
from ftax_run.causes import BLOCKED, COPY, GAP, SYNC, UNSEEN, Others, name_cause
from ftax_run.frames import UNKNOWN, Place, Places, is_users
from ftax_run.idle import (
    Idle,
    Spans,
    find_calls,
    find_idle,
    find_known_end,
    find_launches,
    sort_device,
)
from ftax_run.period import Period, find_period, is_same
from ftax_run.sampler import SAMPLE
from ftax_run.sums import Sums

LAUNCH = "Launch"
TOTALS = ("count", "wall", "busy", "gaps", "blocked", "unseen", "collectives", "parts")
_WORK = {
    "kernels": activities.KERNEL, "graphs": activities.GRAPH, "copies": activities.COPY,
    "fills": activities.FILL,
}  # fmt: skip
WORK = (*_WORK, "launches")
SUMS = ("idle", "leaves", "stacks", "syncs", "sync_idle", "near_syncs", "work", "launched",
        "squares")  # fmt: skip
_NEAR_NS = 100_000
_SAME_CALL_NS = 20_000  # between two calls of CUDA that a call of the program makes
_LONG_GAP_NS = 100_000  # between two kernels of one process that nothing keeps apart


@dataclass(slots=True)
class Waits:
    """Calls that wait for the device, of one name and after work of one name. Most are too short
    for a sample within one, so the line of those without is that of others, in this or another
    window."""

    count: int = 0  # of those without a line so far
    exposed: float = 0.0  # idle that begins in them
    within: Sums[Place] = field(default_factory=Sums)  # lines of samples that were read within
    near: Sums[Place] = field(default_factory=Sums)  # of those beside, by how near they are

    def add(self, other: Waits) -> None:
        """The sums of both."""
        self.count += other.count
        self.exposed += other.exposed
        self.within.add(other.within)
        self.near.add(other.near)


@dataclass(slots=True)
class Window:
    """Sums over the whole iterations of a stretch of time; times in ns."""

    kinds: Counter[str] = field(default_factory=Counter)  # of an iteration; empty: none was found
    count: int = 0  # iterations
    wall: float = 0.0
    busy: float = 0.0
    gaps: float = 0.0  # idle between pieces of work that were launched in time
    blocked: float = 0.0  # the same, where they are long
    unseen: float = 0.0  # idle of the host's doing in which no sample fell
    collectives: float = 0.0  # in kernels that communicate or wait for other processes to
    idle: Sums[tuple[Place, str]] = field(default_factory=Sums)  # by line and cause
    leaves: Sums[tuple[Place, Place]] = field(default_factory=Sums)  # by line and innermost line
    stacks: Sums[tuple[Place, ...]] = field(default_factory=Sums)  # from the outermost frame
    syncs: Sums[Place] = field(default_factory=Sums)  # how many
    sync_idle: Sums[Place] = field(default_factory=Sums)  # what began to be idle in them
    near_syncs: Sums[Place] = field(default_factory=Sums)  # how many are near the line, or at it
    work: Sums[str] = field(default_factory=Sums)  # kernels, graphs, copies, fills, launches
    # How many launches were near the samples of a line: what recording costs, it costs there.
    launched: Sums[tuple[Place, str]] = field(default_factory=Sums)
    parts: int = 0  # windows that were added up
    squares: Sums[Place] = field(default_factory=Sums)  # over them, of a line's idle an iteration
    # In no record: idle beside the iterations, by line and innermost line; and waits, by name, and
    # that of the work before.
    beside: Sums[tuple[Place, Place]] = field(default_factory=Sums)
    waits: dict[tuple[str, str], Waits] = field(default_factory=dict)

    def is_like(self, other: Window) -> bool:
        """Whether iterations of both do the same work, but for a tenth."""
        size = max(self.kinds.total(), other.kinds.total())
        return (self.kinds & other.kinds).total() >= 0.9 * size

    def is_faster(self, other: Window) -> bool:
        """Whether its iterations take less than three quarters of the other's."""
        counts = self.count, other.count
        return min(counts) > 0 and self.wall / counts[0] < 0.75 * other.wall / counts[1]

    def add(self, other: Window) -> None:
        """The sums of both."""
        for name in TOTALS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in SUMS:
            getattr(self, name).add(getattr(other, name))
        self.kinds = self.kinds or other.kinds
        for key, waits in other.waits.items():
            self.waits.setdefault(key, Waits()).add(waits)

    def place_waits(self) -> None:
        """Give calls without a line that of most samples within others like them; where there is
        none, the nearest."""
        for waits in self.waits.values():
            if waits.count:
                found = (waits.within or waits.near).list_largest(1)
                line = found[0][0] if found else UNKNOWN
                self.add_syncs(line, waits.count, waits.exposed)
                self.near_syncs[line] += 0 if waits.within else waits.count
        self.waits = {}

    def add_syncs(self, line: Place, count: int, exposed: float) -> None:
        """So many more at a line."""
        self.syncs[line] += count
        self.sync_idle[line] += exposed

    def sum_causes(self) -> Sums[str]:
        """Idle time by cause."""
        causes: Sums[str] = Sums()
        for (_, cause), amount in self.idle.items():
            causes[cause] += amount
        causes[BLOCKED] += self.blocked
        causes[GAP] += self.gaps
        causes[UNSEEN] += self.unseen
        return causes

    def sum_lines(self) -> Sums[Place]:
        """Idle time by line."""
        lines: Sums[Place] = Sums()
        for (line, _), amount in self.idle.items():
            lines[line] += amount
        return lines

    def find_error(self, line: Place) -> float:
        """The standard error of a line's idle an iteration, in ns, by how windows differ in it; the
        whole where there is one window."""
        mean = self.sum_lines()[line] / max(1, self.count)
        if self.parts < 2:
            return mean
        variance = max(0.0, self.squares[line] / self.parts - mean**2)
        return math.sqrt(variance / (self.parts - 1))

    def take_out(self, excess: float) -> Window:
        """The same without ``excess`` ns that recording added: where launches are, at most what
        those lines have, and the rest between pieces of work."""
        if excess <= 0:
            return self
        near = Sums({key: self.launched[key] for key in self.idle})
        total = sum(near.values()) or 1.0
        idle: Sums[tuple[Place, str]] = Sums()
        for key, amount in self.idle.items():
            idle[key] = amount - min(amount, excess * near[key] / total)
        before = self.sum_lines()
        found = replace(self, idle=idle)
        taken = sum(self.idle.values()) - sum(idle.values())
        rest = max(0.0, excess - taken)
        found.gaps = max(0.0, self.gaps - rest)
        found.blocked = max(0.0, self.blocked - max(0.0, rest - self.gaps))
        found.wall -= taken + self.gaps - found.gaps + self.blocked - found.blocked
        after = found.sum_lines()
        shares = {line: after[line] / before[line] for line in before if before[line]}
        found.leaves = Sums({key: amount * shares.get(key[0], 1.0)
                             for key, amount in self.leaves.items()})  # fmt: skip
        found.stacks = Sums({stack: amount * shares.get(_find_users(stack), 1.0)
                             for stack, amount in self.stacks.items()})  # fmt: skip
        return found


def _find_users(stack: tuple[Place, ...]) -> Place:
    """The line that the time of a stack is booked to, as `Places.find_users` finds it."""
    own = next((place for place in reversed(stack) if is_users(place[0])), None)
    return own or (stack[0] if stack else UNKNOWN)


@dataclass(frozen=True, slots=True)
class Recorded:
    """All that is known of one window of one process."""

    pid: int
    start: int
    end: int
    records: np.ndarray  # of `activities.RECORD`
    names: dict[int, str]
    samples: np.ndarray  # of `sampler.SAMPLE`, of that process
    into_c: np.ndarray  # of each bytecode, whether C may run there
    marks: np.ndarray  # when iterations begin, where the program says so
    # Samples of all processes of the program.
    all_samples: np.ndarray = field(default_factory=lambda: np.empty(0, SAMPLE))


def analyse(recorded: Recorded, places: Places) -> Window | None:
    """None where the device did nothing."""
    device = sort_device(recorded.records)
    if not len(device):
        return None
    calls = find_calls(recorded.records)
    launches = _select_calls(calls, recorded.names, LAUNCH)
    recorded = replace(recorded, end=find_known_end(device, launches, recorded.end))
    stretches, kinds = find_iterations(recorded, device)
    spans = Spans(
        np.array([bounds[0] for bounds in stretches]),
        np.array([bounds[-1] for bounds in stretches]),
    )
    count = sum(len(bounds) - 1 for bounds in stretches) if kinds else 0
    wall = float((spans.ends - spans.starts).sum())
    window = Window(kinds=kinds, count=count, wall=wall, parts=1)
    every = find_idle(device, *find_launches(device, calls))
    idle = every.cut(spans)
    window.busy = wall - float((idle.end - idle.start).sum())
    gaps = idle.end - idle.host_to
    window.blocked = float(gaps[gaps > _LONG_GAP_NS].sum())
    window.gaps = float(gaps.sum()) - window.blocked
    _book_samples(window, recorded, places, calls, idle)
    _book_syncs(window, recorded, places, calls, device, idle, spans, np.concatenate(stretches))
    _count_work(window, device, launches, spans)
    symbols = [number for number, name in recorded.names.items() if name.startswith("nccl")]
    window.collectives = spans.measure(device[np.isin(device["symbol"], symbols)])
    window.squares = Sums({line: (amount / max(1, count)) ** 2
                           for line, amount in window.sum_lines().items()})  # fmt: skip
    if kinds:
        beside = Window()
        between = spans.list_between(recorded.start, max(recorded.end, int(spans.ends[-1])))
        _book_samples(beside, recorded, places, calls, every.cut(between))
        window.beside = beside.leaves
    return window


def find_iterations(
    recorded: Recorded, device: np.ndarray
) -> tuple[list[np.ndarray], Counter[str]]:
    """Of each stretch of iterations when each begins on the device, and the end of the last; and
    what one is made of. Where none is found one stretch is all of the window, made of nothing."""
    if len(recorded.marks) > 1:
        return [recorded.marks], Counter({"marked by the program": 1})
    symbols = device["symbol"]
    period = find_period(symbols)
    if period is None:
        return [np.array([recorded.start, recorded.end])], Counter()
    begins = device["start"].astype(np.int64)
    ends = np.maximum.accumulate(device["end"].astype(np.int64))
    waits = begins - np.concatenate([begins[:1], ends[:-1]])
    first = int(np.argmax(np.median(_fold(waits, period), axis=0)))  # after the longest wait
    begun = np.maximum.accumulate(begins)
    bounds: list[np.ndarray] = []
    end = 0
    for starts in period.stretches:
        places = _move(period, starts, first, symbols, waits)
        places = places[places >= end]  # what is moved may reach into the stretch before
        if len(places) > 1:
            bounds.append(begun[places])
            end = int(places[-1])
    kinds = Counter(recorded.names.get(symbol, "?") for symbol in period.usual.tolist())
    return bounds, kinds


def _move(
    period: Period, starts: tuple[int, ...], first: int, symbols: np.ndarray, waits: np.ndarray
) -> np.ndarray:
    """The places at which iterations of a stretch begin, if that is so many pieces later."""
    places = np.array(starts)
    # In an iteration that has more, the wait may come that much later.
    more = int(np.abs(np.diff(places) - period.length).max())
    after = symbols[places[-1] :][: first + 1]
    if len(after) <= first or not is_same(after, period.usual[: first + 1]):
        places = places[:-1]  # nothing follows, or other work
    places += first
    near = np.clip(places[:, None] + np.arange(-more, more + 1), 0, len(waits) - 1)
    found: np.ndarray = near[np.arange(len(places)), np.argmax(waits[near], axis=1)]
    return found


def _fold(values: np.ndarray, period: Period) -> np.ndarray:
    """A row an iteration, of the usual length."""
    starts = np.concatenate([starts[:-1] for starts in period.stretches])
    places = starts[:, None] + np.arange(period.length)
    return values[np.minimum(places, len(values) - 1)]


def _book_samples(
    window: Window, recorded: Recorded, places: Places, calls: np.ndarray, idle: Idle
) -> None:
    """Give the host's idle stretches to the lines at which its samples stand."""
    total = float((idle.host_to - idle.start).sum())
    booked, place = _select_samples(recorded, idle)
    if not len(booked):
        window.unseen = total
        return
    each = total / len(booked)
    others = Others(recorded.all_samples, places)
    syncing = _is_within(booked, calls, recorded.names, SYNC)
    copying = _is_within(booked, calls, recorded.names, COPY)
    launches = _count_near(booked["time_ns"], _select_calls(calls, recorded.names, LAUNCH))
    launchers = booked["thread"] == idle.thread[place]
    for sample, is_launcher, is_sync, is_copy, near in zip(
        booked, launchers, syncing, copying, launches, strict=True
    ):
        if is_sync:
            cause = SYNC
        elif is_copy:
            cause = COPY
        else:
            cause = name_cause(sample, recorded.into_c, may_wait=bool(is_launcher))
        stacks = others.list_late(sample, cause)
        for stack in stacks:
            line = places.find_users(stack)
            window.idle[line, cause] += each / len(stacks)
            window.launched[line, cause] += float(near) / len(stacks)
            window.leaves[line, places.find_leaf(stack)] += each / len(stacks)
            window.stacks[places.list_outer(stack)] += each / len(stacks)


def _select_samples(recorded: Recorded, idle: Idle) -> tuple[np.ndarray, np.ndarray]:
    """Those in idle stretches of the host's doing, and in which: of the thread that launched next;
    of the main thread where that one was read without Python. A thread of C++ works for the main
    one, and may run Python in between (autograd's: a hook)."""
    samples = recorded.samples
    place = np.searchsorted(idle.start, samples["time_ns"], side="right") - 1
    inside = place >= 0
    inside[inside] = samples["time_ns"][inside] < idle.host_to[place[inside]]
    samples, place = samples[inside], place[inside]
    wanted = samples["thread"] == idle.thread[place]
    of_main = np.sort(recorded.samples["time_ns"][recorded.samples["thread"] == recorded.pid])
    apart = float(np.median(np.diff(of_main))) if len(of_main) > 1 else 0.0
    for thread in np.unique(idle.thread[place[~wanted]]):
        times = np.sort(recorded.samples["time_ns"][recorded.samples["thread"] == thread])
        chosen = (samples["thread"] == recorded.pid) & (idle.thread[place] == thread) & ~wanted
        wanted[chosen] = _find_distances(samples["time_ns"][chosen], times) > apart / 2
    return samples[wanted], place[wanted]


def _find_distances(times: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Of each time how far the nearest of others is, which are in order."""
    if not len(others):
        return np.full(len(times), np.inf)
    after = np.minimum(np.searchsorted(others, times), len(others) - 1)
    nearest: np.ndarray = np.minimum(
        np.abs(times - others[after]), np.abs(times - others[np.maximum(after - 1, 0)])
    )
    return nearest


def _count_near(times: np.ndarray, calls: np.ndarray) -> np.ndarray:
    """Of each time how many calls begin close to it."""
    begins = np.sort(calls["start"].astype(np.int64))
    return np.searchsorted(begins, times + _NEAR_NS) - np.searchsorted(begins, times - _NEAR_NS)


def _select_calls(calls: np.ndarray, names: dict[int, str], kind: str) -> np.ndarray:
    """Those whose name has a word in it: LAUNCH, or that of a cause."""
    chosen: np.ndarray = calls[np.isin(calls["symbol"], _list_symbols(names, kind))]
    return chosen


def _list_symbols(names: dict[int, str], kind: str) -> list[int]:
    word = {SYNC: "Synchronize", COPY: "Memcpy"}.get(kind, kind)
    return [number for number, name in names.items() if word in name]


def _is_within(
    samples: np.ndarray, calls: np.ndarray, names: dict[int, str], cause: str
) -> np.ndarray:
    """Of each sample, whether its thread was in such a call."""
    inside = np.zeros(len(samples), dtype=bool)
    chosen = _select_calls(calls, names, cause)
    for thread in np.unique(chosen["stream"]):
        own = np.sort(chosen[chosen["stream"] == thread], order="start")
        place = np.searchsorted(own["start"].astype(np.int64), samples["time_ns"], "right") - 1
        hit = (place >= 0) & (samples["thread"] == thread)
        hit[hit] = samples["time_ns"][hit] < own["end"][place[hit]].astype(np.int64)
        inside |= hit
    return inside


def _book_syncs(
    window: Window, recorded: Recorded, places: Places, calls: np.ndarray, device: np.ndarray,
    idle: Idle, spans: Spans, bounds: np.ndarray,
) -> None:  # fmt: skip
    """Count synchronisations by line, and what the device idles from within each on. The line is
    that of the samples in the calls that are at the same place of an iteration, since most calls
    are too short for a sample of their own; of those without any it is left open."""
    lengths = np.concatenate([[0], np.cumsum(idle.end - idle.start)])
    is_copy, is_sync = (
        np.isin(calls["symbol"], _list_symbols(recorded.names, kind)) for kind in (COPY, SYNC)
    )
    for thread in np.unique(calls["stream"][is_sync]):
        own = np.flatnonzero(calls["stream"] == thread)
        own = own[np.argsort(calls["start"][own], kind="stable")]
        begins, ends = (calls[name][own].astype(np.int64) for name in ("start", "end"))
        # A copy just before is of the same call of the program, and may be what waits.
        follows = np.zeros(len(own), dtype=bool)
        follows[1:] = is_copy[own][:-1] & (begins[1:] - ends[:-1] < _SAME_CALL_NS)
        since = np.where(follows, np.roll(begins, 1), begins)
        work = _find_work(device, calls[own])
        chosen = np.flatnonzero(is_sync[own] & spans.contain(begins) & spans.contain(ends - 1))
        if not len(chosen):
            continue
        iteration = np.searchsorted(bounds, begins[chosen], "right")
        rank = np.arange(len(chosen)) - np.searchsorted(iteration, iteration, "left")
        exposed = (
            lengths[np.searchsorted(idle.start, ends[chosen], "right")]
            - lengths[np.searchsorted(idle.start, begins[chosen], "left")]
        )
        samples = recorded.samples[recorded.samples["thread"] == thread]
        symbols = calls["symbol"][own][chosen]
        keys = np.stack([rank, symbols, work[chosen]], axis=1)
        kinds, kind = np.unique(keys, axis=0, return_inverse=True)
        ends_of = np.cumsum(np.bincount(kind.reshape(-1)))
        groups = np.split(np.argsort(kind.reshape(-1), kind="stable"), ends_of[:-1])
        for (_, symbol, before), same in zip(kinds.tolist(), groups, strict=True):
            name = recorded.names.get(symbol, "?"), recorded.names.get(before, "?")
            waits = window.waits.setdefault(name, Waits())
            times = since[chosen][same], begins[chosen][same], ends[chosen][same]
            within = _find_lines(waits, samples, *times, places)
            count, amount = len(same), float(exposed[same].sum())
            if within:
                window.add_syncs(within.list_largest(1)[0][0], count, amount)
            else:
                waits.count += count
                waits.exposed += amount


def _find_work(device: np.ndarray, calls: np.ndarray) -> np.ndarray:
    """Of each call of a thread the symbol of the last work that the thread gave the device before;
    0 where there is none."""
    place = np.minimum(np.searchsorted(device["correlation"], calls["correlation"]),
                       len(device) - 1)  # fmt: skip
    gave = device["correlation"][place] == calls["correlation"]
    last = np.maximum.accumulate(np.where(gave, np.arange(len(calls)), -1))
    found: np.ndarray = np.where(last >= 0, device["symbol"][place[last]], 0).astype(np.int64)
    return found


def _find_lines(
    waits: Waits, samples: np.ndarray, since: np.ndarray, begins: np.ndarray, ends: np.ndarray,
    places: Places,
) -> Sums[Place]:  # fmt: skip
    """The lines of samples that were read within these calls, or ``since`` what belongs to them,
    which are added to all that is known, and so are the nearest; not of stacks that changed while
    they were read."""
    within: Sums[Place] = Sums()
    own = samples[samples["region"] == 0]
    if not len(own):
        return within
    times = own["time_ns"]
    read = times + own["took_ns"].astype(np.int64)
    place = np.searchsorted(since, times, "right") - 1
    inside = (place >= 0) & (read <= ends[place])
    for stack in own["stack"][inside].tolist():
        within[places.find_users(stack)] += 1
    before = np.maximum(np.searchsorted(times, ends, "right") - 1, 0)
    after = np.minimum(before + 1, len(own) - 1)
    late, early = np.maximum(0, begins - times[before]), np.maximum(0, times[after] - ends)
    nearest = own["stack"][np.where(late <= early, before, after)].tolist()
    for stack, distance in zip(nearest, np.minimum(late, early), strict=True):
        waits.near[places.find_users(stack)] += (1000 + float(distance)) ** -2  # ns
    waits.within.add(within)
    return within


def _count_work(window: Window, device: np.ndarray, launches: np.ndarray, spans: Spans) -> None:
    """What begins in the spans, and the launches of that: the host may be far ahead."""
    inside = device[spans.contain(device["start"])]
    for name, kind in _WORK.items():
        window.work[name] = float(np.count_nonzero(inside["kind"] == kind))
    launched = np.isin(launches["correlation"], inside["correlation"])
    window.work["launches"] = float(np.count_nonzero(launched))
