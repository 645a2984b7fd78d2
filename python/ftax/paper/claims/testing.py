"""The paper's claims on its own numbers and on today's results: one call for all of them.

Results of several machines give several verdicts for a claim, one a machine, and one over all GPUs
where a claim is about several or compares them. Nothing is averaged over machines, but for
repetitions on machines that differ in their names alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import ftax.paper.claims.frameworks
import ftax.paper.claims.hardware
import ftax.paper.claims.models  # noqa: F401  (they say which function tests which claim)
from ftax.errors import InvalidArgumentError
from ftax.paper.claims.arithmetic import Missing
from ftax.paper.claims.claim import Claim, RequiredCell, read_claims
from ftax.paper.claims.claim_verdict import ClaimValue, Verdict
from ftax.paper.claims.judge import judge, refuse
from ftax.paper.claims.measured import (
    LATENCY,
    Choose,
    Gpu,
    MeasuredNumbers,
    NoNumbers,
    Sampler,
    bring_to_one_clock,
    find_clock,
    list_gpus,
)
from ftax.paper.reference import PAPER_GPUS
from ftax.sweeps.results import SweepResults
from ftax.sweeps.sweep_records import SweepCell
from ftax.timing.comparison import SAME_CLOCK

RESAMPLES = 400
FEWEST_RESAMPLES = 200
_FEWEST_GPUS = 2  # for what is said of all GPUs
_FEWEST_FAST = 3  # GPUs of which two are not already in order
_OTHER_VALUE = 0.05
_MOST_VALUES = 3
_NONE = Missing("it is of no GPU that was measured")


@functools.cache
def list_claims() -> tuple[Claim, ...]:
    """All claims, in the order of the paper's sections, then what was added."""
    return read_claims()


def find_claim(name: str) -> Claim:
    """The claim with this id. Raises InvalidArgumentError if there is none."""
    by_id = {claim.id: claim for claim in list_claims()}
    if name not in by_id:
        raise InvalidArgumentError(f"there is no claim {name!r}; there are {', '.join(by_id)}")
    return by_id[name]


def required_cells(claims: Iterable[Claim] | None = None) -> set[RequiredCell]:
    """The cells (model, framework, dtype, batch, sequence) that claims look at; all of them without
    an argument. A framework is written "runtime/host"."""
    chosen = list_claims() if claims is None else claims
    return {cell for claim in chosen for cell, _ in _list_needs(claim)}


@functools.cache
def _list_needs(claim: Claim) -> tuple[tuple[RequiredCell, str], ...]:
    """Each cell with the column that is read of it."""
    if claim.scope == "paper":
        return ()
    numbers = NoNumbers(PAPER_GPUS)
    claim.run(numbers)
    return tuple(numbers.cells)


def _list_latencies(claim: Claim) -> list[RequiredCell]:
    return [cell for cell, column in _list_needs(claim) if column == LATENCY]


