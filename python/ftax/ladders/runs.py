"""Programs that `ftax run` watched, as results: what a file holds of them, and two compared."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ftax_run.account import Account, ProcessAccount
from ftax_run.frames import Place, name_place
from ftax_run.iteration import iteration as iteration
from ftax_run.records import from_record, to_record
from ftax_run.report import describe
from ftax_run.window import WORK, Window

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
    if not all(process.windows for side in processes for process in side):
        return found
    windows = [[process.correct()[0] for process in side] for side in processes]
    changes = tuple(_compare_lines(windows[0], windows[1], found.latency_a_ns, confidence))
    return replace(found, lines=changes, notes=(*found.notes, *_compare_work(windows, names)))


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
    a: Sequence[Window], b: Sequence[Window], whole_ns: float, confidence: float
) -> Iterator[LineChange]:
    """What the device was busy, and what it idled for which cause and line, an iteration."""

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
            amounts = tuple([w.sum_lines()[line] / w.count for w in side] for side in (a, b))
            yield compare(name_place(line), (amounts[0], amounts[1]), error_ns)

    every = {line: None for window in (*a, *b) for line in window.sum_lines()}
    changes = sorted(list_changes(list(every)), key=lambda item: -abs(item.difference_ns or 0.0))
    busy = tuple([window.busy / window.count for window in side] for side in (a, b))
    yield compare("device busy", (busy[0], busy[1]), None)
    yield from changes[:_MOST_LINES]


def _compare_work(windows: Sequence[Sequence[Window]], names: tuple[str, str]) -> Iterator[str]:
    """What the device is given an iteration, where that is not the same."""
    for work in WORK:
        counts = [round(side[0].work[work] / side[0].count, 1) for side in windows]
        if abs(counts[0] - counts[1]) > 0.5:
            yield (
                f"{work} an iteration: {counts[0]:,.1f} in {names[0]}, {counts[1]:,.1f} in "
                f"{names[1]}"
            )
