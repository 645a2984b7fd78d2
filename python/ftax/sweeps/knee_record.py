"""The knee: the largest size whose latency is still that of the plateau, and how it is known.

A size is judged by the median of paired ratios, one a round, with an interval from order
statistics: both latencies of a round feel the same drift. The search keeps no state: it looks at
the answers that there are and names the next size, so a test can play any machine against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, Self

from ftax import _core
from ftax.errors import InvalidArgumentError, ResultsError
from ftax.machines.environment import Environment
from ftax.records.fields import FrozenMap, Rule
from ftax.records.record import Count, PositiveInt, Record
from ftax.records.result import Result
from ftax.timing.cell import Cell
from ftax.timing.trust import DISTURBED_IN, find_doubt_of_waits

# "on" and "off" the plateau for certain; "unsure"; "limit": it could not be run at this size.
Answer = Literal["on", "off", "unsure", "limit"]
Over = Literal["batch", "sequence"]
Verdict = Literal["found", "at-once", "beyond", "limited", "cannot-tell"]
Share = Annotated[float, Rule("a number above 0", lambda value: value > 0)]
_Level = Annotated[float, Rule("a number between 0 and 1", lambda value: 0 < value < 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class KneePoint(Record):
    """One probed size beside the smallest one, in the same rounds; or why it could not be run."""

    size: PositiveInt
    plateau_values_ns: tuple[float, ...] = ()  # of the smallest size, one a round
    values_ns: tuple[float, ...] = ()  # of this size, in the same rounds
    problem: str | None = None
    out_of_memory: bool = False
    queued_ratio: float | None = None  # the median over rounds of the larger of the two sizes'
    disturbed_rounds: Count | None = None  # in which the host was disturbed; they count
    # On a GPU, behind the gate: host time to issue one request, and device time to do it.
    issue_ns: float | None = None
    device_ns: float | None = None

    def check(self) -> None:
        """Raise InvalidArgumentError unless there are paired rounds, or a problem instead."""
        if len(self.values_ns) != len(self.plateau_values_ns) or bool(self.values_ns) == bool(
            self.problem
        ):
            raise InvalidArgumentError(
                f"KneePoint of size {self.size} has {len(self.plateau_values_ns)} and "
                f"{len(self.values_ns)} rounds and the problem {self.problem!r}; it has to have "
                "equally many, or none and a problem"
            )

    @property
    def latency_ns(self) -> float | None:
        """The median over rounds; None if it could not be run."""
        return _core.compute_median(self.values_ns) if self.values_ns else None

    @property
    def plateau_latency_ns(self) -> float | None:
        """The smallest size's, in the same rounds."""
        return _core.compute_median(self.plateau_values_ns) if self.values_ns else None

    @property
    def ratio(self) -> float | None:
        """The median over rounds of this size's latency over the smallest size's."""
        return _core.compute_median(self._ratios()) if self.values_ns else None

    def ratio_interval(self, confidence: float) -> tuple[float, float] | None:
        """Order statistics around `ratio`; None where too few rounds attain ``confidence``."""
        if not self.values_ns:
            return None
        found = _core.compute_median_interval(self._ratios(), confidence)
        return (found.interval.low, found.interval.high) if found.attained else None

    def judge(self, margin: float, confidence: float) -> Answer:
        """Whether it is on the plateau: within the ratio 1 + ``margin`` of the smallest size."""
        if self.problem is not None:
            return "limit"
        interval = self.ratio_interval(confidence)
        if interval is None or self.doubt:
            return "unsure"
        if interval[1] <= 1 + margin:
            return "on"
        return "off" if interval[0] > 1 + margin else "unsure"

    @property
    def doubt(self) -> str:
        """Why its rounds are not to go by; "" if they are. What waits for a CPU takes as long at
        one size as at another, and would be a plateau."""
        return find_doubt_of_waits(self.queued_ratio)

    @property
    def disturbance(self) -> str:
        """That most rounds, and so their median, are of a disturbed host; "" if they are not."""
        rounds = len(self.values_ns)
        if not self.disturbed_rounds or 2 * self.disturbed_rounds <= rounds:
            return ""
        return f"{DISTURBED_IN} {self.disturbed_rounds} of {rounds} rounds"

    @property
    def host_bound(self) -> bool | None:
        """Whether issuing takes the host longer than the device needs; None if not known."""
        if self.issue_ns is None or self.device_ns is None:
            return None
        return self.issue_ns > self.device_ns

    def _ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.values_ns, self.plateau_values_ns, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee(Result):
    """Where the latency of one runtime leaves its plateau.

    Attributes:
        cell: what was measured, at the smallest size.
        margin: sizes within the ratio 1 + margin of the smallest one's latency are on the plateau.
        resolution: the search stops when the ends are within the ratio 1 + resolution, or
            neighbours.
        confidence: of each point's interval.
        points: the probed sizes in the order of probing.
    """

    kind: ClassVar[str] = "knee"

    cell: Cell
    over: Over
    low: PositiveInt
    high: PositiveInt
    margin: Share = 0.1
    resolution: Share = 0.1
    confidence: _Level = 0.99
    points: tuple[KneePoint, ...]
    issue_ns: float | None = None  # of the smallest size, as `KneePoint.issue_ns`
    device_ns: float | None = None
    stop_reason: Literal["done", "time-limit", "interrupted"]
    environment: Environment
    seconds: float
    checks: Mapping[str, object] = field(default_factory=lambda: FrozenMap({}))
    preparation: Mapping[str, object] = field(default_factory=lambda: FrozenMap({}))
    warnings: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise InvalidArgumentError unless each point is another size from low to high."""
        sizes = [point.size for point in self.points]
        if len(set(sizes)) != len(sizes) or any(not self.low < s <= self.high for s in sizes):
            raise InvalidArgumentError(
                f"Knee.points are of the sizes {sizes}; each has to be another one above "
                f"{self.low} and at most {self.high}"
            )

    @property
    def answers(self) -> dict[int, Answer]:
        """Each probed size's answer."""
        return {point.size: point.judge(self.margin, self.confidence) for point in self.points}

    @property
    def last_on(self) -> int:
        """The largest size certainly on the plateau; the smallest size is on it by definition."""
        return find_ends(self.low, self.answers)[0]

    @property
    def first_off(self) -> int | None:
        """The smallest size certainly off the plateau; None if none was found."""
        off = [size for size, answer in self.answers.items() if answer == "off"]
        return min(off, default=None)

    @property
    def limit(self) -> KneePoint | None:
        """The smallest size that could not be run, if any."""
        failed = [point for point in self.points if point.problem is not None]
        return min(failed, key=lambda point: point.size, default=None)

    @property
    def verdict(self) -> Verdict:
        """ "found"; "at-once": off one step above the smallest size; "beyond": on up to the largest
        size; "limited": on up to a size that could not be run; "cannot-tell": none of these."""
        off, limit = self.first_off, self.limit
        if off is not None:
            return "at-once" if off == self.low + 1 else "found"
        if self.last_on == self.high:
            return "beyond"
        if limit is not None and not any(answer == "unsure" for answer in self.answers.values()):
            return "limited"
        return "cannot-tell"

    def describe(self) -> str:
        """The answer as a sentence."""
        what, on, limit = self.over, self.last_on, self.limit
        ended = {"done": "", "time-limit": " (the time limit came first)",
                 "interrupted": " (interrupted)"}[self.stop_reason]  # fmt: skip
        within = f"within {self.margin:.0%} of {what} {self.low}"
        if self.verdict == "at-once":
            text = f"no plateau: {what} {self.first_off} is already off it"
        elif self.verdict == "found":
            text = f"knee between {what} {on} ({within}) and {self.first_off} (no longer)"
        elif self.verdict == "beyond":
            text = f"knee beyond {what} {on}: latency is still {within}"
        elif self.verdict == "limited" and limit is not None:
            why = "memory ran out" if limit.out_of_memory else "it could not be run"
            text = f"knee beyond {what} {on} ({within}); at {limit.size} {why}"
        else:
            text = f"knee beyond {what} {on} ({within}); where, cannot be told"
        return text + ended

    def to_dict(self) -> dict[str, object]:
        """Plain dicts, lists and scalars; the answer is stored for other readers of the file."""
        return {**Record.to_dict(self), "answer": self._answer()}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """Build the knee that `to_dict` described.

        Raises:
            ResultsError: a field is missing, unknown or refused, or the stored answer is not that
                of the rounds.
        """
        fields = dict(data)
        stored = fields.pop("answer", None)
        # Named, not bare: slots=True makes a new class, which a bare super() does not know.
        knee = super(Knee, cls).from_dict(fields)
        computed = knee._answer()
        if stored != computed:
            raise ResultsError(
                f"the stored answer is {stored!r} where {computed!r} was computed; the record was "
                "changed after it was written: measure again, or restore the file"
            )
        return knee

    def _answer(self) -> dict[str, object]:
        return {"verdict": self.verdict, "last_on": self.last_on, "first_off": self.first_off}


