"""Differences of latencies from the same rounds, with intervals, and the rounds that a narrower
interval needs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ftax import _core
from ftax.timing.measurement import Measurement
from ftax.timing.trust import say_few_rounds


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
