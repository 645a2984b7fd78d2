"""Plans: what they refuse, and how they reach the core."""

import math
from typing import Any

import pytest

from ftax import _core
from ftax.errors import InvalidArgumentError
from ftax.timing.plan import Plan


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "fast"}, "mode is 'fast'; it has to be 'latency' or 'throughput'"),
        ({"warmup": 0}, "warmup is 0"),
        ({"warmup": -3}, "warmup is -3"),
        ({"rounds": 0}, "rounds is 0"),
        ({"rounds": -1}, "rounds is -1"),
        ({"rounds": 1}, "rounds is 1; give a whole number from 2 to 2147483647"),
        ({"rounds": 2.5}, "rounds is 2.5"),
        ({"rounds": 10**10}, "rounds is 10000000000"),
        ({"max_rounds": 0}, "max_rounds is 0"),
        ({"duration_s": 0}, "duration_s is 0"),
        ({"duration_s": -2.5}, "duration_s is -2.5"),
        ({"duration_s": math.nan}, "duration_s is nan"),
        ({"duration_s": math.inf}, "duration_s is inf; give a number above 0 and below 1e+09"),
        ({"duration_s": 10**5000}, "duration_s is int, too long to write"),
        ({"patience_s": -1}, "patience_s is -1; give a number of at least 0"),
        ({"patience_s": True}, "patience_s is True"),
        ({"rounds": True}, "rounds is True"),
        ({"round_ms": 0.0}, "round_ms is 0.0"),
        ({"round_ms": math.nan}, "round_ms is nan"),
        ({"target_ratio": 0.0}, "target_ratio is 0.0"),
        ({"target_ratio": math.nan}, "target_ratio is nan"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"seed": 2**63}, f"seed is {2**63}"),
    ],
)
def test_impossible_plans_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Plan(**options)
    assert words in str(caught.value)


def test_plan_reaches_the_core_in_its_units() -> None:
    core = Plan(
        mode="throughput", warmup=7, duration_s=2.5, round_ms=1.5, target_ratio=0.1, seed=9,
        max_rounds=50, cpus=(0,),
    ).to_core()  # fmt: skip
    assert core.mode == _core.Mode.throughput
    assert core.warmup.iterations == 7
    assert core.rule.time_limit_ns == 2_500_000_000
    assert core.round_duration_ns == 1_500_000
    assert (core.rule.target_ratio, core.rule.max_rounds, core.rule.fixed) == (0.1, 50, False)
    assert (core.seed, core.cpus) == (9, [0])
    core.check()


def test_given_rounds_are_fixed() -> None:
    core = Plan(rounds=2).to_core()
    assert core.rule.fixed
    assert core.rule.looks() == [2]
    core.check()


def test_few_rounds_at_most_are_a_valid_plan() -> None:
    core = Plan(max_rounds=5).to_core()
    core.check()
    assert core.rule.looks() == [5]


def test_the_most_rounds_grow_with_the_time_unless_they_are_given() -> None:
    assert Plan(duration_s=5.0).to_core().rule.max_rounds == 200
    assert Plan(duration_s=60.0).to_core().rule.max_rounds == 600
    assert Plan(duration_s=60.0, max_rounds=50).to_core().rule.max_rounds == 50
    Plan(duration_s=9e8).to_core().check()


def test_no_warm_up_given_means_until_steady() -> None:
    assert Plan().to_core().warmup.iterations == 0


def test_an_unknown_field_is_told_with_the_one_that_was_meant():
    with pytest.raises(InvalidArgumentError, match="no field 'round'; did you mean 'rounds'"):
        Plan(**{"round": 3})
