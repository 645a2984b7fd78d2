"""Energy of one inference, from the energy counter of the GPU over seconds of the timed loop.

The counter takes in the whole board. What the GPU would have drawn doing nothing is measured apart
and stated beside the sum, never silently subtracted: a runtime that leaves the GPU waiting pays for
the waiting too, and that is part of its tax.

The counter moves in steps, 10 to 100 ms apart. A window begins and ends where it was seen to move,
and how well these two moments are known is stated with the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ftax import _core
from ftax.errors import UnavailableError, check_number, say_count
from ftax.instruments.drive import Drive, drive
from ftax.machines.gpu import read_sm_clock
from ftax.machines.host import PositiveFloat
from ftax.machines.nvml import NvmlGpu
from ftax.records.record import Count, Name, PositiveInt, Ratio, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterPoint:
    """One reading: when (CLOCK_MONOTONIC), the counter, and how many rounds were done by then."""

    at_ns: int
    energy_mj: int
    rounds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterWindow:
    """From the first step of the counter that was seen to the last.

    Attributes:
        first, last: the readings that showed these two steps.
        steps: how often the counter moved after the first of them.
        resolution_ratio: how wrong the length of the window can be, over that length; with it the
            power, since the energy between two steps is exact.
    """

    first: CounterPoint
    last: CounterPoint
    steps: int
    resolution_ratio: float

    @property
    def energy_j(self) -> float:
        """What the counter moved by."""
        return (self.last.energy_mj - self.first.energy_mj) / 1e3

    @property
    def seconds(self) -> float:
        """The length of the window."""
        return (self.last.at_ns - self.first.at_ns) / 1e9

    @property
    def power_w(self) -> float:
        """Mean power."""
        return self.energy_j / self.seconds


def find_window(points: Sequence[CounterPoint]) -> CounterWindow:
    """The longest window that ``points``, in the order of time, contain.

    Raises UnavailableError if the counter moved less than twice ("too short"), or went backwards.
    """
    pairs = list(pairwise(points))
    if any(after.energy_mj < before.energy_mj for before, after in pairs):
        raise UnavailableError(
            "the energy counter of the GPU went backwards, as it does when its driver is loaded "
            "anew: measure again"
        )
    moved = [(before, after) for before, after in pairs if after.energy_mj != before.energy_mj]
    if len(moved) < 2:
        span_s = (points[-1].at_ns - points[0].at_ns) / 1e9 if points else 0.0
        raise UnavailableError(
            f"too short: the energy counter of the GPU moved "
            f"{say_count(len(moved), 'time')} in {span_s:.2f} s, where two steps are needed; "
            "measure for longer. A counter that never moves does not work on this GPU or virtual "
            "machine"
        )
    first, last = moved[0], moved[-1]
    # Each step happened somewhere between the reading that shows it and the one before.
    uncertain_ns = max(after.at_ns - before.at_ns for before, after in (first, last))
    return CounterWindow(
        first=first[1],
        last=last[1],
        steps=len(moved) - 1,
        resolution_ratio=uncertain_ns / (last[1].at_ns - first[1].at_ns),
    )


_WANTED_RATIO = 0.01
_LEAD_IN_S = 0.5
_POLL_S = 0.005
_SETTLED_RATIO = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePower(Record):
    """What the GPU draws with this process on it and nothing to do.

    Attributes:
        settled: two windows in a row agreed within 2 %; if not, the GPU was still cooling down.
        resolution_ratio: how wrong ``power_w`` can be for the counter's steps, over itself.
    """

    power_w: PositiveFloat
    seconds: PositiveFloat
    settled: bool
    resolution_ratio: Ratio
    sm_clock_mhz: Count | None  # an idle GPU may keep its clocks up, and draw more for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy(Record):
    """Energy of a run of one runner.

    Attributes:
        mode: one synchronised request at a time; files may hold runs of them back to back.
        energy_j: by which the counter moved.
        seconds: between the first and last step of the counter.
        inferences: that finished in that time.
        counter_steps: steps of the counter in that time.
        resolution_ratio: how wrong energies and powers can be for the counter's steps, over
            themselves. It says nothing of how exact the sensor is.
        driven_ratio: share of the time inside timed requests; the rest lies between rounds.
        idle: what the GPU drew before, doing nothing.
    """

    mode: Literal["latency", "throughput"]
    energy_j: PositiveFloat
    seconds: PositiveFloat
    inferences: PositiveInt
    counter_steps: PositiveInt
    resolution_ratio: Ratio
    driven_ratio: Ratio
    idle: IdlePower

    @property
    def joules_per_inference(self) -> float:
        """All energy of the board, over the inferences."""
        return self.energy_j / self.inferences

    @property
    def mean_power_w(self) -> float:
        """Energy over time."""
        return self.energy_j / self.seconds

    @property
    def joules_above_idle(self) -> float:
        """Of one inference: what the GPU would not have drawn doing nothing for as long."""
        return self.joules_per_inference - self.idle.power_w * self.seconds / self.inferences


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyLine(Record):
    """What the step from one rung to the next saves of one inference's energy, in joules.

    ``resolved`` compares with the counter's resolution only: that two runs of the same rung differ
    by less is for repeated runs to show.
    """

    upper: Name
    lower: Name | None  # None: the rest, which no rung below takes away
    joules: float
    joules_above_idle: float
    share_ratio: float  # of the energy of the first rung
    resolved: bool


def measure_idle_power(
    gpu: NvmlGpu,
    *,
    seconds: float = 1.0,
    limit_s: float = 15.0,
    now_ns: Callable[[], int] = _core.now_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> IdlePower:
    """Wait until the idle GPU's power has settled, in windows of ``seconds``, and return it.

    Gives up waiting, and says so in the result, after ``limit_s``. The caller sees to it that this
    process has nothing running on the GPU. Raises UnavailableError if there is no counter or it
    does not move.
    """
    check_number("seconds", seconds, most=1e6)
    start = now_ns()
    previous: CounterWindow | None = None
    while True:
        window = _watch_idle(gpu, seconds, now_ns, sleep)
        settled = previous is not None and (
            abs(window.power_w - previous.power_w) <= _SETTLED_RATIO * previous.power_w
        )
        if settled or now_ns() - start >= limit_s * 1e9:
            return IdlePower(
                power_w=window.power_w,
                seconds=window.seconds,
                settled=settled,
                resolution_ratio=window.resolution_ratio,
                sm_clock_mhz=read_sm_clock(gpu),
            )
        previous = window


def measure_energy(
    runner: _core.Runner,
    *,
    gpu: NvmlGpu,
    idle: IdlePower,
    seconds: float = 2.5,
    limit_s: float = 20.0,
    now_ns: Callable[[], int] = _core.now_ns,
) -> Energy:
    """Run ``runner`` for ``seconds``, doubled up to ``limit_s`` until 1 % is resolved.

    Raises:
        UnavailableError: there is no counter, or it hardly moves ("too short").
        RunnerError: the runner failed.
    """
    check_number("seconds", seconds, most=1e6)
    while True:
        points, driven = _run_counted(runner, gpu, seconds, now_ns)
        is_last = 2 * seconds > limit_s
        try:
            window = find_window(points)
        except UnavailableError:
            if is_last:
                raise
        else:
            if is_last or window.resolution_ratio <= _WANTED_RATIO:
                return _make_energy(window, driven, idle)
        seconds *= 2


def compute_energy_tax(rungs: Sequence[tuple[str, Energy]]) -> tuple[EnergyLine, ...]:
    """Lines for labelled rungs given from top to bottom; they sum to the first one's energy."""
    lines = []
    for place, (label, upper) in enumerate(rungs):
        lower_label, lower = rungs[place + 1] if place + 1 < len(rungs) else (None, None)
        below = lower.joules_per_inference if lower else 0.0
        joules = upper.joules_per_inference - below
        uncertain = upper.joules_per_inference * upper.resolution_ratio
        uncertain += below * lower.resolution_ratio if lower else 0.0
        lines.append(
            EnergyLine(
                upper=label,
                lower=lower_label,
                joules=joules,
                joules_above_idle=upper.joules_above_idle
                - (lower.joules_above_idle if lower else 0.0),
                share_ratio=joules / rungs[0][1].joules_per_inference,
                resolved=abs(joules) > uncertain,
            )
        )
    return tuple(lines)


