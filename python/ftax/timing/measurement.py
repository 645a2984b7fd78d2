"""A measurement of one cell: the raw samples, how they were taken, and where.

Statistics are stored beside the samples and never believed (`ftax.records.record`). Rounds in
which the host was disturbed are stored like any, and count in no statistic where enough others
are left.
"""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from ftax import _core
from ftax.errors import InvalidArgumentError
from ftax.machines.environment import Environment
from ftax.machines.gpu_watch import GpuConditions
from ftax.machines.host import Condition
from ftax.records.fields import FrozenMap, Rule
from ftax.records.record import Computed, Count, PositiveInt, Record
from ftax.records.result import Result
from ftax.timing.call_inputs import CallInput
from ftax.timing.candidate import Place
from ftax.timing.cell import Cell
from ftax.timing.checks import Checks
from ftax.timing.statistics import (
    SlowCalls,
    Statistics,
    Summary,
    compute_interval,
    compute_mean,
    find_slow_calls,
    summarize,
)
from ftax.timing.trust import NOT_RESOLVED, find_doubt_of_mean
from ftax.timing.units import format_interval, format_latency, format_time

QUEUED = "queued_ratios"  # the check that has `Measurement.queued_ratio` of each round
WAITED = "waited_ns"  # the check that has how long threads waited for a CPU in each round
FAULTS = "page_faults"  # the check that has how many pages were touched first in each round
SYSTEM = "system_ns"  # the check that has the time in the kernel in each round, of all threads
TURNS = "rounds_a_turn"  # the check by which a measurement says that it took turns

Nanoseconds = Annotated[
    int, Rule("a time in ns, 0 <= ns < 2**63", lambda value: 0 <= value < 2**63)
]
Confidence = Annotated[float, Rule("a number between 0 and 1", lambda value: 0 < value < 1)]
SessionId = Annotated[
    str,
    Rule(
        "16 lower-case hexadecimal digits",
        lambda text: len(text) == 16 and set(text) <= set("0123456789abcdef"),
    ),
]


_FEW_FAULTS = 1.0  # a call: with fewer, system time is not that of memory
_MUCH_SYSTEM = 0.05  # of the latency


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUse:
    """Of one call, in the mean of the samples that count: pages of memory that were touched for
    the first time, and CPU time in the kernel, of all threads, ns."""

    page_faults: float
    system_ns: float


def make_session_id() -> str:
    """Return a random identity for one benchmark session, which may span several processes."""
    return secrets.token_hex(8)


def describe_doubts(measurements: Sequence["Measurement"]) -> list[str]:
    """A sentence for each doubt: whose latencies are not to go by, and why."""
    found: dict[str, list[str]] = {}
    for item in measurements:
        if doubt := item.doubt:
            found.setdefault(doubt, []).append(str(item.place))
    return [
        f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {NOT_RESOLVED}: {doubt}"
        for doubt, names in found.items()
    ]


def describe_slow_calls(measurements: Sequence["Measurement"]) -> list[str]:
    """A sentence for each of them that has calls which its latency does not show."""
    return [
        f"{item.place}: {_describe(slow, item)}"
        for item in measurements
        if (slow := item.slow_calls) is not None
    ]


def describe_page_faults(measurements: Sequence["Measurement"]) -> list[str]:
    """A sentence for those that give memory back and take it again for much of their time."""
    found = [
        (item, use)
        for item in measurements
        if (use := item.kernel_use) is not None
        and use.page_faults >= _FEW_FAULTS
        and use.system_ns >= _MUCH_SYSTEM * item.latency_ns
    ]
    if not found:
        return []
    each = ", ".join(
        f"{use.system_ns / item.latency_ns:.0%} of {item.place} ({use.page_faults:,.0f} a call)"
        for item, use in found
    )
    return [
        f"page faults take {each}: memory goes back to the operating system and is taken again. To "
        "keep it, start Python with MALLOC_TRIM_THRESHOLD_=1073741824 "
        "MALLOC_MMAP_THRESHOLD_=33554432 in its environment"
    ]


def _describe(slow: SlowCalls, item: "Measurement") -> str:
    what = "call" if item.burst == 1 else f"burst of {item.burst:,}"
    often = f"about 1 {what} in {round(1 / slow.share_ratio):,}"
    return (
        f"mean {format_time(slow.mean_ns)}: {often} takes "
        f"{format_time(slow.extra_ns * item.burst)} more; its latency, "
        f"{format_time(item.latency_ns)}, is that of the others"
    )


