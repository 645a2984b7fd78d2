"""Compares two results: what changed, by how much, and in which line.

Measurements are compared as they are. Of receipts the first rungs decide, and beside them every
runtime and every line that both sides have. Rounds of two receipts are never taken for pairs, as
they are within one: two receipts are two runs, and have a verdict only on what two processes of the
same code do not differ by.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ftax.errors import InvalidArgumentError, name_type
from ftax.ladders.lines import Line
from ftax.ladders.receipt import Receipt
from ftax.ladders.runs import Run, compare_runs
from ftax.machines.differences import DECIDING, describe_difference, find_differences
from ftax.timing.call_inputs import check_inputs_alike
from ftax.timing.candidate import Place
from ftax.timing.comparison import (
    DEFAULT_CONFIDENCE,
    DEFAULT_MARGIN,
    Comparison,
    LineChange,
    Verdict,
    compare_amounts,
    compare_measurements,
    judge_amount,
)
from ftax.timing.differences import HostComparison
from ftax.timing.measurement import Measurement
from ftax.timing.trust import find_disturbance

Item = Measurement | Receipt | HostComparison | Run
Ends = tuple[float, float]


def compare_results(
    a: Item | Sequence[Item],
    b: Item | Sequence[Item],
    *,
    margin: float = DEFAULT_MARGIN,
    confidence: float = DEFAULT_CONFIDENCE,
    names: tuple[str, str] | None = None,
    allow_different: bool = False,
    allow_different_inputs: bool = False,
) -> Comparison:
    """`compare` of receipts, measurements, or runs of programs."""
    runs = [_list_runs(side) for side in (a, b)]
    if all(runs):
        return compare_runs(
            runs[0], runs[1], margin=margin, confidence=confidence,
            names=check_names(names) or ("a", "b"),
        )  # fmt: skip
    sides = (_flatten(a), _flatten(b))
    places = [_group(side) for side in sides]
    if [len(found) for found in places] == [1, 1]:
        pairs = [(next(iter(places[0])), next(iter(places[1])))]
    else:
        pairs = [(place, place) for place in places[0] if place in places[1]]
    if not pairs:
        texts = [", ".join(map(str, found)) for found in places]
        raise InvalidArgumentError(
            f"the sides have no runtime in common: a has {texts[0]}, b has {texts[1]}"
        )
    names = check_names(names) or _choose_names(*sides)
    differences = _find_differences(sides, names, allow_different)
    inputs = [found[place][0].inputs for found, place in zip(places, pairs[0], strict=True)]
    differences += check_inputs_alike(
        inputs[0], inputs[1], names, is_allowed=allow_different_inputs
    )
    compared = [
        compare_measurements(
            places[0][one], places[1][other], margin=margin, confidence=confidence, names=names
        )
        for one, other in pairs
    ]
    first, rest = compared[0], compared[1:]
    notes = [*first.notes, *differences, *_list_lonely(places, pairs, names)]
    if any(item == other for item in sides[0] for other in sides[1]):
        notes.append("both sides have the same run, which differs from itself in nothing")
    receipts = [[item for item in side if isinstance(item, Receipt)] for side in sides]
    lines: tuple[LineChange, ...] = ()
    if all(receipts):
        lines = tuple(_compare_lines(receipts[0], receipts[1], confidence))
    return replace(first, lines=lines, runtimes=tuple(rest), notes=tuple(notes))


def _list_runs(side: Item | Sequence[Item]) -> list[Run]:
    """Those of a side that has nothing else; else none."""
    items = list(side) if isinstance(side, Sequence) else [side]
    runs = [item for item in items if isinstance(item, Run)]
    return runs if len(runs) == len(items) else []


def check_names(names: tuple[str, str] | None) -> tuple[str, str] | None:
    """Raises InvalidArgumentError unless they are two that differ, or none."""
    if names is not None and (len(names) != 2 or names[0] == names[1]):
        raise InvalidArgumentError(f"names is {names!r}: give two that differ, as ('old', 'new')")
    return names


def _find_differences(
    sides: Sequence[Sequence[Measurement | Receipt]], names: tuple[str, str], is_allowed: bool
) -> list[str]:
    """In what the machines differ, in words. Raises InvalidArgumentError for what decides on a
    latency, unless that is allowed."""
    differing = find_differences(
        {
            name: [measurement.environment for measurement in _list_measurements(side)]
            for name, side in zip(names, sides, strict=True)
        }
    )
    if not is_allowed and (deciding := [fact for fact in differing if fact in DECIDING]):
        told = "; ".join(describe_difference(fact, differing[fact]) for fact in deciding)
        raise InvalidArgumentError(
            f"{told}: the numbers are of that as much as of what was changed; "
            "measure both sides alike, or allow it (--allow-different, allow_different=True)"
        )
    return [describe_difference(fact, values) for fact, values in differing.items()]


def _compare_lines(
    a: Sequence[Receipt], b: Sequence[Receipt], confidence: float
) -> Iterator[LineChange]:
    """What changed in each line, in the order of a's."""
    whole_ns = statistics.fmean(receipt.latency_ns for receipt in a)
    told = (find_disturbance(receipt.rungs[0].warnings) for receipt in (*a, *b))
    disturbed = next(filter(None, told), "")
    sides = [[line for receipt in side for line in receipt.lines] for side in (a, b)]
    for name in dict.fromkeys(line.name for side in sides for line in side):
        of_a, of_b = ([line for line in side if line.name == name] for side in sides)
        a_ns, b_ns = ([line.time_ns for line in side] for side in (of_a, of_b))
        interval: Ends | None = None
        verdict: Verdict = "cannot-tell"
        doubt = next(filter(None, (line.doubt or line.problem for line in (*of_a, *of_b))), "")
        if not of_a or not of_b:
            doubt = "one side has no such line"
        elif min(len(of_a), len(of_b)) >= 2:
            interval, verdict = compare_amounts(a_ns, b_ns, whole=whole_ns, confidence=confidence)
        else:
            doubt = doubt or disturbed
            widened = _find_z(confidence) / _find_z(a[0].rungs[0].confidence)
            interval = _subtract(of_b[0], of_a[0], widened)
            verdict = judge_amount(interval, whole_ns)
        yield LineChange(
            name=name,
            a_ns=statistics.fmean(a_ns) if a_ns else None,
            b_ns=statistics.fmean(b_ns) if b_ns else None,
            interval_ns=interval,
            verdict="cannot-tell" if doubt else verdict,
            doubt=doubt,
        )


