"""How far a machine drifts between measuring sessions, from cells that were measured repeatedly.

The surprising choice: only the part of a latency in which the device is idle is taken to drift. A
kernel takes as long an hour later; the host has another clock, other neighbours and other memory.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ftax.records.fields import FrozenMap
from ftax.records.record import JsonScalar
from ftax.sweeps.record import REPETITION, SweepCell
from ftax.timing.cell import Cell

REPEATED = "repeated"  # how the session of cells begins whose rounds are repetitions: which ones
_FEWEST = 3  # measurements of a cell that say anything about their spread
_FEWEST_TOGETHER = 2  # cells that say what a worker's have in common
_HOST_BOUND = 0.5  # share of a latency


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Of one machine.

    Attributes:
        sigma: standard deviation, between sessions, of the logarithm of the host's part of a
            latency that is mostly the host's.
        within: that between sessions of one worker, a part of ``sigma``; all of it where that is
            not known. The cells of a model are measured by one worker.
        cells: that were measured repeatedly; ``measurements``: of all of them.
    """

    sigma: float
    within: float
    cells: int
    measurements: int

    def describe(self) -> str:
        """One sentence."""
        return (
            f"Between measuring sessions the host's part of a latency moved by "
            f"{100 * self.sigma:.1f} % (standard deviation, {self.measurements} measurements of "
            f"{self.cells} cells), within a worker by {100 * self.within:.1f} %."
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


def unmark(cell: Cell) -> Cell:
    """The cell that was measured once more."""
    options = {name: value for name, value in cell.options.items() if name != REPETITION}
    return replace(cell, options=FrozenMap(options))


def find_host_share(cell: SweepCell) -> float:
    """Of the latency, the part in which the device is idle; all of it where that is not known."""
    share = cell.overhead_share
    return 1.0 if share is None else share


def find_drifting_share(cell: SweepCell) -> float:
    """Of the latency, the part that another session would see otherwise than its rounds say."""
    is_repeated = str(cell.facts.get("session")).startswith(REPEATED)
    return 0.0 if is_repeated else find_host_share(cell)


def find_drift(cells: Iterable[SweepCell]) -> Drift | None:
    """The drift that cells of one machine show; None if too few were repeated."""
    # Of each cell, by repetition, the logarithm of the host's part; 0 is the first time.
    rows: list[dict[JsonScalar, float]] = []
    for group in _group(cells).values():
        shares = [find_host_share(cell) for cell in group]
        if len(group) >= _FEWEST and min(shares) >= _HOST_BOUND:
            rows.append(
                {
                    cell.cell.options.get(REPETITION, 0): math.log(cell.latency_ns * share)
                    for cell, share in zip(group, shares, strict=True)
                }
            )
    if not rows:
        return None
    freedom = sum(len(row) - 1 for row in rows)
    squares = sum(statistics.variance(row.values()) * (len(row) - 1) for row in rows)
    sigma = math.sqrt(squares / freedom)
    return Drift(
        sigma=sigma,
        within=min(sigma, _find_within(rows, sigma)),
        cells=len(rows),
        measurements=sum(map(len, rows)),
    )


def _find_within(rows: Sequence[Mapping[JsonScalar, float]], sigma: float) -> float:
    """What is left of the logarithms without the means of cells and of repetitions, each of which
    is one worker's; ``sigma`` where too little was repeated together."""
    marks = set.intersection(*(set(row) - {0} for row in rows))
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
    """Each repeated cell of a machine as one, a round for each repetition, in their order.

    Cells that were repeated together have rounds that belong together, like those of one session.
    What is not latency is that of the first.
    """
    joined = {}
    for cell, group in _group(cells).items():
        marked = sorted(
            (item for item in group if is_repetition(item.cell)),
            key=lambda item: str(item.cell.options[REPETITION]).zfill(9),
        )
        if len(marked) >= _FEWEST:
            values = tuple(item.latency_ns for item in marked)
            which = " ".join(str(item.cell.options[REPETITION]) for item in marked)
            facts = {**marked[0].facts, "session": f"{REPEATED} {which}"}
            joined[cell] = replace(marked[0], cell=cell, values_ns=values, facts=FrozenMap(facts))
    return joined


def _group(cells: Iterable[SweepCell]) -> dict[Cell, list[SweepCell]]:
    """Measured cells that are one but for the mark; only those with a mark somewhere."""
    groups: dict[Cell, list[SweepCell]] = {}
    for cell in cells:
        if cell.status == "measured":
            groups.setdefault(unmark(cell.cell), []).append(cell)
    return {
        cell: group
        for cell, group in groups.items()
        if any(is_repetition(item.cell) for item in group)
    }
