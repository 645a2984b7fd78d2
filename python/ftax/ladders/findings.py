"""What was measured of one model, and what follows from the samples alone: the lines, the rows.

Everything is computed when it is asked for, so a file cannot say one thing and its samples another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from ftax.ladders.evidence import RungEvidence
from ftax.ladders.ladder import EAGER, Ladder, find_ladder
from ftax.ladders.lines import Line, compute_lines
from ftax.ladders.rows import RuntimeRow, compute_rows
from ftax.records.record import Name
from ftax.records.result import Result
from ftax.timing.differences import compute_difference
from ftax.timing.measurement import Measurement, format_measured
from ftax.timing.trust import NOT_RESOLVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings(Result):
    """Rungs and alternatives of one model, measured in the same interleaved rounds.

    Attributes:
        ladder_name: whose rungs these are.
        rungs: from the first one down; at least one.
        others: the alternatives, in the order of measurement.
        evidence: on a GPU, what each rung and alternative ran there, gathered after the rounds.
        outside_ns: of a function, how long a call is outside of torch, in rounds of its own; empty
            where it is next to nothing.
        throughputs: the same runtimes with requests back to back, if that was asked for.
    """

    ladder_name: Name = EAGER.name
    rungs: tuple[Measurement, ...]
    others: tuple[Measurement, ...] = ()
    evidence: tuple[RungEvidence, ...] = ()
    outside_ns: tuple[float, ...] = ()
    throughputs: tuple[Measurement, ...] = ()

    @property
    def ladder(self) -> Ladder:
        """Whose rungs these are."""
        return find_ladder(self.ladder_name)

    @property
    def latency_ns(self) -> float:
        """Latency of the first rung."""
        return self.rungs[0].latency_ns

    @property
    def lines(self) -> tuple[Line, ...]:
        """Parts of the latency, top to bottom; their times sum to it exactly."""
        return compute_lines(
            self.rungs, self.evidence, ladder=self.ladder, outside_ns=self.outside_ns
        )

    @property
    def work_problem(self) -> str:
        """How calls of the first rung differed while they were timed; "" if that was not seen."""
        return self.rungs[0].work_problem

    @property
    def python_tax_ns(self) -> tuple[float, tuple[float, float] | None] | None:
        """The first rung minus the first without Python, with its interval; None if that was not
        measured, and if the first one's calls were not all the same work."""
        places = [rung.place for rung in self.rungs]
        without = self.ladder.without_python
        if self.work_problem or without not in places:
            return None
        return compute_difference(self.rungs, 0, places.index(without))

    @property
    def label(self) -> str:
        """What the user calls it: "before"."""
        return self.rungs[0].label

    def with_label(self, label: str) -> Self:
        """The same, all measurements under another label."""
        labelled = {
            name: tuple(item.with_label(label) for item in getattr(self, name))
            for name in ("rungs", "others", "throughputs")
        }
        return replace(self, **labelled)  # type: ignore[arg-type]  # of the fields' own types

    def describe(self) -> str:
        """The latency and the share of each line, in a line."""
        cell, top = self.rungs[0].cell, self.rungs[0]
        name = f"{self.label}: " if self.label else ""
        parts = ", ".join(
            f"{line.name} {NOT_RESOLVED if line.doubt else f'{line.share_ratio:.0%}'}"
            for line in self.lines
        )
        return (
            f"{name}{cell.model}, {cell.device}, {cell.dtype}, batch {cell.batch}: "
            f"{format_measured(top)}, of which {parts}; "
            f"{len(self.rungs) + len(self.others)} runtimes"
        )

    @property
    def runtimes(self) -> tuple[RuntimeRow, ...]:
        """Rungs and alternatives, fastest first: what each saves, and of what."""
        return compute_rows(
            (*self.rungs, *self.others),
            self.evidence,
            self.throughputs,
            ladder=self.ladder,
        )

    @property
    def alternatives(self) -> tuple[RuntimeRow, ...]:
        """The runtimes beside the ladder, fastest first."""
        return tuple(row for row in self.runtimes if not row.is_rung)
