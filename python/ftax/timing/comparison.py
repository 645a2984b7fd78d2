"""Is the difference real? Compares two measurements with the error that separates independent runs.

Rounds of one process share its luck (memory layout, thread placement), so between two processes
they understate the error. Where both sides come from several processes, the unit of the test is
therefore the process; otherwise it is the round, and the answer says that it holds for these two
processes only. A process counts with the median of its rounds, not with their mean, and without
those in which the host probe met a neighbour on the core: a shared core is up to twice as slow.
Processes that took turns are pairs if the host's clock moved from one pair to the next, and a pair
counts with the median ratio of its turns. On a steady clock nothing ties the two together.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from ftax import _core
from ftax.errors import InvalidArgumentError
from ftax.records.record import Count, Ends, Name, Record
from ftax.records.result import Result
from ftax.timing.checks import Checks
from ftax.timing.measurement import Measurement, describe_slow_calls
from ftax.timing.trust import NOT_RESOLVED, find_disturbance, find_doubt, find_doubt_of_waits
from ftax.timing.units import name_interval

Verdict = Literal["faster", "slower", "equal", "cannot-tell"]
DEFAULT_MARGIN = 0.05
_ENOUGH_PAIRS = 10  # processes a side
SAME_CLOCK = 0.03  # by which clocks may differ and be called the same
_PLURALS = {"round": "rounds", "process": "processes"}
_MOST_NEEDED = 10_000  # units a side that anybody would wait for


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange(Record):
    """How one line of a receipt changed from a to b; `ftax.ladders.comparison` computes it.

    ``a_ns`` and ``b_ns`` are means over the receipts of a side, None where a side has no such line.
    ``interval_ns`` is of b minus a. The verdict is that of a `Comparison`; "equal" means that the
    interval lies within the margin, taken of a's whole latency.
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

    "equal" means that the interval contains 1 and lies within the margin; "cannot-tell" that it
    contains 1 and is wider than that, or that a side is in ``doubt``. ``core_hz_a`` and
    ``core_hz_b`` are the clocks of the hosts' cores (`Measurement.core_hz`, the median of a side).
    ``problems`` say where a side is not the model that it is called: other outputs than eager's,
    calls that are not all the same work. ``notes`` say what else differs between the sides.

    Of receipts it is the comparison of their first rungs; ``lines`` have what changed in which
    line, and ``runtimes`` the other runtimes that both sides have.
    """

    kind: ClassVar[str] = "comparison"
    later: ClassVar[frozenset[str]] = frozenset(
        {
            "doubt",
            "name_a",
            "name_b",
            "runtime",
            "latency_a_ns",
            "latency_b_ns",
            "lines",
            "runtimes",
            "notes",
        }
    )

    name_a: Name = "a"
    name_b: Name = "b"
    a: str
    b: str
    ratio: float
    ratio_interval: Ends
    confidence: float
    margin: float
    verdict: Verdict
    p_value: float
    unit: Literal["round", "process"]
    method: str
    units_a: Count
    units_b: Count
    core_hz_a: float | None = None
    core_hz_b: float | None = None
    doubt: str = ""  # why a side is not to go by, and so the verdict is "cannot-tell"
    problems: tuple[str, ...] = ()
    runtime: str = ""  # and its host, of both sides: "eager/python"
    latency_a_ns: float | None = None  # the mean over the processes of a side
    latency_b_ns: float | None = None
    lines: tuple[LineChange, ...] = ()
    runtimes: tuple[Comparison, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        core: _core.Comparison,
        a: Sequence[Measurement],
        b: Sequence[Measurement],
        *,
        unit: str,
        confidence: float,
        doubt: str = "",
    ) -> Self:
        """The record of what the core computed about two sides."""
        return cls(
            a=a[0].cell.label(),
            b=b[0].cell.label(),
            core_hz_a=_find_clock(a),
            core_hz_b=_find_clock(b),
            ratio=core.ratio,
            ratio_interval=(core.ratio_interval.low, core.ratio_interval.high),
            confidence=confidence,
            margin=core.margin,
            verdict="cannot-tell" if doubt else core.verdict,  # type: ignore[arg-type]  # checked
            doubt=doubt,
            p_value=core.p_value,
            unit=unit,  # type: ignore[arg-type]  # checked by the record
            method=core.method,
            units_a=core.units_a,
            units_b=core.units_b,
            problems=tuple(dict.fromkeys(text for item in (*a, *b) for text in _judge(item))),
            runtime=" and ".join(dict.fromkeys(str(side[0].place) for side in (a, b))),
            latency_a_ns=statistics.fmean(item.latency_ns for item in a),
            latency_b_ns=statistics.fmean(item.latency_ns for item in b),
            notes=(*_note_slow_calls("a", a), *_note_slow_calls("b", b)),
        )

    def describe(self) -> str:
        """The answer as a sentence, in which b goes by its name and what a has not; without a ratio
        where a side is in doubt."""
        wrong = "; not to be relied on, see below" if self.problems else ""
        if self.doubt:
            side, _, why = self.doubt.partition(": ")
            return f"{NOT_RESOLVED} ({self.name_a if side == 'a' else self.name_b}): {why}{wrong}"
        low, high = self.ratio_interval
        interval = f"{name_interval(self.confidence)} {low - 1:+.1%} to {high - 1:+.1%}"
        change = f"{self.ratio - 1:+.1%} ({interval})"
        words = {
            "faster": "is faster",
            "slower": "is slower",
            "equal": f"is equal within {self.margin:.0%}",
            "cannot-tell": "cannot be told apart",
        }[self.verdict]
        units = f"{self.units_a} and {self.units_b} {_PLURALS[self.unit]}"
        of_a, name = self.a.split(), self.name_b
        if name == "b" and self.b != self.a:  # nobody named it, and it can be told by what it is
            name = " ".join(word for word in self.b.split() if "=" not in word or word not in of_a)
        return f"{name} {words}: {change}, from {units}{wrong}"

    @property
    def units_needed(self) -> int | None:
        """About how many units a side would tell, by how far those that there are lie apart: so
        that the interval leaves 1 out, or lies within the margin. None where it is told, where more
        of the same would not help, and where nobody would wait for as many."""
        low, high = self.ratio_interval
        if self.verdict != "cannot-tell" or self.doubt or not 0 < low < high:
            return None
        away = abs(math.log(self.ratio))
        wanted = max(away, math.log1p(self.margin) - away)
        half_width = (math.log(high) - math.log(low)) / 2
        needed = max(self.units_a, self.units_b) * (half_width / wanted) ** 2
        return math.ceil(needed) if needed < _MOST_NEEDED else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before believing it."""
        found = [*self.problems]
        if needed := self.units_needed:
            how = {
                "process": f"--processes {needed}, or as many receipts of a side",
                "round": "--duration gives more",
            }[self.unit]
            found.append(f"about {needed} {_PLURALS[self.unit]} a side would tell ({how})")
        if self.unit == "round":
            found.append(
                "tested between rounds of one process each: another process may differ by more "
                "(--processes 5, or five receipts in a file, test between processes)"
            )
        if self.core_hz_a and self.core_hz_b:
            ratio = self.core_hz_a / self.core_hz_b
            if max(ratio, 1 / ratio) > 1 + SAME_CLOCK:
                found.append(
                    f"the host's core ran at {self.core_hz_a / 1e9:.2f} GHz for a and at "
                    f"{self.core_hz_b / 1e9:.2f} GHz for b: what the host decides takes "
                    f"{ratio:.2f} times as long for that alone"
                )
        return (*found, *self.notes)


