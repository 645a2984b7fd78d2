"""How long a call is in its collectives, and how much of that only because other ranks are late.

After the rounds each rung is run in two ways by turns: as it is, and with a barrier before each
collective, outside of its time. A collective that all ranks begin at once takes what communication
takes; what it takes longer without the barrier, it waits for other ranks (Note [Collectives without
other ranks] in C++).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ftax import _core
from ftax.records.record import Count, Name, Record
from ftax.steps.collectives import answered_by
from ftax.timing.candidate import Candidate, Placed
from ftax.timing.measurement import Measurement
from ftax.timing.ranks import Ranks
from ftax.timing.statistics import compute_interval, compute_mean

Ends = tuple[float, float]

_SECONDS, _LEAST, _MOST = 1.0, 5, 20  # rounds
_CALLS = 5  # of a round


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime(Placed, Record):
    """Time in the collectives of one rung.

    Attributes:
        calls: of collectives, in one call.
        taken_ns: of a call, a value a round.
        aligned_ns: the same where all ranks begin each collective at once.
        overlaps: whether other work may go on meanwhile, so that they are no part of the latency.
    """

    runtime: Name
    host: Literal["python", "cpp"]
    calls: Count
    taken_ns: tuple[float, ...]
    aligned_ns: tuple[float, ...]
    overlaps: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a latency, ns, and how far it may be below and above."""

    time_ns: float = 0.0
    down_ns: float = 0.0
    up_ns: float = 0.0

    def __sub__(self, other: Part) -> Part:
        """Of parts that were measured apart: errors add as squares."""
        return Part(
            self.time_ns - other.time_ns,
            math.hypot(self.down_ns, other.up_ns),
            math.hypot(self.up_ns, other.down_ns),
        )

    @property
    def interval_ns(self) -> Ends:
        """Its ends."""
        return self.time_ns - self.down_ns, self.time_ns + self.up_ns


@dataclass(frozen=True, slots=True)
class Split:
    """What of a rung's latency is waiting for other ranks, and what is communication."""

    waiting: Part
    communication: Part


def split_latencies(
    rungs: Sequence[Measurement], found: Sequence[CollectiveTime]
) -> list[Split] | None:
    """Of each rung; None where that of one is not known, or collectives overlap with other work."""
    times = {item.place: item for item in found if not item.overlaps}
    if not found or any(rung.place not in times for rung in rungs):
        return None
    return [_split(times[rung.place], rung) for rung in rungs]


def _split(found: CollectiveTime, rung: Measurement) -> Split:
    aligned = _estimate(found.aligned_ns, rung)
    return Split(waiting=_estimate(found.taken_ns, rung) - aligned, communication=aligned)


def _estimate(values_ns: tuple[float, ...], rung: Measurement) -> Part:
    mean_ns = compute_mean(values_ns)
    ends = compute_interval(
        values_ns, confidence=rung.confidence, resamples=rung.resamples, seed=rung.seed
    )
    low, high = ends or (mean_ns, mean_ns)
    return Part(mean_ns, mean_ns - low, high - mean_ns)


def time_collectives(
    item: Candidate, latency_ns: float, ranks: Ranks, *, overlaps: bool = False
) -> CollectiveTime:
    """Of a rung of this latency, for about a second. Each rank does so at the same time.

    Raises RunnerError where another rank has left.
    """
    longest_ns = max(1, ranks.agree(int(latency_ns)))
    rounds = int(_SECONDS * 1e9 / (2 * _CALLS * longest_ns))
    rounds = min(_MOST, max(_LEAST, rounds))
    values: dict[str, list[float]] = {"timed": [], "aligned": []}
    calls = 0
    for place in range(rounds + 1):  # of the first nothing is kept
        for way in ("timed", "aligned") if place % 2 else ("aligned", "timed"):
            found = [_time_call(item, way, ranks) for _ in range(_CALLS)]
            calls = found[-1][1]
            if place > 0:
                values[way].append(statistics.median(time_ns for time_ns, _ in found))
    return CollectiveTime(
        runtime=item.runtime,
        host=item.host,
        calls=calls,
        taken_ns=tuple(values["timed"]),
        aligned_ns=tuple(values["aligned"]),
        overlaps=overlaps,
    )


def _time_call(item: Candidate, way: str, ranks: Ranks) -> tuple[int, int]:
    """How long one request is in collectives, ns, and in how many."""
    with answered_by(getattr(_core.Answer, way)) as collectives:
        assert collectives is not None  # since the ranks have met
        collectives.take_time()
        item.runner.run_together(ranks.agree)
        return collectives.take_time()


def subtract_waiting(
    time_ns: float, interval_ns: Ends | None, splits: Sequence[Split], upper: int, lower: int
) -> tuple[float, Ends | None]:
    """The step from one rung down to another, less the time that the one waits longer for other
    ranks: these may have what the step removes."""
    waiting = splits[upper].waiting - splits[lower].waiting
    if interval_ns is None:
        return time_ns - waiting.time_ns, None
    step = Part(time_ns, time_ns - interval_ns[0], interval_ns[1] - time_ns) - waiting
    return step.time_ns, step.interval_ns
