"""Integrity: a sound trace passes, and each fault that we know how to make is named."""

import dataclasses

import pytest

from ftax.instruments.trace.integrity import Verdict, judge
from support.traces import (
    make_call,
    make_kernel,
    make_memset,
    make_repeated_trace,
    make_trace,
    make_window,
)


def replace_kernel(trace, index, **changes):
    kernels = list(trace.kernels)
    kernels[index] = dataclasses.replace(kernels[index], **changes)
    return dataclasses.replace(trace, kernels=tuple(kernels))


def make_graph_trace(*, iterations=2, kernels=2, memsets=1, turned=0):
    """Replays of one graph; `turned` of its memset nodes run as kernels."""
    records, fills, calls = [], [], []
    for index in range(iterations):
        at_ns, correlation_id = 1000 * (index + 1), index + 1
        calls.append(make_call(at_ns + 10, at_ns + 20, correlation_id, name="cudaGraphLaunch"))
        for node in range(kernels + memsets):
            span_ns = (at_ns + 50 * node + 100, at_ns + 50 * node + 140)
            where = {"correlation_id": correlation_id, "graph_id": 9, "graph_node_id": node + 1}
            if node < kernels:
                records.append(make_kernel(*span_ns, f"k{node}", **where))
            elif node < kernels + turned:
                records.append(make_kernel(*span_ns, "memset_kernel", **where))
            else:
                fills.append(make_memset(*span_ns, **where))
    return make_trace(
        runtime="cuda-graph",
        iterations=tuple(make_window(1000 * i, 1000 * i + 990) for i in range(1, iterations + 1)),
        kernels=tuple(records),
        memsets=tuple(fills),
        api_calls=tuple(calls),
    )


def expect_reason(verdict, text):
    assert not verdict.ok
    assert any(text in reason for reason in verdict.reasons), verdict.reasons
    assert verdict.describe().startswith("unreliable: ")


def test_a_sound_trace_is_reliable():
    verdict = judge(make_repeated_trace("a", "b", "a"))
    assert verdict == Verdict()
    assert verdict.ok
    assert verdict.describe() == "reliable"


def test_dropped_records_are_named():
    expect_reason(judge(make_repeated_trace("a", dropped_records=7)), "dropped 7 records")


def test_what_the_tracer_found_is_passed_on():
    expect_reason(judge(make_repeated_trace("a", problems=("the clock ran twice",))), "ran twice")


def test_a_record_that_is_missing_in_one_iteration_is_named():
    trace = make_repeated_trace("a", "b")
    verdict = judge(dataclasses.replace(trace, kernels=trace.kernels[:-1]))
    expect_reason(
        verdict,
        "iteration 2 has 0 of b [grid 2x1x1, block 32x1x1] where iteration 0 has 1",
    )
    assert len(verdict.reasons) == 1


def test_a_kernel_swapped_for_another_is_named():
    verdict = judge(replace_kernel(make_repeated_trace("a", "b"), 2, name="c"))
    expect_reason(verdict, "iteration 1 has 0 of a")
    expect_reason(verdict, "iteration 1 has 1 of c")


def test_a_swapped_template_argument_is_seen_although_the_short_name_is_equal():
    trace = make_repeated_trace("f<1>(int)")
    expect_reason(judge(replace_kernel(trace, 1, name="f<2>(int)")), "iteration 1 has 0 of f")


def test_another_launch_shape_in_one_iteration_is_named():
    trace = make_repeated_trace("a")
    expect_reason(judge(replace_kernel(trace, 1, grid=(9, 1, 1))), "grid 9x1x1")


def test_a_fill_in_one_iteration_only_is_named():
    trace = make_repeated_trace("a", memsets=(make_memset(2500, 2510),))
    expect_reason(judge(trace), "iteration 1 has 1 of memset, 128 B where iteration 0 has 0")


def test_reversed_time_is_named():
    verdict = judge(replace_kernel(make_repeated_trace("a"), 0, start_ns=1190, end_ns=1090))
    expect_reason(verdict, "kernel a ends 100 ns before its start")


@pytest.mark.parametrize("times", [{"start_ns": 0, "end_ns": 0}, {"end_ns": 0}])
def test_a_missing_timestamp_is_named(times):
    expect_reason(judge(replace_kernel(make_repeated_trace("a"), 0, **times)), "no timestamp")


def test_an_api_call_with_reversed_time_is_named():
    trace = make_trace(kernels=(make_kernel(1100, 1200),), api_calls=(make_call(1050, 1040, 5),))
    expect_reason(judge(trace), "the API call cudaLaunchKernel")


def test_a_kernel_outside_of_every_iteration_is_named():
    trace = replace_kernel(make_repeated_trace("a", iterations=2), 1, start_ns=5000, end_ns=5050)
    expect_reason(
        judge(trace), "1 device records lie in no iteration, the first is kernel a at 5000"
    )


