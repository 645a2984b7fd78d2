"""From values to words: what a condition and a claim are worth, given resamples of the rounds.

The surprising choice: an outcome has to come out in 95 of 100 resamples to be said at all. A claim
that holds on the measured means and in 80 of 100 resamples is "not resolved", as is one that fails
so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ftax.paper.claims.helpers import Missing
from ftax.paper.claims.record import Outcome, TestOutcome

RESOLVED_SHARE = 0.95

Truth = bool | Missing
_ROUNDING = 1e-9


def name_outcome(truth: Truth, relation: Truth | None) -> TestOutcome:
    """Of a condition that has a value; ``relation`` is the same with its size left open, None where
    it has no such form. In a resample in which it has no value, it does not hold."""
    if truth is True:
        return "holds"
    return "another size" if relation is True else "does not hold"


def judge_test(
    point: TestOutcome, resampled: Sequence[TestOutcome]
) -> tuple[TestOutcome, float | None]:
    """A condition today, and the share of resamples in which it holds."""
    if point == "not tested" or not resampled:
        return point, None
    agreed = resampled.count(point) / len(resampled)
    share = resampled.count("holds") / len(resampled)
    return (point if _is_resolved(agreed) else "not resolved"), share


def judge_claim(outcomes: Sequence[TestOutcome]) -> Outcome:
    """Tests that could be made, together. None of them: it cannot be tested."""
    tested = [outcome for outcome in outcomes if outcome != "not tested"]
    if not tested:
        return "cannot be tested here"
    if all(outcome == "holds" for outcome in tested):
        return "holds"
    if all(outcome == "does not hold" for outcome in tested):
        return "does not hold"
    return "changed"


def judge_resamples(
    tests: Sequence[tuple[TestOutcome, Sequence[TestOutcome]]],
) -> tuple[Outcome, dict[str, float]]:
    """The claim on the measured means, and the share of resamples with each outcome.

    A test that has no value as measured stays out of every resample.
    """
    made = [test for test in tests if test[0] != "not tested"]
    point = judge_claim([outcome for outcome, _ in made])
    votes = Counter(map(judge_claim, zip(*(resampled for _, resampled in made))))
    return point, {outcome: count / votes.total() for outcome, count in votes.items()}


def settle(point: Outcome, shares: dict[str, float]) -> tuple[Outcome, str]:
    """The outcome to state, and between what it is open."""
    if not shares or _is_resolved(shares.get(point, 0.0)):
        return point, ""
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    told = ", ".join(f"{outcome} in {share:.0%}" for outcome, share in ordered)
    return "not resolved", f"of the resamples: {told}"


def _is_resolved(share: float) -> bool:
    return share >= RESOLVED_SHARE - _ROUNDING
