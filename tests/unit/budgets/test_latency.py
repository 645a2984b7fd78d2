"""Latency held to a base: what each answer of the engine of `ftax compare` means to a budget."""

import pytest

from ftax.budgets.latency import hold_latency
from ftax.errors import RunnerError
from ftax.ladders.pairs import PairSide
from support.records import make_measurement

SIDES = [PairSide(model="m.py:make", label=label) for label in ("main", "now")]
LUCK = (1.0, 1.002, 0.998, 1.001, 0.999)


def script(monkeypatch, change, error=None, at=0):
    """Pairs in which the second side takes ``change`` times as long, until one fails."""

    def run_pair(sides, plan):
        if error is not None and plan.process_index == at:
            raise error
        luck = LUCK[plan.process_index % len(LUCK)]
        return [
            make_measurement(
                [round(100_000 * level)] * 5, index=plan.process_index,
                checks={"rounds_a_turn": 5},
            ).with_label(side.label)
            for side, level in zip(sides, (1.0, change * luck), strict=True)
        ]  # fmt: skip

    monkeypatch.setattr("ftax.ladders.pairs._run_pair", run_pair)


def hold_here(more=0.05, sides=SIDES):
    return hold_latency("forward", more, sides, 0.0, None)


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (0.8, "within"),
        (1.0, "within"),
        (1.03, "within"),  # slower for certain, and by less than it may be
        (1.05, "cannot tell"),
        (1.2, "breach"),
    ],
)
def test_a_breach_is_slower_by_more_than_it_may_be_for_certain(monkeypatch, change, verdict):
    script(monkeypatch, change)
    assert hold_here().verdict == verdict


def test_the_answer_is_told_as_compare_tells_it(monkeypatch):
    script(monkeypatch, 1.2)
    held = hold_here()
    assert (held.limit, held.got) == ("+5 % (main)", "+20.0 %")
    assert held.describe().startswith(
        "latency: expected at most +5 % (main); now against main: slower, +20.0%"
    )
    assert "from 5 pairs of processes by turns" in held.describe()


def test_without_a_base_it_cannot_be_told():
    held = hold_here(sides=SIDES[1:])
    assert (held.verdict, held.limit, held.got) == ("cannot tell", "+5 % (budget)", "")
    assert held.describe().endswith("there is nothing to compare with: give --base REF")


@pytest.mark.parametrize("at", [0, 3])
def test_what_ends_the_pairs_is_why_it_cannot_be_told(monkeypatch, at):
    script(monkeypatch, 1.0, RunnerError("now: it died"), at)
    held = hold_here()
    assert (held.verdict, held.problem) == ("cannot tell", "now: it died")


@pytest.mark.parametrize("at", [0, 3])
def test_an_interruption_goes_on(monkeypatch, at):
    script(monkeypatch, 1.0, KeyboardInterrupt(), at)
    with pytest.raises(KeyboardInterrupt):
        hold_here()