def test_a_kernel_that_starts_before_its_launch_is_named():
    trace = make_repeated_trace("a")
    verdict = judge(replace_kernel(trace, 0, start_ns=1040))  # its call begins at 1050
    expect_reason(verdict, "kernel a starts 10 ns before cudaLaunchKernel, which launched it")


def test_launches_of_one_graph_twice_in_an_iteration_are_two_replays():
    where = {"graph_id": 9, "graph_node_id": 1}
    trace = make_trace(
        kernels=(
            make_kernel(1100, 1200, correlation_id=1, **where),
            make_kernel(1300, 1400, correlation_id=2, **where),
        )
    )
    assert judge(trace).ok


def test_a_kernel_that_outlasts_the_synchronise_is_named():
    verdict = judge(replace_kernel(make_repeated_trace("a"), 0, end_ns=1995))
    expect_reason(verdict, "iteration 0: kernel a ends 5 ns after the synchronise that waited")


def test_a_clock_in_ticks_of_a_2_1_ghz_cpu_is_caught_since_busy_exceeds_wall():
    trace = make_trace(
        kernels=tuple(make_kernel(t, t + 150) for t in range(1000, 2000, 200)),  # 75 % busy
    )
    assert judge(trace).ok
    scaled = [
        make_kernel(1000 + round(2.1 * (k.start_ns - 1000)), 1000 + round(2.1 * (k.end_ns - 1000)))
        for k in trace.kernels
    ]
    expect_reason(judge(dataclasses.replace(trace, kernels=tuple(scaled))), "lie in no iteration")
    longer = [make_kernel(k.start_ns, k.start_ns + round(2.1 * 150)) for k in trace.kernels]
    expect_reason(
        judge(dataclasses.replace(trace, kernels=tuple(longer))),
        "the device was busy for 1115 ns of 1000: its clock is not the host's",
    )


def test_a_trace_without_iterations_or_activities_is_unreliable():
    expect_reason(judge(make_trace(iterations=())), "no iteration was traced")
    expect_reason(judge(make_trace()), "no device activity was recorded")


def test_many_findings_of_a_kind_are_counted():
    trace = make_trace(kernels=tuple(make_kernel(1100 + i, 1050 + i) for i in range(9)))
    verdict = judge(trace)
    assert len([reason for reason in verdict.reasons if "before its start" in reason]) <= 3
    expect_reason(verdict, "and 6 more like the last")


def test_launches_that_could_not_be_checked_are_noted_but_no_fault():
    verdict = judge(make_trace(kernels=(make_kernel(1100, 1200),)))
    assert verdict.ok
    assert verdict.notes == ("no API calls were recorded, so launches were not checked",)
    verdict = judge(make_repeated_trace("a", api_calls=(make_call(1050, 1070, 1),)))
    assert verdict.ok
    assert verdict.notes == ("2 device records have no API call that launched them",)


def test_a_graph_whose_nodes_all_ran_once_is_reliable():
    verdict = judge(make_graph_trace(), expected_nodes={"kernel": 2, "memset": 1})
    assert verdict == Verdict()


def test_memcpy_nodes_that_ran_as_kernels_are_allowed_and_listed():
    trace = make_graph_trace(kernels=3, memsets=1)
    verdict = judge(trace, expected_nodes={"kernel": 2, "memset": 1, "memcpy": 1})
    assert verdict.ok
    assert verdict.notes[-1].startswith("the driver ran 1 memcpy nodes as kernels")


def test_memset_nodes_that_ran_as_kernels_are_allowed_and_listed():
    trace = make_graph_trace(kernels=2, memsets=2, turned=1)
    verdict = judge(trace, expected_nodes={"kernel": 2, "memset": 2, "memcpy": 0})
    assert verdict.ok
    assert verdict.notes == ("the driver ran 1 memset nodes as kernels: memset_kernel",)


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        ({"kernel": 3, "memset": 1}, "iteration 0: 2 kernel nodes left a record; it has to be 3"),
        ({"kernel": 2}, "iteration 0: 1 memset nodes left a record; it has to be 0"),
        ({"kernel": 2, "memset": 1, "memcpy": 1}, "2 kernel nodes left a record; it has to be 3"),
        ({"kernel": 2, "memset": 2}, "2 kernel nodes left a record; it has to be 3"),
    ],
)
def test_a_node_without_a_record_is_named(expected, reason):
    expect_reason(judge(make_graph_trace(), expected_nodes=expected), reason)


def test_a_node_that_ran_twice_in_a_replay_is_named():
    trace = make_graph_trace()
    twice = dataclasses.replace(trace.kernels[0], start_ns=1500, end_ns=1510)
    verdict = judge(dataclasses.replace(trace, kernels=(*trace.kernels, twice)))
    expect_reason(verdict, "iteration 0: node 1 of graph 9 has 2 activities in one replay")


def test_a_replay_of_another_node_is_named():
    trace = replace_kernel(make_graph_trace(), -1, graph_node_id=77)
    verdict = judge(trace, expected_nodes={"kernel": 2, "memset": 1})
    expect_reason(verdict, "iteration 1 ran other graph nodes than iteration 0")
