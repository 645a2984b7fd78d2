"""What a receipt of a GPU is held against: two timings by others, before its rounds and after."""

from __future__ import annotations

import pytest
import receipt_cells
from receipt_cells import CHECKS, Timing, describe, judge_agreement, make_figures

from ftax import Receipt
from records import make_measurement

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
    ("before", "after", "verdict"),
    [
        (Timing(1000.0, 2.0), Timing(1001.0, 2.0), "intervals"),
        (Timing(1030.0, 1.0), Timing(1030.0, 1.0), "within 5 %"),
        (Timing(1000.0, None), Timing(1000.0, None), "within 5 %"),
        (Timing(900.0, 1.0), Timing(1100.0, 1.0), "intervals"),  # the host grew slower, no more
        (Timing(1000.0, 1.0), Timing(1200.0, 1.0), "cannot tell"),
        (Timing(1100.0, 1.0), Timing(1110.0, 1.0), "no"),
        (Timing(900.0, 90.0), Timing(890.0, 9.0), "no"),
    ],
)
def test_the_mean_of_before_and_after_is_held_against_the_receipt(before, after, verdict):
    found = judge_agreement(make_receipt(), before, after)
    assert found["agrees"] == verdict
    assert found["latency_ns"] == [before.latency, after.latency]


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
