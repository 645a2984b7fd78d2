"""When pairs are looked at, and that many looks raise no more false alarms than was allowed."""

import math
import random

import pytest

from ftax.timing.comparison import (
    FEWEST_PAIRS,
    Side,
    compare_sides,
    compare_values,
    find_look_confidence,
    is_look,
)


def test_looks_come_half_as_often_again():
    assert [pairs for pairs in range(1, 62) if is_look(pairs)] == [5, 8, 12, 18, 27, 41]


def test_the_shares_of_all_looks_sum_to_what_was_allowed():
    spent = [1 - find_look_confidence(look, 0.99) for look in range(1, 2000)]
    assert spent[0] == pytest.approx(0.005)
    assert sum(spent) == pytest.approx(0.01, rel=1e-3) and sum(spent) < 0.01


LOOKS = [pairs for pairs in range(FEWEST_PAIRS, 28) if is_look(pairs)]


def test_whoever_stops_at_the_first_difference_is_wrong_no_more_often():
    """2,000 comparisons of the same code, each of up to 27 pairs, at a tenth in place of 1 %."""
    draw = random.Random(7).gauss
    wrong = 0
    for _ in range(2000):
        ratios = [2.718281828 ** draw(0, 0.01) for _ in range(27)]
        for look, pairs in enumerate(LOOKS, 1):
            found = compare_values(
                [1.0] * pairs, ratios[:pairs], paired=True,
                confidence=find_look_confidence(look, 0.9),
            )  # fmt: skip
            if found.verdict in ("faster", "slower"):
                wrong += 1
                break
    assert wrong / 2000 < 0.1
    assert wrong / 2000 > 0.02  # nor far less often


def compare_pairs(sides, look, pairs):
    a, b = (
        Side(label="m", runtime="eager/python", medians_ns=medians[:pairs], extra_ns=extra[:pairs])
        for medians, extra in sides
    )
    confidence = find_look_confidence(look, 0.99)
    return compare_sides(
        a, b, unit="pair", paired=True, margin=0.05, confidence=confidence, names=("a", "b")
    )


@pytest.mark.parametrize("deviation", [0.003, 0.01, 0.03, 0.1])
@pytest.mark.parametrize("disturbed_ratio", [0.0, 0.2])
def test_the_whole_procedure_calls_the_same_code_different_in_1_of_100(deviation, disturbed_ratio):
    """Also where neighbours slow one side of some pairs by up to a half, and some calls: then means
    decide, where they disagree. Nine seconds in all."""
    draw = random.Random(f"{deviation} {disturbed_ratio}")

    def make_side():
        medians = [1e6 * math.exp(draw.gauss(0, deviation)) for _ in range(27)]
        hit = [draw.random() < disturbed_ratio for _ in medians]
        return (
            [ns * (1 + draw.random() / 2 * here) for ns, here in zip(medians, hit, strict=True)],
            [draw.expovariate(1 / (3e5 if draw.random() < disturbed_ratio else 3e3)) for _ in hit],
        )

    wrong = 0
    for _ in range(400):
        sides = make_side(), make_side()
        for look, pairs in enumerate(LOOKS, 1):
            found = compare_pairs(sides, look, pairs)
            low, high = found.ratio_interval
            assert low <= found.ratio <= high
            assert found.latency_b_ns == pytest.approx(found.ratio * found.latency_a_ns)
            if found.is_settled:
                break
        wrong += found.verdict in ("faster", "slower")
    assert wrong <= 8  # of 400; more than 8 come in 2 of 100 such tests at a rate of 1 %
