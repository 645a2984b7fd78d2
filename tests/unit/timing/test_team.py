"""What a machine is good for, of an operator on one thread and on two."""

from __future__ import annotations

import torch

from ftax.timing.team import Team, measure_team


def make_team(
    two_ns: float | None, *, waited: float = 0.0, disturbed: float = 0.0, spread: float = 0.01
) -> Team:
    return Team(
        one_ns=500_000.0,
        two_ns=two_ns,
        waited_ratio=waited,
        disturbed_ratio=disturbed,
        spread_ratio=spread,
    )


def test_two_threads_that_halve_the_time_are_good_for_several():
    threads, differences = make_team(260_000.0).advise()
    assert threads == (
        "one thread and several: an operator takes 500 us on one thread and 260 us on two"
    )
    assert differences.startswith("differences of 1.0% within one process: other programs used")


def test_two_threads_that_wait_or_gain_nothing_are_good_for_one():
    alone = "one thread alone (--threads 1): "
    slow, _ = make_team(600_000.0).advise()
    waiting, _ = make_team(300_000.0, waited=0.6).advise()
    single, _ = make_team(None).advise()
    assert slow.startswith(alone)
    assert waiting.startswith(alone) and waiting.endswith("60% of the calls waited for a CPU")
    assert single == "one thread: this process may use one CPU"


def test_a_machine_that_others_use_is_good_for_large_differences():
    _, differences = make_team(260_000.0, disturbed=0.5).advise()
    assert differences.startswith("large differences: other programs used the CPU in 50%")


def test_it_is_timed_and_leaves_the_number_of_threads():
    # Half a second: twenty rounds of two runners.
    before = torch.get_num_threads()
    team = measure_team()
    assert torch.get_num_threads() == before
    assert team.one_ns > 0.0 and (team.gain is None or team.gain > 0.0)
    assert 0.0 <= team.waited_ratio <= 1.0 and 0.0 <= team.disturbed_ratio <= 1.0
    assert len(team.advise()) == 2
