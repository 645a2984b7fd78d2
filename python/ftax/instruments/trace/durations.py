"""Whether the same kernels take as long on one rung as on another.

Equal names, grids and counts are not enough. A replay that sets a launch attribute wrongly runs the
very same kernels a fifth slower, so they are compared one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ftax.instruments.trace.kernel_set import KernelKey, KernelSet

_LIMIT_RATIO = 0.05
_LIMIT_NS = 300  # a kernel of 2 us jitters by a tenth of that from run to run


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDuration:
    """One kernel that ran in a and in b: medians of its duration, ns."""

    key: KernelKey
    count: int  # per iteration of a
    a_ns: float
    b_ns: float

    @property
    def ratio(self) -> float:
        """b over a; infinite if a took no time at all."""
        return self.b_ns / self.a_ns if self.a_ns > 0 else float("inf")

    @property
    def differs(self) -> bool:
        """Whether by more than 5 % of a and by more than 0.3 us."""
        return abs(self.b_ns - self.a_ns) > max(_LIMIT_NS, _LIMIT_RATIO * self.a_ns)


def compare_durations(a: KernelSet, b: KernelSet) -> tuple[KernelDuration, ...]:
    """The kernels of both sets whose durations differ, by their share of the difference."""
    others = {entry.key: entry.median_ns for entry in b.entries}
    shared = (
        KernelDuration(
            key=entry.key, count=entry.count, a_ns=entry.median_ns, b_ns=others[entry.key]
        )
        for entry in a.entries
        if entry.key in others
    )
    differing = [item for item in shared if item.differs]
    return tuple(sorted(differing, key=lambda item: -abs(item.b_ns - item.a_ns) * item.count))
