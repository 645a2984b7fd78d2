"""When two runtimes are said to have computed the same."""

import math

import pytest
import torch

from ftax.tape.equality import (
    allow_unsteady,
    compare_outputs,
    find_other_bits,
    measure_spread,
)
from ftax.timing.checks import Equality


def test_equal_bytes_are_bitwise_and_minus_zero_is_not_zero() -> None:
    zeros = torch.zeros(2)
    assert compare_outputs([zeros], [zeros.clone()]).bitwise
    signed = compare_outputs([zeros], [-zeros])
    assert not signed.bitwise
    assert signed.within_tolerance and signed.difference == 0.0


def test_difference_is_relative_to_the_norm_of_the_reference() -> None:
    # |(0, 0.5)| / |(3, 4)| = 0.5 / 5
    result = compare_outputs([torch.tensor([3.0, 4.0])], [torch.tensor([3.0, 4.5])])
    assert result.difference == pytest.approx(0.1)
    assert not result.within_tolerance
    assert result.problem == "outputs differ by 1.0e-01 (limit 1e-04)"


def test_whole_numbers_that_differ_are_counted():
    tokens, other = torch.arange(10), torch.tensor([0, 1, 2, 9, 9, 5, 6, 7, 8, 9])
    weights = [torch.ones(4), torch.ones(4) * 1.5]
    found = compare_outputs([tokens, weights[0]], [other, weights[1]])
    assert found.problem == "outputs differ in 2 of 10 numbers"


def test_nan_must_be_in_the_same_places() -> None:
    reference, other = torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 0.0])
    same = compare_outputs([reference], [reference.clone()])
    assert same.bitwise and same.has_nan
    assert not compare_outputs([reference], [other]).within_tolerance


def test_integers_are_equal_or_not() -> None:
    assert not compare_outputs(
        [torch.tensor([10**6])], [torch.tensor([10**6 + 1])]
    ).within_tolerance


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        ([], "0 outputs instead of 1"),
        ([torch.ones(3)], "output 0 has shape (3,) instead of (2,)"),
        ([torch.ones(2).double()], "output 0 has dtype torch.float64 instead of torch.float32"),
    ],
)
def test_other_structure_is_named(outputs: list[torch.Tensor], problem: str) -> None:
    result = compare_outputs([torch.ones(2)], outputs)
    assert result.problem == problem
    assert result.to_dict()["difference"] is None


def test_what_is_not_the_same_twice_may_be_another_here_by_about_as_much() -> None:
    first = [torch.tensor([3.0, 4.0, 1.0]), torch.tensor([1, 2]), torch.ones(2)]
    again = [torch.tensor([3.0, 4.5, 1.0]), torch.tensor([1, 3]), torch.ones(2)]
    spread = measure_spread(first, [first, again])
    assert sorted(spread) == [0, 1]
    assert spread[0].differs.tolist() == [False, True, False] and spread[0].most == 0.5
    assert spread[1].differs.tolist() == [False, True] and spread[1].most == math.inf

    def allow(*outputs: torch.Tensor) -> Equality:
        return allow_unsteady(compare_outputs(first, outputs), first, outputs, spread)

    other = torch.tensor([3.0, 4.9, 1.0]), torch.tensor([1, 6]), torch.ones(2)
    assert allow(*other).within_tolerance
    assert allow(*other).describe() == "differs as eager from itself"
    assert not find_other_bits(first, other, spread)
    far = torch.tensor([3.0, 5.1, 1.0])  # twice as far at most
    assert not allow(far, *other[1:]).within_tolerance
    for place, wrong in enumerate(
        (torch.tensor([3.0, 4.9, 2.0]), torch.tensor([2, 6]), torch.zeros(2))
    ):  # each where eager gives the same each time
        outputs = [*other[:place], wrong, *other[place + 1 :]]
        assert not allow(*outputs).within_tolerance
        assert find_other_bits(first, outputs, spread)
    assert not allow(other[0], torch.tensor([5]), other[2]).within_tolerance
    assert not allow_unsteady(compare_outputs(first, other), first, other, {}).within_tolerance


def test_a_spread_knows_every_bit() -> None:
    one, nan = torch.tensor([0.0, torch.nan, 1.0]), torch.tensor([-0.0, torch.nan, torch.inf])
    (spread,) = measure_spread([one], [[nan]]).values()
    assert spread.differs.tolist() == [True, False, True] and spread.most == math.inf
    half = torch.tensor([1.0, 2.0], dtype=torch.float16)
    complex_ = torch.tensor([1 + 1j, 2 + 2j])
    (spread,) = measure_spread([half], [[half * torch.tensor([1, 2])]]).values()
    assert spread.differs.tolist() == [False, True] and spread.most == 2.0
    (spread,) = measure_spread([complex_], [[torch.tensor([1 + 1j, 2 + 3j])]]).values()
    assert spread.differs.tolist() == [False, True] and spread.most == 1.0
    assert measure_spread([one], [[one.clone()]]) == {}