def compare_measurements(
    side_a: Sequence[Measurement],
    side_b: Sequence[Measurement],
    *,
    margin: float,
    confidence: float,
) -> Comparison:
    """Compare b with a: one measurement a side, or one for each process, at least one of each.

    `ftax.compare` says which test is taken. Raises InvalidArgumentError if the modes differ.
    """
    modes = {m.mode for m in (*side_a, *side_b)}
    if len(modes) != 1:
        raise InvalidArgumentError("latency cannot be compared with throughput; measure one mode")
    if min(len(side_a), len(side_b)) >= 2:
        side_a, side_b = sorted(side_a, key=_index), sorted(side_b, key=_index)
        # Pairing costs degrees of freedom: few pairs are worth it only for what they shared.
        by_turns = _took_turns(side_a, side_b) and _did_clock_move(side_a, side_b)
        paired = by_turns or (len(side_a) >= _ENOUGH_PAIRS and _indices(side_a) == _indices(side_b))
        values_a = [statistics.median(m.values_ns) for m in side_a]
        values_b = [statistics.median(m.values_ns) for m in side_b]
        if by_turns:
            ratios = map(_compare_turns, side_a, side_b)
            values_b = [value * ratio for value, ratio in zip(values_a, ratios, strict=True)]
        unit = "process"
    else:
        side_a, side_b = side_a[:1], side_b[:1]
        values_a, values_b = list(side_a[0].values_ns), list(side_b[0].values_ns)
        paired = _same_rounds(side_a[0], side_b[0])
        unit = "round"
    core = compare_values(values_a, values_b, margin=margin, confidence=confidence, paired=paired)
    together = paired and unit == "round"
    doubt = _find_doubt("a", side_a, together) or _find_doubt("b", side_b, together)
    return Comparison.of(core, side_a, side_b, unit=unit, confidence=confidence, doubt=doubt)


