"""The paper's claims on today's results: one call for all of them.

The surprising choice: results of several machines give several verdicts for a claim, one a machine,
and one verdict over all GPUs where a claim is about several or compares them. Nothing is averaged
over machines, but for repetitions on machines that differ in their names alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

from ftax.errors import InvalidArgumentError
from ftax.paper.claims.clock import bring_to_one_clock, weigh_clock
from ftax.paper.claims.gpu import Gpu, Sampler, list_gpus
from ftax.paper.claims.helpers import Missing
from ftax.paper.claims.record import Claim, Verdict, list_claims
from ftax.paper.claims.today import ClaimPlan, make_plan
from ftax.paper.claims.trend import FEWEST, find_fast, is_trend, make_trend
from ftax.paper.claims.verdict import judge, refuse
from ftax.sweeps.results import SweepResults

RESAMPLES = 400
FEWEST_RESAMPLES = 200
_FEWEST_GPUS = 2  # for what is said of all GPUs
_NONE = Missing("it is of no GPU that was measured")


def test_claims(
    results: SweepResults,
    *,
    claims: Iterable[Claim] | None = None,  # noqa: PT028
    resamples: int = RESAMPLES,  # noqa: PT028
    seed: int = 0,  # noqa: PT028  # no test, whatever its name begins with
) -> tuple[Verdict, ...]:
    """A verdict for each claim (all of them unless given) and machine, in the order of claims.

    Latencies are means over rounds; intervals and shares come from ``resamples`` draws of the
    rounds of each cell, which are the same for the same ``seed``. A verdict that turns when all
    latencies are brought to one clock of the host is "not resolved" (`claims_clock`).

    Raises InvalidArgumentError for fewer than 200 resamples.
    """
    if resamples < FEWEST_RESAMPLES:
        raise InvalidArgumentError(
            f"resamples is {resamples}; give at least {FEWEST_RESAMPLES}, or intervals mean nothing"
        )
    gpus = list_gpus(results)
    steady = [bring_to_one_clock(gpu) for gpu in gpus]
    sampler = Sampler(resamples=resamples, seed=seed)
    found: list[Verdict] = []
    for claim in list_claims() if claims is None else claims:
        found += _test_claim(make_plan(claim), gpus, steady, sampler)
    return tuple(found)


test_claims.__test__ = False  # type: ignore[attr-defined]  # pytest takes its name for a test's


def _test_claim(
    plan: ClaimPlan, gpus: Sequence[Gpu], steady: Sequence[Gpu], sampler: Sampler
) -> list[Verdict]:
    """A verdict for each of ``gpus``; ``steady`` are the same at one clock of the host."""
    if plan.reason:
        return [refuse(plan, plan.reason)]
    if not gpus:
        return [refuse(plan, "the results hold no measured cell")]
    if is_trend(plan):
        return [_follow_gpus(plan, gpus, steady, sampler)]
    if plan.needs_named_gpus:
        return [_compare_gpus(plan, gpus, sampler)]

    wanted = [item for operand in plan.operands.values() for item in operand.items]

    def choose_only(*gpus: Gpu) -> Verdict:
        looks = {gpu.label: functools.partial(_choose, gpu) for gpu in gpus}
        return judge(plan, looks, sampler, merge=True)

    chosen = [
        (gpu.choose_for(wanted), at_one.choose_for(wanted))
        for gpu, at_one in zip(gpus, steady, strict=True)
    ]
    together = [[pair] for pair in chosen]
    if plan.gpus:
        if len({gpu.name for gpu in gpus if gpu.kind == "cuda"}) < _FEWEST_GPUS:
            reason = f"it is about {len(plan.gpus)} GPUs, and these are results of one"
            return [refuse(plan, reason, machine=", ".join(gpu.label for gpu in gpus))]
        together = [[pair for pair in chosen if pair[0].kind == "cuda"]]
    found = []
    for pairs in together:
        measured, at_one = zip(*pairs, strict=True)
        verdict = choose_only(*measured)
        found.append(weigh_clock(verdict, plan, measured, functools.partial(choose_only, *at_one)))
    return found


def _choose(gpu: Gpu, _: str) -> Gpu:
    """All GPUs of the paper are this one."""
    return gpu


def _follow_gpus(
    plan: ClaimPlan, gpus: Sequence[Gpu], steady: Sequence[Gpu], sampler: Sampler
) -> Verdict:
    """A claim about how something goes with the speed of GPUs: over all whose speed is known."""
    found = find_fast(gpus)
    if len(found) < FEWEST:
        labels = ", ".join(gpu.label for gpu in gpus)
        reason = (
            f"it needs results of {FEWEST} GPUs whose peak rate is known here (Table 2, and "
            f"hardware_today.csv); these are of {labels}"
        )
        return refuse(plan, reason, machine=labels)
    trend, label = make_trend(plan, found), ", ".join(found)
    at_one = {gpu.label: gpu for gpu in steady}

    def judge_on(chosen: Mapping[str, Gpu]) -> Verdict:
        return judge(trend, {label: lambda device: chosen.get(device, _NONE)}, sampler, merge=False)

    verdict = judge_on(found)
    return weigh_clock(verdict, trend, [*found.values()], lambda: judge_on(at_one))


def _compare_gpus(plan: ClaimPlan, gpus: Sequence[Gpu], sampler: Sampler) -> Verdict:
    """A claim that means certain GPUs: on those of them that the results have."""
    labels = ", ".join(gpu.label for gpu in gpus)
    devices = sorted(frozenset[str]().union(*(test.devices for test in plan.tests)))
    present = {device: gpu for device in devices for gpu in reversed(gpus) if gpu.is_a(device)}
    if not present:
        reason = (
            f"it is about {', '.join(devices)} and needs results of each; these are of {labels}"
        )
        return refuse(plan, reason, machine=labels)

    absent = Missing(f"there are no results of {', '.join(sorted(set(devices) - set(present)))}")

    def choose(device: str) -> Gpu | Missing:
        return present.get(device, absent)

    return judge(plan, {labels: choose}, sampler, merge=False)