def _read_disturbed(checks: Mapping[str, object]) -> tuple[int, ...]:
    found = checks.get("disturbed_rounds", ())
    if not isinstance(found, Sequence) or not all(isinstance(item, int) for item in found):
        raise InvalidArgumentError(
            f"Measurement.checks['disturbed_rounds'] is {found!r}; it has to be a list of numbers "
            "of rounds"
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord(Record):
    """Which process measured; two processes of a session are independent, their rounds are not."""

    pid: PositiveInt
    session: SessionId
    index: Count  # of the process in its session

    @classmethod
    def current(cls, *, session: str, index: int = 0) -> Self:
        """Describe the calling process."""
        return cls(pid=os.getpid(), session=session, index=index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Result, Computed):
    """The rounds of one cell."""

    kind: ClassVar[str] = "measurement"
    computed: ClassVar[tuple[str, str]] = ("statistics", "samples")

    cell: Cell
    inputs: tuple[CallInput, ...] = ()  # of a request; () where it has none, or nobody knows
    label: str = ""  # what the user calls it: "before", "with flash attention"
    mode: Literal["latency", "throughput"]
    samples_ns: tuple[tuple[Nanoseconds, ...], ...]  # [round][sample], the dropped ones included
    dropped_per_round: Count  # first samples of a round that no statistic counts
    burst: PositiveInt = 1  # requests behind one sample, which is the time of each of them
    seed: Count  # of the order of the rounds and of the resampling
    # Which rounds statistics count: those in which the host was not disturbed, where enough of them
    # are left, or all.
    counted: Literal["quiet", "all"] = "all"
    stop_reason: Literal[
        "precise", "max-rounds", "time-limit", "interrupted", "fixed-rounds", "failed"
    ]
    confidence: Confidence = 0.95  # of the interval
    resamples: Annotated[
        int, Rule("an integer from 100 to 1000000", lambda value: 100 <= value <= 1_000_000)
    ] = 2000
    environment: Environment
    conditions: tuple[Condition, ...] = ()  # of the machine: before and after
    gpu: GpuConditions | None = None  # of the GPU: before, between and after rounds
    process: ProcessRecord
    checks: Mapping[str, object] = field(default_factory=lambda: FrozenMap({}))
    preparation: Mapping[str, object] = field(default_factory=lambda: FrozenMap({}))
    warnings: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise InvalidArgumentError if fields contradict each other."""
        rounds = len(self.samples_ns)
        shortest = min((len(samples) for samples in self.samples_ns), default=0)
        if shortest <= self.dropped_per_round:
            raise InvalidArgumentError(
                f"Measurement.samples_ns has {rounds} rounds, the shortest of {shortest} samples, "
                f"of which {self.dropped_per_round} are dropped; it has to have at least one round "
                "and a sample left in each"
            )
        if self.mode == "latency" and self.burst != 1:
            raise InvalidArgumentError(
                f"Measurement.burst is {self.burst} in mode 'latency', where a sample is one "
                "request; it has to be 1"
            )
        _read_disturbed(self.checks)

    @property
    def place(self) -> Place:
        """The runtime, and who drove it."""
        return self.cell.place

    def describe(self) -> str:
        """Its cell, latency, interval and rounds, in a line."""
        name = f"{self.label}: " if self.label else ""
        return (
            f"{name}{self.cell.label()}: {format_measured(self)} "
            f"({format_interval(self.interval_ns)}), {format_rounds(self)} rounds"
        )

    def with_label(self, label: str) -> Self:
        """The same under another label."""
        return replace(self, label=label)

    def with_turns(self, rounds: int) -> Self:
        """The same, of a process that took turns of so many rounds."""
        return replace(self, checks={**self.checks, TURNS: rounds})

    @property
    def disturbed_rounds(self) -> tuple[int, ...]:
        """The rounds in which a probe of the host met a neighbour, or time was stolen."""
        return _read_disturbed(self.checks)

    @property
    def rounds_a_turn(self) -> int | None:
        """After how many rounds another process of the same session measured; None: none did."""
        rounds = self.checks.get(TURNS)
        return rounds if isinstance(rounds, int) and rounds > 0 else None

    @property
    def core_hz(self) -> float | None:
        """The clock of the core that ran the host's part, by the time of a loop of known length
        beside the rounds that count; None where its length is not known, or nobody ran it.

        An operating system in a virtual machine knows no clock but the nominal one.
        """
        probe = self.checks.get("host_probe_ns")
        loop_ns = probe.get("loop") if isinstance(probe, Mapping) else None
        is_known = self.environment.host.architecture == "x86_64"
        if not (is_known and isinstance(loop_ns, int | float) and loop_ns > 0):
            return None
        return _core.CHAIN_CYCLES * 1e9 / loop_ns

    @property
    def counted_rounds(self) -> tuple[int, ...]:
        """The rounds that statistics count. The choice does not look at what was measured, and is
        the same for all that was measured in the same rounds."""
        left_out = self.disturbed_rounds if self.counted == "quiet" else ()
        return tuple(_core.choose_rounds(len(self.samples_ns), left_out))

    @property
    def queued_ratios(self) -> tuple[float, ...]:
        """Of each round, the share of requests that can have been a fifth longer because a thread
        of the process waited for a CPU; () where nobody looked."""
        return self._read_rounds(QUEUED)

    @property
    def waited_ns(self) -> tuple[int, ...]:
        """Of each round, how long threads waited for a CPU; () where nobody looked."""
        return self._read_rounds(WAITED)

    def _read_rounds(self, name: str) -> tuple[Any, ...]:
        """A check that has a number for each round; () where it has not."""
        found = self.checks.get(name)
        is_whole = isinstance(found, Sequence) and len(found) == len(self.samples_ns)
        return tuple(found) if is_whole else ()  # type: ignore[arg-type]  # a sequence, as was seen

    @property
    def queued_ratio(self) -> float | None:
        """The median of `queued_ratios` over the rounds that count; None where nobody looked."""
        found = self.queued_ratios
        if not found:
            return None
        return _core.compute_median([found[place] for place in self.counted_rounds])

    @property
    def kernel_use(self) -> KernelUse | None:
        """Page faults and system time of a call; None where nobody counted."""
        faults, system_ns = self._read_rounds(FAULTS), self._read_rounds(SYSTEM)
        if not faults or not system_ns:
            return None
        calls = self.burst * sum(map(len, self.kept_ns))
        return KernelUse(
            page_faults=sum(faults[place] for place in self.counted_rounds) / calls,
            system_ns=sum(system_ns[place] for place in self.counted_rounds) / calls,
        )

    @property
    def doubt(self) -> str:
        """Why `latency_ns` is not to go by; "" if it is. See `ftax.timing.trust`."""
        return find_doubt_of_mean(self.values_ns, self.interval_ns, queued_ratio=self.queued_ratio)

    @property
    def work_problem(self) -> str:
        """Why the calls that were timed were not all the same work; "" if that was not seen."""
        return Checks.of(self.checks).work_problem

    @property
    def kept_ns(self) -> tuple[tuple[int, ...], ...]:
        """The samples that count, ``[round that counts][sample]``."""
        rounds = (self.samples_ns[place] for place in self.counted_rounds)
        return tuple(samples[self.dropped_per_round :] for samples in rounds)

    @property
    def values_ns(self) -> tuple[float, ...]:
        """One number for each round that counts: the median of the kept samples."""
        return tuple(_core.compute_median(samples) for samples in self.kept_ns)

    @property
    def all_values_ns(self) -> tuple[float, ...]:
        """The same for every round."""
        kept = (samples[self.dropped_per_round :] for samples in self.samples_ns)
        return tuple(_core.compute_median(samples) for samples in kept)

    @property
    def latency_ns(self) -> float:
        """The mean of `values_ns`; in mode "throughput" the time per request."""
        return compute_mean(self.values_ns)

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """The interval of `latency_ns` from resampled rounds; None for a single round."""
        return compute_interval(
            self.values_ns,
            confidence=self.confidence,
            resamples=self.resamples,
            seed=self.seed,
        )

    @property
    def summary(self) -> Summary:
        """All kept samples of the rounds that count, described."""
        return summarize([sample for samples in self.kept_ns for sample in samples])

    @property
    def slow_calls(self) -> SlowCalls | None:
        """Calls that take far longer than the others, time and again, which no median shows; None
        if there are none for certain. Of the rounds in which the host was not disturbed, where it
        is known how long threads waited for a CPU: a neighbour makes such calls too."""
        waited_ns, disturbed = self.waited_ns, set(self.disturbed_rounds)
        if not waited_ns:
            return None
        places = [place for place in self.counted_rounds if place not in disturbed]
        return find_slow_calls(
            [self.samples_ns[place][self.dropped_per_round :] for place in places],
            [waited_ns[place] // self.burst for place in places],
            confidence=self.confidence,
            resamples=self.resamples,
            seed=self.seed,
        )

    @property
    def long_run_ns(self) -> float:
        """What a call costs in the long run: `latency_ns`, or the mean of all samples where there
        are `slow_calls`."""
        slow = self.slow_calls
        return self.latency_ns if slow is None else slow.mean_ns

    @property
    def statistics(self) -> Statistics:
        """Everything above, as it is stored."""
        return Statistics(
            values_ns=self.values_ns,
            latency_ns=self.latency_ns,
            interval_ns=self.interval_ns,
            summary=self.summary,
            slow_calls=self.slow_calls,
        )


def format_measured(item: Measurement) -> str:
    """`format_latency`, and where calls are slow what they cost in the mean: ``'12.3 us, mean 412
    us'``."""
    latency, mean_ns = format_latency(item.latency_ns, item.doubt), item.long_run_ns
    return latency if mean_ns == item.latency_ns else f"{latency}, mean {format_time(mean_ns)}"


def format_rounds(measurement: Measurement) -> str:
    """``'85'``, or ``'48 of 85'`` where the others do not count."""
    counted, rounds = len(measurement.counted_rounds), len(measurement.samples_ns)
    return f"{rounds}" if counted == rounds else f"{counted} of {rounds}"


def format_clock(measurement: Measurement) -> str:
    """``', host core at 2.7 GHz'``, to end a title; nothing where it is not known."""
    clock = measurement.core_hz
    return "" if clock is None else f", host core at {clock / 1e9:.1f} GHz"
