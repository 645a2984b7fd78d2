"""How far machines of one kind drift between measuring sessions and lie apart.

Known from cells that were measured repeatedly. Only the part of a latency in which the device is
idle drifts: a kernel takes as long an hour later; the host has another clock and other neighbours.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ftax.records.fields import FrozenMap
from ftax.records.record import JsonScalar
from ftax.sweeps.sweep_records import GPU, REPETITION, SweepCell, drop_options
from ftax.sweeps.variance import split_variance
from ftax.timing.cell import Cell

REPEATED = "repeated"  # how the session of cells begins whose rounds are repetitions: which ones
_FEWEST = 3  # measurements of a cell that say anything about their spread
_FEWEST_TOGETHER = 2  # cells that say what a worker's have in common
_HOST_BOUND = 0.5  # share of a latency


class _Run(NamedTuple):
    """When a cell was measured: on which machine, in which repetition; 0 is the first time."""

    machine: str
    mark: JsonScalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Of one machine, or of machines that are alike.

    Attributes:
        sigma: standard deviation, between sessions, of the logarithm of the host's part of a
            latency that is mostly the host's; of several machines, with what lies between them.
        within: that between sessions of one worker, a part of ``sigma``; all of it where that is
            not known. The cells of a model are measured by one worker.
        cells: that were measured repeatedly; ``measurements``: of all of them.
        machines: that repeated some; ``apart``: the part of ``sigma`` that lies between them, None
            where no cell tells.
    """

    sigma: float
    within: float
    cells: int
    measurements: int
    machines: int = 1
    apart: float | None = None

    def describe(self) -> str:
        """One sentence, or two of several machines."""
        several = ""
        if self.machines > 1:
            which = f"the {self.machines} machines, which are alike,"
            several = f" How far {which} lie apart beside that is not known."
            if self.apart is not None:
                several = f" Between {which} lie {100 * self.apart:.1f} % of that."
        return (
            f"Between measuring sessions the host's part of a latency moved by "
            f"{100 * self.sigma:.1f} % (standard deviation, {self.measurements} measurements of "
            f"{self.cells} cells), within a worker by {100 * self.within:.1f} %.{several}"
        )

    @property
    def between(self) -> float:
        """That between workers, beside ``within``."""
        return math.sqrt(max(0.0, self.sigma**2 - self.within**2))

    def widen(self, cell: SweepCell) -> float:
        """Standard deviation of the logarithm of the latency of ``cell``, of drift alone."""
        return self.sigma * find_drifting_share(cell)


def is_repetition(cell: Cell) -> bool:
    """Whether it was measured once more."""
    return REPETITION in cell.options


def find_host_share(cell: SweepCell) -> float:
    """Of the latency, the part in which the device is idle; all of it where that is not known."""
    share = cell.overhead_share
    return 1.0 if share is None else share


def find_drifting_share(cell: SweepCell) -> float:
    """Of the latency, the part that another session would see otherwise than its rounds say."""
    is_repeated = str(cell.facts.get("session")).startswith(REPEATED)
    return 0.0 if is_repeated else find_host_share(cell)


def find_drift(cells: Iterable[SweepCell]) -> Drift | None:
    """The drift that cells of machines that are alike show; None if too few were repeated."""
    rows: list[dict[_Run, float]] = []  # of each cell, the logarithm of the host's part
    for group in _group(cells).values():
        shares = [find_host_share(cell) for cell in group]
        if len(group) >= _FEWEST and min(shares) >= _HOST_BOUND:
            rows.append(
                {
                    _find_run(cell): math.log(cell.latency_ns * share)
                    for cell, share in zip(group, shares, strict=True)
                }
            )
    if not rows:
        return None
    parts = split_variance(map(_split_by_machine, rows))
    if parts.within is None:
        return None
    sigma = math.hypot(parts.within, parts.between or 0.0)
    return Drift(
        sigma=sigma,
        within=min(parts.within, _find_within(rows, parts.within)),
        cells=len(rows),
        measurements=sum(map(len, rows)),
        machines=len({run.machine for row in rows for run in row}),
        apart=parts.between,
    )


def _find_run(cell: SweepCell) -> _Run:
    return _Run(cell.machine, cell.cell.options.get(REPETITION, 0))


def _split_by_machine(row: Mapping[_Run, float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for run, value in row.items():
        found.setdefault(run.machine, []).append(value)
    return found


def _find_within(rows: Sequence[Mapping[_Run, float]], sigma: float) -> float:
    """What is left of the logarithms without the means of cells and of repetitions, each of which
    is one worker's; ``sigma`` where too little was repeated together."""
    common = set.intersection(*({run for run in row if run.mark != 0} for row in rows))
    marks = sorted(common, key=lambda run: (run.machine, str(run.mark).zfill(9)))
    if len(rows) < _FEWEST_TOGETHER or len(marks) < _FEWEST:
        return sigma
    by_mark = {mark: statistics.fmean(row[mark] for row in rows) for mark in marks}
    middle = statistics.fmean(by_mark.values())
    squares = 0.0
    for row in rows:
        own = statistics.fmean(row[mark] for mark in marks)
        squares += sum((row[mark] - own - by_mark[mark] + middle) ** 2 for mark in marks)
    return math.sqrt(squares / ((len(rows) - 1) * (len(marks) - 1)))


def join_repetitions(cells: Iterable[SweepCell]) -> Mapping[Cell, SweepCell]:
    """Each repeated cell of machines that are alike as one, a round for each repetition on each.

    Cells that were repeated together have rounds that belong together, like those of one session.
    What is not latency is that of the first.
    """
    joined = {}
    for cell, group in _group(cells).items():
        marked = sorted(
            (item for item in group if is_repetition(item.cell)),
            key=lambda item: (item.machine, str(item.cell.options[REPETITION]).zfill(9)),
        )
        if len(marked) >= _FEWEST:
            values = tuple(item.latency_ns for item in marked)
            runs = [_find_run(item) for item in marked]
            is_alone = len({run.machine for run in runs}) == 1
            which = " ".join(
                str(run.mark) if is_alone else f"{run.machine}/{run.mark}" for run in runs
            )
            facts = {**marked[0].facts, "session": f"{REPEATED} {which}"}
            joined[cell] = replace(marked[0], cell=cell, values_ns=values, facts=FrozenMap(facts))
    return joined


def _group(cells: Iterable[SweepCell]) -> dict[Cell, list[SweepCell]]:
    """Measured cells that are one but for the mark; only those with a mark somewhere."""
    groups: dict[Cell, list[SweepCell]] = {}
    for cell in cells:
        if cell.status == "measured":
            groups.setdefault(drop_options(cell.cell, GPU, REPETITION), []).append(cell)
    return {
        cell: group
        for cell, group in groups.items()
        if any(is_repetition(item.cell) for item in group)
    }
