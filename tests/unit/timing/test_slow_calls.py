"""Calls that take far longer than the others, time and again: a median does not see them, and each
place that shows a latency says what calls cost in the mean.

Which calls are slow is tested in C++ (tests/cpp/test_core_slow_calls.cpp).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import ftax
from delays import spin
from ftax.errors import ResultsError
from ftax.ladders.receipt import Receipt
from ftax.reports.columns import read_all
from ftax.reports.tables.measurement_table import COLUMNS, make_measurement_table
from ftax.reports.tables.receipt_table import make_receipt_tables
from ftax.sweeps.cells import make_fields
from ftax.timing.differences import HostComparison
from ftax.timing.measurement import WAITED, Measurement, describe_slow_calls
from ftax.timing.statistics import SlowCalls
from support.evidence import EAGER, TAPE
from support.records import make_measurement
from support.runtimes_receipt import EQUAL, ORT
from support.tables import read_column

ROUNDS = 20
US = 1000


def measure(
    place: tuple[str, str] = EAGER, usual_us: int = 200, slow_us: int = 0, **changes: object
) -> Measurement:
    """Rounds of ten samples that count, of which one takes ``slow_us`` more."""
    samples = (0, *(usual_us * US,) * 9, (usual_us + slow_us) * US)
    fields = {
        "runtime": place[0],
        "host": place[1],
        "samples_ns": (samples,) * ROUNDS,
        "checks": {WAITED: [0] * ROUNDS, "outputs": dict(EQUAL)},
        "preparation": {"ready_seconds": 1.0},
    }
    return make_measurement([0] * ROUNDS, **{**fields, **changes})  # type: ignore[arg-type]


SLOW = measure(slow_us=4000)


def test_a_measurement_says_what_its_calls_cost_in_the_mean() -> None:
    assert SLOW.latency_ns == 200 * US
    assert SLOW.slow_calls == SlowCalls(mean_ns=600e3, share_ratio=0.1, extra_ns=4e6)
    assert SLOW.statistics.slow_calls == SLOW.slow_calls
    assert SLOW.long_run_ns == SLOW.summary.mean_ns == 600 * US
    usual = measure()
    assert usual.slow_calls is None and usual.long_run_ns == usual.latency_ns


def test_what_is_the_machines_is_no_call_of_the_model() -> None:
    waited = {WAITED: [4000 * US] * ROUNDS}
    assert replace(SLOW, checks=waited).slow_calls is None
    assert replace(SLOW, checks={}).slow_calls is None  # nobody looked
    usual, slow = measure().samples_ns, SLOW.samples_ns
    rounds = {"samples_ns": usual + slow}
    checks = {WAITED: [0] * 2 * ROUNDS, "disturbed_rounds": [*range(ROUNDS, 2 * ROUNDS)]}
    assert replace(SLOW, **rounds, checks=checks).slow_calls is None
    assert replace(SLOW, **rounds, checks=checks, counted="quiet").slow_calls is None
    checks["disturbed_rounds"] = [*range(ROUNDS)]
    found = replace(SLOW, **rounds, checks=checks, counted="quiet")
    assert found.slow_calls == SLOW.slow_calls


def test_the_row_shows_both_and_a_sentence_how_often() -> None:
    told = (
        "eager/python: mean 600 us: about 1 call in 10 takes 4,000 us more; its latency, 200 us, "
        "is that of the others"
    )
    assert describe_slow_calls([measure(), SLOW]) == [told]
    table = make_measurement_table([SLOW, measure(TAPE)])
    assert read_column(table, "latency") == ["200 us, mean 600 us", "200 us"]
    for printed in (SLOW, HostComparison(python=SLOW, cpp=measure(TAPE))):
        assert told in " ".join(str(printed).split())
    assert "200 us, mean 600 us" in SLOW.describe()
    row = read_all(SLOW, COLUMNS)
    assert (row["mean_ns"], row["slow_calls_ratio"]) == (600e3, 0.1)
    assert row["slow_calls_extra_ns"] == 4e6
    assert read_all(measure(), COLUMNS)["slow_calls_ratio"] is None


def test_of_bursts_it_is_a_burst_that_is_slow() -> None:
    burst = replace(SLOW, mode="throughput", burst=50)
    (told,) = describe_slow_calls([burst])
    assert "about 1 burst of 50 in 10 takes 200 ms more" in told
    waited = {WAITED: [40_000 * US] * ROUNDS}  # of 202 ms of each round
    assert replace(burst, checks=waited).slow_calls is not None


def make_receipt(top: Measurement = SLOW, tape: Measurement | None = None) -> Receipt:
    rungs = (top, measure(("flat", "python"), 180), tape or measure(TAPE, 150))
    return Receipt(rungs=rungs, others=(measure(ORT, 100),))


def test_a_receipt_shows_them_in_its_lines_its_runtimes_and_below() -> None:
    receipt = make_receipt()
    lines, runtimes, *_ = make_receipt_tables(receipt)
    assert lines.rows[-1][1] == "200 us, mean 600 us"
    assert "200 us, mean 600 us" in read_column(runtimes, "latency")
    assert describe_slow_calls([SLOW])[0] in receipt.collect_warnings()
    assert "200 us, mean 600 us" in receipt.describe()
    assert not any("mean" in text for text in make_receipt(measure()).collect_warnings())


def test_a_runtime_whose_slow_calls_eat_up_what_it_saves_is_not_recommended() -> None:
    quiet = make_receipt(measure())
    assert "onnxruntime" in quiet.recommendation and "100 us" in quiet.recommendation
    slow = replace(quiet, others=(measure(ORT, 100, 4000),))
    told = "not recommended, is onnxruntime/cpp (not faster in the mean of all calls, 500 us)"
    assert told in slow.recommendation
    (row,) = slow.alternatives
    assert row.is_faster and row.excluded
    # Where the first rung has them too, the mean still is faster.
    both = replace(make_receipt(SLOW), others=(measure(ORT, 100, 4000),))
    assert not both.alternatives[0].excluded


def test_a_comparison_goes_by_the_mean_where_medians_do_not_show_it() -> None:
    after = replace(SLOW, label="after", process=replace(SLOW.process, pid=2))
    found = ftax.compare(measure(), after)
    assert found.ratio == pytest.approx(3.0)
    assert any("by the median call b takes +0.0%" in text for text in found.notes)
    assert f"b: {describe_slow_calls([SLOW])[0]}" in found.warnings
    assert any(text.startswith("b: eager/python: mean 600 us") for text in found.notes)


def test_a_file_holds_them() -> None:
    data = SLOW.to_dict()
    assert data["statistics"]["slow_calls"] == {
        "mean_ns": 600e3,
        "share_ratio": 0.1,
        "extra_ns": 4e6,
    }
    assert Measurement.from_dict(data) == SLOW
    changed = {**data["statistics"]["slow_calls"], "share_ratio": 0.2}
    with pytest.raises(ResultsError, match=r"slow_calls\.share_ratio is 0\.2 where 0\.1"):
        Measurement.from_dict({**data, "statistics": {**data["statistics"], "slow_calls": changed}})
    assert measure().to_dict()["statistics"]["slow_calls"] is None


def test_a_cell_of_a_sweep_has_them_among_its_warnings(mlp) -> None:
    fields = make_fields(mlp, SLOW, {}, "")
    assert describe_slow_calls([SLOW])[0] in fields["warnings"]
    assert fields["inputs"] == [item.to_dict() for item in SLOW.inputs]


@pytest.mark.timing
def test_a_cost_that_comes_every_tenth_call_is_found() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = nn.Linear(16, 16), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            if self.calls % 10 == 0:
                spin(4000 * US)
            return self.layer(x)

    plan = ftax.Plan(duration_s=3, rounds=60)
    found = ftax.py_bench(Model(), (torch.randn(2, 16),), plan=plan)
    assert found.latency_ns < 1000 * US
    assert found.slow_calls is not None
    assert found.slow_calls.share_ratio == pytest.approx(0.1, rel=0.3)
    assert found.slow_calls.extra_ns == pytest.approx(4e6, rel=0.3)
    assert found.slow_calls.mean_ns == pytest.approx(400e3, rel=0.4)
    steady = ftax.py_bench(nn.Linear(16, 16), (torch.randn(2, 16),), plan=plan)
    assert steady.slow_calls is None
