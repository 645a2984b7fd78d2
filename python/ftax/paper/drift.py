"""How far a machine drifts between measuring sessions, from cells that were measured repeatedly.

The surprising choice: only the part of a latency in which the device is idle is taken to drift. A
kernel takes as long an hour later; the host has another clock, other neighbours and other memory.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ftax.records import FrozenMap
from ftax.results import Cell
from ftax.sweep import SweepCell
from ftax.sweep.record import REPETITION

REPEATED = "repeated"  # the session of cells whose rounds are repetitions
_FEWEST = 3  # measurements of a cell that say anything about their spread
_HOST_BOUND = 0.5  # share of a latency


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Of one machine.

    Attributes:
        sigma: standard deviation, between sessions, of the logarithm of the host's part of a
            latency that is mostly the host's.
        cells: that were measured repeatedly; ``measurements``: of all of them.
    """

    sigma: float
    cells: int
    measurements: int

    def describe(self) -> str:
        """One sentence."""
        return (
            f"Between measuring sessions the host's part of a latency moved by "
            f"{100 * self.sigma:.1f} % (standard deviation, {self.measurements} measurements of "
            f"{self.cells} cells)."
        )

    def widen(self, cell: SweepCell) -> float:
        """Standard deviation of the logarithm of the latency of ``cell``, of drift alone."""
        if cell.facts.get("session") == REPEATED:
            return 0.0  # its rounds show it
        return self.sigma * find_host_share(cell)


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


def find_drift(cells: Iterable[SweepCell]) -> Drift | None:
    """The drift that cells of one machine show; None if too few were repeated."""
    squares, freedom, count, measurements = 0.0, 0, 0, 0
    for group in _group(cells).values():
        shares = [find_host_share(cell) for cell in group]
        if len(group) < _FEWEST or min(shares) < _HOST_BOUND:
            continue
        logs = [
            math.log(cell.latency_ns * share) for cell, share in zip(group, shares, strict=True)
        ]
        squares += statistics.variance(logs) * (len(logs) - 1)
        freedom += len(logs) - 1
        count, measurements = count + 1, measurements + len(logs)
    if not freedom:
        return None
    return Drift(sigma=math.sqrt(squares / freedom), cells=count, measurements=measurements)


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
            facts = {**marked[0].facts, "session": REPEATED}
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