def test_claims(
    results: SweepResults,
    *,
    claims: Iterable[Claim] | None = None,  # noqa: PT028
    resamples: int = RESAMPLES,  # noqa: PT028
    seed: int = 0,  # noqa: PT028  # no test, despite its name
) -> tuple[Verdict, ...]:
    """A verdict for each claim (all of them unless given) and machine, in the order of claims.

    Latencies are means over rounds; intervals and shares come from ``resamples`` draws of the
    rounds of each cell, which are the same for the same ``seed``. A verdict that turns when all
    latencies are brought to one clock of the host is "not resolved".

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
        found += _test_claim(claim, gpus, steady, sampler)
    return tuple(found)


test_claims.__test__ = False  # type: ignore[attr-defined]  # pytest takes its name for a test's


def _test_claim(
    claim: Claim, gpus: Sequence[Gpu], steady: Sequence[Gpu], sampler: Sampler
) -> list[Verdict]:
    """A verdict for each of ``gpus``; ``steady`` are the same at one clock of the host."""
    labels = ", ".join(gpu.label for gpu in gpus)
    if claim.scope == "paper":
        return [refuse(claim, claim.reason)]
    if not gpus:
        return [refuse(claim, "the results hold no measured cell")]
    if claim.scope == "trend":
        return [_follow_gpus(claim, gpus, steady, sampler, labels)]
    if claim.scope == "named":
        return [_compare_gpus(claim, gpus, sampler, labels)]

    def judge_on(*machines: Gpu) -> Verdict:
        return judge(
            claim, {gpu.label: _measure(gpu, sampler) for gpu in machines}, sampler.resamples
        )

    needs = _list_latencies(claim)
    chosen = [
        (gpu.choose_for(needs), at_one.choose_for(needs)) for gpu, at_one in zip(gpus, steady)
    ]
    together = [[pair] for pair in chosen]
    if claim.scope == "gpus":
        if len({gpu.name for gpu in gpus if gpu.view.device == "cuda"}) < _FEWEST_GPUS:
            reason = f"it is about {len(claim.devices)} GPUs, and these are results of one"
            return [refuse(claim, reason, machine=labels)]
        together = [[pair for pair in chosen if pair[0].view.device == "cuda"]]
    return [
        _weigh_clock(
            judge_on(*(gpu for gpu, _ in pairs)),
            claim,
            [gpu for gpu, _ in pairs],
            lambda pairs=pairs: judge_on(*(at_one for _, at_one in pairs)),  # type: ignore[misc]
        )
        for pairs in together
    ]


def _measure(gpu: Gpu, sampler: Sampler) -> MeasuredNumbers:
    """The numbers of a machine that stands for all GPUs of the paper."""
    return MeasuredNumbers(lambda _: gpu, sampler)


def _follow_gpus(
    claim: Claim, gpus: Sequence[Gpu], steady: Sequence[Gpu], sampler: Sampler, labels: str
) -> Verdict:
    """A claim about how something goes with the speed of GPUs: over one of each whose speed is
    known."""
    by_name: dict[str, Gpu] = {}
    for gpu in gpus:
        if gpu.view.device == "cuda" and gpu.find_speed() is not None:
            by_name.setdefault(gpu.name, gpu)
    fast = {gpu.label: gpu for gpu in by_name.values()}
    if len(fast) < _FEWEST_FAST:
        reason = (
            f"it needs results of {_FEWEST_FAST} GPUs whose peak rate is known here (Table 2, and "
            f"hardware_today.csv); these are of {labels}"
        )
        return refuse(claim, reason, machine=labels)

    def judge_on(chosen: Mapping[str, Gpu]) -> Verdict:
        choose: Choose = lambda device: chosen.get(device, _NONE)  # noqa: E731
        numbers = MeasuredNumbers(choose, sampler, tuple(fast))
        return judge(claim, {", ".join(fast): numbers}, sampler.resamples)

    at_one = {gpu.label: gpu for gpu in steady}
    return _weigh_clock(judge_on(fast), claim, [*fast.values()], lambda: judge_on(at_one))


def _compare_gpus(claim: Claim, gpus: Sequence[Gpu], sampler: Sampler, labels: str) -> Verdict:
    """A claim that means certain GPUs: on those of them that the results have."""
    devices = sorted(claim.devices)
    present = {device: gpu for device in devices for gpu in reversed(gpus) if gpu.is_a(device)}
    if not present:
        reason = (
            f"it is about {', '.join(devices)} and needs results of each; these are of {labels}"
        )
        return refuse(claim, reason, machine=labels)
    absent = Missing(f"there are no results of {', '.join(sorted(set(devices) - set(present)))}")
    numbers = MeasuredNumbers(lambda device: present.get(device, absent), sampler)
    return judge(claim, {labels: numbers}, sampler.resamples)


def _weigh_clock(
    verdict: Verdict, claim: Claim, gpus: Sequence[Gpu], judge_at_one_clock: Callable[[], Verdict]
) -> Verdict:
    """``verdict`` of ``gpus``; "not resolved" if the cells of one were timed at several clocks and
    it turns at one for each. If it stays, a note has the numbers that do not.

    Cells of one machine are measured minutes apart, and a core that boosts runs a quarter faster.
    What was measured is what is reported; nothing is corrected.
    """
    spans = [clocks for gpu in gpus if (clocks := _list_clocks(claim, gpu))]
    if verdict.today == "cannot be tested here" or not spans:
        return verdict
    clocks = max(spans, key=lambda clocks: max(clocks) / min(clocks))
    if max(clocks) <= (1 + SAME_CLOCK) * min(clocks):
        return verdict
    steady = judge_at_one_clock()
    span = f"the host's core ran at {min(clocks) / 1e9:.2f} to {max(clocks) / 1e9:.2f} GHz"
    at_one = {value.name: value for value in steady.values}
    others = [_describe_change(value, at_one[value.name]) for value in verdict.values]
    changes = ", ".join([text for text in others if text][:_MOST_VALUES])
    if steady.today == verdict.today:
        notes = [f"{span}; at one clock {changes}"] if changes else []
        return replace(verdict, notes=(*verdict.notes, *notes))
    where = f", where {changes}" if changes else ""
    reason = f"{span}: {verdict.today} as measured, {steady.today} at one clock{where}"
    return replace(
        verdict,
        today="not resolved",
        sentence=f"Open on {verdict.machine}: {reason}.",
        reason="; ".join(filter(None, (reason, verdict.reason))),
    )


def _list_clocks(claim: Claim, gpu: Gpu) -> list[float]:
    """Of the cells whose latencies a claim looks at."""
    cells = map(gpu.find, _list_latencies(claim))
    found = (find_clock(cell) for cell in cells if isinstance(cell, SweepCell))
    return [clock for clock in found if clock is not None]


def _describe_change(measured: ClaimValue, steady: ClaimValue) -> str:
    """A single number that is another at one clock."""
    if len(measured.today) != 1 or len(steady.today) != 1 or not measured.today[0]:
        return ""
    (old,), (new,) = measured.today, steady.today
    return f"{measured.name} is {new:.4g}" if abs(new / old - 1) > _OTHER_VALUE else ""
