"""What a reader of a receipt has to know beside its numbers.

The surprising choice: one of these checks measures. Python eager is timed once more, alone, since a
runner that its neighbours disturb would look like a tax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ftax.comparison import compare_values
from ftax.evidence import RungEvidence
from ftax.ladder import RUNGS
from ftax.measure import Plan, Session, measure
from ftax.models import LoadedModel
from ftax.results import Measurement
from ftax.runtimes import Prepared

_CROWD_ROUNDS = 10
_CROWD_MARGIN = 0.05


def warn_of_evidence(evidence: Sequence[RungEvidence]) -> list[str]:
    """What a reader of the receipt has to know of the traces behind it."""
    warnings = []
    unused: dict[str, list[str]] = {}
    ungated: dict[str, list[str]] = {}
    for item in evidence:
        name = f"{item.runtime}/{item.host}"
        if item.problems:
            unused.setdefault("; ".join(item.problems), []).append(name)
        if item.gate is not None and item.gate.cut:
            ungated.setdefault(str(item.gate.reason), []).append(name)
        if (item.runtime, item.host) not in RUNGS:
            continue  # an alternative is expected to run other kernels
        if item.difference:
            warnings.append(item.difference)
        if item.slower:
            warnings.append(
                f"kernels of {name} took other times than Python eager's: {'; '.join(item.slower)}"
            )
    warnings += [f"no trace of {', '.join(names)} is used: {why}" for why, names in unused.items()]
    warnings += [f"no issue time of {', '.join(names)}: {why}" for why, names in ungated.items()]
    return warnings


def warn_of_rounds(
    loaded: LoadedModel,
    rungs: tuple[Measurement, ...],
    plan: Plan,
    prepared: Sequence[Prepared],
    session: Session,
) -> list[str]:
    """What a reader has to know of the rounds; Python eager is timed again, alone."""
    warnings = []
    if session.stop_reason == "time-limit":
        warnings.append(
            f"stopped at the time limit of {plan.duration_s:g} s after "
            f"{len(rungs[0].samples_ns)} rounds, before every interval was within "
            f"{plan.target_ratio:.1%}; --duration gives it more"
        )
    if session.stop_reason == "interrupted":
        warnings.append(f"interrupted after {len(rungs[0].samples_ns)} rounds")
    if len(prepared) > 1 and session.stop_reason != "interrupted":
        warnings += _test_crowd(loaded, rungs[0], plan, prepared[0])
    return warnings


def _test_crowd(
    loaded: LoadedModel, in_company: Measurement, plan: Plan, eager: Prepared
) -> list[str]:
    """A runner measured alone should equal itself in company."""
    alone_plan = replace(
        plan, rounds=_CROWD_ROUNDS, warmup=2, duration_s=max(1.0, plan.duration_s / 10)
    )
    session = measure(loaded, [eager], alone_plan, None)
    alone = session.measurements[0]
    if alone is None or len(alone.values_ns) < 2:
        return []
    comparison = compare_values(alone.values_ns, in_company.values_ns, margin=_CROWD_MARGIN)
    low, high = comparison.ratio_interval.low, comparison.ratio_interval.high
    if low <= 1 + _CROWD_MARGIN and high >= 1 / (1 + _CROWD_MARGIN):
        return []
    return [
        f"Python eager took {comparison.ratio:.2f} times as long among the other runners as alone "
        f"(95 % interval {low:.2f} to {high:.2f}): they disturb each other"
    ]
