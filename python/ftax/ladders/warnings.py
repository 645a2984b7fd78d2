"""What a reader of a receipt has to know beside its numbers: of its rounds, and of its traces.

What is left out: an alternative may run other kernels than the first rung,
and is expected to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ftax.ladders.evidence import RungEvidence, note_reference
from ftax.ladders.ladder import EAGER, Ladder
from ftax.timing.plan import Plan
from ftax.timing.trust import FEW_ROUNDS
from ftax.timing.units import format_time

TOO_FEW_TO_RESOLVE = "which is too few to resolve anything"  # of a warning that says how long to do


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