def _find_z(confidence: float) -> float:
    """How many standard errors an interval reaches to either side."""
    return statistics.NormalDist().inv_cdf((1 + confidence) / 2)


def _subtract(b: Line, a: Line, widened: float) -> Ends | None:
    """The interval of b - a: of two runs, whose errors add as squares, ``widened`` times."""
    if a.interval_ns is None or b.interval_ns is None:
        return None
    (low_a, high_a), (low_b, high_b) = a.interval_ns, b.interval_ns
    difference = b.time_ns - a.time_ns
    return (
        difference - widened * math.hypot(b.time_ns - low_b, high_a - a.time_ns),
        difference + widened * math.hypot(high_b - b.time_ns, a.time_ns - low_a),
    )


def _flatten(side: Item | Sequence[Item]) -> list[Measurement | Receipt]:
    given = list(side) if isinstance(side, Sequence) else [side]
    found: list[Any] = []
    for item in given:
        if isinstance(item, HostComparison):
            found += [*item]
        else:
            found.append(item)
    if not found:
        raise InvalidArgumentError("a side of the comparison has no measurement")
    for item in found:
        if not isinstance(item, Measurement | Receipt):
            raise InvalidArgumentError(
                f"a side of the comparison has {name_type(item)}: give receipts, measurements or "
                "runs, as ftax.tax and ftax.cpp_bench give them; of a file, "
                "ftax.read_records(path); of sweeps, ftax.sweeps.comparison.compare_sweeps(a, b)"
            )
    if any(item == other for place, item in enumerate(found) for other in found[:place]):
        raise InvalidArgumentError(
            "a side of the comparison has the same run more than once, which would count as "
            "several processes: leave out the copies (a file to which it was saved twice, say)"
        )
    if len({isinstance(item, Receipt) for item in found}) > 1:
        raise InvalidArgumentError(
            "a side of the comparison has receipts and measurements; give either"
        )
    return found


def _list_measurements(side: Sequence[Measurement | Receipt]) -> list[Measurement]:
    return [
        measurement
        for item in side
        for measurement in ((*item.rungs, *item.others) if isinstance(item, Receipt) else (item,))
    ]


def _group(side: Sequence[Measurement | Receipt]) -> dict[Place, list[Measurement]]:
    """By runtime and host. Raises InvalidArgumentError where one of them has several cells."""
    groups: dict[Place, list[Measurement]] = {}
    for measurement in _list_measurements(side):
        groups.setdefault(measurement.place, []).append(measurement)
    for place, found in groups.items():
        labels = sorted({measurement.cell.label() for measurement in found})
        if len(labels) > 1:
            raise InvalidArgumentError(
                f"a side of the comparison has measurements of {len(labels)} cells of {place} "
                f"({', '.join(labels)}); give each a side of its own: a label (--label), or a file"
            )
    return groups


def _choose_names(
    a: Sequence[Measurement | Receipt], b: Sequence[Measurement | Receipt]
) -> tuple[str, str]:
    labels = [{measurement.label for measurement in _list_measurements(side)} for side in (a, b)]
    names = [next(iter(found)) if len(found) == 1 else "" for found in labels]
    return (names[0], names[1]) if all(names) and names[0] != names[1] else ("a", "b")


def _list_lonely(
    places: Sequence[dict[Place, list[Measurement]]],
    pairs: Sequence[tuple[Place, Place]],
    names: tuple[str, str],
) -> Iterator[str]:
    """Runtimes that one side alone has."""
    for name, found, side in zip(names, places, (0, 1), strict=True):
        lonely = [str(place) for place in found if place not in {pair[side] for pair in pairs}]
        if lonely:
            yield f"{', '.join(lonely)} {'is' if len(lonely) == 1 else 'are'} in {name} alone"