def find_ends(low: int, answers: Mapping[int, Answer]) -> tuple[int, int | None]:
    """The largest size certainly on the plateau, and the smallest certainly off it or not to be run
    at all; None if there is none yet. ``low`` is the plateau itself, and so on it."""
    upper = min((size for size, answer in answers.items() if answer in ("off", "limit")), default=0)
    on = [
        size for size, answer in answers.items() if answer == "on" and (not upper or size < upper)
    ]
    return max(on, default=low), upper or None


def choose_size(
    low: int, high: int, resolution: float, answers: Mapping[int, Answer]
) -> int | None:
    """The next size to probe, or None when nothing is left to learn.

    Sizes are doubled until one is off the plateau; then the gap is halved until its ends are
    neighbours or within the ratio 1 + ``resolution``. Sizes whose answer is "unsure" are left where
    they are, and the gaps on either side are closed separately.
    """
    last_on, upper = find_ends(low, answers)
    if upper is None:
        reached = max(answers, default=low)
        if reached < high:
            return min(high, 2 * reached)
    unsure = sorted(
        size
        for size, answer in answers.items()
        if answer == "unsure" and size > last_on and (upper is None or size < upper)
    )
    gaps = []
    if unsure:
        gaps.append((last_on, unsure[0]))
        if upper is not None:
            gaps.append((unsure[-1], upper))
    elif upper is not None:
        gaps.append((last_on, upper))
    for lower, higher in gaps:
        if higher - lower > max(1.0, resolution * lower):
            return (lower + higher) // 2
    return None
