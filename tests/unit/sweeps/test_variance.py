"""Variance between runs and between machines: by hand, on simulated fleets of known components,
and what is said where it cannot be told."""

from __future__ import annotations

import math
import random

import pytest

from ftax.sweeps.variance import find_variances, pool_within, split_variance
from support.fleet import A100, H100, make_cell, make_machine, make_results

EAST, WEST = make_machine(H100, "east"), make_machine(H100, "west")


def test_within_is_pooled_around_each_mean():
    assert pool_within([[1.0, 3.0], [10.0, 10.0, 13.0], [5.0]]) == (pytest.approx(8 / 3), 3)
    assert pool_within([[1.0]]) == (0.0, 0)


def test_two_machines_by_hand():
    # Means 1 and 4, mean squares 2 * (1.5^2 + 1.5^2) = 9 between and (2 + 2) / 2 = 2 within.
    found = split_variance([{"a": [0.0, 2.0], "b": [3.0, 5.0]}])
    assert found.within == pytest.approx(math.sqrt(2.0))
    assert found.between == pytest.approx(math.sqrt((9 - 2) / 2))
    low, high = found.interval
    assert low <= found.between <= high


def test_machines_that_differ_less_than_runs_are_floored_at_0():
    found = split_variance([{"a": [0.0, 2.0], "b": [1.2, 1.2, 1.2]}])
    assert found.between == 0.0 and found.interval[0] == 0.0 < found.interval[1]


def simulate(seed, *, machines, runs, cells, within, between, shared):
    """A fleet; machine effects are those of all cells where they are ``shared``."""
    generator = random.Random(seed)
    effects = [generator.gauss(0, between) for _ in range(machines)]
    return [
        {
            str(machine): [
                (effects[machine] if shared else own) + generator.gauss(cell, within)
                for _ in range(runs)
            ]
            for machine in range(machines)
            for own in [generator.gauss(0, between)]
        }
        for cell in range(cells)
    ]


@pytest.mark.parametrize("between", [0.0, 0.01, 0.05])
def test_the_components_of_a_simulated_fleet_are_found(between):
    found = [
        split_variance(
            simulate(seed, machines=6, runs=4, cells=3, within=0.02, between=between, shared=False)
        )
        for seed in range(60)
    ]
    mean_square = sum(item.within**2 for item in found) / len(found)
    assert math.sqrt(mean_square) == pytest.approx(0.02, rel=0.03)
    spread = math.sqrt(sum(item.between**2 for item in found) / len(found))
    assert spread == pytest.approx(between, abs=0.004)


@pytest.mark.parametrize("machines", [2, 4, 8])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("between", [0.0, 0.01, 0.04])
def test_the_interval_covers_what_it_says(machines, shared, between):
    times, covered = 120, 0
    for seed in range(times):
        fleet = simulate(
            seed, machines=machines, runs=4, cells=4, within=0.02, between=between, shared=shared
        )
        low, high = split_variance(fleet).interval
        covered += low <= between <= high
    assert covered / times >= 0.9  # 95 %, less twice the error of so few


def test_anchors_of_a_fleet_give_both(tmp_path):
    cells = [
        make_cell(machine, latency_us * (1 + 0.01 * run), repetition=run, batch=batch)
        for machine, latency_us in ((EAST, 100.0), (WEST, 120.0))
        for run in range(4)
        for batch in (1, 2)
    ]
    alone = make_cell(EAST, batch=64)  # measured once: no anchor
    (kind,) = find_variances(make_results([*cells, alone], EAST, WEST))
    assert kind.machines == (EAST.id, WEST.id) and kind.problem == ""
    assert (kind.cells, kind.runs) == (2, 16)
    assert kind.components.within == pytest.approx(0.0127, abs=1e-3)
    assert kind.components.between == pytest.approx(math.log(1.2) / math.sqrt(2), abs=2e-3)


def test_kinds_of_machines_are_never_averaged():
    other = make_machine(A100)
    results = make_results([make_cell(EAST), make_cell(other)], EAST, other)
    assert [kind.machines for kind in find_variances(results)] == [(EAST.id,), (other.id,)]


def test_what_would_be_needed_is_said():
    def judge(*cells):
        (kind,) = find_variances(make_results(cells, EAST, WEST))
        assert kind.components.between is None
        return kind

    assert "repetitions" in judge(make_cell(EAST), make_cell(WEST)).problem
    lone = judge(make_cell(EAST), make_cell(EAST, 101.0, repetition=1))
    assert "one machine" in lone.problem and lone.components.within > 0
    apart = judge(make_cell(EAST), make_cell(EAST, repetition=1), make_cell(WEST, batch=2))
    assert "every_machine" in apart.problem


def test_latencies_in_doubt_count_for_nothing():
    wild = make_cell(EAST, values=[100.0, 100.0, 900.0], repetition=1)
    (kind,) = find_variances(make_results([make_cell(EAST), wild], EAST))
    assert kind.components.within is None
