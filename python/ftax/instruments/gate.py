"""Issue time and device time of one request, apart.

A kernel that waits for a word of host memory holds the stream closed while the host issues the
request, and is then let go. What the host needed to issue everything and what the device needed to
do it are two numbers that overlap in any ordinary measurement. A repetition in which the gate
opened by itself is kept and labelled, and counts in no median.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from ftax import _core
from ftax.errors import (
    InvalidArgumentError,
    UnavailableError,
    attempt,
    describe,
)
from ftax.records.fields import Rule
from ftax.records.record import Computed, Count, PositiveInt, Record
from ftax.timing.candidate import Candidate
from ftax.timing.session import quiet

WATCHDOG_MS = 2000

Level = Annotated[float, Rule("a number from 0 to 1", lambda value: 0 <= value <= 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MedianTime(Record):
    """A median with an interval that assumes no distribution: two order statistics."""

    median_ns: float
    low_ns: float
    high_ns: float
    confidence: Level  # of the interval, as attained: few repetitions attain less than 0.95

    @classmethod
    def compute(cls, samples_ns: Sequence[int]) -> Self:
        """Describe ``samples_ns``, of which there is at least one."""
        found = _core.compute_median_interval(samples_ns)
        return cls(
            median_ns=found.median,
            low_ns=found.interval.low,
            high_ns=found.interval.high,
            confidence=found.confidence,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedMedians(Record):
    """What the repetitions that were not cut say; None where there are none."""

    issue_ns: MedianTime | None  # host time to issue one request
    device_ns: MedianTime | None  # from the first work of a request to the end of its last


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedRepetition(Record):
    """One request behind the gate. If ``cut``, the gate opened by itself and no time means
    anything."""

    issue_ns: Count
    device_span_ns: Count
    drain_ns: Count  # from opening the gate until the host knew that the work had ended
    cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated(Computed):
    """The repetitions of one runtime, with why there are cut ones, or none at all.

    The medians are computed from the repetitions, also when they are read from a file.
    """

    computed: ClassVar[tuple[str, str]] = ("medians", "repetitions")

    repetitions: tuple[GatedRepetition, ...]
    watchdog_ms: PositiveInt
    launches: Count | None = None  # of one request, where it was known
    reason: str | None = None

    def check(self) -> None:
        """Raise InvalidArgumentError if fields contradict each other."""
        complete = bool(self.repetitions) and not any(item.cut for item in self.repetitions)
        if complete == (self.reason is not None) or self.reason == "":
            raise InvalidArgumentError(
                f"Gated.reason is {self.reason!r} with {len(self.repetitions)} repetitions, "
                f"{sum(item.cut for item in self.repetitions)} of them cut; it has to say why "
                "where some were cut or there are none, and only there"
            )

    @property
    def kept(self) -> tuple[GatedRepetition, ...]:
        """The repetitions that were not cut."""
        return tuple(item for item in self.repetitions if not item.cut)

    @property
    def cut(self) -> bool:
        """Whether there is no number to use: no repetition was left whole."""
        return not self.kept

    @property
    def medians(self) -> GatedMedians:
        """The numbers to use."""
        if self.cut:
            return GatedMedians(issue_ns=None, device_ns=None)
        return GatedMedians(
            issue_ns=MedianTime.compute([item.issue_ns for item in self.kept]),
            device_ns=MedianTime.compute([item.device_span_ns for item in self.kept]),
        )

    @property
    def issue_ns(self) -> MedianTime | None:
        """Host time to issue one request; None if ``cut``."""
        return self.medians.issue_ns

    @property
    def device_ns(self) -> MedianTime | None:
        """Device time of one request, by events on the device; None if ``cut``."""
        return self.medians.device_ns


def try_gate(prepared: Candidate, *, repetitions: int, launches: int | None = None) -> Gated:
    """`measure_gate`, but what fails has no repetition, and the reason stands in their place."""
    runner = prepared.runner
    found = attempt(lambda: measure_gate(runner, repetitions=repetitions, launches=launches))
    if isinstance(found, Gated):
        return found
    return Gated(repetitions=(), watchdog_ms=WATCHDOG_MS, launches=launches, reason=describe(found))


def measure_gate(
    runner: _core.Runner,
    *,
    repetitions: int = 20,
    watchdog_ms: int = WATCHDOG_MS,
    launches: int | None = None,
) -> Gated:
    """Separate issue time and device time of ``runner``, which runs on torch's current stream.

    Pass ``launches`` if known: a request that does not fit in the launch queue is then refused
    with the reason, instead of waiting for the watchdog. A request that waits for the device
    inside, such as one that reads a result, cannot be measured so; it costs ``watchdog_ms`` once,
    and the reason says it. Not to be used under a profiler.

    Raises UnavailableError without a CUDA device, and RunnerError if the runtime fails.
    """
    if not hasattr(_core, "measure_gated"):
        raise UnavailableError(
            "issue time and device time need the CUDA parts of ftax, which this build lacks; "
            "reinstall ftax where a CUDA torch and nvcc are"
        )
    with quiet():
        result = _core.measure_gated(
            runner, repetitions=repetitions, watchdog_ms=watchdog_ms, launches=launches
        )
    return Gated(
        repetitions=tuple(
            GatedRepetition(
                issue_ns=item.issue_ns,
                device_span_ns=item.device_span_ns,
                drain_ns=item.drain_ns,
                cut=item.cut,
            )
            for item in result.repetitions
        ),
        watchdog_ms=watchdog_ms,
        launches=launches,
        reason=result.reason or None,
    )
