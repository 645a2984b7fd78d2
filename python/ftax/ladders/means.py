"""Means over the parts of a mix: of what a trace found of a rung, and of a runtime beside others.

The surprising choice: nothing is said of the mean that is not known of every part. One part without
a reliable trace leaves the mean without kernels; one whose outputs differ excludes a runtime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ftax.ladders.evidence import RungEvidence
from ftax.ladders.rows import RuntimeRow
from ftax.timing.candidate import Place
from ftax.timing.differences import compute_difference, find_doubt_of
from ftax.timing.mean import Mean, name_first, weigh

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanEvidence:
    """What the traces and gates of one rung, ``mean``, say; one a part."""

    mean: Mean
    parts: tuple[RungEvidence, ...]

    @property
    def place(self) -> Place:
        """Of the rung."""
        return self.mean.place

    @property
    def issue_ns(self) -> float | None:
        """Mean host time to issue one inference; None where that is not known of a part."""
        found = [part.issue_ns for part in self.parts]
        known = [time_ns for time_ns in found if time_ns is not None]
        return weigh(self.mean.shares, known) if len(known) == len(found) else None

    @property
    def other_kernels(self) -> str:
        """Of the first part of which that is known."""
        return name_first(self.mean.names, (part.other_kernels for part in self.parts))

    @property
    def lacking_kernels(self) -> str:
        """Likewise."""
        return name_first(self.mean.names, (part.lacking_kernels for part in self.parts))

    def splits(self, latency_ns: float) -> bool:
        """Whether busy time can be told from the rest in every part, by the part's own latency."""
        pairs = zip(self.parts, self.mean.parts, strict=True)
        return all(part.splits(measured.latency_ns) for part, measured in pairs)

    def compute_busy(self) -> tuple[float, Ends]:
        """Mean busy time and its 95 % interval, ns: traces are independent, so that their errors
        add as squares."""
        found = [part.compute_busy() for part in self.parts]
        mean_ns = weigh(self.mean.shares, [busy_ns for busy_ns, _ in found])
        below, above = (
            math.hypot(
                *(
                    share * (ends[side] - busy_ns)
                    for share, (busy_ns, ends) in zip(self.mean.shares, found, strict=True)
                )
            )
            for side in (0, 1)
        )
        return mean_ns, (mean_ns - below, mean_ns + above)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanRow:
    """One runtime that all parts have, compared with the first rung.

    Attributes:
        mean: its latency.
        rows: of the parts.
        is_able: whether it can take the model's place, and is no mere rung.
        saved_ns: mean latency of the first rung minus its own; the interval resamples rounds
            jointly.
        doubt: why its latency, or the first rung's, is not to go by; "" if both are.
    """

    mean: Mean
    rows: tuple[RuntimeRow, ...]
    is_able: bool
    saved_ns: float
    saved_interval_ns: Ends | None
    doubt: str

    @classmethod
    def of(cls, top: Mean, mean: Mean, rows: Sequence[RuntimeRow], *, is_able: bool) -> Self:
        """``rows`` are its own, one a part."""
        saved_ns, interval = compute_difference((top, mean), 0, 1)
        return cls(
            mean=mean,
            rows=tuple(rows),
            is_able=is_able and mean is not top,
            saved_ns=saved_ns,
            saved_interval_ns=interval,
            doubt=find_doubt_of((top, mean)),
        )

    @property
    def latency_ns(self) -> float:
        """Its mean latency."""
        return self.mean.latency_ns

    @property
    def speedup_ratio(self) -> float:
        """Mean latency of the first rung by its own."""
        return (self.latency_ns + self.saved_ns) / self.latency_ns

    @property
    def is_faster(self) -> bool:
        """Whether it is faster than the first rung for certain."""
        if self.doubt or self.saved_interval_ns is None:
            return False
        return self.saved_interval_ns[0] > 0

    @property
    def outputs(self) -> str:
        """The words of the first part whose outputs differ, or the first part's."""
        differing = (("" if row.outputs_equal else row.outputs) for row in self.rows)
        return name_first(self.mean.names, differing) or self.rows[0].outputs

    @property
    def excluded(self) -> str:
        """Why it is not recommended, of the first part that has a reason; "" if it may be."""
        return name_first(self.mean.names, (row.excluded for row in self.rows))
