"""From what a claim finds to a verdict, given resamples of the rounds, and its sentence.

An outcome is stated if 95 of 100 resamples agree with it. A claim that holds on the measured means
and in 80 of 100 resamples is "not resolved". Sentences are made of the conditions' words.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ftax.paper.claims.arithmetic import Missing, list_some
from ftax.paper.claims.claim import Claim, Condition, Findings, PaperNumbers
from ftax.paper.claims.claim_verdict import (
    ClaimValue,
    Outcome,
    PaperVerdict,
    TestOutcome,
    TestVerdict,
    Verdict,
)
from ftax.paper.claims.measured import MeasuredNumbers
from ftax.paper.reference import BASELINE_GPU

RESOLVED_SHARE = 0.95
_ROUNDING = 1e-9
_TAILS = (2.5, 97.5)
_MOST_REASONS = 3
_MOST_NAMES = 6
_MOST_WORDS = 4  # conditions of one outcome that a sentence names


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFound:
    """What a claim finds in the paper's own numbers.

    Attributes:
        values: by name; of a claim about several GPUs those of all of them.
        truths: of each condition, on all of these GPUs; None where the paper cannot say.
        conditions: how many there are, counted on each GPU.
    """

    verdict: PaperVerdict
    values: Mapping[str, tuple[float, ...]]
    checks: tuple[Condition, ...]
    truths: tuple[bool | None, ...]
    conditions: int


@functools.cache
def read_paper(claim: Claim) -> PaperFound:
    """The claim on the paper's own numbers."""
    devices = claim.devices if claim.scope == "gpus" else (BASELINE_GPU,)
    numbers = PaperNumbers()
    every = [claim.run(numbers, device) for device in devices]
    values: dict[str, tuple[float, ...]] = {}
    for found in every:
        for name, value in found.values.items():
            flat = _flatten(value)
            values[name] = values.get(name, ()) + (() if isinstance(flat, Missing) else flat)
    by_condition = [
        [bool(check.truth) for check in checks if not isinstance(check.truth, Missing)]
        for checks in zip(*(found.checks for found in every), strict=True)
    ]
    truths = [truth for condition in by_condition for truth in condition]
    verdict: PaperVerdict = "no data"
    if truths:
        verdict = "holds" if all(truths) else "partly" if any(truths) else "does not hold"
    return PaperFound(
        verdict=verdict,
        values=values,
        checks=tuple(every[0].checks),
        truths=tuple(all(condition) if condition else None for condition in by_condition),
        conditions=len(truths),
    )


def refuse(claim: Claim, reason: str, *, machine: str = "") -> Verdict:
    """The verdict of a claim that cannot be tested."""
    paper = read_paper(claim)
    tests = tuple(
        TestVerdict(about=check.about, left=check.left, paper=truth, today="not tested")
        for check, truth in zip(paper.checks, paper.truths)
    )
    return _make_verdict(claim, "cannot be tested here", reason, machine=machine, tests=tests)


def judge(claim: Claim, machines: Mapping[str, MeasuredNumbers], resamples: int) -> Verdict:
    """The verdict on the numbers of these machines; with several, on all of them at once."""
    paper = read_paper(claim)
    tests: list[TestVerdict] = []
    values: list[ClaimValue] = []
    cases: list[tuple[TestOutcome, list[TestOutcome]]] = []
    notes: dict[str, None] = {}
    most_draws = 0
    for machine, numbers in machines.items():
        on = f" on {machine}" if len(machines) > 1 else ""
        point = claim.run(numbers)
        draws = _resample(claim, numbers, point, resamples)
        most_draws = max(most_draws, len(draws))
        for place, check in enumerate(point.checks):
            measured = "not tested" if isinstance(check.truth, Missing) else name_outcome(check)
            case = measured, [name_outcome(draw.checks[place]) for draw in draws]
            cases.append(case)
            outcome, share = judge_test(*case)
            truth = paper.truths[place] if place < len(paper.truths) else None
            tests.append(
                TestVerdict(
                    about=check.about + on, left=check.left, paper=truth, today=outcome,
                    share=share, why=check.truth.why if isinstance(check.truth, Missing) else "",
                )
            )  # fmt: skip
        made = (_make_value(name, paper, point, draws) for name in point.values)
        values += [ClaimValue(**{**item, "name": item["name"] + on}) for item in made if item]
        notes |= point.notes
        notes |= dict.fromkeys(_make_notes(paper, numbers, point, machine))
    whole, shares = judge_resamples(cases)
    today, reason = settle(whole, shares)
    return _make_verdict(
        claim,
        today,
        "; ".join(filter(None, (reason, _describe_missing(tests)))),
        machine=", ".join(machines),
        tests=tuple(tests),
        values=tuple(values),
        shares=shares,
        resamples=most_draws,
        notes=tuple(notes),
    )


def _resample(
    claim: Claim, numbers: MeasuredNumbers, point: Findings, resamples: int
) -> list[Findings]:
    """What the claim finds in each resample; nothing where there is nothing to see."""
    found = (*(check.truth for check in point.checks), *point.values.values())
    if numbers.short or all(isinstance(_flatten(value), Missing) for value in found):
        return []
    draws = []
    try:
        for numbers.draw in range(resamples):
            draws.append(claim.run(numbers))
    finally:
        numbers.draw = -1
    return draws


