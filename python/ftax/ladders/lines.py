"""The lines of a receipt: what each step down a ladder saves, and what is left on its last rung.

Differences are marginal in the order of the ladder: they add up exactly to the latency of the first
rung, but they are not savings that one could bank in any order. On a GPU the kernels of each rung
are traced after the rounds; a difference between rungs that did not run the same ones is shown and
not called a tax.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ftax.errors import ResultsError
from ftax.ladders.evidence import RungEvidence, compare_work, note_reference
from ftax.ladders.ladder import EAGER, Ladder, Words
from ftax.ladders.skew import CollectiveTime, OtherRanks, Part, find_other_ranks
from ftax.records.record import Ends, Name, Record
from ftax.timing.differences import compute_intervals, estimate_rounds, find_doubt_of, make_unit
from ftax.timing.measurement import Measurement
from ftax.timing.statistics import compute_interval, compute_mean

_BUSY = "busy"  # in place of a rung: the device, where a trace tells how long it is busy
_COLLECTIVES = "collectives"  # likewise: other ranks
_WAITING = (
    "waiting for other ranks",
    "what collectives take that no other work hides, less what they take when all begin at once",
)
_COMMUNICATION = (
    "communication",
    "collectives that all ranks begin at once, as far as no other work hides them",
)
_OUTSIDE = (
    "Python outside of torch",
    "tokenizers, numpy, your own Python: before the first operator or module and after the last",
)
_MORE_THAN_ALL = "it came out larger than the whole call, and another line below 0"
_UNDIVIDED = ("everything", "calls that are not all the same work have no parts that could be told")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Record):
    """One line of a receipt: a part of the latency of the first rung.

    ``interval_ns`` comes from rounds resampled jointly over all rungs. ``resolved`` says whether it
    excludes 0; ``rounds_needed`` is about how many rounds would resolve it (None: it is resolved,
    or the difference is too close to 0 to say). ``host_ns`` is the difference of issue times, host
    work whether or not the device hides it; it sums to nothing here. A ``problem`` says why
    ``time_ns`` is no tax: the two rungs did not run the same kernels, or it is below 0 for certain.
    A ``doubt`` says why it is not resolved whatever its interval: rounds are few, or a latency that
    it is computed from is not to go by.
    """

    name: Name
    removes: str
    upper: str  # label of the rung above, "eager/python"
    lower: str | None  # None: the rest, which no rung below takes away
    time_ns: float
    interval_ns: Ends | None
    share_ratio: float  # of the latency of the first rung
    resolved: bool
    rounds_needed: int | None
    host_ns: float | None = None
    problem: str = ""
    doubt: str = ""

    @property
    def is_kernels(self) -> bool:
        """Whether it is the time in which the device is busy, which is no tax."""
        return self.upper == _BUSY


def compute_lines(
    rungs: Sequence[Measurement],
    evidence: Sequence[RungEvidence] = (),
    *,
    ladder: Ladder = EAGER,
    outside_ns: Sequence[float] = (),
    collectives: Sequence[CollectiveTime] = (),
) -> tuple[Line, ...]:
    """The lines for rungs of ``ladder`` from top to bottom; their times sum to the first one's
    latency.

    With a reliable trace of the lowest rung among ``evidence``, its time is split into kernels and
    what lies between them. With ``outside_ns``, how long a call of the first rung is outside of
    torch in rounds of their own, the step down from it is split in the same way. With what
    ``collectives`` cost each rung, what they cost the first one is two lines, and no part of
    others. Where the first rung's calls were not all the same work there is one line, and no
    tax.
    """
    top_ns = rungs[0].latency_ns
    if problem := rungs[0].work_problem:
        return (_make_undivided(rungs[0], f"not the same work: {problem}"),)
    found = {item.place: item for item in evidence}
    ladder = note_reference(ladder, evidence)
    traced = [found.get(rung.place) for rung in rungs]
    contrasts = [make_unit(len(rungs), i, i + 1) for i in range(len(rungs))]
    intervals = compute_intervals(rungs, contrasts)
    others = find_other_ranks(rungs, collectives)
    lines = []
    for place, upper in enumerate(rungs[:-1]):
        lower = rungs[place + 1]
        step = upper.latency_ns - lower.latency_ns, intervals[place]
        if others is not None:
            step = others.subtract(*step, place, place + 1)
        lines.append(
            _make_line(
                ladder.name_step(upper.place, lower.place),
                (str(upper.place), str(lower.place)),
                *step,
                top_ns=top_ns,
                rounds=len(upper.values_ns),
                host_ns=_subtract_issue(traced[place], traced[place + 1]),
                problem=compare_work(
                    traced[place],
                    traced[place + 1],
                    ladder.reference[1],
                    # What the library runs besides is part of what the step down removes.
                    may_add=not ladder.is_compared(upper.place),
                ),
                doubt=find_doubt_of((upper, lower, rungs[0])),
                below_zero=_explain_below_zero(upper, lower),
            )
        )
    if lines and outside_ns:
        lines[:1] = _split_outside(lines[0], outside_ns, rungs[0])
    doubt = find_doubt_of((rungs[-1], rungs[0]))
    last_ns, interval = rungs[-1].latency_ns, intervals[-1]
    if others is not None:
        lines += _list_others(others, rungs[0], doubt)
        alone = Part.of(last_ns, interval) - others.exposed[-1]
        last_ns, interval = alone.time_ns, interval and alone.interval_ns
    rest = _make_rest(rungs[-1], last_ns, ladder, traced[-1], interval, top_ns, doubt)
    return (*lines, *rest)


def check_stored_lines(stored: object, lines: Sequence[Line]) -> None:
    """Raise ResultsError unless lines that were stored with samples are those of the samples."""
    read = [Line.from_dict(data) for data in stored] if isinstance(stored, list) else []
    if len(read) != len(lines) or not all(
        a.name == b.name and abs(a.time_ns - b.time_ns) <= 1e-6 * abs(b.time_ns)
        for a, b in zip(read, lines, strict=True)
    ):
        raise ResultsError(
            "the stored lines are not those of the samples; the record was changed after it "
            "was written: measure again, or restore the file"
        )


def _make_undivided(rung: Measurement, problem: str) -> Line:
    """All of a latency of which nothing can be called a tax."""
    return _make_line(
        _UNDIVIDED,
        (str(rung.place), None),
        rung.latency_ns,
        rung.interval_ns,
        rung.latency_ns,
        len(rung.values_ns),
        problem=problem,
    )


def _split_outside(line: Line, outside_ns: Sequence[float], top: Measurement) -> list[Line]:
    """The first step down: what of it is outside of torch, and the rest."""
    own_ns = compute_mean(tuple(outside_ns))
    own = compute_interval(
        tuple(outside_ns), confidence=top.confidence, resamples=top.resamples, seed=top.seed
    )
    if line.doubt or line.problem or line.interval_ns is None or own is None:
        return [line]
    low, high = line.interval_ns
    left_ns = line.time_ns - own_ns  # errors of two kinds of rounds add as squares
    left = (
        left_ns - math.hypot(line.time_ns - low, own[1] - own_ns),
        left_ns + math.hypot(high - line.time_ns, own_ns - own[0]),
    )
    rounds = len(top.values_ns)
    labels = line.upper, line.lower
    return [
        _make_line(_OUTSIDE, labels, own_ns, own, top.latency_ns, rounds),
        _make_line((line.name, line.removes), labels, left_ns, left, top.latency_ns, rounds),
    ]


def _list_others(others: OtherRanks, top: Measurement, doubt: str) -> list[Line]:
    """What other ranks cost the first rung: waiting, and communication."""
    parts = [(_WAITING, others.waiting), (_COMMUNICATION, others.communication)]
    return [
        _make_line(words, (_COLLECTIVES, None), part.time_ns, part.interval_ns, top.latency_ns,
                   len(top.values_ns), doubt=doubt, below_zero="other ranks are not waited for")
        for words, part in parts
    ]  # fmt: skip


def _make_rest(
    rung: Measurement,
    time_ns: float,
    ladder: Ladder,
    evidence: RungEvidence | None,
    interval: tuple[float, float] | None,
    top_ns: float,
    doubt: str,
) -> list[Line]:
    """What no rung below takes away of ``time_ns``: one line, or two if a trace tells kernels from
    the rest."""
    name, rounds = str(rung.place), len(rung.values_ns)
    words = ladder.find(rung.place)
    if evidence is None or not evidence.splits(time_ns):
        return [
            _make_line(words.rest, (name, None), time_ns, interval, top_ns, rounds,
                       host_ns=evidence.issue_ns if evidence else None, doubt=doubt)
        ]  # fmt: skip
    busy_ns, busy_interval = evidence.compute_busy()
    gap_interval = None
    if interval is not None:  # rounds and trace are independent: their errors add as squares
        gap_interval = (
            time_ns - busy_ns
            - math.hypot(time_ns - interval[0], busy_interval[1] - busy_ns),
            time_ns - busy_ns
            + math.hypot(interval[1] - time_ns, busy_ns - busy_interval[0]),
        )  # fmt: skip
    return [
        _make_line(words.gaps, (name, _BUSY), time_ns - busy_ns, gap_interval, top_ns,
                   rounds, host_ns=evidence.issue_ns, doubt=doubt),
        _make_line(ladder.kernels, (_BUSY, None), busy_ns, busy_interval, top_ns, rounds,
                   doubt=doubt),
    ]  # fmt: skip


def _make_line(
    words: Words,
    labels: tuple[str, str | None],
    time_ns: float,
    interval: tuple[float, float] | None,
    top_ns: float,
    rounds: int,
    *,
    host_ns: float | None = None,
    problem: str = "",
    doubt: str = "",
    below_zero: str = "the device is busy for longer than the rung takes",
) -> Line:
    resolved = interval is not None and not interval[0] <= 0.0 <= interval[1]
    if resolved and not doubt and not 0.0 <= time_ns <= top_ns:
        problem = problem or (below_zero if time_ns < 0 else _MORE_THAN_ALL)
    resolved = resolved and not problem and not doubt
    return Line(
        name=words[0],
        removes=words[1],
        upper=labels[0],
        lower=labels[1],
        time_ns=time_ns,
        interval_ns=interval,
        share_ratio=time_ns / top_ns,
        resolved=resolved,
        rounds_needed=(
            None if resolved or doubt else estimate_rounds(rounds, interval, abs(time_ns))
        ),
        host_ns=host_ns,
        problem=problem,
        doubt=doubt,
    )


def _explain_below_zero(upper: Measurement, lower: Measurement) -> str:
    """Why the lower of two rungs may take longer, which does less."""
    words = "below 0, since rungs differ in memory behaviour"
    uses = [upper.kernel_use, lower.kernel_use]
    if uses[0] is None or uses[1] is None:
        return words
    faults = [f"{use.page_faults:,.0f}" for use in uses if use is not None]
    if faults[0] == faults[1]:
        return words
    return f"{words}: {lower.place} has {faults[1]} page faults a call, {upper.place} {faults[0]}"


def _subtract_issue(upper: RungEvidence | None, lower: RungEvidence | None) -> float | None:
    if upper is None or lower is None or upper.issue_ns is None or lower.issue_ns is None:
        return None
    return upper.issue_ns - lower.issue_ns
