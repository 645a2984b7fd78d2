"""What a receipt of a GPU is held against: timings by others, by turns with rounds of its own."""

from __future__ import annotations

import pytest
from gpu_receipts import CHECKS, describe, judge_turns, make_figures, take_turns

from ftax import Receipt
from ftax.steps.load import load_model
from support.records import make_measurement


def make_receipt(values):
    return Receipt(
        rungs=(
            make_measurement(values),
            make_measurement([600] * len(values), runtime="flat"),
            make_measurement([400] * len(values), host="cpp"),
        )
    )


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([1.0, 1.01, 0.99, 1.0, 1.02, 0.98], "yes"),
        ([1.03, 1.031, 1.029, 1.03, 1.032, 1.028], "yes"),
        ([1.10, 1.11, 1.09, 1.1, 1.12, 1.08], "no"),
        ([0.90, 0.91, 0.89, 0.9, 0.92, 0.88], "no"),
        ([1.0, 1.2, 0.8, 1.0, 1.1, 0.9], "cannot tell"),  # too wide to say that it agrees
        ([1.04, 1.06, 1.03, 1.05, 1.04, 1.06], "cannot tell"),
        ([1.0, 1.01, 0.99, 1.0, 1.02], "cannot tell"),  # too few for 95 %
        ([1.9, 1.01, 0.99, 1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 0.6], "yes"),  # two disturbed
    ],
)
def test_others_are_judged_by_pairs_of_one_turn(ratios, verdict):
    drift = [1000.0, 1300.0, 900.0, 1500.0, 700.0, 1100.0, 950.0, 1050.0, 1200.0, 800.0]
    drift = drift[: len(ratios)]  # of the host, which all of a turn share
    times = {
        "rounds": drift,
        "py_bench": [value * ratio for value, ratio in zip(drift, ratios, strict=True)],
        "plain loop": drift,
    }
    found = judge_turns(times)
    assert found["py_bench"]["agrees"] == verdict
    low, high = found["py_bench"]["interval_percent"]
    assert low < found["py_bench"]["difference_percent"] < high
    assert found["plain loop"]["agrees"] == ("yes" if len(ratios) > 5 else "cannot tell")


def test_turns_time_the_same_model_three_ways():
    times = take_turns(load_model("bert-base", tiny=True), turns=2)
    assert {name: len(values) for name, values in times.items()} == {
        "rounds": 2, "py_bench": 2, "plain loop": 2,
    }  # fmt: skip
    values = [value for taken in times.values() for value in taken]
    assert 0 < max(values) < 10 * min(values)


@pytest.mark.parametrize(
    ("verdict", "agrees", "stands"), [("yes", 1, 1), ("cannot tell", 0, 1), ("no", 0, 0)]
)
def test_a_loop_that_cannot_tell_neither_agrees_nor_disagrees(verdict, agrees, stands):
    cell = {
        **describe(make_receipt([1000] * 30 + [1001] * 30)),
        "agreement": {
            "py_bench": {"agrees": "yes", "difference_percent": 0.1},
            "plain loop": {"agrees": verdict, "difference_percent": 7.0},
        },
        "wall_s": 5.0,
    }
    figures = {figure.name: figure.values for figure in make_figures([cell], 1)}
    assert figures["receipt, py_bench and a plain loop agree"] == (agrees,)
    assert figures["no loop disagrees"] == (stands,)
    assert figures["same kernels on every rung"] == (0,)  # nothing was traced
    assert "widest spread of kernel durations" not in figures
    assert set(CHECKS) < set(figures)
