"""What was found of a program."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass, field

import numpy as np

from ftax_run.causes import WAIT
from ftax_run.frames import Place
from ftax_run.sums import Sums
from ftax_run.window import Window

_TURN_NS = 1_000_000_000


@dataclass(slots=True)
class HostTime:
    """Where a process without a device was: its main thread, or the one that is in an iteration.
    A sample stands for the time since the one before."""

    total: int = 0  # samples
    wall: float = 0.0  # ns
    spent: Sums[tuple[Place, str]] = field(default_factory=Sums)  # by line and cause
    leaves: Sums[tuple[Place, Place]] = field(default_factory=Sums)
    stacks: Sums[tuple[Place, ...]] = field(default_factory=Sums)
    late: float = 0.0  # of the sums, waits that are booked to what others ran

    @property
    def unit(self) -> float:
        """What 1 of the sums is of the wall time, in ns."""
        return self.wall / (sum(self.spent.values()) or 1)

    def sum_lines(self) -> Sums[Place]:
        """Time by line, in ns."""
        lines: Sums[Place] = Sums()
        for (line, _), amount in self.spent.items():
            lines[line] += amount * self.unit
        return lines

    def find_error(self, time: float) -> float:
        """The standard error of a line's time, in ns, by how many samples met it."""
        each = self.wall / max(1, self.total)
        return math.sqrt(max(time, each) * each)

    @property
    def busy(self) -> float:
        """The share of the time in which it, or what it waits for, works."""
        waits = sum(amount for (_, cause), amount in self.spent.items() if cause == WAIT)
        return 1 - max(0.0, waits - self.late) / (sum(self.spent.values()) or 1)


@dataclass(frozen=True, slots=True)
class Event:
    """Something on the timeline of the last two iterations."""

    row: str  # "device stream 7", "calls of thread 12", "Python thread 12", "iterations"
    name: str
    start: float  # ns from the first
    end: float


@dataclass(slots=True)
class ProcessAccount:
    """One process."""

    pid: int
    command: str = ""
    problem: str = ""
    windows: list[Window] = field(default_factory=list)  # one a kind of iteration
    rates: list[float] = field(default_factory=list)  # launches a second, while only they are seen
    host: HostTime = field(default_factory=HostTime)
    timeline: list[Event] = field(default_factory=list)
    lost: int = 0  # records of the device
    recorded: float = 0.0  # ns in which all was recorded
    left_out: int = 0  # iterations of the warm-up, and of kinds that are not kept
    # Idle of these and beside all iterations, by line and innermost line.
    rest: Sums[tuple[Place, Place]] = field(default_factory=Sums)
    marked: int = 0  # iterations that the program marked
    marked_ns: list[float] = field(default_factory=list)  # what one took, by turns of a second
    _spans: list[np.ndarray] = field(default_factory=list, compare=False, repr=False)

    def add_marks(self, spans: np.ndarray) -> None:
        """Iterations that the program marked, with their starts and ends in ns."""
        self.marked += len(spans)
        if len(spans):
            self._spans.append(spans)
        if self._spans and self._spans[-1][-1, 1] - self._spans[0][0, 0] > _TURN_NS:
            every = np.concatenate(self._spans)
            self.marked_ns.append(float((every[:, 1] - every[:, 0]).mean()))
            self._spans = []

    @property
    def silent_turns(self) -> int:
        """Turns at the end in which no launch was recorded, of a process that launched before."""
        silent = itertools.takewhile(lambda rate: not rate, reversed(self.rates))
        count = sum(1 for _ in silent)
        return count if count < len(self.rates) else 0

    def find_steady(self) -> Window:
        """The iterations that took most of the time; without any, all that was recorded."""
        found = [window for window in self.windows if window.count]
        return max(found or self.windows, key=lambda window: window.wall)

    def list_turns(self) -> list[float]:
        """What a steady iteration took in each turn in which only calls were recorded, in ns: from
        how many launches it makes, and how many were made in a second; of a process without a
        device what the program's marks say. Empty where neither is known."""
        if not self.windows:
            return self.marked_ns
        window = self.find_steady()
        launches = window.work["launches"]
        if not window.count or not launches:
            return []
        usual = launches * 1e9 / window.wall  # with all recorded: a little slower
        return [launches / window.count * 1e9 / rate for rate in self.rates
                if 0.9 * usual < rate < 1.5 * usual]  # fmt: skip

    def correct(self) -> tuple[Window, float | None]:
        """The steady state without what recording cost, and that cost as a share; None where it is
        not known."""
        window = self.find_steady()
        turns = self.list_turns()
        if not turns:
            return window, None
        excess = window.wall - window.count * statistics.harmonic_mean(turns)
        return window.take_out(excess), excess / (window.wall - excess)


@dataclass(slots=True)
class Account:
    """One run."""

    command: list[str]
    exit_code: int = 0
    samples: int = 0
    sample_us: float = 0.0  # what one takes, on average
    torn: int = 0
    lost: int = 0
    processes: list[ProcessAccount] = field(default_factory=list)
    problem: str = ""  # of who watched: why there is nothing of what came after

    def find_main(self) -> ProcessAccount | None:
        """The process whose device was recorded longest; else the one that marks iterations; else
        the first that was sampled about as often as any and does more than wait: its workers come
        after it, and what launched it waits."""
        with_device = [item for item in self.processes if item.windows]
        if with_device:
            return max(with_device, key=lambda item: sum(window.wall for window in item.windows))
        if marking := [item for item in self.processes if item.marked]:
            return max(marking, key=lambda item: item.host.wall)
        most = max((item.host.total for item in self.processes), default=0)
        sampled = [item for item in self.processes if item.host.total >= max(1, 0.5 * most)]
        working = (item for item in sampled if item.host.busy > 0.05)
        return next(working, next(iter(sampled), None))
