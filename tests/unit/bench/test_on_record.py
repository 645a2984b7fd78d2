"""What receipts on record say of requests at the beginning of a round, and of hosts."""

import on_record
import pytest

from ftax import Receipt
from support.records import make_measurement


def make_rounds(*samples):
    return make_measurement([1], samples_ns=(samples,) * 3)


def test_each_of_the_first_three_is_compared_with_those_after_them():
    found = on_record.compare_places(make_rounds(130, 103, 101, 100, 90, 110))
    assert found == pytest.approx([30, 3, 1])
    assert on_record.compare_places(make_rounds(130, 103, 101)) is None  # nothing to compare with


def test_receipts_are_collected_by_rung():
    receipt = Receipt(rungs=(make_rounds(120, 110, 100, 100),))
    (figure,) = on_record.show_settling([receipt, receipt])
    assert (figure.name, figure.values) == (
        "second request of a round, eager, Python", (pytest.approx(10), pytest.approx(10))
    )  # fmt: skip


def test_the_middle_receipt_of_a_cell_is_named_beside_the_fastest(capsys):
    totals = (5000, 1000, 4000, 2000)
    on_record.show_spread([Receipt(rungs=(make_measurement([1000 * us] * 60),)) for us in totals])
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if "fp32" in line]
    assert row[-6:] == ["4", "1.00", "2.00", "4", "5.00", "5.00"]  # the fourth line has 2 ms


def test_rounds_are_counted_both_ways():
    top = make_measurement(
        [*range(100, 130), 900, 900], checks={"disturbed_rounds": [30, 31]}, counted="quiet"
    )
    every, quiet = on_record.show_quiet([Receipt(rungs=(top,))])
    assert every.value > 5 * quiet.value > 0
