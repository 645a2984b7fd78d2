"""Durations of equal kernels: the guard against replays that run the same kernels slower."""

import pytest

from ftax.instruments.trace.kernel_set import KernelSet, compare_durations
from support.traces import make_kernel, make_trace


def make_set(**durations_ns):
    """One iteration with one kernel a name."""
    kernels, at_ns = [], 1000
    for name, duration_ns in durations_ns.items():
        kernels.append(make_kernel(at_ns, at_ns + duration_ns, name))
        at_ns += duration_ns
    window = make_trace().iterations[0]
    window = type(window)(begin_ns=1000, issued_ns=1000, end_ns=at_ns)
    return KernelSet.of(make_trace(iterations=(window,), kernels=tuple(kernels)))


def test_a_kernel_that_became_a_fifth_slower_is_flagged():
    comparison = compare_durations(make_set(a=10_000, b=5000), make_set(a=12_000, b=5000))
    (flagged,) = comparison
    assert flagged.key.name == "a"
    assert flagged.ratio == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("a_ns", "b_ns", "differs"),
    [
        (10_000, 10_501, True),
        (10_000, 10_500, False),  # 5 %, not more
        (10_000, 9_499, True),  # faster is a difference too
        (1000, 1300, False),  # 30 %, but no more than 300 ns
        (1000, 1301, True),
        (100_000, 104_000, False),  # 4 us, but 4 %
    ],
)
def test_both_limits_have_to_be_exceeded(a_ns, b_ns, differs):
    comparison = compare_durations(make_set(a=a_ns), make_set(a=b_ns))
    assert bool(comparison) == differs


def test_medians_are_compared_so_that_one_disturbed_run_does_not_count():
    quiet = make_trace(kernels=tuple(make_kernel(t, t + 100) for t in (1000, 1100, 1200)))
    spike = make_trace(
        kernels=(make_kernel(1000, 1100), make_kernel(1100, 1200), make_kernel(1200, 1990))
    )
    assert compare_durations(KernelSet.of(quiet), KernelSet.of(spike)) == ()


def test_kernels_that_only_one_side_ran_are_left_to_the_set_comparison():
    comparison = compare_durations(make_set(a=1000, b=1000), make_set(b=2000, c=9000))
    assert [kernel.key.name for kernel in comparison] == ["b"]


def test_the_dearest_difference_comes_first():
    comparison = compare_durations(
        make_set(a=1000, b=1000, c=1000), make_set(a=2000, b=9000, c=500)
    )
    assert [kernel.key.name for kernel in comparison] == ["b", "a", "c"]