def compare_amounts(
    a: Sequence[float],
    b: Sequence[float],
    *,
    whole: float,
    margin: float = DEFAULT_MARGIN,
    confidence: float = 0.95,
) -> tuple[tuple[float, float], Verdict]:
    """The interval of the difference b - a of amounts that may be below 0, and the verdict, whose
    margin is a share of ``whole``.

    The test is that of ratios, given the exponentials of the amounts: their logarithms, which it
    takes, are the amounts again.
    """
    core = compare_values(
        [math.exp(value / whole) for value in a],
        [math.exp(value / whole) for value in b],
        margin=margin,
        confidence=confidence,
    )
    ends = core.ratio_interval
    interval = (whole * math.log(ends.low), whole * math.log(ends.high))
    return interval, core.verdict  # type: ignore[return-value]  # one of the four


def compare_values(
    a_ns: Sequence[float],
    b_ns: Sequence[float],
    *,
    margin: float = DEFAULT_MARGIN,
    confidence: float = 0.95,
    paired: bool = False,
) -> _core.Comparison:
    """The test itself, on one number per unit (ns)."""
    test = _core.compare_paired if paired else _core.compare_unpaired
    return test(list(a_ns), list(b_ns), margin=margin, confidence=confidence)


def _judge(measurement: Measurement) -> Iterator[str]:
    """Why a latency is not that of the model that its label names."""
    label = measurement.cell.label()
    checks = Checks.of(measurement.checks)
    if problem := checks.judge_outputs().problem:
        yield f"{label} gives other outputs than eager: {problem}"
    if problem := checks.work_problem:
        yield f"{label}: not the same work: {problem}"


def _note_slow_calls(name: str, side: Sequence[Measurement]) -> list[str]:
    """What no median of a side shows, by the first of its processes that has such calls."""
    return [f"{name}: {text}" for text in describe_slow_calls(side)[:1]]


def _find_doubt(name: str, side: Sequence[Measurement], together: bool) -> str:
    """Why a side is not to go by, which half of its processes have to be; "" if it is. What
    disturbed rounds that sides were measured ``together`` in disturbed both."""
    if len(side) == 1:
        doubts = [find_doubt(m.values_ns, queued_ratio=m.queued_ratio) for m in side]
        if not together:
            doubts += [find_disturbance(m.warnings) for m in side]
    else:  # a process counts with a median
        doubts = [find_doubt_of_waits(m.queued_ratio) for m in side]
    told = [doubt for doubt in doubts if doubt]
    return f"{name}: {told[0]}" if 2 * len(told) >= len(side) else ""


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


def _did_clock_move(a: Sequence[Measurement], b: Sequence[Measurement]) -> bool:
    """Of the host's core, from one process to the next. It knows nothing of what is compared, so
    that a test chosen by it favours neither side."""
    clocks = [m.core_hz or 0.0 for m in (*a, *b)]  # 0: not known
    return max(clocks) > (1 + SAME_CLOCK) * min(clocks) or min(clocks) == 0


def _compare_turns(a: Measurement, b: Measurement) -> float:
    """The median over turns of b's latency over a's: what both felt of the host is not in it."""
    turns_a, turns_b = _split_turns(a), _split_turns(b)
    common = turns_a.keys() & turns_b.keys()
    if not common:  # in no turn had both the core to themselves
        return statistics.median(b.values_ns) / statistics.median(a.values_ns)
    return statistics.median(turns_b[turn] / turns_a[turn] for turn in common)


def _split_turns(measurement: Measurement) -> dict[int, float]:
    """The median of the rounds that count of each turn that has some, ns."""
    turns: dict[int, list[float]] = {}
    for place, value in zip(measurement.counted_rounds, measurement.values_ns, strict=True):
        turns.setdefault(place // (measurement.rounds_a_turn or 1), []).append(value)
    return {turn: statistics.median(values) for turn, values in turns.items()}


def _same_rounds(a: Measurement, b: Measurement) -> bool:
    """Measured in the same process, session and rounds."""
    return (a.process, a.seed, a.counted_rounds) == (b.process, b.seed, b.counted_rounds)
