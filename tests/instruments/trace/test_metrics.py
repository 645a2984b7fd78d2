"""Metrics of the field, computed by hand from a trace of two streams."""

import dataclasses

import pytest

from ftax import ResultsError
from ftax.instruments.trace.activities import find_launches
from ftax.instruments.trace.metrics import classify_idle, compute_metrics
from support.traces import make_call, make_kernel, make_memcpy, make_trace, make_window

# wall 1000, issued after 400; kernels of 100, 50 and 150 ns
TRACE = make_trace(
    iterations=(make_window(1000, 2000, 1400),),
    api_calls=(make_call(1010, 1030, 1), make_call(1050, 1060, 2), make_call(1380, 1390, 3)),
    kernels=(
        make_kernel(1100, 1200, correlation_id=1),
        make_kernel(1220, 1270, correlation_id=2),
        make_kernel(1450, 1600, correlation_id=3),
    ),
)


def test_metrics_computed_by_hand():
    metrics = compute_metrics(TRACE)
    assert metrics.wall_ns == 1000
    assert metrics.busy_ns == 300
    assert metrics.kernels == 3
    assert metrics.framework_overhead_ratio == pytest.approx(0.7)
    assert metrics.orchestration_ns == 400
    assert metrics.host_device_balance_ratio == pytest.approx(300 / 700)
    assert metrics.average_kernel_ns == 100
    assert metrics.inference_latency_ns == 600
    assert metrics.skip_idle_ns == 300
    assert metrics.tklqt_ns == 90 + 170 + 70
    assert metrics.average_launch_ns == 110
    assert metrics.kernel_wait_ns == 20  # launched before the first kernel ended, 20 < 30 ns
    assert metrics.host_wait_ns == 180  # launched at 1380, after 1270
    assert metrics.other_wait_ns == 0


def test_a_gap_of_the_threshold_or_more_after_an_early_launch_is_other_wait():
    part = TRACE.split()[0]
    find_launch = find_launches(TRACE.api_calls).get
    assert classify_idle(part, find_launch, consecutive_kernel_ns=20)["other_wait_ns"] == 20
    assert classify_idle(part, find_launch, consecutive_kernel_ns=21)["kernel_wait_ns"] == 20


def test_idle_classes_look_at_each_stream_alone():
    trace = dataclasses.replace(
        TRACE, memcpys=(make_memcpy(1200, 1220, stream_id=8), make_memcpy(1210, 1500, stream_id=8))
    )
    metrics = compute_metrics(trace)
    assert metrics.kernel_wait_ns == 20  # although stream 8 is busy, and its overlap counts nothing
    assert metrics.other_wait_ns == 0


def test_busy_is_a_union_while_skip_sums():
    trace = make_trace(kernels=(make_kernel(1100, 1300), make_kernel(1200, 1400, stream_id=8)))
    metrics = compute_metrics(trace)
    assert metrics.busy_ns == 300
    assert metrics.skip_idle_ns == 400 - 400


def test_kernels_without_a_launch_are_left_out_of_tklqt():
    trace = dataclasses.replace(TRACE, api_calls=TRACE.api_calls[:1])
    metrics = compute_metrics(trace)
    assert metrics.tklqt_ns == 90
    assert metrics.average_launch_ns == 90


def test_without_api_calls_there_are_no_launch_metrics():
    metrics = compute_metrics(dataclasses.replace(TRACE, api_calls=()))
    assert metrics.tklqt_ns is None
    assert metrics.average_launch_ns is None
    assert metrics.host_wait_ns is metrics.kernel_wait_ns is metrics.other_wait_ns is None
    assert metrics.framework_overhead_ratio == pytest.approx(0.7)


def test_an_iteration_without_device_work_has_metrics_all_the_same():
    metrics = compute_metrics(make_trace(api_calls=(make_call(1010, 1020, 1),)))
    assert metrics.framework_overhead_ratio == 1
    assert metrics.host_device_balance_ratio == 0
    assert metrics.average_kernel_ns == metrics.average_launch_ns == 0


def test_metrics_are_medians_over_iterations():
    windows = tuple(make_window(1000 * i, 1000 * i + 500) for i in (1, 2, 3))
    lengths = {1: 100, 2: 250, 3: 200}
    kernels = tuple(make_kernel(1000 * i, 1000 * i + n) for i, n in lengths.items())
    metrics = compute_metrics(make_trace(iterations=windows, kernels=kernels))
    assert metrics.busy_ns == 200
    assert metrics.framework_overhead_ratio == pytest.approx(0.6)


def test_a_trace_without_iterations_has_no_metrics():
    with pytest.raises(ResultsError, match="no iterations"):
        compute_metrics(make_trace(iterations=()))
