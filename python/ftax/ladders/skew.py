"""What other ranks cost a call: how long it waits for them, and how long communication takes.

After the rounds each rung is run by turns with the other ranks, as it is; with them and a barrier
before each collective, outside of its time; and alone, with collectives that copy what this rank
gives (Note [Collectives without other ranks] in C++). What a call takes longer with the others than
alone is theirs; where the host waits for each collective, that is its time, and no rank runs alone.
A collective that all ranks begin at once takes what communication takes; the rest is waiting for a
rank that is late.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ftax import _core
from ftax.records.record import Count, Name, Record
from ftax.steps.collectives import answered_by
from ftax.timing.candidate import Candidate, Placed
from ftax.timing.interrupts import hold, take
from ftax.timing.measurement import Measurement
from ftax.timing.ranks import Ranks
from ftax.timing.statistics import compute_interval, compute_mean

Ends = tuple[float, float]

_SECONDS, _LEAST, _MOST = 1.0, 5, 20  # rounds
_CALLS = 5  # of a round


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime(Placed, Record):
    """What other ranks cost one rung.

    Attributes:
        calls: of collectives, in one call.
        exposed_ns: by how much they make a call longer, a value a round: what collectives take
            that no other work hides.
        aligned_ns: how long collectives take where all ranks begin each of them at once, one after
            the other.
    """

    runtime: Name
    host: Literal["python", "cpp"]
    calls: Count
    exposed_ns: tuple[float, ...]
    aligned_ns: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a latency, ns, and how far it may be below and above."""

    time_ns: float = 0.0
    down_ns: float = 0.0
    up_ns: float = 0.0

    @classmethod
    def of(cls, time_ns: float, interval_ns: Ends | None) -> Part:
        """One with this interval."""
        low, high = interval_ns or (time_ns, time_ns)
        return cls(time_ns, time_ns - low, high - time_ns)

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
class OtherRanks:
    """What other ranks cost each rung, and what of the first one's cost is waiting."""

    exposed: tuple[Part, ...]
    waiting: Part
    communication: Part

    def subtract(
        self, time_ns: float, interval_ns: Ends | None, upper: int, lower: int
    ) -> tuple[float, Ends | None]:
        """The step from one rung down to another, less what other ranks cost the one more: these
        may have what the step removes."""
        more = self.exposed[upper] - self.exposed[lower]
        if interval_ns is None:
            return time_ns - more.time_ns, None
        step = Part.of(time_ns, interval_ns) - more
        return step.time_ns, step.interval_ns


def find_other_ranks(
    rungs: Sequence[Measurement], found: Sequence[CollectiveTime]
) -> OtherRanks | None:
    """None where they are not known of each rung."""
    times = {item.place: item for item in found}
    if not found or any(rung.place not in times for rung in rungs):
        return None
    exposed = tuple(_estimate(times[rung.place].exposed_ns, rung) for rung in rungs)
    aligned = _estimate(times[rungs[-1].place].aligned_ns, rungs[-1])
    if exposed[0].time_ns < aligned.time_ns:  # other work hides the rest
        return OtherRanks(exposed, waiting=Part(), communication=exposed[0])
    return OtherRanks(exposed, waiting=exposed[0] - aligned, communication=aligned)


def _estimate(values_ns: tuple[float, ...], rung: Measurement) -> Part:
    mean_ns = compute_mean(values_ns)
    ends = compute_interval(
        values_ns, confidence=rung.confidence, resamples=rung.resamples, seed=rung.seed
    )
    return Part.of(mean_ns, ends)


def time_collectives(
    item: Candidate, latency_ns: float, ranks: Ranks, *, are_waited_for: bool
) -> CollectiveTime:
    """Of a rung of this latency, for about a second. Each rank does so at the same time.
    ``are_waited_for``: the host waits for each collective where it begins it.

    Raises RunnerError where another rank has left, and KeyboardInterrupt on all of them after a
    Ctrl-C on one.
    """
    ways = ("timed", "aligned") if are_waited_for else ("together", "alone", "aligned")
    longest_ns = max(1, ranks.agree(int(latency_ns)))
    rounds = int(_SECONDS * 1e9 / (len(ways) * _CALLS * longest_ns))
    rounds = min(_MOST, max(_LEAST, rounds))
    exposed, aligned = [], []
    calls = 0
    with hold():  # a Ctrl-C in the middle of a request would have the others wait
        for place in range(rounds + 1):  # of the first nothing is kept
            if ranks.agree(int(take())):
                raise KeyboardInterrupt
            times = {}
            for way in ways if place % 2 else reversed(ways):
                found = [_time_call(item, way, ranks) for _ in range(_CALLS)]
                times[way] = _Times(*map(statistics.median, zip(*found, strict=True)))
            calls = int(times["aligned"].calls)
            if place > 0:
                aligned.append(times["aligned"].collectives_ns)
                exposed.append(
                    times["timed"].collectives_ns
                    if are_waited_for
                    else times["together"].latency_ns - times["alone"].latency_ns
                )
    return CollectiveTime(
        runtime=item.runtime,
        host=item.host,
        calls=calls,
        exposed_ns=tuple(exposed),
        aligned_ns=tuple(aligned),
    )


class _Times(NamedTuple):
    """Of a request, and how long it was in how many collectives that were timed, ns."""

    latency_ns: float
    collectives_ns: float
    calls: int


def _time_call(item: Candidate, way: str, ranks: Ranks) -> _Times:
    answer = None if way == "together" else getattr(_core.Answer, way)
    with answered_by(answer) as collectives:
        assert collectives is not None  # since the ranks have met
        collectives.take_time()
        latency_ns = item.runner.run_together(ranks.agree)
        return _Times(latency_ns, *collectives.take_time())
