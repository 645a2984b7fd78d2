"""Kernel sets: what counts as the same kernel, and how a difference reads."""

import pytest

from ftax import ResultsError
from ftax.instruments.trace.kernel_set import (
    KernelKey,
    KernelSet,
    compare_durations,
    compare_kernel_sets,
)
from support.traces import make_kernel, make_memcpy, make_memset, make_repeated_trace, make_trace


def compare(a, b):
    return compare_kernel_sets(KernelSet.of(a), KernelSet.of(b))


def test_kernels_are_counted_per_iteration_and_timed_over_all():
    kernels = KernelSet.of(make_repeated_trace("a", "b", "a", iterations=3))
    first, second = kernels.entries
    assert first.key == KernelKey("a", (2, 1, 1), (32, 1, 1), 0)
    assert (first.count, first.total_ns, first.median_ns) == (2, 300, 50)
    assert (second.key.name, second.count, second.total_ns) == ("b", 1, 150)
    assert kernels.sums_ns == (150, 150, 150)
    assert kernels.sum_ns == 150


def test_equal_sets_are_equal_whatever_their_order():
    difference = compare(make_repeated_trace("a", "b"), make_repeated_trace("b", "a"))
    assert difference.equal and not difference.memory
    assert "ran the same kernels" in difference.describe()


def test_a_difference_lists_what_only_one_has_and_changed_counts():
    difference = compare(
        make_repeated_trace("a", "b", "b"), make_repeated_trace("c", "b", runtime="cuda-graph")
    )
    assert not difference.equal
    assert {key.name: pair for key, pair in difference.kernels.items()} == {
        "a": (1, 0), "c": (0, 1), "b": (2, 1)
    }  # fmt: skip
    assert difference.describe().splitlines() == [
        "mlp cuda-graph/cpp cuda ran other kernels than mlp eager/cpp cuda:",
        "  a [grid 2x1x1, block 32x1x1]: 1 in mlp eager/cpp cuda, 0 in mlp cuda-graph/cpp cuda",
        "  c [grid 2x1x1, block 32x1x1]: 0 in mlp eager/cpp cuda, 1 in mlp cuda-graph/cpp cuda",
        "  b [grid 2x1x1, block 32x1x1]: 2 in mlp eager/cpp cuda, 1 in mlp cuda-graph/cpp cuda",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"grid": (3, 1, 1)},
        {"block": (32, 2, 1)},
        {"static_shared_bytes": 16},
        {"dynamic_shared_bytes": 16},
    ],
)
def test_another_launch_shape_is_another_kernel(change):
    a = make_trace(kernels=(make_kernel(1100, 1200),))
    b = make_trace(kernels=(make_kernel(1100, 1200, **change),))
    assert not compare(a, b).equal


def test_only_the_sum_of_shared_memory_counts():
    a = make_trace(kernels=(make_kernel(1100, 1200, static_shared_bytes=16),))
    b = make_trace(kernels=(make_kernel(1100, 1200, dynamic_shared_bytes=16),))
    assert compare(a, b).equal


def test_copies_and_fills_stand_beside_the_kernels():
    kernels = (make_kernel(1100, 1200),)
    a = make_trace(kernels=kernels, memcpys=(make_memcpy(1300, 1310),))
    b = make_trace(kernels=kernels, memsets=(make_memset(1300, 1310),))
    difference = compare(a, b)
    assert difference.equal
    assert difference.memory == {("memcpy HtoD", 64): (1, 0), ("memset", 128): (0, 1)}
    assert "ran the same kernels but other copies or fills than" in difference.describe()
    assert "memcpy HtoD, 64 B: 1 in" in difference.describe()


def test_a_fill_that_ran_as_a_kernel_is_no_kernel_of_the_model():
    a = make_trace(kernels=(make_kernel(1100, 1200),), memsets=(make_memset(1300, 1310),))
    b = make_trace(kernels=(make_kernel(1100, 1200), make_kernel(1300, 1310, "memset32_post")))
    difference = compare(a, b)
    assert difference.equal
    assert difference.memory == {("memset", 128): (1, 0), ("memset as a kernel", None): (0, 1)}
    assert KernelSet.of(b).sums_ns == (100,)


def test_a_kernel_of_the_model_may_be_called_memset():
    trace = make_trace(kernels=(make_kernel(1100, 1200, "void model::memset_rows<4>(int)"),))
    assert len(KernelSet.of(trace).entries) == 1


def test_a_long_difference_is_cut():
    difference = compare(make_repeated_trace("a", "b", "c"), make_repeated_trace("d"))
    assert difference.describe(limit=2).splitlines()[-1] == "  and 2 more"


def test_kernels_with_equal_short_names_are_told_apart():
    difference = compare(make_repeated_trace("f<1>(int)"), make_repeated_trace("f<2>(int)"))
    one, other = (line.split(" [")[0] for line in difference.describe().splitlines()[1:])
    assert one != other


def test_iterations_that_differ_have_no_set():
    trace = make_repeated_trace("a", "b", iterations=3)
    with pytest.raises(ResultsError, match=r"iteration 2 .* other device work than iteration 0"):
        KernelSet.of(make_trace(iterations=trace.iterations, kernels=trace.kernels[:-1]))


def test_a_trace_without_iterations_has_no_set():
    with pytest.raises(ResultsError, match="no iterations"):
        KernelSet.of(make_trace(iterations=()))


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
