"""What a receipt of a GPU is held against: timings by others, by turns with rounds of its own."""

from __future__ import annotations

import pytest
import receipt_cells
from receipt_cells import CHECKS, describe, make_figures
from receipt_turns import judge_turns, take_turns

from ftax import Receipt
from ftax.steps.load import load_model
from support.records import make_measurement

NARROW = [1000] * 30 + [1001] * 30


def make_receipt(values=NARROW):
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
        ([1.0, 1.01, 0.99, 1.0, 1.02, 0.98], "intervals"),
        ([1.03, 1.031, 1.029, 1.03, 1.032, 1.028], "within 5 %"),
        ([1.10, 1.11, 1.09, 1.1, 1.12, 1.08], "no"),
        ([0.90, 0.91, 0.89, 0.9, 0.92, 0.88], "no"),
        ([1.0, 1.2, 0.8, 1.0, 1.1, 0.9], "cannot tell"),  # too wide to say that it agrees
        ([1.04, 1.06, 1.03, 1.05, 1.04, 1.06], "cannot tell"),
        ([1.0, 1.01, 0.99, 1.0, 1.02], "cannot tell"),  # too few for 95 %
        ([1.9, 1.01, 0.99, 1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 0.6], "intervals"),  # two disturbed
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
    found = judge_turns(times, 5.0)
    assert found["py_bench"]["agrees"] == verdict
    low, high = found["py_bench"]["interval_percent"]
    assert low < found["py_bench"]["difference_percent"] < high
    assert found["plain loop"]["agrees"] == ("intervals" if len(ratios) > 5 else "cannot tell")


def test_the_middle_receipt_of_a_cell_is_named_beside_the_fastest(tmp_path, capsys):
    path = tmp_path / "receipts.jsonl"
    for value in (5000, 1000, 4000, 2000):
        make_receipt([1000 * value] * 60).save(path)
    receipt_cells.show_spread(path)
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if "fp32" in line]
    assert row[-6:] == ["4", "1.00", "2.00", "4", "5.00", "5.00"]  # the fourth line has 2 ms


def test_turns_time_the_same_model_three_ways():
    loaded = load_model("bert-base", tiny=True)
    times = take_turns(loaded, turns=2)
    assert {name: len(values) for name, values in times.items()} == {
        "rounds": 2, "py_bench": 2, "plain loop": 2,
    }  # fmt: skip
    values = [value for taken in times.values() for value in taken]
    assert 0 < max(values) < 10 * min(values)


@pytest.mark.parametrize(
    ("verdict", "agrees", "stands"),
    [("intervals", 1, 1), ("within 5 %", 1, 1), ("cannot tell", 0, 1), ("no", 0, 0)],
)
def test_a_loop_that_cannot_tell_neither_agrees_nor_disagrees(verdict, agrees, stands):
    cell = {
        **describe(make_receipt()),
        "agreement": {
            "py_bench": {"agrees": "intervals", "difference_percent": 0.1},
            "plain loop": {"agrees": verdict, "difference_percent": 7.0},
        },
        "wall_s": 5.0,
    }
    figures = {figure.name: figure.values for figure in make_figures([cell], 1)}
    assert figures["receipt, py_bench and a plain loop agree"] == (agrees,)
    assert figures["no loop disagrees"] == (stands,)
    assert set(CHECKS) < set(figures)


def test_a_receipt_says_how_many_rounds_the_limit_would_need():
    found = describe(make_receipt([900, 1100] * 10))
    assert found["half_width_percent"] > receipt_cells._HALF_WIDTH_LIMIT
    ratio = found["half_width_percent"] / receipt_cells._HALF_WIDTH_LIMIT
    assert found["rounds_needed"] == pytest.approx(20 * ratio**2, abs=1)
