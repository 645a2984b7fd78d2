"""Programs that `ftax run` watched, as results: what a file holds of them, and two compared."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from ftax_run.account import Account, ProcessAccount
from ftax_run.frames import Place, name_place
from ftax_run.iteration import iteration as iteration
from ftax_run.records import from_record, to_record
from ftax_run.report import describe
from ftax_run.sums import Sums
from ftax_run.window import WORK

from ftax.errors import InvalidArgumentError, ResultsError, say_count
from ftax.records.result import Shown
from ftax.timing.comparison import (
    Comparison,
    LineChange,
    Side,
    Unit,
    Verdict,
    compare_amounts,
    compare_sides,
    judge_amount,
)

_FEWEST_TURNS = 3
_MOST_LINES = 10


class Run(Shown):
    """One program that `ftax run -o` kept; ``account`` has what was found."""

    __slots__ = ("account",)
    kind: ClassVar[str] = "run"
    label: ClassVar[str] = ""  # in a results file the sides of a comparison are those of files

    def __init__(self, account: Account) -> None:
        self.account = account

    def describe(self) -> str:
        """What it says, in a sentence."""
        return describe(self.account)[0]

    def to_dict(self) -> dict[str, object]:
        """Plain dicts, lists and scalars."""
        return to_record(self.account)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Run:
        """What `to_dict` described. Raises ResultsError for another record."""
        try:
            return cls(from_record(data))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ResultsError(f"not as `ftax run -o` writes it ({error!r})") from error


def compare_runs(
    a: Sequence[Run],
    b: Sequence[Run],
    *,
    margin: float,
    confidence: float,
    names: tuple[str, str],
) -> Comparison:
    """How the steady iterations of b compare with those of a, and which lines changed.

    A side of several runs counts each of them once; one of a single run counts its turns, seconds
    in which only calls were recorded. Raises InvalidArgumentError where a side has too few.
    """
    unit: Unit = "process" if min(len(a), len(b)) >= 2 else "round"
    if unit == "round":
        a, b = a[:1], b[:1]
    found = compare_sides(
        _read_side(a, unit, names[0]), _read_side(b, unit, names[1]), unit=unit, paired=False,
        margin=margin, confidence=confidence, names=names,
    )  # fmt: skip
    processes = [[_find_main(run) for run in side] for side in (a, b)]
    if len({bool(process.windows) for side in processes for process in side}) > 1:
        return found  # a device's idle time is not compared with a thread's time
    sides = [[_Iteration.read(process) for process in side] for side in processes]
    changes = tuple(_compare_lines(sides[0], sides[1], found.latency_a_ns, confidence))
    return replace(found, lines=changes, notes=(*found.notes, *_compare_work(sides, names)))


@dataclass(frozen=True, slots=True)
class _Iteration:
    """A steady iteration of a process, in ns; without a device, of its main thread."""

    busy: float | None
    lines: Sums[Place]
    work: Sums[str]
    find_error: Callable[[Place], float]  # of a line, the standard error

    @classmethod
    def read(cls, process: ProcessAccount) -> Self:
        if process.windows:
            window, _ = process.correct()
            share = 1 / window.count
            work = Sums({name: window.work[name] * share for name in WORK})
            lines = window.sum_lines().scale(share)
            return cls(window.busy * share, lines, work, window.find_error)
        host, share = process.host, 1 / max(1, process.marked)
        times = host.sum_lines()
        return cls(
            None, times.scale(share), Sums(), lambda line: host.find_error(times[line]) * share
        )


def _find_main(run: Run) -> ProcessAccount:
    process = run.account.find_main()
    if process is None:
        raise InvalidArgumentError(f"{' '.join(run.account.command)}: nothing was seen of it")
    return process


def _read_side(runs: Sequence[Run], unit: Unit, name: str) -> Side:
    turns = [_find_main(run).list_turns() for run in runs]
    fewest = min(map(len, turns))
    if fewest < (_FEWEST_TURNS if unit == "round" else 1):
        raise InvalidArgumentError(
            f"{name} has {say_count(fewest, 'turn')} whose iterations are known: run it for 10 "
            "seconds or more, and mark its iterations if none were found (ftax_run.iteration)"
        )
    return Side(
        label=" ".join(runs[0].account.command),
        runtime="program",
        medians_ns=turns[0] if unit == "round" else [statistics.median(each) for each in turns],
    )


def _compare_lines(
    a: Sequence[_Iteration], b: Sequence[_Iteration], whole_ns: float, confidence: float
) -> Iterator[LineChange]:
    """What the device was busy, and what it idled for which line, an iteration; without a device
    what its thread took for which."""

    def compare(
        name: str, amounts: tuple[list[float], list[float]], error_ns: float | None
    ) -> LineChange:
        a_ns, b_ns = amounts
        interval: tuple[float, float] | None = None
        verdict: Verdict = "cannot-tell"
        if min(len(a), len(b)) >= 2:
            interval, verdict = compare_amounts(a_ns, b_ns, whole=whole_ns, confidence=confidence)
        elif error_ns is not None:
            half = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * error_ns
            interval = (b_ns[0] - a_ns[0] - half, b_ns[0] - a_ns[0] + half)
            verdict = judge_amount(interval, whole_ns)
        return LineChange(
            name=name, a_ns=statistics.fmean(a_ns), b_ns=statistics.fmean(b_ns),
            interval_ns=interval, verdict=verdict,
        )  # fmt: skip

    def list_changes(lines: Sequence[Place]) -> Iterator[LineChange]:
        for line in lines:
            error_ns = math.hypot(a[0].find_error(line), b[0].find_error(line))
            amounts = tuple([each.lines[line] for each in side] for side in (a, b))
            yield compare(name_place(line), (amounts[0], amounts[1]), error_ns)

    every = {line: None for each in (*a, *b) for line in each.lines}
    changes = sorted(list_changes(list(every)), key=lambda item: -abs(item.difference_ns or 0.0))
    busy = tuple([each.busy for each in side if each.busy is not None] for side in (a, b))
    if all(busy):
        yield compare("device busy", (busy[0], busy[1]), None)
    yield from changes[:_MOST_LINES]


def _compare_work(sides: Sequence[Sequence[_Iteration]], names: tuple[str, str]) -> Iterator[str]:
    """What the device is given an iteration, where that is not the same."""
    for work in WORK:
        counts = [round(side[0].work[work], 1) for side in sides]
        if abs(counts[0] - counts[1]) > 0.5:
            yield (
                f"{work} an iteration: {counts[0]:,.1f} in {names[0]}, {counts[1]:,.1f} in "
                f"{names[1]}"
            )
