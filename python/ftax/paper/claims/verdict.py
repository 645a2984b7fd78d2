"""The verdict of one claim on one machine, or on several where it compares GPUs.

The surprising choice: on one machine all GPUs of the paper are that machine's. Conditions that then
say the same of the same cells are one condition, and it is counted once. Of a claim about several
GPUs that is so on each GPU that was measured, and the claim is all of these conditions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ftax.paper.claims.gpu import Sampler, is_latency
from ftax.paper.claims.helpers import Missing, list_some
from ftax.paper.claims.judge import judge_resamples, judge_test, name_outcome, settle
from ftax.paper.claims.numbers import Choose, Numbers, collect_numbers
from ftax.paper.claims.paper import Evaluation, find_names
from ftax.paper.claims.record import ClaimValue, Outcome, TestOutcome, TestVerdict, Verdict
from ftax.paper.claims.today import ClaimPlan
from ftax.paper.claims.words import describe_verdict, leave_gpu

_TAILS = (2.5, 97.5)
_MOST_REASONS = 3


def refuse(plan: ClaimPlan, reason: str, *, machine: str = "") -> Verdict:
    """The verdict of a claim that cannot be tested."""
    tests = tuple(test.make_verdict("not tested") for test in plan.tests)
    return _make_verdict(plan, "cannot be tested here", reason, machine=machine, tests=tests)


def judge(
    plan: ClaimPlan, looks: Mapping[str, Choose], sampler: Sampler, *, merge: bool
) -> Verdict:
    """The verdict of ``plan`` on what each of ``looks`` gives for the paper's GPUs, by the machines
    that it is of; with several, on all of them at once.

    ``merge`` if all GPUs of a look are one machine.
    """
    kept_tests, kept_values = _find_kept(plan) if merge else _keep_all(plan)
    tests: list[TestVerdict] = []
    values: list[ClaimValue] = []
    cases: list[tuple[TestOutcome, list[TestOutcome]]] = []
    notes: dict[str, None] = {}
    draws = []
    for machine, choose in looks.items():
        on = f" on {machine}" if len(looks) > 1 else ""
        numbers = collect_numbers(plan, choose, sampler)
        point = plan.formulas.run(numbers.point)
        found = (*point.tests, *point.computed.values())
        idle = all(isinstance(value, Missing) for value in found)
        resampled = [] if idle else [plan.formulas.run(scope) for scope in numbers.resamples]
        draws.append(len(resampled))
        own = _make_cases(plan, point, resampled, kept_tests)
        for index, case in zip(kept_tests, own, strict=True):
            outcome, share = judge_test(*case)
            truth = point.tests[index]
            why = truth.why if isinstance(truth, Missing) else ""
            verdict = plan.tests[index].make_verdict(outcome, share=share, why=why)
            if on:
                words = leave_gpu(verdict.about or verdict.expression)
                verdict = replace(verdict, about=f"{words}{on}")
            tests.append(verdict)
        cases += own
        made = (_make_value(plan, name, point, resampled) for name in kept_values)
        values += [replace(value, name=f"{value.name}{on}") for value in made if value is not None]
        notes |= dict.fromkeys(_make_notes(plan, numbers, len(kept_tests), machine))
    whole, shares = judge_resamples(cases)
    today, reason = settle(whole, shares)
    return _make_verdict(
        plan,
        today,
        "; ".join(filter(None, (reason, _describe_missing(tests)))),
        machine=", ".join(looks),
        tests=tuple(tests),
        values=tuple(values),
        shares=shares,
        resamples=max(draws),
        notes=tuple(notes),
    )


def _make_verdict(
    plan: ClaimPlan,
    today: Outcome,
    reason: str,
    *,
    machine: str,
    tests: tuple[TestVerdict, ...],
    **more: Any,
) -> Verdict:
    claim = plan.claim
    return Verdict(
        id=claim.id,
        section=claim.section,
        claim=claim.text,
        claim_kind=claim.kind,
        origin=claim.origin,
        expected=claim.expected,
        paper=claim.verdict,
        today=today,
        machine=machine,
        sentence=describe_verdict(today, reason, tests, machine),
        reason=reason,
        tests=tests,
        **{"shares": {}, **more},
    )


def _make_cases(
    plan: ClaimPlan, point: Evaluation, resampled: Sequence[Evaluation], kept: Sequence[int]
) -> list[tuple[TestOutcome, list[TestOutcome]]]:
    """The outcome of each condition as measured, and in each resample."""
    with_relation = [index for index, test in enumerate(plan.tests) if test.relation]

    def name(found: Evaluation, index: int) -> TestOutcome:
        relation = None
        if index in with_relation:  # they stand behind the conditions
            relation = found.tests[len(plan.tests) + with_relation.index(index)]
        return name_outcome(found.tests[index], relation)

    return [
        (
            "not tested" if isinstance(point.tests[index], Missing) else name(point, index),
            [name(evaluation, index) for evaluation in resampled],
        )
        for index in kept
    ]


def _make_value(
    plan: ClaimPlan, name: str, point: Evaluation, resampled: Sequence[Evaluation]
) -> ClaimValue | None:
    paper = tuple(map(float, _list_leaves(plan.claim.computed.get(name, ()))))
    today = _flatten(point.computed[name])
    if isinstance(today, Missing):
        return ClaimValue(name=name, formula=plan.compute[name], paper=paper, why=today.why)
    if not today:
        return None
    draws = [_flatten(each.computed[name]) for each in resampled] if _has_rounds(plan, name) else []
    low, high = _find_interval(today, draws)
    return ClaimValue(
        name=name, formula=plan.compute[name], paper=paper, today=today, low=low, high=high
    )


def _has_rounds(plan: ClaimPlan, name: str) -> bool:
    """Whether a value depends on a latency: counts have no interval, not one of no width."""
    used = find_names(plan.compute[name]) & set(plan.operands)
    return any(is_latency(item) for operand in used for item in plan.operands[operand].items)


def _flatten(value: Any) -> tuple[float, ...] | Missing:
    """The numbers of a value; a `Missing` if one of them is."""
    leaves = _list_leaves(value)
    lacking = [leaf for leaf in leaves if isinstance(leaf, Missing)]
    return lacking[0] if lacking else tuple(map(float, leaves))


def _list_leaves(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _list_leaves(item)]
    return [value]


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


def _describe_missing(tests: Iterable[TestVerdict]) -> str:
    """Which conditions could not be tested, by reason."""
    every = list(tests)
    missing = [test for test in every if test.today == "not tested"]
    if not missing:
        return ""
    reasons = dict.fromkeys(test.why for test in missing)
    told = list_some(reasons, _MOST_REASONS, more="; and {} more reasons")
    if len(missing) == len(every):
        return told
    return f"{len(missing)} of {len(every)} conditions not tested: {told}"


def _make_notes(
    plan: ClaimPlan, numbers: Numbers, conditions: int, machine: str
) -> tuple[str, ...]:
    notes = list(numbers.notes)
    if conditions < len(plan.tests):
        notes.append(
            f"{len(plan.tests)} conditions on GPUs of the paper are {conditions} on one machine; "
            f"names of GPUs in formulas stand for {machine}"
        )
    return tuple(notes)


def _keep_all(plan: ClaimPlan) -> tuple[list[int], list[str]]:
    return list(range(len(plan.tests))), list(plan.compute)


def _find_kept(plan: ClaimPlan) -> tuple[list[int], list[str]]:
    """Conditions and values without those that say the same of the same cells as an earlier one."""
    tests: dict[str, int] = {}
    for index, test in enumerate(plan.tests):
        tests.setdefault(_expand(plan, test.expression), index)
    values: dict[str, str] = {}
    for name, text in plan.compute.items():
        values.setdefault(_expand(plan, text), name)
    return list(tests.values()), list(values.values())


def _expand(plan: ClaimPlan, text: str) -> str:
    """A formula with its names replaced by what they stand for on one machine."""
    known: Mapping[str, str] = {
        name: str([(item.column, item.cell, item.constant, item.problem) for item in operand.items])
        for name, operand in plan.operands.items()
    }
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if node.id in known:
                node.id = known[node.id]
            elif node.id in plan.compute:
                node.id = _expand(plan, plan.compute[node.id])
    return ast.dump(tree)
