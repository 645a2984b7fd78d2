"""Compares sweeps cell by cell: what is faster, slower, equal, and what cannot be told.

A cell that several machines measured is compared machine by machine, with itself or with its like
on the other side. Two machines that differ are compared only where each side has one, and then it
is said in what they differ: such numbers are not of the code alone.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from ftax.errors import InvalidArgumentError, say_count
from ftax.machines.differences import DECIDING, describe_difference, find_differences
from ftax.records.record import JsonScalar
from ftax.sweeps.results import SweepResults
from ftax.sweeps.side_by_side import name_machines
from ftax.sweeps.sweep_records import GPU, REPETITION, SweepCell, SweepMachine, drop_options
from ftax.timing.call_inputs import check_inputs_alike
from ftax.timing.cell import Cell
from ftax.timing.comparison import (
    DEFAULT_CONFIDENCE,
    DEFAULT_MARGIN,
    SAME_CLOCK,
    Comparison,
    Side,
    Unit,
    Verdict,
    compare_sides,
)

_FEWEST = 2  # numbers a side that say anything of their spread
# Of one side: by cell and machine, what was measured once and once more.
_Side = Mapping[Cell, Mapping[str, Sequence[SweepCell]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellChange:
    """One cell on both sides; ``machine`` is what its machine is called, on side a."""

    cell: Cell
    machine: str
    a: SweepCell
    b: SweepCell
    result: Comparison

    @property
    def is_clock_other(self) -> bool:
        """Whether the hosts' cores ran at clocks that differ."""
        clocks = (self.result.core_hz_a, self.result.core_hz_b)
        known = [clock for clock in clocks if clock]
        return len(known) == len(clocks) and max(known) > (1 + SAME_CLOCK) * min(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepComparison:
    """How b compares with a, cell by cell.

    Attributes:
        differences: in what the machines differ that were compared, in words.
        left_out: cells that were not compared, in words.
    """

    name_a: str
    name_b: str
    changes: tuple[CellChange, ...]
    differences: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """How many cells have which verdict."""
        found = Counter(change.result.verdict for change in self.changes)
        return {verdict: found[verdict] for verdict in get_args(Verdict)}

    def describe(self) -> str:
        """ "after against before: 12 cells, 8 faster, 0 slower, 3 equal, 1 cannot tell"."""
        told = [f"{count} {name.replace('-', ' ')}" for name, count in self.counts.items()]
        many = f"{len(self.changes)} cell{'' if len(self.changes) == 1 else 's'}"
        return f"{self.name_b} against {self.name_a}: {many}, {', '.join(told)}"


def compare_sweeps(
    a: SweepResults,
    b: SweepResults,
    *,
    names: tuple[str, str] = ("a", "b"),
    margin: float = DEFAULT_MARGIN,
    confidence: float = DEFAULT_CONFIDENCE,
    allow_different: bool = False,
    allow_different_inputs: bool = False,
) -> SweepComparison:
    """Compare every cell that both sweeps measured.

    A cell that was repeated on both sides is compared between runs, the others between the rounds
    of one run each (Welch's test, as in `ftax.compare`). They were not measured by turns, so a
    difference has a verdict from 5 % on.

    Raises InvalidArgumentError if they have no cell in common, or if machines that are compared
    differ in hardware, torch or threads, unless ``allow_different``, or if the inputs of a cell
    differ, unless ``allow_different_inputs``.
    """
    side_a, side_b = _collect(a), _collect(b)
    machines = {**b.machines, **a.machines}
    named = name_machines(a.machines.values())
    changes, told, one_round, apart = [], dict[str, None](), 0, 0
    deciding: dict[str, None] = {}
    for cell in side_a:
        if cell not in side_b:
            continue
        pairs = _pair_machines(side_a[cell], side_b[cell], machines)
        apart += not pairs
        for one, other in pairs:
            differing = _find_differences((one, other), machines, names)
            told |= dict.fromkeys(differing.values())
            deciding |= {words: None for fact, words in differing.items() if fact in DECIDING}
            runs = side_a[cell][one], side_b[cell][other]
            result = _compare_runs(runs, names, margin=margin, confidence=confidence)
            if result is None:
                one_round += 1
                continue
            inputs = check_inputs_alike(
                runs[0][0].inputs, runs[1][0].inputs, names, is_allowed=allow_different_inputs
            )
            result = replace(result, notes=(*differing.values(), *inputs))
            name = named.get(one, one)
            changes.append(
                CellChange(cell=cell, machine=name, a=runs[0][0], b=runs[1][0], result=result)
            )
    if deciding and not allow_different:
        raise InvalidArgumentError(
            f"{'; '.join(deciding)}: the numbers are of that as much as of what was changed; "
            "measure both sides alike, or allow it (--allow-different, allow_different=True)"
        )
    left_out = [*_list_lonely(side_a, side_b, names)]
    if apart:
        left_out.append(
            f"{apart} cells were measured by several machines of a side, none of which is on both: "
            "compare sweeps of one machine each"
        )
    if same := sum(change.a == change.b for change in changes):
        left_out.append(
            f"{say_count(same, 'compared cell')} of one run on both sides: it differs from itself "
            "in nothing"
        )
    if one_round:
        left_out.append(f"{one_round} cells have a single round on a side, which has no spread")
    if not changes:
        raise InvalidArgumentError(
            f"{names[0]} and {names[1]} have no cell that could be compared"
            f"{': ' if left_out else ''}{'; '.join(left_out)}; measure the same grid into both"
        )
    return SweepComparison(
        name_a=names[0],
        name_b=names[1],
        changes=tuple(changes),
        differences=tuple(told),
        left_out=tuple(left_out),
    )


def compare_machines(
    results: SweepResults, *, margin: float = DEFAULT_MARGIN, confidence: float = DEFAULT_CONFIDENCE
) -> tuple[SweepComparison, ...]:
    """Compare the machines of one sweep: the others with the first that has cells in common.

    What the machines differ in is said, and refused is nothing: it is what is asked for. Raises
    InvalidArgumentError if no two of them have a cell in common.
    """
    parts = results.split_by_machine()
    named = name_machines(results.machines.values())
    names = {id: named.get(id, f"machine {id}") for id in parts}
    first: dict[str, str] = {}  # machine of each kind of device
    found = []
    for id, part in parts.items():
        kind = part.cells[0].cell.device.partition(":")[0]
        base = first.setdefault(kind, id)
        sides = parts[base], part
        if base == id or not _collect(sides[0]).keys() & _collect(sides[1]).keys():
            continue
        found.append(
            compare_sweeps(
                *sides,
                names=(names[base], names[id]),
                margin=margin,
                confidence=confidence,
                allow_different=True,
                allow_different_inputs=True,
            )
        )
    if not found:
        raise InvalidArgumentError(
            f"no two machines have a cell in common ({', '.join(names.values()) or 'none'}); give "
            "another sweep to compare with this one"
        )
    return tuple(found)


def _collect(results: SweepResults) -> _Side:
    """What was measured; of each machine what was measured once, then the repetitions."""
    found: dict[Cell, dict[str, list[SweepCell]]] = {}
    for cell in sorted(results.cells, key=_find_repetition):
        if cell.status == "measured":
            runs = found.setdefault(drop_options(cell.cell, GPU, REPETITION), {})
            runs.setdefault(cell.machine, []).append(cell)
    order = {drop_options(cell.cell, GPU, REPETITION): None for cell in results.cells}
    return {cell: found[cell] for cell in order if cell in found}


def _find_repetition(cell: SweepCell) -> int:
    mark: JsonScalar = cell.cell.options.get(REPETITION, 0)
    return mark if isinstance(mark, int) else 0


def _pair_machines(
    a: Mapping[str, object], b: Mapping[str, object], machines: Mapping[str, SweepMachine]
) -> list[tuple[str, str]]:
    """Which machine of a is compared with which of b: itself, the one of its hardware, or the only
    one that there is."""
    if same := [(id, id) for id in a if id in b]:
        return same
    alike = [
        (one, other)
        for one in a
        for other in b
        if _find_hardware(one, machines) == _find_hardware(other, machines)
    ]
    if alike and len({pair[0] for pair in alike}) == len({pair[1] for pair in alike}) == len(alike):
        return alike
    return [(next(iter(a)), next(iter(b)))] if len(a) == len(b) == 1 else []


def _find_hardware(id: str, machines: Mapping[str, SweepMachine]) -> tuple[object, ...]:
    if id not in machines:
        return (id,)
    found = machines[id].environment
    gpu = None if found.gpu is None else found.gpu.name
    return (found.machine, found.host.cpu_model, found.host.usable_cpus, gpu, found.device)


def _find_differences(
    pair: tuple[str, str], machines: Mapping[str, SweepMachine], names: tuple[str, str]
) -> dict[str, str]:
    """By fact, in words, what the machines of a pair do not have in common."""
    if pair[0] == pair[1] or any(id not in machines for id in pair):
        return {}
    sides = {name: [machines[id].environment] for name, id in zip(names, pair, strict=True)}
    return {
        fact: describe_difference(fact, values) for fact, values in find_differences(sides).items()
    }


def _compare_runs(
    sides: tuple[Sequence[SweepCell], Sequence[SweepCell]],
    names: tuple[str, str],
    *,
    margin: float,
    confidence: float,
) -> Comparison | None:
    """The comparison of one cell; None if a side has a single number."""
    is_repeated = min(map(len, sides)) >= _FEWEST
    a, b = (_read_side(side if is_repeated else side[:1], is_repeated) for side in sides)
    if min(len(a.medians_ns), len(b.medians_ns)) < _FEWEST:
        return None
    unit: Unit = "process" if is_repeated else "round"
    return compare_sides(
        a, b, unit=unit, paired=False, margin=margin, confidence=confidence, names=names
    )


def _read_side(runs: Sequence[SweepCell], is_repeated: bool) -> Side:
    medians = [statistics.median(run.values_ns) for run in runs]
    told = [run.doubt for run in runs if run.doubt]
    return Side(
        label=runs[0].cell.label(),
        runtime=str(runs[0].cell.place),
        medians_ns=medians if is_repeated else runs[0].values_ns,
        core_hz=_find_clock(runs),
        doubt=told[0] if told and 2 * len(told) >= len(runs) else "",
        problems=tuple(_find_problems(runs)),
    )


def _find_problems(side: Sequence[SweepCell]) -> Iterator[str]:
    for run in side:
        if run.facts.get("outputs_equal") is False:
            label = drop_options(run.cell, REPETITION).label()
            yield f"{label} gives other outputs than eager: {run.facts.get('outputs')}"


def _find_clock(side: Sequence[SweepCell]) -> float | None:
    found = [run.facts.get("core_hz") for run in side]
    clocks = [float(clock) for clock in found if isinstance(clock, int | float) and clock > 0]
    return statistics.median(clocks) if clocks else None


def _list_lonely(a: _Side, b: _Side, names: tuple[str, str]) -> Iterator[str]:
    for name, own, other in ((names[0], a, b), (names[1], b, a)):
        if lonely := [cell for cell in own if cell not in other]:
            count = f"{len(lonely)} cell{' is' if len(lonely) == 1 else 's are'}"
            yield f"{count} measured in {name} alone, such as {lonely[0].label()}"
