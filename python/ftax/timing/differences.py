"""Differences of latencies from the same rounds, with intervals, and the rounds that a narrower
interval needs; and the difference that is a result: one runtime called from Python and from C++."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from ftax import _core
from ftax.errors import InvalidArgumentError
from ftax.records.result import Result
from ftax.timing.measurement import Measurement
from ftax.timing.trust import NOT_RESOLVED, say_few_rounds
from ftax.timing.units import format_interval, format_time


def find_doubt_of(measurements: Sequence[Measurement]) -> str:
    """Of the first of them that is in doubt, whose latency it is and why, or that their rounds are
    too few to tell them apart; "" if they are not."""
    for item in measurements:
        if item.doubt:
            return f"{item.place}: {item.doubt}"
    return say_few_rounds(min(len(item.values_ns) for item in measurements))


def compute_difference(
    measurements: Sequence[Measurement], upper: int, lower: int
) -> tuple[float, tuple[float, float] | None]:
    """Latency of one measurement minus another's of the same rounds, with its interval (ns)."""
    weights = make_unit(len(measurements), upper, lower)
    (interval,) = compute_intervals(measurements, [weights])
    return measurements[upper].latency_ns - measurements[lower].latency_ns, interval


def compute_intervals(
    measurements: Sequence[Measurement], contrasts: Sequence[Sequence[float]]
) -> list[tuple[float, float] | None]:
    """Intervals of weighted sums of latencies, rounds resampled jointly; None below two rounds."""
    table = [list(row) for row in zip(*(m.values_ns for m in measurements), strict=True)]
    if len(table) < 2:
        return [None] * len(contrasts)
    first = measurements[0]
    intervals = _core.compute_joint_intervals(
        table,
        [list(weights) for weights in contrasts],
        confidence=first.confidence,
        resamples=first.resamples,
        seed=first.seed,
    )
    return [(interval.low, interval.high) for interval in intervals]


def make_unit(size: int, plus: int, minus: int) -> list[float]:
    """The contrast of two of ``size`` latencies; a ``minus`` of ``size`` is of none."""
    weights = [0.0] * size
    weights[plus] = 1.0
    if minus < size:
        weights[minus] = -1.0
    return weights


def estimate_rounds(
    rounds: int, interval_ns: tuple[float, float] | None, wanted_ns: float
) -> int | None:
    """About how many rounds give an interval of the half-width ``wanted_ns``, where ``rounds`` gave
    this one: intervals shrink with the square root of the rounds. None: nobody can say, or nobody
    would wait for as many."""
    if interval_ns is None or wanted_ns == 0.0 or interval_ns[0] == interval_ns[1]:
        return None
    half_width_ns = (interval_ns[1] - interval_ns[0]) / 2
    needed = rounds * (half_width_ns / wanted_ns) ** 2
    return max(1, math.ceil(needed)) if needed < 1e6 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostComparison(Result):
    """A runtime driven from Python and from C++; unpacks as ``python, cpp``."""

    kind: ClassVar[str] = "host-comparison"

    python: Measurement
    cpp: Measurement

    def check(self) -> None:
        """Raise InvalidArgumentError unless both are of one runtime and of the same rounds."""
        cells = [(item.cell.model, item.cell.runtime, item.mode) for item in self]
        hosts = [item.cell.host for item in self]
        rounds = [len(item.samples_ns) for item in self]
        if cells[0] != cells[1] or hosts != ["python", "cpp"] or rounds[0] != rounds[1]:
            raise InvalidArgumentError(
                f"these are {cells[0]} with host {hosts[0]} and {rounds[0]} rounds, and {cells[1]} "
                f"with host {hosts[1]} and {rounds[1]}; a comparison of hosts needs python and cpp "
                "of one runtime, from the same rounds"
            )

    def __iter__(self) -> Iterator[Measurement]:
        yield self.python
        yield self.cpp

    def with_label(self, label: str) -> Self:
        """The same, both measurements under another label."""
        return replace(self, python=self.python.with_label(label), cpp=self.cpp.with_label(label))

    @property
    def overhead_ns(self) -> float:
        """Latency called from Python minus latency called from C++."""
        return compute_difference((self.python, self.cpp), 0, 1)[0]

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """Interval of the overhead, rounds paired; None below two rounds."""
        return compute_difference((self.python, self.cpp), 0, 1)[1]

    def describe(self) -> str:
        """The overhead as a sentence."""
        cell, interval = self.python.cell, self.interval_ns
        what = f"calling {cell.runtime} on {cell.model} from Python"
        total = format_time(self.python.latency_ns)
        if doubt := find_doubt_of([*self]):
            return f"The cost of {what} is {NOT_RESOLVED}: {doubt}."
        if interval is None or interval[0] <= 0 <= interval[1]:
            return f"The cost of {what} is not resolved: {format_interval(interval)} of {total}."
        share = self.overhead_ns / self.python.latency_ns
        if self.overhead_ns < 0:
            slower = f"{format_time(-self.overhead_ns)} ({-share:.1%})"
            return f"C++ is slower than {what}, by {slower}."
        return (
            f"{what[0].upper()}{what[1:]} costs {format_time(self.overhead_ns)} of {total} "
            f"({share:.1%}; {format_interval(interval)})."
        )
