"""How far runs of one machine differ, and how far machines of one kind differ beyond that.

Both come from anchors: cells that were measured on several machines and repeated. Model: the
logarithm of a latency is that of its cell, plus what its machine does to it, plus what its run does
(one-way random effects; Searle, Casella and McCulloch, "Variance Components", 1992, chapter 3).

All cells of a machine are taken to move together, as they do if its host is slow. So more anchors
make the numbers better, and the interval no narrower than one anchor would have it. Across kinds of
machines nothing is averaged.
"""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ftax.sweeps.results import SweepResults
from ftax.sweeps.sweep_records import GPU, REPETITION, SweepCell, drop_options
from ftax.timing.cell import Cell

# Of one cell: by machine, the logarithm of the latency in each run.
Runs = Mapping[str, Sequence[float]]
Ends = tuple[float, float]

_CONFIDENCE = 0.95
_DRAWS = 4000
_FEWEST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Standard deviations of the logarithm of a latency; for small ones, as ratios of it.

    Attributes:
        within: between runs on one machine; None where nothing was repeated.
        between: between machines, beside ``within``; at least 0, and None where it is not known.
        interval: of ``between``, 95 %.
    """

    within: float | None
    between: float | None = None
    interval: Ends | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KindVariance:
    """Machines of the same hardware and software.

    Attributes:
        machines: their ids; ``cells`` and ``runs`` (of all cells together) are what it is from.
        problem: why ``components`` lacks something, and what would be needed; "" if it does not.
    """

    machines: tuple[str, ...]
    cells: int
    runs: int
    components: Components
    problem: str = ""


def find_variances(results: SweepResults) -> tuple[KindVariance, ...]:
    """The variances of each kind of machine that measured something, in the order of cells.

    Latencies that are not to go by (`SweepCell.doubt`) are left out.
    """
    kinds: dict[str, dict[str, None]] = {}
    for cell in results.cells:
        if cell.status == "measured":
            machine = results.machines.get(cell.machine)
            kind = cell.machine if machine is None else machine.alike
            kinds.setdefault(kind, {})[cell.machine] = None
    return tuple(
        _judge(tuple(ids), collect_runs(cell for cell in results.cells if cell.machine in ids))
        for ids in kinds.values()
    )


def collect_runs(cells: Iterable[SweepCell]) -> dict[Cell, dict[str, list[float]]]:
    """The runs of each cell that was repeated anywhere, by the cell without what tells repetitions
    and kinds of GPU apart."""
    measured: dict[Cell, list[SweepCell]] = {}
    for cell in cells:
        if cell.status == "measured":
            measured.setdefault(drop_options(cell.cell, GPU, REPETITION), []).append(cell)
    found: dict[Cell, dict[str, list[float]]] = {}
    for place, group in measured.items():
        runs: dict[str, list[float]] = {}
        if any(REPETITION in item.cell.options for item in group):
            for item in group:
                if not item.doubt:
                    runs.setdefault(item.machine, []).append(math.log(item.latency_ns))
        if any(len(values) > 1 for values in runs.values()):
            found[place] = runs
    return found


def split_variance(cells: Iterable[Runs]) -> Components:
    """The components that runs of some cells show: pooled mean squares of the analysis of variance
    of each. The interval is a generalised one (Weerahandi, "Generalized Confidence Intervals",
    1993): quantiles of ``between`` under draws of both mean squares from their distributions.
    """
    listed = [runs for runs in cells if any(len(values) > 1 for values in runs.values())]
    within, freedom = pool_within(values for runs in listed for values in runs.values())
    if not freedom:
        return Components(within=None)
    squares = weight = 0.0
    steps = most_machines = most_runs = 0
    for runs in listed:
        counts = [len(values) for values in runs.values()]
        middle = statistics.fmean(value for values in runs.values() for value in values)
        squares += sum(
            len(values) * (statistics.fmean(values) - middle) ** 2 for values in runs.values()
        )
        # Of a machine's effect, how many times it is in the mean square: its runs, if all have so
        # many.
        weight += sum(counts) - sum(count**2 for count in counts) / sum(counts)
        steps += len(counts) - 1
        most_machines = max(most_machines, len(counts) - 1)
        most_runs = max(most_runs, sum(counts) - len(counts))
    if not steps:
        return Components(within=math.sqrt(within))
    between, each = squares / steps, weight / steps
    factors = zip(_draw_factors(0, most_machines), _draw_factors(1, most_runs), strict=True)
    draws = sorted(max(0.0, between * ours - within * theirs) / each for ours, theirs in factors)
    tail = round(_DRAWS * (1 - _CONFIDENCE) / 2)
    return Components(
        within=math.sqrt(within),
        between=math.sqrt(max(0.0, between - within) / each),
        interval=(math.sqrt(draws[tail]), math.sqrt(draws[-1 - tail])),
    )


@functools.cache
def _draw_factors(seed: int, freedom: int) -> tuple[float, ...]:
    """What a mean square is to be multiplied by, for draws of the variance that it estimates."""
    generator = random.Random(seed)
    return tuple(freedom / (2 * generator.gammavariate(freedom / 2, 1)) for _ in range(_DRAWS))


def pool_within(groups: Iterable[Sequence[float]]) -> tuple[float, int]:
    """The variance within groups around the mean of each, and its degrees of freedom; (0.0, 0)
    where no group has two values."""
    several = [values for values in groups if len(values) > 1]
    freedom = sum(len(values) - 1 for values in several)
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in several)
    return (squares / freedom if freedom else 0.0), freedom


def _judge(machines: tuple[str, ...], cells: Mapping[Cell, Runs]) -> KindVariance:
    repeated = [*cells.values()]
    anchors = [runs for runs in repeated if len(runs) >= _FEWEST]
    used = anchors or repeated
    problem = ""
    if not repeated:
        problem = "no cell was measured twice on one machine; a grid with repetitions does it"
    elif len(machines) < _FEWEST:
        problem = "it is one machine; another one like it has to measure the same cells"
    elif not anchors:
        problem = "no repeated cell is on two machines; a grid with every_machine = true does it"
    return KindVariance(
        machines=machines,
        cells=len(used),
        runs=sum(len(values) for runs in used for values in runs.values()),
        components=split_variance(used),
        problem=problem,
    )
