"""The weighted mean of measurements that were taken in the same rounds.

The surprising choice: the mean is taken of each round. So it has rounds of its own, and whatever is
computed of a measurement's rounds (a difference, its interval from rounds resampled jointly) is
computed of these by the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ftax.errors import InvalidArgumentError
from ftax.timing.candidate import Place
from ftax.timing.cell import Cell
from ftax.timing.measurement import Measurement
from ftax.timing.statistics import compute_interval, compute_mean


class Timed(Protocol):
    """What has rounds, of which a latency is computed: a `Measurement`, or the mean of some."""

    @property
    def place(self) -> Place:
        """The runtime, and who drove it."""

    @property
    def cell(self) -> Cell:
        """What was measured; of several the first."""

    @property
    def values_ns(self) -> tuple[float, ...]:
        """One number for each round that counts."""

    @property
    def latency_ns(self) -> float:
        """Their mean."""

    @property
    def long_run_ns(self) -> float:
        """What a call costs in the long run; other than the latency where some are slow."""

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """Its interval; None for a single round."""

    @property
    def doubt(self) -> str:
        """Why the latency is not to go by; "" if it is."""

    @property
    def work_problem(self) -> str:
        """Why the calls were not all the same work; "" if that was not seen."""

    @property
    def confidence(self) -> float:
        """Of the interval."""

    @property
    def resamples(self) -> int:
        """Of the interval."""

    @property
    def seed(self) -> int:
        """Of the resampling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """``shares`` sum to 1; ``names`` are of the parts, for what is said of one of them.

    Raises InvalidArgumentError for measurements of other rounds or of other places.
    """

    parts: tuple[Measurement, ...]
    shares: tuple[float, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        rounds = {
            (part.process.session, len(part.samples_ns), part.counted_rounds) for part in self.parts
        }
        places = sorted({str(part.place) for part in self.parts})
        if len(rounds) != 1 or len(places) != 1:
            raise InvalidArgumentError(
                f"a mean is asked for of {', '.join(places)} in {len(rounds)} sets of rounds; it "
                "needs one place, measured in the same rounds"
            )

    @property
    def place(self) -> Place:
        """See `Timed`."""
        return self.parts[0].place

    @property
    def cell(self) -> Cell:
        """The first part's."""
        return self.parts[0].cell

    @property
    def values_ns(self) -> tuple[float, ...]:
        """See `Timed`."""
        rounds = zip(*(part.values_ns for part in self.parts), strict=True)
        return tuple(weigh(self.shares, values) for values in rounds)

    @property
    def latency_ns(self) -> float:
        """See `Timed`."""
        return compute_mean(self.values_ns)

    @property
    def long_run_ns(self) -> float:
        """See `Timed`."""
        means_ns = [part.long_run_ns for part in self.parts]
        is_latency = means_ns == [part.latency_ns for part in self.parts]
        return self.latency_ns if is_latency else weigh(self.shares, means_ns)

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """See `Timed`."""
        return compute_interval(
            self.values_ns, confidence=self.confidence, resamples=self.resamples, seed=self.seed
        )

    @property
    def doubt(self) -> str:
        """Of the first part that is in doubt."""
        return name_first(self.names, (part.doubt for part in self.parts))

    @property
    def work_problem(self) -> str:
        """Of the first part whose calls were not all the same work."""
        return name_first(self.names, (part.work_problem for part in self.parts))

    @property
    def confidence(self) -> float:
        """See `Timed`."""
        return self.parts[0].confidence

    @property
    def resamples(self) -> int:
        """See `Timed`."""
        return self.parts[0].resamples

    @property
    def seed(self) -> int:
        """See `Timed`."""
        return self.parts[0].seed


def weigh(shares: Sequence[float], values: Sequence[float]) -> float:
    """The weighted mean."""
    return math.fsum(share * value for share, value in zip(shares, values, strict=True))


def name_first(names: Sequence[str], texts: Iterable[str]) -> str:
    """The first text that is not empty, after the name of its part; "" where all are."""
    named = (f"{name}: {text}" for name, text in zip(names, texts, strict=True) if text)
    return next(named, "")
