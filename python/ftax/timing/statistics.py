"""The statistics of a measurement as records; the arithmetic is the C++ core's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ftax import _core
from ftax.records.record import Count, Ends, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Record):
    """Samples, described; all in ns but for the count."""

    count: Count
    min_ns: float
    max_ns: float
    mean_ns: float
    p50_ns: float
    p90_ns: float
    p99_ns: float
    mad_ns: float  # median absolute deviation from the median, unscaled


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Record):
    """What a measurement says, computed from its samples."""

    values_ns: tuple[float, ...]  # one for each round that counts
    latency_ns: float
    interval_ns: Ends | None
    summary: Summary


def compute_mean(values_ns: Sequence[float]) -> float:
    """Return the mean of the values of rounds.

    The one sum that is done here, and exactly rounded: differences of means have to telescope.
    """
    return math.fsum(values_ns) / len(values_ns)


def compute_interval(
    values_ns: Sequence[float], *, confidence: float, resamples: int, seed: int
) -> tuple[float, float] | None:
    """Return the interval of the mean from resampled rounds; None for fewer than two of them."""
    if len(values_ns) < 2:
        return None
    (interval,) = _core.compute_joint_intervals(
        [[value] for value in values_ns],
        [[1.0]],
        confidence=confidence,
        resamples=resamples,
        seed=seed,
    )
    return interval.low, interval.high


def summarize(samples_ns: Sequence[int]) -> Summary:
    """Describe samples."""
    summary = _core.summarize(samples_ns)
    return Summary(
        count=summary.count,
        min_ns=summary.min,
        max_ns=summary.max,
        mean_ns=summary.mean,
        p50_ns=summary.p50,
        p90_ns=summary.p90,
        p99_ns=summary.p99,
        mad_ns=summary.mad,
    )
