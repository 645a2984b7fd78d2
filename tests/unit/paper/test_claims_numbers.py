"""The numbers behind verdicts: which cells count, resampled rounds, and what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ftax import InvalidArgumentError
from ftax.paper.claims import testing as claims
from ftax.paper.claims.claim import Findings, RequiredCell, Results, find_cell
from ftax.paper.claims.judge import judge_claim, judge_test, settle
from ftax.paper.claims.measured import MeasuredNumbers, Sampler, list_gpus
from support.claim_results import (
    BATCHES,
    GRAPHS,
    RESAMPLES,
    judge_one,
    make_cell,
    make_graph_results,
    make_results,
    make_series,
)


def test_work_is_taken_from_any_cell_of_the_size():
    counted = make_series(lambda _: 1.0, framework="tape/cpp", batches=(128,), macs=2 * 10**9)
    cells = [*make_series(lambda _: 1.0, dtype="fp32"), *counted]
    (gpu,) = list_gpus(make_results(cells))
    place = RequiredCell("bert-base", "eager/python", "fp32", 128, 128)
    assert gpu.read(place, "gmacs") == 2.0
    assert "has no count of macs" in gpu.read(place._replace(batch=1), "gmacs").why


def test_counts_have_no_interval():
    cells = make_series(lambda _: 1.0, dtype="fp32", macs=10**10, modules=100)
    (gpu,) = list_gpus(make_results(cells))
    numbers = MeasuredNumbers(lambda _: gpu, Sampler(resamples=RESAMPLES, seed=0))
    results = Results(numbers, Findings())
    found = set()
    for numbers.draw in range(-1, RESAMPLES):
        found.add(results.read("gmacs", "bert", "eager", "fp32", 128))
    assert found == {10.0}
    verdict = judge_one("S4.2.2-funnel-macs", cells)
    assert all(value.low == () for value in verdict.values)


def test_draws_belong_to_the_cell_and_to_the_seed():
    cells = make_graph_results(40.5, noise=0.02)
    forwards, backwards = judge_one(GRAPHS, cells), judge_one(GRAPHS, cells[::-1])
    assert forwards == backwards
    assert judge_one(GRAPHS, cells, seed=1).values != forwards.values
    with pytest.raises(InvalidArgumentError, match="resamples is 100; give at least 200"):
        claims.test_claims(make_results(cells), resamples=100)


def test_cells_of_one_session_are_resampled_together():
    def make(**fields):
        cells = make_graph_results(60.0, noise=0.1)
        drift = [cell.values_ns for cell in cells[: len(BATCHES)]]
        paired = [
            replace(cell, values_ns=tuple(0.4 * value for value in values))
            for cell, values in zip(cells[len(BATCHES) :], drift)
        ]
        eager = cells[: len(BATCHES)]
        return [replace(cell, **fields) for cell in (*eager, *paired)]

    def width(cells):
        value = judge_one(GRAPHS, cells).values[0]
        return value.high[0] - value.low[0]

    assert width(make(facts={"session": "s1"})) == pytest.approx(0.0, abs=1e-9)
    assert width(make()) > 1.0


def test_an_interval_is_as_wide_as_the_noise_says():
    noise, rounds = 0.01, 40
    cells = make_series(lambda _: 10.0, noise=noise, rounds=rounds)
    (gpu,) = list_gpus(make_results(cells))
    cell = cells[0]
    draws = Sampler(resamples=4000, seed=0).draw(gpu.cells[next(iter(gpu.cells))])
    assert draws.mean() == pytest.approx(cell.latency_ns / 1e6, rel=1e-3)
    assert draws.std() == pytest.approx(10.0 * noise / rounds**0.5, rel=0.35)


def test_the_number_itself_lies_in_its_interval():
    verdict = judge_one("S3.2-fewer-flops-no-faster", make_flat(0.02))
    (spread,) = verdict.values
    assert spread.today == pytest.approx((1.0,))  # the draws are all above it
    assert spread.low == spread.today
    assert spread.high[0] > 1.001


def make_flat(noise):
    return make_series(lambda _: 10.0, noise=noise, kernel_ms=lambda _: 1.0)


def test_tiny_models_test_nothing():
    cells = [
        replace(cell, cell=replace(cell.cell, options={"tiny": True}))
        for cell in make_graph_results(60.0)
    ]
    assert judge_one(GRAPHS, cells).today == "cannot be tested here"


def test_one_round_gives_a_verdict_without_an_interval():
    cells = [replace(cell, values_ns=cell.values_ns[:1]) for cell in make_graph_results(60.0)]
    verdict = judge_one(GRAPHS, cells)
    assert (verdict.today, verdict.shares, verdict.resamples) == ("holds", {}, 0)
    assert all(value.low == () for value in verdict.values)
    assert verdict.notes[0].startswith("no interval: bert-base cuda-graph/python cuda fp16 b1")


MODELS = ("bert", "distilbert", "albert", "squeeze_bert", "mobile_bert", "longformer")


@pytest.mark.parametrize(("measured", "kept"), [(6, 6), (4, 4), (3, 3), (2, 6)])
def test_models_that_were_not_measured_are_left_out_of_long_lists(measured, kept):
    places = [find_cell(name, "eager/python", "fp16", 1, None) for name in MODELS[:measured]]
    (gpu,) = list_gpus(make_results(make_cell(place, 1.0) for place in places))
    found = Findings()
    numbers = MeasuredNumbers(lambda _: gpu, Sampler(resamples=RESAMPLES, seed=0))
    results = Results(numbers, found)
    (latencies,) = results.over(MODELS, ("latency_ms", "eager", "fp16", 1))
    assert len(latencies) == kept
    assert latencies[:measured] == [1.0] * measured
    left_out = ", ".join(MODELS[kept:])
    told = [f"over {kept} of the paper's 6 models: no {left_out}"] if left_out else []
    assert [*found.notes] == told


@pytest.mark.parametrize(
    ("holds", "outcome"),
    [(100, "holds"), (95, "holds"), (94, "not resolved")],
)
def test_95_of_100_resamples_have_to_agree(holds, outcome):
    resampled = ["holds"] * holds + ["does not hold"] * (100 - holds)
    assert judge_test("holds", resampled) == (outcome, holds / 100)
    resampled = ["does not hold"] * holds + ["holds"] * (100 - holds)
    turned, share = judge_test("does not hold", resampled)
    assert turned == ("does not hold" if outcome == "holds" else outcome)
    assert share == pytest.approx(1 - holds / 100)
    shares = {"holds": holds / 100, "changed": 1 - holds / 100}
    assert settle("holds", shares)[0] == outcome


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "not tested"], "holds"),
        (["holds", "does not hold"], "changed"),
        (["another size"], "changed"),
        (["does not hold", "not tested"], "does not hold"),
        (["not tested"], "cannot be tested here"),
        ([], "cannot be tested here"),
    ],
)
def test_conditions_make_a_verdict(outcomes, verdict):
    assert judge_claim(outcomes) == verdict