def _run_counted(
    runner: _core.Runner, gpu: NvmlGpu, seconds: float, now_ns: Callable[[], int]
) -> tuple[list[CounterPoint], Drive]:
    points: list[CounterPoint] = []

    def read(done: int, ended: bool) -> None:
        points.append(_read_point(gpu, now_ns, done))

    driven = drive(runner, seconds=seconds, lead_in_s=_LEAD_IN_S, read=read)
    return points, driven


def _make_energy(window: CounterWindow, driven: Drive, idle: IdlePower) -> Energy:
    inside = slice(window.first.rounds, window.last.rounds)
    return Energy(
        mode="latency",
        energy_j=window.energy_j,
        seconds=window.seconds,
        inferences=sum(driven.requests[inside]),
        counter_steps=window.steps,
        resolution_ratio=window.resolution_ratio,
        driven_ratio=sum(driven.round_ns[inside]) / 1e9 / window.seconds,
        idle=idle,
    )


def _watch_idle(
    gpu: NvmlGpu, seconds: float, now_ns: Callable[[], int], sleep: Callable[[float], None]
) -> CounterWindow:
    points = [_read_point(gpu, now_ns)]
    while points[-1].at_ns - points[0].at_ns < seconds * 1e9:
        sleep(_POLL_S)
        points.append(_read_point(gpu, now_ns))
    return find_window(points)


def _read_point(gpu: NvmlGpu, now_ns: Callable[[], int], rounds: int = 0) -> CounterPoint:
    energy_mj = gpu.require("nvmlDeviceGetTotalEnergyConsumption")
    return CounterPoint(at_ns=now_ns(), energy_mj=energy_mj, rounds=rounds)
