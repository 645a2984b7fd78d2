"""Latency, held to that of a git revision by the engine of `ftax compare`: both are measured by
turns, in pairs of processes, where a budget asks for it. It is no count, and in no baseline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ftax.budgets.held import Verdict
from ftax.errors import FtaxError
from ftax.ladders.pairs import PairSide, make_pair_plan
from ftax.ladders.verdict import compare_by_turns
from ftax.timing.comparison import Comparison
from ftax.timing.plan import Progress

NO_BASE = "there is nothing to compare with: give --base REF"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLatency:
    """The latency of one step, held to a budget; to be read as a `ftax.budgets.held.Held` is.

    Attributes:
        more: how much slower than the base it may be, as a ratio.
        base: the git revision; "" if there is none.
        verdict: "breach" if it is slower by more than that for certain, "within" if it is not for
            certain, else "cannot tell".
        problem: why it was not measured.
    """

    kind: ClassVar[str] = "latency"
    words: ClassVar[str] = "latency"
    source: ClassVar[str] = "budget"
    most: ClassVar[None] = None
    measured: ClassVar[None] = None

    step: str
    more: float
    base: str
    comparison: Comparison | None = None
    problem: str = ""

    @property
    def verdict(self) -> Verdict:
        """Of the comparison."""
        if self.comparison is None:
            return "cannot tell"
        if self.comparison.is_slower_by_margin:
            return "breach"
        return "within" if self.comparison.is_within_margin else "cannot tell"

    @property
    def limit(self) -> str:
        """``+5 % (origin/main)``."""
        return f"+{100 * self.more:g} % ({self.base or self.source})"

    @property
    def got(self) -> str:
        """``+7.2 %``; "" where it was not measured."""
        return f"{100 * (self.comparison.ratio - 1):+.1f} %" if self.comparison else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before believing it."""
        return self.comparison.warnings if self.comparison else ()

    def describe(self) -> str:
        """What was expected, and the answer as `ftax compare` gives it."""
        found = self.comparison.describe() if self.comparison else self.problem
        return f"latency: expected at most {self.limit}; {found}"

    def list_places(self) -> Iterator[str]:
        """None: a time has no line."""
        yield from ()


def hold_latency(
    step: str, more: float, sides: Sequence[PairSide], duration_s: float, progress: Progress | None
) -> HeldLatency:
    """Measure the step at the base, the first side, and as it is; without a first side there is
    nothing to hold it to. Raises KeyboardInterrupt."""
    if len(sides) < 2:
        return HeldLatency(step=step, more=more, base="", problem=NO_BASE)
    base = sides[0].label
    try:
        runs, found = compare_by_turns(
            sides, plan=make_pair_plan({}), duration_s=duration_s, margin=more, progress=progress
        )
        if runs.ended is not None:
            raise runs.ended
    except FtaxError as error:
        return HeldLatency(step=step, more=more, base=base, problem=str(error))
    return HeldLatency(step=step, more=more, base=base, comparison=found[0])
