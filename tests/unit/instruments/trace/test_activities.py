"""Activities: unions of intervals, and which call launched what."""

import pytest

from ftax.instruments.trace.activities import find_launches, merge_intervals, sum_busy_ns
from support.traces import make_call, make_kernel

OUTER = make_call(1010, 1050, 1)
INNER = make_call(1020, 1040, 1, domain="driver", name="cuLaunchKernel")


def make_kernels(*spans):
    return [make_kernel(*span) for span in spans]


@pytest.mark.parametrize(
    ("spans", "merged"),
    [
        ([], []),
        ([(10, 20), (30, 40)], [(10, 20), (30, 40)]),
        ([(30, 40), (10, 35)], [(10, 40)]),
        ([(10, 20), (20, 30)], [(10, 30)]),
        ([(10, 50), (20, 30)], [(10, 50)]),
        ([(10, 20), (15, 12)], [(10, 20)]),
        ([(20, 10)], []),
        ([(5, 5)], []),
    ],
)
def test_the_union_is_disjoint_and_in_order(spans, merged):
    assert merge_intervals(make_kernels(*spans)) == merged
    assert sum_busy_ns(make_kernels(*spans)) == sum(end - start for start, end in merged)


@pytest.mark.parametrize("calls", [(OUTER, INNER), (INNER, OUTER)])
def test_of_two_calls_with_one_correlation_the_outer_one_launched(calls):
    assert find_launches(calls) == {1: OUTER}


def test_of_two_calls_that_begin_together_the_longer_one_launched():
    inner = make_call(1010, 1040, 1, domain="driver")
    assert find_launches([inner, OUTER]) == find_launches([OUTER, inner]) == {1: OUTER}


def test_correlation_0_means_unknown():
    assert find_launches([make_call(1010, 1050, 0)]) == {}
