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
class SlowCalls(Record):
    """Calls that take far longer than the others, time and again; what such ones are, the core says
    (`csrc/core/slow_calls.h`). Time that threads waited for a CPU is left out.

    Attributes:
        mean_ns: of all samples: what a call costs in the long run.
        share_ratio: of the samples that are slow.
        extra_ns: that a slow one takes above the median of its round, in the mean.
    """

    mean_ns: float
    share_ratio: float
    extra_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(Record):
    """What a measurement says, computed from its samples."""

    values_ns: tuple[float, ...]  # one for each round that counts
    latency_ns: float
    interval_ns: Ends | None
    summary: Summary
    slow_calls: SlowCalls | None = None  # None: no such calls are there for certain


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


def find_slow_calls(
    samples_ns: Sequence[Sequence[int]],
    waited_ns: Sequence[int],
    *,
    confidence: float,
    resamples: int,
    seed: int,
) -> SlowCalls | None:
    """What calls cost that a median does not see, if there are such; None if not, or if nobody can
    tell.

    Args:
        samples_ns: of each round.
        waited_ns: of each round, how long threads waited for a CPU meanwhile.
    """
    found = _core.find_slow_calls(
        samples_ns, waited_ns, confidence=confidence, resamples=resamples, seed=seed
    )
    if found is None:
        return None
    return SlowCalls(mean_ns=found.mean_ns, share_ratio=found.share_ratio, extra_ns=found.extra_ns)


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
