"""Watching a GPU between rounds, and the sentences on what disturbed a measurement."""

import sys

import pytest

from ftax import _core
from ftax.machines.gpu import GpuCondition
from ftax.machines.gpu_watch import ClockReading, GpuWatch, judge_conditions, watch_gpu
from support.fake_nvml import FakeNvml, NVMLError, open_fake, pretend_cuda

CLOCK = "nvmlDeviceGetClockInfo"
REASONS = "nvmlDeviceGetCurrentClocksEventReasons"


class Time:
    """A clock that moves only when told."""

    def __init__(self):
        self.ns = 10**9

    def __call__(self):
        return self.ns


def make_log(**answers):
    time = Time()
    gpu = open_fake(**{CLOCK: 1980, REASONS: 0, **answers})
    return GpuWatch(gpu, now_ns=time), time, gpu.nvml


def test_readings_are_at_least_200_ms_apart_and_only_between_rounds():
    log, time, nvml = make_log()
    seen = []
    report = log.wrap(lambda *arguments: seen.append(arguments))
    report("warmup", 0, 1)
    assert log.readings == [] and nvml.asked == []
    for round_ in range(10):  # one round every 70 ms: due at 0, 210, 420, 630 ms
        report("round", round_, 10)
        time.ns += 70_000_000
    assert [reading.at_ns - 10**9 for reading in log.readings] == [0, 210e6, 420e6, 630e6]
    assert log.readings[0] == ClockReading(at_ns=10**9, sm_clock_mhz=1980, throttle=())
    assert len(nvml.asked) == 8
    assert seen == [("warmup", 0, 1), *(("round", round_, 10) for round_ in range(10))]


def test_a_gpu_that_fails_ends_the_log_and_not_the_measurement():
    log, time, nvml = make_log()
    log.read_if_due()
    nvml.answers[CLOCK] = NVMLError("GPU is lost")
    for _ in range(3):
        time.ns += 10**9
        log.read_if_due()
    assert len(log.readings) == 1
    assert "GPU is lost" in log.reason
    assert nvml.asked.count(CLOCK) == 2


def test_the_timed_loop_drives_the_log():
    log = GpuWatch(open_fake(**{CLOCK: 1980}), interval_ms=0)
    plan = _core.RoundPlan()
    rule = plan.rule
    rule.fixed, rule.max_rounds = True, 4
    plan.rule = rule
    plan.samples_per_round = 3
    _core.measure_rounds([_core.EmptyRunner()], plan, log.wrap(None))
    assert [reading.sm_clock_mhz for reading in log.readings] == [1980] * 4
    assert {reading.throttle for reading in log.readings} == {None}


def condition(**changes):
    fields = dict.fromkeys(
        (
            "sm_clock_mhz",
            "memory_clock_mhz",
            "throttle",
            "temperature_c",
            "power_mw",
            "kernel_time_percent",
            "memory_time_percent",
            "other_processes",
            "other_memory_bytes",
        )
    )
    return GpuCondition(**{**fields, **changes})


def readings(*clocks, throttle=()):
    return [
        ClockReading(at_ns=place, sm_clock_mhz=clock, throttle=throttle)
        for place, clock in enumerate(clocks)
    ]


IDLE = condition(sm_clock_mhz=345, throttle=("idle",), other_processes=0)
BUSY = condition(sm_clock_mhz=1980, throttle=(), other_processes=0)


def test_a_steady_gpu_gives_no_warning():
    assert judge_conditions(IDLE, readings(1980, 1980, 1965), BUSY) == ()


def test_idle_clocks_around_the_rounds_are_not_a_fall():
    assert judge_conditions(IDLE, readings(1980, 1980), IDLE) == ()
    assert judge_conditions(BUSY, readings(1755, 1755), condition(sm_clock_mhz=1755)) == ()


def test_clocks_that_rise_are_not_a_fall():
    assert judge_conditions(IDLE, readings(345, 1200, 1980), BUSY) == ()


