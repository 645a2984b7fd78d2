"""The gate on a device: it separates host from device, always opens, labels what it cannot do."""

import time

import pytest
import torch

import ftax
from ftax import _core
from ftax.errors import InvalidArgumentError
from ftax.instruments.gate import measure_gate

pytestmark = pytest.mark.needs_cuda

SLEEP_CYCLES = 20_000_000  # at least 5 ms on any device that runs below 4 GHz
DELAY_NS = 4_000_000


def python_runner(function, name="test"):
    return _core.PythonRunner(function, name, device="cuda", grad_mode=_core.GradMode.inference)


def test_host_time_is_issue_time_and_no_device_time():
    delayed = _core.DelayRunner(_core.NullKernelRunner(), DELAY_NS)
    gated = measure_gate(delayed, repetitions=10, launches=1)
    assert gated.reason is None
    assert len(gated.kept) == 10
    assert all(item.issue_ns >= DELAY_NS for item in gated.kept)
    # An ungated pair of events would have the delay between them.
    assert 0 < gated.device_ns.median_ns < DELAY_NS


def test_device_time_is_no_issue_time():
    sleeper = python_runner(lambda: torch.cuda._sleep(SLEEP_CYCLES))
    gated = measure_gate(sleeper, repetitions=10)
    assert gated.reason is None
    assert gated.device_ns.low_ns >= 5_000_000
    assert gated.issue_ns.median_ns < gated.device_ns.median_ns
    assert all(item.drain_ns >= 5_000_000 for item in gated.kept)


def test_more_launches_take_longer_on_both_sides():
    few = measure_gate(_core.LaunchBurstRunner(20), launches=20)
    many = measure_gate(_core.LaunchBurstRunner(90), launches=90)
    assert few.reason is None and many.reason is None
    assert few.issue_ns.median_ns < many.issue_ns.median_ns
    assert few.device_ns.median_ns < many.device_ns.median_ns


@pytest.mark.parametrize("wait", ["synchronise", "read"])
def test_a_runner_that_waits_inside_is_cut_once_and_goes_on(wait):
    x = torch.ones(8, device="cuda")
    calls = []

    def request():
        calls.append(None)
        x.add_(1)
        torch.cuda.synchronize() if wait == "synchronise" else x[0].item()

    start = time.monotonic()
    gated = measure_gate(python_runner(request, "waits"), repetitions=50, watchdog_ms=200)
    elapsed_s = time.monotonic() - start
    assert gated.cut
    assert gated.issue_ns is None
    assert len(gated.repetitions) == 1  # not fifty watchdogs
    assert len(calls) == 3  # two of them before the gate
    assert "waits" in gated.reason and "200 ms" in gated.reason
    assert 0.2 <= elapsed_s < 60
    assert x[0].item() == 4.0  # the device is alive, and did all of it


def test_a_runner_that_raises_leaves_the_gate_open():
    calls = []

    def request():
        calls.append(None)
        if len(calls) == 3:
            raise ValueError("behind the gate")

    with pytest.raises(ftax.RunnerError, match="behind the gate"):
        measure_gate(python_runner(request), watchdog_ms=10_000)
    torch.cuda.synchronize()


def test_the_launch_queue_has_a_plausible_depth_and_is_probed_once():
    depth = _core.probe_launch_queue()
    assert 100 <= depth <= 100_000
    start = time.monotonic()
    assert _core.probe_launch_queue() == depth
    assert time.monotonic() - start < 0.1  # a probe takes 0.3 s


def test_what_does_not_fit_in_the_queue_is_refused_when_known_and_cut_when_not():
    depth = _core.probe_launch_queue()
    if depth >= 1 << 16:
        pytest.skip("this driver's launch queue has no end that the probe finds")
    too_many = _core.LaunchBurstRunner(depth + 500)
    refused = measure_gate(too_many, launches=depth + 500)
    assert refused.repetitions == ()
    assert str(depth + 500) in refused.reason and str(depth) in refused.reason
    cut = measure_gate(too_many, watchdog_ms=200)
    assert cut.cut
    assert "queue" in cut.reason


@pytest.mark.parametrize(
    "arguments", [{"repetitions": 0}, {"watchdog_ms": 0}, {"watchdog_ms": 61_000}, {"launches": -1}]
)
def test_arguments_out_of_range_are_refused(arguments):
    with pytest.raises(InvalidArgumentError):
        measure_gate(_core.NullKernelRunner(), **arguments)


def test_floors_are_present_and_in_the_order_of_what_they_contain():
    floors = {floor.name: floor.time_ns for floor in ftax.measure_floors(device="cuda", quick=True)}
    cuda = ("empty kernel", "empty graph", "event pair", "synchronise", "launch, host")
    assert all(floors[name] > 0 for name in (*cuda, "launch, device"))
    # Each of these contains a wait for the stream, and more.
    assert floors["synchronise"] < floors["empty kernel"]
    assert floors["synchronise"] < floors["empty graph"]
    assert floors["launch, host"] < floors["empty kernel"]
    assert floors["launch, device"] < floors["empty kernel"]


def test_a_cold_cache_makes_reading_slower():
    x = torch.ones(6 << 20, device="cuda")  # 24 MB: at home in the L2 caches of data-centre GPUs
    if torch.cuda.get_device_properties(0).L2_cache_size < 2 * x.nbytes:
        pytest.skip("the L2 cache of this device is too small for the test")
    reader = python_runner(x.sum)
    warm = measure_gate(reader, repetitions=50)
    cold = measure_gate(_core.ColdRunner(reader), repetitions=50)
    assert warm.reason is None and cold.reason is None
    assert cold.device_ns.median_ns > warm.device_ns.median_ns


def test_a_cold_runner_has_no_throughput():
    plan = _core.RoundPlan()
    plan.mode = _core.Mode.throughput
    with pytest.raises(InvalidArgumentError, match="empty kernel"):
        _core.measure_rounds([_core.ColdRunner(_core.NullKernelRunner())], plan)


def test_ranges_and_profile_once_change_nothing_but_the_time_line():
    calls = []
    runner = _core.NvtxRunner(python_runner(lambda: calls.append(None), "inner"), "label")
    assert runner.name == "inner"
    runner.run_once()
    assert len(calls) == 1
    _core.profile_once(runner)
    assert len(calls) == 2
