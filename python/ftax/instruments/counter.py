"""What readings of an energy counter say: arithmetic alone, with no GPU in it.

The counter moves in steps, some 10 to 100 ms apart, so the difference between two arbitrary
readings is wrong by up to a step at each end. Those ends are thrown away: a
window begins and ends where the counter was *seen to move*, and how well those two moments are
known is stated with the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ftax.errors import UnavailableError, say_count


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterPoint:
    """One reading: when (CLOCK_MONOTONIC), the counter, and how many rounds were done by then."""

    at_ns: int
    energy_mj: int
    rounds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterWindow:
    """From the first step of the counter that was seen to the last.

    Attributes:
        first, last: the readings that showed these two steps.
        steps: how often the counter moved after the first of them.
        resolution_ratio: how wrong the length of the window can be, over that length; with it the
            power, since the energy between two steps is exact.
    """

    first: CounterPoint
    last: CounterPoint
    steps: int
    resolution_ratio: float

    @property
    def energy_j(self) -> float:
        """What the counter moved by."""
        return (self.last.energy_mj - self.first.energy_mj) / 1e3

    @property
    def seconds(self) -> float:
        """The length of the window."""
        return (self.last.at_ns - self.first.at_ns) / 1e9

    @property
    def power_w(self) -> float:
        """Mean power."""
        return self.energy_j / self.seconds


def find_window(points: Sequence[CounterPoint]) -> CounterWindow:
    """The longest window that ``points``, in the order of time, contain.

    Raises UnavailableError if the counter moved less than twice ("too short"), or went backwards.
    """
    pairs = list(pairwise(points))
    if any(after.energy_mj < before.energy_mj for before, after in pairs):
        raise UnavailableError(
            "the energy counter of the GPU went backwards, as it does when its driver is loaded "
            "anew: measure again"
        )
    moved = [(before, after) for before, after in pairs if after.energy_mj != before.energy_mj]
    if len(moved) < 2:
        span_s = (points[-1].at_ns - points[0].at_ns) / 1e9 if points else 0.0
        raise UnavailableError(
            f"too short: the energy counter of the GPU moved "
            f"{say_count(len(moved), 'time')} in {span_s:.2f} s, where two steps are needed; "
            "measure for longer. A counter that never moves does not work on this GPU or virtual "
            "machine"
        )
    first, last = moved[0], moved[-1]
    # Each step happened somewhere between the reading that shows it and the one before.
    uncertain_ns = max(after.at_ns - before.at_ns for before, after in (first, last))
    return CounterWindow(
        first=first[1],
        last=last[1],
        steps=len(moved) - 1,
        resolution_ratio=uncertain_ns / (last[1].at_ns - first[1].at_ns),
    )
