"""Runners that disturb each other, and hosts that only look as if they did."""

from collections.abc import Callable

import pytest

from delays import spin
from ftax import _core
from ftax.ladders.evidence import warn_of_rounds
from ftax.timing.crowd import check_crowd, judge_crowd
from ftax.timing.plan import Plan
from support.records import make_measurement

PLAN = Plan(round_ms=6.0, duration_s=4.0)
# Requests for which another runner's threads, say, go on: most of a round. Not a time, which passes
# as well while a busy machine runs something else.
_AFTERMATH = 24
EAGER = "Python eager"


def make_runner(function: Callable[[], object]) -> _core.Runner:
    return _core.PythonRunner(function, "spin", device="cpu", grad_mode=_core.GradMode.inference)


class Eager:
    """Takes longer for a while after another runner has run."""

    def __init__(self, *, longer: float) -> None:
        self.longer, self.disturbed = longer, 0

    def __call__(self) -> None:
        spin(200e3 * (self.longer if self.disturbed > 0 else 1))
        self.disturbed -= 1

    def run_other(self) -> None:
        spin(200e3)
        self.disturbed = _AFTERMATH


def check(eager: Eager) -> str | None:
    runners = [make_runner(eager), make_runner(eager.run_other)]
    return check_crowd(runners, [make_measurement([200_000, 200_000])] * 2, PLAN, name=EAGER)


@pytest.mark.timing
def test_a_runner_that_others_disturb_is_named() -> None:
    warning = check(Eager(longer=1.6))
    assert warning is not None
    assert "they disturb each other" in warning
    assert 1.2 < float(warning.split("took ")[1].split()[0]) < 1.9


@pytest.mark.timing
def test_runners_that_leave_each_other_alone_are_not() -> None:
    assert check(Eager(longer=1.0)) is None


def test_a_host_that_drifts_slows_both_and_is_no_disturbance() -> None:
    drift = [1.0, 1.1, 1.25, 1.4, 1.5, 1.6]
    assert (
        judge_crowd([100 * share for share in drift], [101 * share for share in drift], EAGER)
        is None
    )
    warning = judge_crowd([100 * share for share in drift], [110 * share for share in drift], EAGER)
    assert warning is not None
    assert "1.10 times" in warning


def test_nothing_is_run_where_too_few_turns_fit() -> None:
    calls: list[int] = []
    runners = [make_runner(lambda: calls.append(1)), make_runner(lambda: calls.append(2))]
    assert check_crowd(runners, [make_measurement([10**9, 10**9])] * 2, PLAN, name=EAGER) is None
    assert check_crowd(runners[:1], [make_measurement([1000, 1000])], PLAN, name=EAGER) is None
    assert calls == []


def test_a_runner_that_fails_has_no_verdict() -> None:
    def fail() -> None:
        raise ValueError("no")

    measured = [make_measurement([1000, 1000])] * 2
    assert check_crowd([make_runner(fail), make_runner(fail)], measured, PLAN, name=EAGER) is None


def test_rounds_that_ended_too_early_say_what_gives_them_more() -> None:
    assert warn_of_rounds("precise", 30, PLAN) == []
    (late,) = warn_of_rounds("time-limit", 30, PLAN)
    assert late.startswith("stopped at the time limit of 4 s after 30 rounds")
    assert "--duration" in late
    (slow,) = warn_of_rounds("time-limit", 1, PLAN, round_s=9.2)
    assert slow.startswith("the time limit of 4 s was over after 1 round of 9.2 s")
    assert "--duration 92 has room for 5" in slow
    (between,) = warn_of_rounds("time-limit", 1, PLAN, round_s=0.01, whole_s=9.4)
    assert "of 0.01 s (9.4 s with what is done between requests)" in between
    assert "--duration 47 has room for 5" in between
    (most,) = warn_of_rounds("max-rounds", 200, PLAN)
    assert most.startswith("stopped after 200 rounds, the most for 4 s")
    assert "--duration" in most
    (given,) = warn_of_rounds("max-rounds", 50, Plan(max_rounds=50))
    assert given.startswith("stopped after 50 rounds, which is max_rounds")
