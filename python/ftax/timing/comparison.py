"""Is the difference real? The one estimator behind `ftax.compare` and the comparison of sweeps.

A side is one number a unit. A unit is a pair of processes that took turns; without turns it is a
process, or a round where a side is one process. The estimate is the ratio of geometric means, and
its interval is a t interval on the same logarithms, so a ratio always lies inside its own interval.
Every time that a comparison shows is made of these two numbers.

Only pairs by turns have a verdict on small differences. Two processes of the same code differ by
some per cent, by memory layout and hash seed alone, which rounds do not show.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from ftax import _core
from ftax.errors import InvalidArgumentError
from ftax.records.record import Count, Ends, Name, Record
from ftax.records.result import Result
from ftax.timing.checks import Checks
from ftax.timing.measurement import Measurement, describe_slow_calls
from ftax.timing.trust import NOT_RESOLVED, find_disturbance, find_doubt, find_doubt_of_waits
from ftax.timing.units import format_time, name_interval

Verdict = Literal["faster", "slower", "equal", "cannot-tell"]
Unit = Literal["round", "process", "pair"]
DEFAULT_MARGIN = 0.05
DEFAULT_CONFIDENCE = 0.99
# By how much two processes of the same code differ, as a ratio: below it, what was not measured by
# turns has no verdict.
PROCESSES_DIFFER = 0.05
NEGLIGIBLE = 0.01  # what pairs by turns may differ by and be neither faster nor slower
SAME_CLOCK = 0.03  # by which clocks may differ and be called the same
_PLURALS = {"round": "rounds", "process": "processes"}
_MOST_NEEDED = 1000  # pairs

FEWEST_PAIRS = 5
_LATER = 3, 2  # each look has 3 / 2 as many pairs as the one before: 5, 8, 12, 18, 27, ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange(Record):
    """How one line of a receipt changed from a to b; `ftax.ladders.compare_results` computes it.

    ``a_ns`` and ``b_ns`` are means over the receipts of a side, None where a side has no such line.
    ``interval_ns`` is of b minus a. The verdict is "faster" or "slower" where the interval lies
    farther from 0 than `PROCESSES_DIFFER` of a's whole latency, else "cannot-tell".
    """

    name: Name
    a_ns: float | None
    b_ns: float | None
    interval_ns: Ends | None
    verdict: Verdict
    doubt: str = ""

    @property
    def difference_ns(self) -> float | None:
        """b minus a; None where a side has no such line."""
        return None if self.a_ns is None or self.b_ns is None else self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Result):
    """How b compares with a: ``ratio`` is b's latency over a's, above 1 means that b is slower.

    ``unit`` "pair" means that both sides took turns in pairs of processes. Then "faster" and
    "slower" mean that the interval lies farther from 1 than 1 % (or than the margin, if that is
    less), and "equal" that it lies within the margin. Of other units "faster" and "slower" mean
    that it lies farther from 1 than 5 %, and there is no "equal". All else, and a side in
    ``doubt``, is "cannot-tell".

    ``latency_a_ns`` and ``latency_b_ns`` are geometric means over the units, and so their ratio is
    ``ratio``. ``core_hz_a`` and ``core_hz_b`` are the clocks of the CPUs' cores
    (`Measurement.core_hz`, the median of a side).
    ``problems`` say where a side is not the model that it is called: other outputs than eager's,
    calls that are not all the same work. ``notes`` say what else differs between the sides.

    Of receipts it is the comparison of their first rungs; ``lines`` have what changed in which
    line, and ``runtimes`` the other runtimes that both sides have.
    """

    kind: ClassVar[str] = "comparison"

    name_a: Name = "a"
    name_b: Name = "b"
    a: str
    b: str
    ratio: float
    ratio_interval: Ends
    confidence: float
    margin: float
    verdict: Verdict
    unit: Unit
    method: str
    units_a: Count
    units_b: Count
    core_hz_a: float | None = None
    core_hz_b: float | None = None
    doubt: str = ""  # why a side is not to go by, and so the verdict is "cannot-tell"
    problems: tuple[str, ...] = ()
    runtime: str  # and its host, of both sides: "eager/python"
    latency_a_ns: float
    latency_b_ns: float
    lines: tuple[LineChange, ...] = ()
    runtimes: tuple[Comparison, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def units(self) -> str:
        """How many there are, in words: "5 pairs of processes by turns"."""
        if self.unit == "pair":
            return f"{self.units_a} pairs of processes by turns"
        return f"{self.units_a} and {self.units_b} {_PLURALS[self.unit]}"

    @property
    def is_slower_by_margin(self) -> bool:
        """Whether b is slower by more than the margin for certain: what a gate fails on."""
        return not self.doubt and self.ratio_interval[0] > 1 + self.margin

    @property
    def is_within_margin(self) -> bool:
        """Whether b is not slower by more than the margin for certain: what a gate passes."""
        return self.verdict != "cannot-tell" and self.ratio_interval[1] <= 1 + self.margin

    @property
    def is_settled(self) -> bool:
        """Whether more pairs would say no more that matters."""
        is_told = self.is_within_margin or self.is_slower_by_margin
        return is_told and self.verdict != "cannot-tell"

    def describe(self) -> str:
        """The answer as a sentence; without a ratio where a side is in doubt."""
        wrong = "; not to be relied on, see below" if self.problems else ""
        start = f"{self.name_b} against {self.name_a}: {self.verdict.replace('-', ' ')}"
        if self.doubt:
            side, _, why = self.doubt.partition(": ")
            name = self.name_a if side == "a" else self.name_b
            return f"{start}, {NOT_RESOLVED} ({name}): {why}{wrong}"
        within = f" within {self.margin:.0%}" if self.verdict == "equal" else ""
        low, high = self.ratio_interval
        interval = f"{name_interval(self.confidence)} {low - 1:+.1%} to {high - 1:+.1%}"
        change = f"{within}, {self.ratio - 1:+.1%} ({interval})"
        times = f"{format_time(self.latency_b_ns)} instead of {format_time(self.latency_a_ns)}"
        return f"{start}{change}: {times}, from {self.units}{wrong}"

    @property
    def units_needed(self) -> int | None:
        """About how many pairs would tell, by how far those that there are lie apart: so that the
        interval leaves out what is negligible, or lies within the margin. None where it is told,
        where more of the same would not help, from fewer than five, and for more than 1,000."""
        low, high = self.ratio_interval
        if self.unit != "pair" or self.verdict != "cannot-tell" or self.doubt or not 0 < low < high:
            return None
        if self.units_a < FEWEST_PAIRS:
            return None
        away = abs(math.log(self.ratio))
        wanted = max(away - math.log1p(NEGLIGIBLE), math.log1p(self.margin) - away)
        half_width = (math.log(high) - math.log(low)) / 2
        needed = self.units_a * (half_width / wanted) ** 2
        return max(self.units_a + 1, math.ceil(needed)) if needed < _MOST_NEEDED else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before believing it."""
        found = [*self.problems]
        if needed := self.units_needed:
            found.append(f"about {needed} pairs would tell (--duration gives more)")
        if self.unit != "pair" and self.verdict == "cannot-tell" and not self.doubt:
            found.append(
                f"not measured by turns, so differences below {PROCESSES_DIFFER:.0%} have no "
                "verdict: two processes of the same code differ by as much; several runs a side "
                "help, or `ftax compare old.py:make new.py:make`, which measures both by turns"
            )
        if self.core_hz_a and self.core_hz_b:
            ratio = self.core_hz_a / self.core_hz_b
            if max(ratio, 1 / ratio) > 1 + SAME_CLOCK:
                found.append(
                    f"the CPU ran at {self.core_hz_a / 1e9:.2f} GHz for {self.name_a} and at "
                    f"{self.core_hz_b / 1e9:.2f} GHz for {self.name_b}: CPU work takes "
                    f"{ratio:.2f} times as long for that alone"
                )
        return (*found, *self.notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What is compared of one side: a number a unit, in ns.

    Attributes:
        label: what was measured.
        runtime: what ran it, and its host: "eager/python".
        medians_ns: what a unit takes in the middle: of its rounds, or of the calls of a round.
        extra_ns: what a call takes more in the mean than in the middle; () where that is not known.
        doubt: why it is not to go by; "" if it is.
        problems: why it is not the model that it is called.
    """

    label: str
    runtime: str
    medians_ns: Sequence[float]
    extra_ns: Sequence[float] = ()
    core_hz: float | None = None
    doubt: str = ""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def means_ns(self) -> list[float]:
        """What a unit takes in the mean of its calls."""
        return [sum(both) for both in zip(self.medians_ns, self.extra_ns, strict=True)]


def compare_measurements(
    side_a: Sequence[Measurement],
    side_b: Sequence[Measurement],
    *,
    margin: float,
    confidence: float,
    names: tuple[str, str] = ("a", "b"),
) -> Comparison:
    """Compare b with a: one measurement a side, or one for each process, at least one of each.

    `ftax.compare` says which test is taken. Raises InvalidArgumentError if the modes differ.
    """
    modes = {m.mode for m in (*side_a, *side_b)}
    if len(modes) != 1:
        raise InvalidArgumentError("latency cannot be compared with throughput; measure one mode")
    side_a, side_b = sorted(side_a, key=_index), sorted(side_b, key=_index)
    unit: Unit = "round"
    if min(len(side_a), len(side_b)) >= 2:
        unit = "pair" if _took_turns(side_a, side_b) else "process"
    else:
        side_a, side_b = side_a[:1], side_b[:1]
    together = unit == "round" and _same_rounds(side_a[0], side_b[0])
    a, b = (_read_side(side, unit, together) for side in (side_a, side_b))
    if unit == "pair":  # what both felt of the host is not in the ratio of neighbouring turns
        ratios = map(_compare_turns, side_a, side_b)
        b = replace(b, medians_ns=[x * y for x, y in zip(a.medians_ns, ratios, strict=True)])
    return compare_sides(
        a, b, unit=unit, paired=together or unit == "pair", margin=margin, confidence=confidence,
        names=names,
    )  # fmt: skip


def compare_sides(
    a: Side,
    b: Side,
    *,
    unit: Unit,
    paired: bool,
    margin: float,
    confidence: float,
    names: tuple[str, str],
) -> Comparison:
    """The comparison of two sides; where their medians and their means disagree on the ratio by
    more than the margin, that of their means: calls that are rare and slow are paid for too."""
    by_turns = unit == "pair"
    least = min(margin, NEGLIGIBLE) if by_turns else PROCESSES_DIFFER
    test = functools.partial(
        compare_values, margin=margin, confidence=confidence, paired=paired, least=least
    )
    core, values_ns = test(a.medians_ns, b.medians_ns), a.medians_ns
    notes: list[str] = []
    if a.extra_ns and b.extra_ns:
        of_means = test(a.means_ns, b.means_ns)
        if abs(math.log(of_means.ratio / core.ratio)) > math.log1p(margin):
            notes = [
                "the verdict is that of the mean of all calls: by the median call "
                f"{names[1]} takes {core.ratio - 1:+.1%}, and rare slow calls make the difference"
            ]
            core, values_ns = of_means, a.means_ns
    doubts = [f"{name}: {side.doubt}" for name, side in (("a", a), ("b", b)) if side.doubt]
    told = not doubts and (by_turns or core.verdict != "equal")
    latency_a_ns = statistics.geometric_mean(values_ns)
    return Comparison(
        name_a=names[0],
        name_b=names[1],
        a=a.label,
        b=b.label,
        core_hz_a=a.core_hz,
        core_hz_b=b.core_hz,
        ratio=core.ratio,
        ratio_interval=(core.ratio_interval.low, core.ratio_interval.high),
        confidence=confidence,
        margin=margin,
        verdict=core.verdict if told else "cannot-tell",  # type: ignore[arg-type]  # checked
        doubt=doubts[0] if doubts else "",
        unit=unit,
        method=core.method,
        units_a=core.units_a,
        units_b=core.units_b,
        problems=tuple(dict.fromkeys((*a.problems, *b.problems))),
        runtime=" and ".join(dict.fromkeys(side.runtime for side in (a, b))),
        latency_a_ns=latency_a_ns,
        latency_b_ns=latency_a_ns * core.ratio,
        notes=(
            *(f"{names[place]}: {text}" for place in (0, 1) for text in (a, b)[place].notes),
            *notes,
        ),
    )


def _read_side(side: Sequence[Measurement], unit: Unit, together: bool) -> Side:
    extra = [_compute_extra(m) for m in side]
    is_round = unit == "round"
    return Side(
        label=side[0].cell.label(),
        runtime=str(side[0].place),
        medians_ns=side[0].values_ns
        if is_round
        else [statistics.median(m.values_ns) for m in side],
        extra_ns=extra[0] if is_round else [statistics.fmean(each) for each in extra],
        core_hz=_find_clock(side),
        doubt=_find_doubt(side, together),
        problems=tuple(dict.fromkeys(text for m in side for text in _judge(m))),
        notes=tuple(describe_slow_calls(side)[:1]),
    )


def _compute_extra(measurement: Measurement) -> list[float]:
    """Of each round that counts, what its mean call takes above its median one, ns, without what
    threads waited for a CPU that others had. A round that is slow as a whole has none."""
    waited_ns = measurement.waited_ns or [0] * len(measurement.samples_ns)
    waits = [waited_ns[place] / measurement.burst for place in measurement.counted_rounds]
    return [
        max(0.0, statistics.fmean(samples) - wait_ns / len(samples) - median_ns)
        for samples, wait_ns, median_ns in zip(
            measurement.kept_ns, waits, measurement.values_ns, strict=True
        )
    ]


def compare_amounts(
    a: Sequence[float],
    b: Sequence[float],
    *,
    whole: float,
    confidence: float = DEFAULT_CONFIDENCE,
) -> tuple[tuple[float, float], Verdict]:
    """The interval of the difference b - a of amounts that may be below 0, and whether it lies
    farther from 0 than `PROCESSES_DIFFER` of ``whole``.

    The test is that of ratios, given the exponentials of the amounts: their logarithms, which it
    takes, are the amounts again.
    """
    core = compare_values(
        [math.exp(value / whole) for value in a],
        [math.exp(value / whole) for value in b],
        confidence=confidence,
    )
    ends = core.ratio_interval
    interval = (whole * math.log(ends.low), whole * math.log(ends.high))
    return interval, judge_amount(interval, whole)


def judge_amount(interval: tuple[float, float] | None, whole: float) -> Verdict:
    """The verdict on a difference with this interval, a part of the latency ``whole``."""
    least = PROCESSES_DIFFER * whole
    if interval is None or (interval[0] <= least and interval[1] >= -least):
        return "cannot-tell"
    return "slower" if interval[0] > least else "faster"


def compare_values(
    a_ns: Sequence[float],
    b_ns: Sequence[float],
    *,
    margin: float = DEFAULT_MARGIN,
    confidence: float = 0.95,
    paired: bool = False,
    least: float = 0.0,
) -> _core.Comparison:
    """The test itself, on one number per unit (ns)."""
    test = _core.compare_paired if paired else _core.compare_unpaired
    return test(list(a_ns), list(b_ns), margin=margin, confidence=confidence, least=least)


def _judge(measurement: Measurement) -> Iterator[str]:
    """Why a latency is not that of the model that its label names."""
    label = measurement.cell.label()
    checks = Checks.of(measurement.checks)
    if problem := checks.judge_outputs().problem:
        yield f"{label} gives other outputs than eager: {problem}"
    if problem := checks.work_problem:
        yield f"{label}: not the same work: {problem}"


def _find_doubt(side: Sequence[Measurement], together: bool) -> str:
    """Why a side is not to go by, which half of its processes have to be; "" if it is. What
    disturbed rounds that sides were measured ``together`` in disturbed both."""
    if len(side) == 1:
        doubts = [find_doubt(m.values_ns, queued_ratio=m.queued_ratio) for m in side]
        if not together:
            doubts += [find_disturbance(m.warnings) for m in side]
    else:  # a process counts with a median
        doubts = [find_doubt_of_waits(m.queued_ratio) for m in side]
    told = [doubt for doubt in doubts if doubt]
    return told[0] if told and 2 * len(told) >= len(side) else ""


def _find_clock(side: Sequence[Measurement]) -> float | None:
    clocks = [clock for m in side if (clock := m.core_hz) is not None]
    return statistics.median(clocks) if clocks else None


def _index(measurement: Measurement) -> int:
    return measurement.process.index


def _indices(side: Sequence[Measurement]) -> list[tuple[str, int]]:
    return sorted((m.process.session, m.process.index) for m in side)


def _took_turns(a: Sequence[Measurement], b: Sequence[Measurement]) -> bool:
    """Each process of a with the one of b that has its index."""
    rounds = {m.rounds_a_turn for m in (*a, *b)}
    return len(rounds) == 1 and None not in rounds and _indices(a) == _indices(b)


def _compare_turns(a: Measurement, b: Measurement) -> float:
    """b's latency over a's: the median over turns of b's quickest round of a turn over a's of the
    turn beside it.

    A neighbour slows rounds and makes none quicker. A host with two speeds has them for both sides
    of a turn, but a side's quickest rounds of all may be of a speed that the other never had.
    """
    values_a, values_b, size = a.all_values_ns, b.all_values_ns, a.rounds_a_turn or 1
    common = min(len(values_a), len(values_b))
    turns = [slice(at, min(at + size, common)) for at in range(0, common, size)]
    return statistics.median(min(values_b[turn]) / min(values_a[turn]) for turn in turns)


def _same_rounds(a: Measurement, b: Measurement) -> bool:
    """Measured in the same process, session and rounds."""
    return (a.process, a.seed, a.counted_rounds) == (b.process, b.seed, b.counted_rounds)


def find_look_confidence(look: int, confidence: float) -> float:
    """Of the interval at a look, counted from 1, so that those of all looks hold together with
    ``confidence``."""
    return 1 - (1 - confidence) / (look * (look + 1))


def is_look(pairs: int) -> bool:
    """Whether so many pairs are looked at."""
    planned = FEWEST_PAIRS
    while planned < pairs:
        planned = -(-planned * _LATER[0] // _LATER[1])
    return planned == pairs
