"""What each rung did on the GPU, and how long the host needed to ask for it: the evidence behind a
receipt's lines.

It is gathered after the rounds, because both instruments change what they look at: a gate holds the
device still, and a trace slows the host. Only two of its numbers enter a receipt: device busy time
of the lowest rung, and, in a column of their own, issue times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from ftax.instruments.gate import Gated
from ftax.instruments.trace.integrity import judge
from ftax.instruments.trace.kernel_set import (
    KernelSet,
    compare_durations,
    compare_kernel_sets,
    compute_lacking,
)
from ftax.instruments.trace.names import shorten_all
from ftax.instruments.trace.timeline import Timeline, Waits, compute_timeline, compute_waits
from ftax.ladders.ladder import EAGER, Ladder
from ftax.records.record import Count, Name, Ratio, Record
from ftax.timing.candidate import Placed
from ftax.timing.plan import Plan
from ftax.timing.statistics import compute_interval, compute_mean
from ftax.timing.trust import FEW_ROUNDS
from ftax.timing.units import format_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ftax.instruments.trace.records import Trace
    from ftax.ladders.ladder import Ladder

_TOP = 15
_FLAGGED = 5
_LACKING = 0.02  # a library chooses the token or counts positions by operators of its own

TOO_FEW_TO_RESOLVE = "which is too few to resolve anything"  # of a warning that says how long to do


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCost(Record):
    """One kernel of a rung: how often it runs in an inference, and its time there, ns."""

    kernel: Name  # shortened, with the shape of its launch
    count: Count
    total_ns: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class RungEvidence(Placed, Record):
    """What a trace and a gate say of one rung.

    Attributes:
        problems: why the trace is not reliable, or why there is none; its numbers are then kept
            and not used.
        notes: what one should know of the trace all the same.
        kernels, copies, fills: of one inference.
        kernel_ns, busy_ns: of each traced inference: the sum of kernel durations, and the union of
            all device activities.
        same_kernels: whether the multiset of kernels (name, grid, block, shared memory) is that of
            the reference, which is the first rung unless the ladder names another; None: nothing
            reliable to compare with.
        difference: how it is not, in words.
        lacking_ratio: of the reference's kernel time, the share of kernels that this rung did not
            run, or less often; None: as above.
        duration_ratio: time of the same kernels over the reference's.
        slower: kernels of other durations than the reference's, in words.
        timeline: where the time of each traced inference went.
        waits: for the device, while a request was issued.
        top: the kernels that take the most time.
        gate: issue time and device time without a profiler.
        traced_in: a disposable process, or the caller's.
    """

    runtime: Name
    host: Literal["python", "cpp"]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    kernels: Count = 0
    copies: Count = 0
    fills: Count = 0
    kernel_ns: tuple[Count, ...] = ()
    busy_ns: tuple[Count, ...] = ()
    same_kernels: bool | None = None
    difference: str = ""
    lacking_ratio: Ratio | None = None
    duration_ratio: Ratio | None = None
    slower: tuple[str, ...] = ()
    timeline: Timeline | None = None
    waits: Waits | None = None
    top: tuple[KernelCost, ...] = ()
    gate: Gated | None = None
    traced_in: Literal["worker", "this process"] = "this process"

    @property
    def other_kernels(self) -> str:
        """That it ran others than the reference, in words; "" if that is not known."""
        return f"{self.runtime} ran other kernels" if self.same_kernels is False else ""

    @property
    def lacking_kernels(self) -> str:
        """That it did not run those of the reference, but for a few short ones, in words; "" if
        that is not known."""
        if self.lacking_ratio is None or self.lacking_ratio <= _LACKING:
            return ""
        return f"{self.runtime} ran, for {self.lacking_ratio:.0%} of the time, other kernels"

    @property
    def issue_ns(self) -> float | None:
        """Median host time to issue one inference; None without a gate that held."""
        issue = self.gate.issue_ns if self.gate is not None else None
        return None if issue is None else issue.median_ns

    @property
    def device_ns(self) -> float | None:
        """Median device time of one inference behind the gate; None without a gate that held."""
        device = self.gate.device_ns if self.gate is not None else None
        return None if device is None else device.median_ns

    def compute_busy(self) -> tuple[float, tuple[float, float]]:
        """Mean busy time of the traced inferences and its 95 % interval, ns."""
        mean_ns = compute_mean(self.busy_ns)
        interval = compute_interval(self.busy_ns, confidence=0.95, resamples=2000, seed=0)
        return mean_ns, interval or (mean_ns, mean_ns)

    def splits(self, latency_ns: float) -> bool:
        """Whether busy time can be told from the rest of an untraced latency."""
        if self.problems or not self.busy_ns:
            return False
        return sum(self.busy_ns) / len(self.busy_ns) <= latency_ns

    @classmethod
    def of(
        cls,
        trace: Trace,
        *,
        reference: KernelSet | None,
        expected_nodes: Mapping[str, int] | None = None,
        gate: Gated | None = None,
        traced_in: Literal["worker", "this process"] = "this process",
    ) -> tuple[Self, KernelSet | None]:
        """Evidence from a trace, and its kernels if it is reliable.

        ``reference`` are the kernels to compare with; None for the reference itself.
        """
        verdict = judge(trace, expected_nodes=expected_nodes)
        if not verdict.ok:
            return cls(
                runtime=trace.runtime, host=trace.host, problems=verdict.reasons,
                notes=verdict.notes, gate=gate, traced_in=traced_in,
            ), None  # fmt: skip
        kernels, timeline = KernelSet.of(trace), compute_timeline(trace)
        part = trace.split()[0]
        difference = compare_kernel_sets(reference, kernels) if reference else None
        return cls(
            runtime=trace.runtime,
            host=trace.host,
            notes=verdict.notes,
            kernels=len(part.kernels),
            copies=len(part.memcpys),
            fills=len(part.memsets),
            kernel_ns=kernels.sums_ns,
            busy_ns=tuple(row.device_busy_ns for row in timeline.rows),
            same_kernels=True if difference is None else difference.equal,
            difference="" if difference is None or difference.equal else difference.describe(),
            lacking_ratio=compute_lacking(reference, kernels) if reference else None,
            duration_ratio=(
                kernels.sum_ns / reference.sum_ns if reference and reference.sum_ns else None
            ),
            slower=_describe_slower(reference, kernels) if reference else (),
            timeline=timeline,
            waits=compute_waits(trace),
            top=_list_top(kernels),
            gate=gate,
            traced_in=traced_in,
        ), kernels


def note_reference(ladder: Ladder, evidence: Sequence[RungEvidence]) -> Ladder:
    """The ladder, with its first rung as the reference where the other one that it names was not
    traced."""
    is_traced = any(item.place == ladder.reference[0] for item in evidence)
    return ladder if is_traced else replace(ladder, compared=None)


def compare_work(
    upper: RungEvidence | None, lower: RungEvidence | None, reference: str, *, may_add: bool = False
) -> str:
    """Why the difference between two rungs is no tax; empty if nothing speaks against it.

    Kernels are compared with those of the reference, which is called so: two rungs that both
    differ from it are not believed to be the same. With ``may_add`` the upper one may run more.
    """
    if upper is None or lower is None:
        return ""
    changed = lower.other_kernels or (upper.lacking_kernels if may_add else upper.other_kernels)
    return f"{changed} than {reference}" if changed else ""


def _describe_slower(reference: KernelSet, kernels: KernelSet) -> tuple[str, ...]:
    flagged = compare_durations(reference, kernels)[:_FLAGGED]
    short = shorten_all({item.key.name for item in flagged})
    return tuple(
        f"{item.key.describe(short[item.key.name])}: {item.ratio:.2f} times as long"
        for item in flagged
    )


def _list_top(kernels: KernelSet) -> tuple[KernelCost, ...]:
    top = kernels.entries[:_TOP]
    short = shorten_all({entry.key.name for entry in top})
    iterations = len(kernels.sums_ns)
    return tuple(
        KernelCost(
            kernel=entry.key.describe(short[entry.key.name]),
            count=entry.count,
            total_ns=entry.total_ns / iterations,
        )
        for entry in top
    )


def warn_of_evidence(evidence: Sequence[RungEvidence], ladder: Ladder = EAGER) -> list[str]:
    """What a reader of the receipt has to know of the traces behind it."""
    ladder = note_reference(ladder, evidence)
    warnings = []
    unused: dict[str, list[str]] = {}
    ungated: dict[str, list[str]] = {}
    for item in evidence:
        name = str(item.place)
        if item.problems:
            unused.setdefault("; ".join(item.problems), []).append(name)
        if item.gate is not None and item.gate.cut:
            ungated.setdefault(str(item.gate.reason), []).append(name)
        if item.place not in ladder.places:
            continue  # an alternative is expected to run other kernels
        if not ladder.is_compared(item.place):
            warnings += _note_more_kernels(item, evidence, ladder)
            continue
        if item.difference:
            warnings.append(item.difference)
        if item.slower:
            warnings.append(
                f"kernels of {name} took other times than those of {ladder.reference[1]}: "
                f"{'; '.join(item.slower)}"
            )
    warnings += [f"no trace of {', '.join(names)} is used: {why}" for why, names in unused.items()]
    warnings += [f"no issue time of {', '.join(names)}: {why}" for why, names in ungated.items()]
    return warnings


def _note_more_kernels(
    item: RungEvidence, evidence: Sequence[RungEvidence], ladder: Ladder
) -> list[str]:
    """What a rung above the reference has run besides; nothing where that is not known."""
    place, name = ladder.reference
    reference = next((other for other in evidence if other.place == place), None)
    if not item.difference or reference is None:
        return []
    if item.lacking_kernels:
        return [item.difference]
    busy = " to ".join(format_time(other.compute_busy()[0]) for other in (item, reference))
    line = ladder.name_step(item.place, place)[0]
    return [
        f"{item.place} ran {item.kernels:,} kernels, {name} {reference.kernels:,} (device busy "
        f"{busy}): the difference belongs to the line {line}"
    ]


def warn_of_rounds(
    stop_reason: str, rounds: int, plan: Plan, *, round_s: float = 0.0, whole_s: float = 0.0
) -> list[str]:
    """That the rounds ended before they were as precise as asked; empty if they did not.

    Args:
        round_s: how long a round took, over all runtimes.
        whole_s: how long one took with all that lies between requests, as a step's reset does.
    """
    aim = f"before every interval was within {plan.target_ratio:.1%}"
    if stop_reason == "time-limit" and rounds < FEW_ROUNDS:
        is_between = whole_s > 4 * round_s  # most of it passes between requests
        between = f" ({whole_s:.2g} s with what is done between requests)" if is_between else ""
        enough_s = FEW_ROUNDS * (whole_s if is_between else 2 * round_s)
        return [
            f"the time limit of {plan.duration_s:g} s was over after {rounds} "
            f"round{'s' if rounds > 1 else ''} of {round_s:.2g} s{between}, which is too few to "
            f"resolve anything; --duration {math.ceil(enough_s):g} has room for "
            f"{FEW_ROUNDS}, fewer --runtimes need less"
        ]
    if stop_reason == "time-limit":
        return [
            f"stopped at the time limit of {plan.duration_s:g} s after {rounds} rounds, {aim}; "
            "--duration gives it more"
        ]
    if stop_reason == "max-rounds":
        if plan.max_rounds is not None:
            return [f"stopped after {rounds} rounds, which is max_rounds, {aim}"]
        return [
            f"stopped after {rounds} rounds, the most for {plan.duration_s:g} s, {aim}; "
            "--duration gives it more"
        ]
    if stop_reason == "interrupted":
        return [f"interrupted after {rounds} rounds"]
    return []