def test_a_fall_of_more_than_5_percent_is_reported_with_its_size():
    (warning,) = judge_conditions(IDLE, readings(1980, 1980, 1485, 1700), BUSY)
    assert "fell from 1980 to 1485 MHz (-25%)" in warning
    # Exactly 5 % is not more than 5 %.
    assert judge_conditions(IDLE, readings(2000, 1900), BUSY) == ()
    assert judge_conditions(IDLE, readings(2000, 1899), BUSY) != ()


def test_a_fall_that_only_the_last_reading_shows_is_seen():
    after = condition(sm_clock_mhz=1200, throttle=())
    (warning,) = judge_conditions(IDLE, readings(1980), after)
    assert "fell from 1980 to 1200 MHz" in warning


def test_throttling_is_named_and_counted():
    during = readings(1700, 1700, throttle=("sw power cap",)) + readings(1700)
    (warning,) = judge_conditions(IDLE, during, condition(throttle=("hw thermal slowdown", "idle")))
    assert "held back (sw power cap, hw thermal slowdown) in 3 of 4 readings" in warning


def test_settings_of_the_clocks_are_not_throttling():
    during = readings(1500, throttle=("clock setting", "sync boost"))
    assert judge_conditions(IDLE, during, condition(throttle=("clock setting",))) == ()


def test_a_shared_gpu_is_reported():
    shared = condition(other_processes=2, other_memory_bytes=3 * 2**30)
    for before, after in ((shared, BUSY), (BUSY, shared)):
        (warning,) = judge_conditions(before, [], after)
        assert "2 other process(es) use this GPU and hold 3.0 GiB" in warning
    (warning,) = judge_conditions(BUSY, [], condition(other_processes=1))
    assert "1 other process(es) use this GPU:" in warning


def test_what_is_unknown_is_no_warning():
    unknown = [ClockReading(at_ns=0, sm_clock_mhz=None, throttle=None)]
    assert judge_conditions(condition(), unknown, condition()) == ()


def test_a_watch_reads_before_between_and_after(monkeypatch):
    pretend_cuda(monkeypatch, 1)
    clocks = iter([345, 3201, 1980, 1500, 3201])  # SM and memory before, SM, SM and memory after
    nvml = FakeNvml(**{CLOCK: lambda handle, clock: next(clocks)})
    with watch_gpu("cuda", nvml=nvml) as watch:
        watch.wrap(None)("round", 0, 1)
    assert watch.before.sm_clock_mhz == 345
    assert [reading.sm_clock_mhz for reading in watch.readings] == [1980]
    assert watch.after.sm_clock_mhz == 1500
    assert watch.reason is None and nvml.open == 0
    (warning,) = watch.judge()
    assert "fell from 1980 to 1500" in warning


def test_a_watch_without_nvml_sees_nothing_and_says_why(monkeypatch):
    pretend_cuda(monkeypatch, 1)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    calls = []
    with watch_gpu("cuda") as watch:
        watch.wrap(lambda *arguments: calls.append(arguments))("round", 0, 1)
    assert (watch.before, watch.readings, watch.after, watch.judge()) == (None, [], None, ())
    assert "pip install nvidia-ml-py" in watch.reason
    assert calls == [("round", 0, 1)]


def test_a_gpu_that_is_lost_meanwhile_is_a_reason_and_no_error(monkeypatch):
    pretend_cuda(monkeypatch, 1)
    nvml = FakeNvml(**{CLOCK: 1980})
    with watch_gpu("cuda", nvml=nvml) as watch:
        nvml.answers[CLOCK] = NVMLError("GPU is lost")
    assert watch.before.sm_clock_mhz == 1980 and watch.after is None
    assert "GPU is lost" in watch.reason


@pytest.mark.needs_cuda
def test_a_real_gpu_keeps_its_clock_readings():
    pytest.importorskip("pynvml")
    with watch_gpu("cuda") as watch:
        watch.wrap(None)("round", 0, 1)
    assert watch.reason is None
    assert 100 <= watch.readings[0].sm_clock_mhz <= 5000
