"""Watches a GPU while runners are timed, and says what of it disturbed them.

Nothing polls: the clocks are read inside the progress callback, which the timed loop calls between
rounds, and at most every 200 ms, so that no reading ever falls into a sample.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from ftax import _core
from ftax.errors import UnavailableError
from ftax.machines.gpu import (
    IDLE,
    SLOWING,
    GpuCondition,
    read_condition,
    read_sm_clock,
    read_throttle,
)
from ftax.machines.nvml import NvmlGpu, open_gpu
from ftax.records.record import Count, Name, Record

_FALL_RATIO = 0.05
_Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading(Record):
    """The clock between two rounds. None: the device or driver does not say."""

    at_ns: Count  # CLOCK_MONOTONIC
    sm_clock_mhz: Count | None
    throttle: tuple[Name, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConditions(Record):
    """What a watch saw: before, between and after rounds, or why there is nothing."""

    before: GpuCondition | None
    during: tuple[ClockReading, ...]
    after: GpuCondition | None
    reason: str | None


class GpuWatch:
    """Readings before, between and after rounds, those between at most one every ``interval_ms``.
    What could not be read, or not any more, is missing, with the ``reason``."""

    def __init__(
        self,
        gpu: NvmlGpu | None = None,
        *,
        interval_ms: float = 200.0,
        now_ns: Callable[[], int] = _core.now_ns,
    ) -> None:
        self.before: GpuCondition | None = None
        self.readings: list[ClockReading] = []
        self.after: GpuCondition | None = None
        self.reason: str | None = None
        self._gpu = gpu
        self._interval_ns = int(interval_ms * 1e6)
        self._now_ns = now_ns
        self._due_ns = 0

    def wrap(self, progress: _Progress | None) -> _Progress | None:
        """A progress callback that takes a reading if one is due, then calls ``progress``."""
        if self._gpu is None:
            return progress

        def report(phase: str, done: int, total: int) -> None:
            if phase == "round":
                self.read_if_due()
            if progress is not None:
                progress(phase, done, total)

        return report

    def read_if_due(self) -> None:
        """Take a reading unless the last one is too recent. A GPU that fails ends them."""
        start = self._now_ns()
        if self._gpu is None or self.reason is not None or start < self._due_ns:
            return
        try:
            clock, throttle = read_sm_clock(self._gpu), read_throttle(self._gpu)
        except UnavailableError as error:  # must not end the measurement that it only watches
            self.reason = str(error)
            return
        self.readings.append(ClockReading(at_ns=start, sm_clock_mhz=clock, throttle=throttle))
        self._due_ns = self._now_ns() + self._interval_ns

    def to_record(self) -> GpuConditions | None:
        """What to store; None where nothing was to be watched."""
        if self._gpu is None and self.reason is None:
            return None
        return GpuConditions(
            before=self.before, during=tuple(self.readings), after=self.after, reason=self.reason
        )

    def judge(self) -> tuple[str, ...]:
        """What disturbed the measurement; after the end of the watch."""
        if self.before is None or self.after is None:
            return ()
        return judge_conditions(self.before, self.readings, self.after)


@contextmanager
def watch_gpu(device: str, *, nvml: Any = None) -> Iterator[GpuWatch]:
    """Watch the GPU that torch calls ``device`` for the length of the block; nothing for "cpu".

    Never raises for want of a GPU or of NVML: a watch that sees nothing says why in ``reason``.
    """
    watch = GpuWatch()
    with ExitStack() as stack:
        if device != "cpu":
            try:
                gpu = stack.enter_context(open_gpu(device, nvml=nvml))
                before = read_condition(gpu)
                watch = GpuWatch(gpu)
                watch.before = before
            except UnavailableError as error:
                watch.reason = str(error)
        yield watch
        if watch.before is None:
            return
        try:
            watch.after = read_condition(gpu)
        except UnavailableError as error:
            watch.reason = str(error)


def judge_conditions(
    before: GpuCondition, during: Sequence[ClockReading], after: GpuCondition
) -> tuple[str, ...]:
    """Warnings for a reader of the measurement; none if nothing is known to have disturbed it.

    The clock before the rounds is not compared: an idle GPU runs slowly, and one that is hardly
    busy runs faster than it can under load.
    """
    warnings = [_judge_clock([*during, after]), _judge_throttle([*during, after])]
    return tuple(text for text in (*warnings, _judge_sharing(before, after)) if text is not None)


def _judge_clock(readings: Sequence[ClockReading | GpuCondition]) -> str | None:
    peak, lowest_ratio, worst = 0, 1.0, (0, 0)
    for reading in readings:
        clock = reading.sm_clock_mhz
        if not clock or (reading.throttle is not None and IDLE in reading.throttle):
            continue
        peak = max(peak, clock)
        if clock / peak < lowest_ratio:
            lowest_ratio, worst = clock / peak, (peak, clock)
    if lowest_ratio >= 1 - _FALL_RATIO:
        return None
    return (
        f"the SM clock fell from {worst[0]} to {worst[1]} MHz ({lowest_ratio - 1:.0%}) while "
        "measuring: rounds before and after the fall ran at different speeds"
    )


def _judge_throttle(readings: Sequence[ClockReading | GpuCondition]) -> str | None:
    known = [reading.throttle for reading in readings if reading.throttle is not None]
    slowed = [set(reasons) & set(SLOWING) for reasons in known]
    hit = [reasons for reasons in slowed if reasons]
    if not hit:
        return None
    names = ", ".join(name for name in SLOWING if any(name in reasons for reasons in hit))
    return (
        f"the GPU was held back ({names}) in {len(hit)} of {len(known)} readings: its speed is "
        "that of its power limit or cooling"
    )


def _judge_sharing(before: GpuCondition, after: GpuCondition) -> str | None:
    sharing = max((before, after), key=lambda condition: condition.other_processes or 0)
    count = sharing.other_processes or 0
    if count == 0:
        return None
    held = sharing.other_memory_bytes
    memory = "" if held is None else f" and hold {held / 2**30:.1f} GiB"
    return (
        f"{count} other process(es) use this GPU{memory}: they may run kernels between ours, and "
        "their energy and utilisation are counted as ours"
    )
