"""When pairs are looked at, and that many looks raise no more false alarms than was allowed."""

import random

import pytest

from ftax.timing.comparison import compare_values
from ftax.timing.sequential import FEWEST_PAIRS, find_look_confidence, is_look


def test_looks_come_half_as_often_again():
    assert [pairs for pairs in range(1, 62) if is_look(pairs)] == [5, 8, 12, 18, 27, 41]


def test_the_shares_of_all_looks_sum_to_what_was_allowed():
    spent = [1 - find_look_confidence(look, 0.99) for look in range(1, 2000)]
    assert spent[0] == pytest.approx(0.005)
    assert sum(spent) == pytest.approx(0.01, rel=1e-3) and sum(spent) < 0.01


def test_whoever_stops_at_the_first_difference_is_wrong_no_more_often():
    """2,000 comparisons of the same code, each of up to 27 pairs, at a tenth in place of 1 %."""
    draw = random.Random(7).gauss
    wrong = 0
    for _ in range(2000):
        ratios = [2.718281828 ** draw(0, 0.01) for _ in range(27)]
        looks = [pairs for pairs in range(FEWEST_PAIRS, 28) if is_look(pairs)]
        for look, pairs in enumerate(looks, 1):
            found = compare_values(
                [1.0] * pairs, ratios[:pairs], paired=True,
                confidence=find_look_confidence(look, 0.9),
            )  # fmt: skip
            if found.verdict in ("faster", "slower"):
                wrong += 1
                break
    assert wrong / 2000 < 0.1
    assert wrong / 2000 > 0.02  # nor far less often
