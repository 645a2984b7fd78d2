"""Whether the same kernels take as long on one rung as on another.

The surprising choice: equal names, grids and counts are not enough. A replay that sets a launch
attribute wrongly runs the very same kernels a fifth slower, so they are compared one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ftax.errors import InvalidArgumentError
from ftax.instruments.trace.kernel_set import KernelEntry, KernelKey, KernelSet
from ftax.instruments.trace.names import shorten_all

__all__ = ["DurationComparison", "KernelDuration", "compare_durations"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDuration:
    """One kernel that ran in a and in b: medians of its duration, ns."""

    key: KernelKey
    count: int  # per iteration of a
    a_ns: float
    b_ns: float
    differs: bool

    @property
    def ratio(self) -> float:
        """b over a; infinite if a took no time at all."""
        return self.b_ns / self.a_ns if self.a_ns > 0 else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationComparison:
    """Whether the same kernels took as long in b as in a."""

    a: str
    b: str
    a_sum_ns: float  # kernel time of an iteration
    b_sum_ns: float
    kernels: tuple[KernelDuration, ...]  # those that ran in both, by their share of the difference

    @property
    def sum_ratio(self) -> float:
        """Kernel time of an iteration, b over a."""
        return self.b_sum_ns / self.a_sum_ns if self.a_sum_ns > 0 else float("inf")

    @property
    def flagged(self) -> tuple[KernelDuration, ...]:
        """The kernels whose durations differ."""
        return tuple(kernel for kernel in self.kernels if kernel.differs)

    def describe(self, *, limit: int = 5) -> str:
        """Return the comparison in words."""
        head = (
            f"kernel time of {self.b} is {self.sum_ratio:.3f} times that of {self.a} "
            f"({self.b_sum_ns / 1e3:.1f} and {self.a_sum_ns / 1e3:.1f} us)"
        )
        if not self.flagged:
            return f"{head}; no kernel differs"
        short = shorten_all({kernel.key.name for kernel in self.flagged})
        lines = [
            f"  {kernel.key.describe(short[kernel.key.name])}: {kernel.b_ns / 1e3:.2f} and "
            f"{kernel.a_ns / 1e3:.2f} us"
            for kernel in self.flagged[:limit]
        ]
        if len(self.flagged) > limit:
            lines.append(f"  and {len(self.flagged) - limit} more")
        return "\n".join([f"{head}; {len(self.flagged)} kernels differ:", *lines])


def compare_durations(
    a: KernelSet, b: KernelSet, *, limit_ratio: float = 0.05, limit_ns: float = 300
) -> DurationComparison:
    """Compare the durations of the kernels that a and b share.

    A kernel is flagged if its medians differ by more than `limit_ratio` of a's and by more than
    `limit_ns`: a kernel of 2 us jitters by a tenth of that from run to run.

    Raises:
        InvalidArgumentError: a limit is negative.
    """
    if limit_ratio < 0 or limit_ns < 0:
        raise InvalidArgumentError(
            f"the limits are {limit_ratio} and {limit_ns} ns; they have to be at least 0"
        )
    others = {entry.key: entry for entry in b.entries}
    shared = [(entry, others[entry.key]) for entry in a.entries if entry.key in others]
    return DurationComparison(
        a=a.label,
        b=b.label,
        a_sum_ns=a.sum_ns,
        b_sum_ns=b.sum_ns,
        kernels=_compare_entries(shared, limit_ratio=limit_ratio, limit_ns=limit_ns),
    )


def _compare_entries(
    pairs: list[tuple[KernelEntry, KernelEntry]], *, limit_ratio: float, limit_ns: float
) -> tuple[KernelDuration, ...]:
    kernels = []
    for one, other in pairs:
        a_ns, b_ns = one.median_ns, other.median_ns
        difference_ns = abs(b_ns - a_ns)
        kernels.append(
            KernelDuration(
                key=one.key,
                count=one.count,
                a_ns=a_ns,
                b_ns=b_ns,
                differs=difference_ns > limit_ns and difference_ns > limit_ratio * a_ns,
            )
        )
    return tuple(sorted(kernels, key=lambda item: -abs(item.b_ns - item.a_ns) * item.count))