def _make_verdict(
    claim: Claim,
    today: Outcome,
    reason: str,
    *,
    machine: str,
    tests: tuple[TestVerdict, ...],
    **more: Any,
) -> Verdict:
    return Verdict(
        id=claim.id,
        section=claim.section,
        claim=claim.text,
        claim_kind=claim.kind,
        origin=claim.origin,
        expected=claim.expected,
        paper=read_paper(claim).verdict,
        today=today,
        machine=machine,
        sentence=describe_verdict(today, reason, tests, machine),
        reason=reason,
        tests=tests,
        **{"shares": {}, **more},
    )


def name_outcome(check: Condition) -> TestOutcome:
    """Of a condition that has a value; in a resample in which it has none, it does not hold."""
    if _is_so(check.truth):
        return "holds"
    return "another size" if _is_so(check.relation) else "does not hold"


def _is_so(truth: Any) -> bool:
    return not isinstance(truth, Missing) and bool(truth)


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


def _make_value(
    name: str, paper: PaperFound, point: Findings, draws: Sequence[Findings]
) -> dict[str, Any] | None:
    """Fields of its record; None for an empty list."""
    stated = {"name": name, "paper": paper.values.get(name, ())}
    today = _flatten(point.values[name])
    if isinstance(today, Missing):
        return {**stated, "why": today.why}
    if not today:
        return None
    drawn = [] if name in point.counted else [_flatten(draw.values[name]) for draw in draws]
    low, high = _find_interval(today, drawn)
    return {**stated, "today": today, "low": low, "high": high}


def _flatten(value: Any) -> tuple[float, ...] | Missing:
    """The numbers of a value; a `Missing` if one of them is."""
    leaves = value if isinstance(value, list) else [value]
    lacking = [leaf for leaf in leaves if isinstance(leaf, Missing)]
    return lacking[0] if lacking else tuple(map(float, leaves))


def _find_interval(
    today: tuple[float, ...], draws: Sequence[tuple[float, ...] | Missing]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Ends of the 95 % interval of each number; none if it has no value in some resample.

    Draws of a largest over a smallest lie above it when the true values are equal; the ends
    are moved so that the number itself is always between them.
    """
    usable = [draw for draw in draws if not isinstance(draw, Missing) and len(draw) == len(today)]
    if not usable or len(usable) < len(draws):
        return (), ()
    low, high = np.percentile(np.asarray(usable), _TAILS, axis=0)
    return tuple(np.minimum(low, today).tolist()), tuple(np.maximum(high, today).tolist())


def _describe_missing(tests: Sequence[TestVerdict]) -> str:
    """Which conditions could not be tested, by reason."""
    missing = [test for test in tests if test.today == "not tested"]
    if not missing:
        return ""
    reasons = dict.fromkeys(test.why for test in missing)
    told = list_some(reasons, _MOST_REASONS, more="; and {} more reasons")
    if len(missing) == len(tests):
        return told
    return f"{len(missing)} of {len(tests)} conditions not tested: {told}"


def _make_notes(
    paper: PaperFound, numbers: MeasuredNumbers, point: Findings, machine: str
) -> Iterable[str]:
    if numbers.short:
        names = list_some(sorted(numbers.short), _MOST_NAMES, between=", ", more=" and {} more")
        yield f"no interval: {names} has one round"
    if paper.conditions > len(point.checks):
        yield (
            f"{paper.conditions} conditions on GPUs of the paper are {len(point.checks)} on one "
            f"machine, {machine}"
        )


def describe_verdict(
    outcome: Outcome, reason: str, tests: Sequence[TestVerdict], machine: str
) -> str:
    """What a claim is worth, in words."""
    if outcome == "cannot be tested here":
        return f"Not tested: {reason}."
    lead = _find_lead([test.about for test in tests])

    def list_words(*outcomes: str) -> list[str]:
        return [test.about.removeprefix(lead) for test in tests if test.today in outcomes]

    open_words = list_words("not resolved")
    groups = (
        ("", list_words("holds")),
        ("not so: ", list_words("does not hold", "another size")),
        ("in another size: ", [test.left for test in tests if test.today == "another size"]),
        ("open: ", open_words),
        ("not tested: ", list_words("not tested")),
    )
    told = [
        kind + list_some(dict.fromkeys(words), _MOST_WORDS, more="; and {} more")
        for kind, words in groups
        if words
    ]
    together = ""
    if outcome == "not resolved" and not open_words:
        together = f". Open is whether all of that is so at once ({reason})"
    where = f"On {machine or 'this machine'}, {lead}" if lead else f"On {machine}: "
    return f"{where}{'. '.join(_begin(told))}{together}."


def _find_lead(words: Sequence[str]) -> str:
    """What conditions have in common before a colon, with it; "" if there is nothing."""
    leads = {text.partition(": ")[0] if ": " in text else "" for text in words}
    return f"{leads.pop()}: " if len(words) > 1 and len(leads) == 1 and "" not in leads else ""


def _begin(told: Iterable[str]) -> list[str]:
    parts = list(told)
    return [parts[0], *(part[0].upper() + part[1:] for part in parts[1:])]
