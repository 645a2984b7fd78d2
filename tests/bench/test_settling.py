"""Requests at the beginning of a round, against the later ones."""

import pytest
from settling import collect, compare_places

from ftax import Receipt
from support.records import make_measurement


def make_rounds(*samples):
    return make_measurement([1], samples_ns=(samples,) * 3, positions=(0,) * 3)


def test_each_of_the_first_three_is_compared_with_those_after_them():
    assert compare_places(make_rounds(130, 103, 101, 100, 90, 110)) == pytest.approx([30, 3, 1])


def test_rounds_of_three_samples_tell_nothing():
    assert compare_places(make_rounds(130, 103, 101)) is None


def test_receipts_are_collected_by_rung():
    receipt = Receipt(rungs=(make_rounds(120, 110, 100, 100),))
    assert collect([receipt, receipt]) == {("eager", "python"): [pytest.approx([20, 10, 0])] * 2}
