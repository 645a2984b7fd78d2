"""The timeline: parts computed by hand, and that they always sum to the whole."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftax import InvalidArgumentError, ResultsError
from ftax.instruments.trace.activities import Iteration
from ftax.instruments.trace.timeline import (
    PARTS,
    TimelineRow,
    Waits,
    compute_timeline,
    compute_waits,
)
from support.traces import make_call, make_kernel, make_memcpy, make_trace, make_window


def partition(**changes):
    (row,) = compute_timeline(make_trace(**changes)).rows
    return {part: value for part, value in row.to_dict().items() if value}


def test_parts_of_one_stream_computed_by_hand():
    assert partition(
        api_calls=(make_call(1010, 1050, 1), make_call(1220, 1260, 2), make_call(1270, 1290, 3)),
        kernels=(
            make_kernel(1100, 1200, correlation_id=1),
            make_kernel(1300, 1400, correlation_id=2),  # 60 ns until the call returned, then 40
            make_kernel(1410, 1500, correlation_id=3),  # launched long ago: 10
        ),
    ) == {
        "wall_ns": 1000,
        "before_first_ns": 100,
        "device_busy_ns": 290,
        "idle_host_late_ns": 60,
        "idle_between_ns": 50,
        "tail_ns": 500,
    }


def test_a_gap_before_a_call_that_was_still_running_is_the_hosts():
    parts = partition(
        api_calls=(make_call(1010, 1050, 1), make_call(1210, 1400, 2)),
        kernels=(
            make_kernel(1100, 1200, correlation_id=1),
            make_kernel(1300, 1350, correlation_id=2),
        ),
    )
    assert parts["idle_host_late_ns"] == 100
    assert "idle_between_ns" not in parts


def test_later_nodes_of_a_graph_are_launched_although_the_call_has_not_returned():
    parts = partition(
        api_calls=(make_call(1010, 1900, 1, name="cudaGraphLaunch"),),
        kernels=tuple(make_kernel(t, t + 50, correlation_id=1) for t in (1100, 1160, 1220)),
    )
    assert parts["idle_between_ns"] == 20
    assert "idle_host_late_ns" not in parts


def test_overlapping_kernels_on_two_streams_count_once():
    assert partition(
        kernels=(make_kernel(1100, 1300), make_kernel(1200, 1400, stream_id=8)),
        memcpys=(make_memcpy(1250, 1260, stream_id=9),),
    ) == {"wall_ns": 1000, "before_first_ns": 100, "device_busy_ns": 300, "tail_ns": 600}


def test_without_api_calls_idle_time_is_not_attributed():
    trace = make_trace(kernels=(make_kernel(1100, 1200), make_kernel(1300, 1400)))
    timeline = compute_timeline(trace)
    assert not timeline.has_api_calls
    assert timeline.rows[0].idle_unattributed_ns == 100


def test_an_iteration_without_activities_waited_for_the_first():
    assert partition() == {"wall_ns": 1000, "before_first_ns": 1000}


def test_what_reaches_beyond_the_iteration_is_cut_off():
    assert partition(kernels=(make_kernel(1900, 2500),)) == {
        "wall_ns": 1000,
        "before_first_ns": 900,
        "device_busy_ns": 100,
    }


def test_medians_are_taken_part_by_part():
    windows = tuple(make_window(1000 * i, 1000 * i + 900 + i) for i in (1, 2, 3))
    kernels = tuple(make_kernel(1000 * i + 10 * i, 1000 * i + 110) for i in (1, 2, 3))
    timeline = compute_timeline(make_trace(iterations=windows, kernels=kernels))
    assert timeline.median_ns("wall_ns") == 902
    assert timeline.median_ns("before_first_ns") == 20
    assert timeline.median_ns("device_busy_ns") == 90
    assert timeline.busy_ratio == pytest.approx(90 / 902)


def test_a_trace_without_iterations_has_no_timeline():
    with pytest.raises(ResultsError, match="no iterations"):
        compute_timeline(make_trace(iterations=()))


def test_a_row_whose_parts_do_not_sum_is_refused():
    with pytest.raises(
        InvalidArgumentError, match="sum to 99 ns; they have to sum to wall_ns, 100"
    ):
        TimelineRow(wall_ns=100, device_busy_ns=99)


SPANS = st.lists(st.tuples(st.integers(100, 160), st.integers(-5, 40), st.integers(0, 4)))


@given(kernels=SPANS, calls=SPANS, has_copies=st.booleans())
def test_parts_sum_to_the_whole_for_any_trace(kernels, calls, has_copies):
    trace = make_trace(
        iterations=(make_window(100, 160),),
        kernels=tuple(
            make_kernel(start, start + length, stream_id=stream, correlation_id=stream)
            for start, length, stream in kernels
        ),
        memcpys=(make_memcpy(120, 125),) if has_copies else (),
        api_calls=tuple(make_call(start, start + length, c) for start, length, c in calls),
    )
    (row,) = compute_timeline(trace).rows
    assert sum(getattr(row, part) for part in PARTS) == row.wall_ns == 60

    # Nanosecond by nanosecond, which needs no idea of intervals.
    activities = trace.split()[0].activities
    busy = {t for item in activities for t in range(item.start_ns, min(item.end_ns, 160))}
    assert row.device_busy_ns == len(busy)
    first = min((item.start_ns for item in activities), default=160)
    last = max((max(item.start_ns, item.end_ns) for item in activities), default=160)
    assert row.before_first_ns == first - 100
    assert row.tail_ns == max(0, 160 - last)


def find(*calls, kernels=(), memcpys=()) -> Waits | None:
    window = Iteration(begin_ns=0, issued_ns=1000, end_ns=1500)
    trace = make_trace(iterations=(window,), kernels=kernels, memcpys=memcpys, api_calls=calls)
    return compute_waits(trace)


def wait(start_ns: int, end_ns: int, name: str = "cudaStreamSynchronize", **changes):
    return make_call(start_ns, end_ns, 0, name=name, **changes)


def test_the_harness_own_wait_is_none():
    launch = make_call(10, 20, 1)
    found = find(launch, wait(1001, 1400), kernels=(make_kernel(30, 1300, correlation_id=1),))
    assert found == Waits(counts=(0,), wait_ns=(0,), masked_ns=(0,))


def test_a_wait_is_masked_as_long_as_the_device_is_busy():
    found = find(
        make_call(10, 20, 1),
        wait(100, 400),
        kernels=(make_kernel(30, 250, correlation_id=1), make_kernel(200, 300)),
    )
    assert found == Waits(counts=(1,), wait_ns=(300,), masked_ns=(200,))


def test_a_number_that_is_read_is_one_wait():
    copy = make_memcpy(120, 130, copy_kind="DtoH", correlation_id=5)
    read = make_call(100, 140, 5, name="cudaMemcpyAsync")
    assert find(read, wait(141, 200), memcpys=(copy,)) == Waits(
        counts=(1,), wait_ns=(59,), masked_ns=(0,)
    )
    between = make_call(141, 142, 6)
    found = find(read, between, wait(150, 200), memcpys=(copy,))
    assert found is not None and found.counts == (2,)


def test_an_asynchronous_copy_waits_only_if_it_returns_after_the_copy():
    copy = make_memcpy(120, 130, copy_kind="DtoH", correlation_id=5)
    soon = make_call(100, 110, 5, name="cudaMemcpyAsync")
    late = make_call(100, 140, 5, name="cudaMemcpyAsync")
    plain = make_call(100, 110, 5, name="cudaMemcpy")
    counts = [
        waits.counts for call in (soon, late, plain) if (waits := find(call, memcpys=(copy,)))
    ]
    assert counts == [(0,), (1,), (1,)]
    to_device = replace(copy, copy_kind="HtoD")
    found = find(late, memcpys=(to_device,))
    assert found is not None and found.counts == (0,)


def test_what_a_wait_calls_itself_is_not_counted_again():
    inner = wait(110, 190, name="cuStreamSynchronize", domain="driver")
    found = find(wait(100, 200), inner, wait(300, 310, thread_id=7))
    assert found is not None and found.counts == (2,)


def test_a_trace_without_calls_knows_of_no_waits():
    assert find(kernels=(make_kernel(1, 2),)) is None
