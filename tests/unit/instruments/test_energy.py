"""Energy per inference: by hand, from a pretended counter that follows the clock, and for real."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from delays import spin
from ftax import _core
from ftax.errors import InvalidArgumentError, RunnerError, UnavailableError
from ftax.instruments.energy import (
    CounterPoint,
    Energy,
    IdlePower,
    compute_energy_tax,
    find_window,
    measure_energy,
    measure_idle_power,
)
from ftax.machines.nvml import open_gpu
from support.fake_nvml import NoPermissionError, open_fake

COUNTER = "nvmlDeviceGetTotalEnergyConsumption"
UPDATE_NS = 5_000_000
IDLE = IdlePower(power_w=50.0, seconds=1.0, settled=True, resolution_ratio=0.005, sm_clock_mhz=None)


def make_energy(energy_j, inferences, *, seconds=2.0, mode="latency", resolution=0.01):
    return Energy(
        mode=mode,
        energy_j=energy_j,
        seconds=seconds,
        inferences=inferences,
        counter_steps=100,
        resolution_ratio=resolution,
        driven_ratio=0.98,
        idle=IDLE,
    )


def make_runner(callable_):
    return _core.PythonRunner(callable_, "spin", device="cpu", grad_mode=_core.GradMode.inference)


def count_energy(power_w):
    """A counter of a GPU that draws `power_w`, brought up to date every 5 ms of the real clock."""
    start = _core.now_ns()
    return lambda handle: int((_core.now_ns() - start) // UPDATE_NS * UPDATE_NS * power_w / 1e6)


def test_energies_of_one_inference():
    energy = make_energy(400.0, 1000)  # in 2 s, 100 J of which an idle GPU would have drawn
    assert energy.joules_per_inference == pytest.approx(0.4)
    assert energy.mean_power_w == pytest.approx(200.0)
    assert energy.joules_above_idle == pytest.approx(0.3)
    assert Energy.from_dict(energy.to_dict()) == energy


def test_the_tax_is_the_difference_between_rungs_and_sums_to_the_top():
    rungs = [
        ("eager/python", make_energy(400.0, 1000)),  # 0.4 J each, 0.3 J above idle
        ("eager/cpp", make_energy(500.0, 2000)),  # 0.25 J each, 0.2 J above idle
        ("graph/cpp", make_energy(980.0, 4000)),  # 0.245 J each, 0.22 J above idle
    ]
    lines = compute_energy_tax(rungs)
    assert [(line.upper, line.lower) for line in lines] == [
        ("eager/python", "eager/cpp"),
        ("eager/cpp", "graph/cpp"),
        ("graph/cpp", None),
    ]
    assert [line.joules for line in lines] == pytest.approx([0.15, 0.005, 0.245])
    assert [line.joules_above_idle for line in lines] == pytest.approx([0.1, -0.02, 0.22])
    assert [line.share_ratio for line in lines] == pytest.approx([0.375, 0.0125, 0.6125])
    # At 1 % each, 0.15 +- 0.0065 is resolved and 0.005 +- 0.00495 just so.
    assert [line.resolved for line in lines] == [True, True, True]
    coarse = [(name, make_energy(e.energy_j, e.inferences, resolution=0.02)) for name, e in rungs]
    assert [line.resolved for line in compute_energy_tax(coarse)] == [True, False, True]
    assert compute_energy_tax([]) == ()


def test_a_runner_gets_the_energy_of_its_time():
    gpu = open_fake(**{COUNTER: count_energy(100.0)})
    runner = make_runner(lambda: spin(200_000))
    energy = measure_energy(runner, gpu=gpu, idle=IDLE, seconds=0.6, limit_s=0.6)
    assert energy.mode == "latency"
    assert energy.mean_power_w == pytest.approx(100.0, rel=2 * energy.resolution_ratio)
    assert 0 < energy.resolution_ratio < 0.5 and energy.counter_steps >= 2
    # Every inference takes 200 us or more; what takes longer is the host's doing.
    assert energy.joules_per_inference >= 0.02 * (1 - 2 * energy.resolution_ratio)
    assert energy.inferences * 200e-6 <= energy.seconds
    assert 0 < energy.driven_ratio <= 1


def test_a_run_too_short_for_one_percent_is_extended():
    # 15 ms between readings are 1 % of 1.5 s, so 0.3 and 0.6 s are too short; the limit ends it.
    gpu = open_fake(**{COUNTER: count_energy(100.0)})
    runner = make_runner(lambda: spin(1_000_000))
    energy = measure_energy(runner, gpu=gpu, idle=IDLE, seconds=0.3, limit_s=1.3)
    assert 0.6 < energy.seconds < 2.4


def test_a_counter_that_does_not_move_is_too_short_and_not_a_zero():
    gpu = open_fake(**{COUNTER: 12_345})
    with pytest.raises(UnavailableError, match=r"too short: .* moved 0 time"):
        measure_energy(make_runner(lambda: None), gpu=gpu, idle=IDLE, seconds=0.05, limit_s=0.1)
    with pytest.raises(UnavailableError, match=r"too short: .* moved 0 time"):
        measure_idle_power(gpu, seconds=0.05)


def test_a_gpu_without_a_counter_says_so():
    for gpu in (open_fake(), open_fake(**{COUNTER: NoPermissionError("no right")})):
        with pytest.raises(UnavailableError, match=f"not available here: {COUNTER}"):
            measure_energy(make_runner(lambda: None), gpu=gpu, idle=IDLE, seconds=0.05)


def test_a_runner_that_fails_is_an_error_with_its_reason():
    def fail():
        raise ValueError("bad weights")

    with pytest.raises(RunnerError, match="bad weights"):
        measure_energy(make_runner(fail), gpu=open_fake(**{COUNTER: 1}), idle=IDLE, seconds=0.05)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_duration_is_refused(seconds):
    with pytest.raises(InvalidArgumentError, match=f"seconds is {seconds}"):
        measure_energy(make_runner(lambda: None), gpu=open_fake(), idle=IDLE, seconds=seconds)
    with pytest.raises(InvalidArgumentError, match=f"seconds is {seconds}"):
        measure_idle_power(open_fake(), seconds=seconds)


class CoolingGpu:
    """A GPU on a clock of its own whose power falls by 40 W a second to 60 W, from 200 W."""

    def __init__(self, *, floor_w=60.0):
        self.ns = 0
        self.floor_w = floor_w
        self.drawn_mj = 0.0
        self.shown_mj = 0

    def now_ns(self):
        return self.ns

    def sleep(self, seconds):
        for _ in range(round(seconds * 1000)):
            self.ns += 10**6
            self.drawn_mj += max(self.floor_w, 200.0 - 40.0 * self.ns / 1e9)
            if self.ns % 20_000_000 == 0:
                self.shown_mj = round(self.drawn_mj)

    def open(self):
        return open_fake(**{COUNTER: lambda handle: self.shown_mj, "nvmlDeviceGetClockInfo": 345})


def test_idle_power_is_read_after_the_gpu_has_cooled_down():
    cooling = CoolingGpu()
    idle = measure_idle_power(cooling.open(), now_ns=cooling.now_ns, sleep=cooling.sleep)
    assert idle.settled and idle.power_w == pytest.approx(60.0, rel=0.02)
    assert cooling.ns > 4.5e9  # power reached 60 W after 3.5 s
    assert idle.sm_clock_mhz == 345


def test_a_gpu_that_does_not_settle_in_time_says_so():
    cooling = CoolingGpu(floor_w=1.0)
    idle = measure_idle_power(
        cooling.open(), limit_s=3.0, now_ns=cooling.now_ns, sleep=cooling.sleep
    )
    assert not idle.settled and idle.power_w > 80


@pytest.mark.needs_cuda
def test_a_busy_gpu_draws_plausible_power():
    pytest.importorskip("pynvml")
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    runner = _core.PythonRunner(
        lambda: x @ x, "matmul", device="cuda", grad_mode=_core.GradMode.inference
    )
    with open_gpu("cuda") as gpu:
        before_mj = gpu.require(COUNTER)
        idle = measure_idle_power(gpu)
        energy = measure_energy(runner, gpu=gpu, idle=idle)
        assert gpu.require(COUNTER) > before_mj
    assert 10 < idle.power_w < 2000
    assert 10 < energy.mean_power_w < 2000
    assert energy.mean_power_w > idle.power_w and energy.joules_above_idle > 0
    assert energy.resolution_ratio <= 0.02 and energy.counter_steps >= 5
    assert energy.driven_ratio > 0.5


def make_points(energies_mj, *, every_ms=20):
    return [
        CounterPoint(at_ns=place * every_ms * 10**6, energy_mj=energy, rounds=place)
        for place, energy in enumerate(energies_mj)
    ]


def test_a_window_reaches_from_the_first_step_to_the_last():
    # Readings every 20 ms; the counter moves at 40, 80 and 120 ms.
    window = find_window(make_points([500, 500, 700, 700, 900, 900, 1100, 1100]))
    assert (window.first.rounds, window.last.rounds, window.steps) == (2, 6, 2)
    assert window.energy_j == pytest.approx(0.4)
    assert window.seconds == pytest.approx(0.08)
    assert window.power_w == pytest.approx(5.0)
    # Each end is known to one reading, 20 ms of 80.
    assert window.resolution_ratio == pytest.approx(0.25)


def test_an_end_that_was_watched_less_closely_sets_the_resolution():
    points = [
        CounterPoint(at_ns=at_ms * 10**6, energy_mj=energy)
        for at_ms, energy in ((0, 0), (10, 1), (100, 1), (150, 2))
    ]
    assert find_window(points).resolution_ratio == pytest.approx(50 / 140)


@pytest.mark.parametrize("energies", [[], [5], [5, 5, 5, 5], [5, 5, 6, 6]])
def test_a_counter_that_hardly_moves_is_too_short_and_not_zero(energies):
    with pytest.raises(UnavailableError, match=r"too short: .* moved \d time"):
        find_window(make_points(energies))


def test_a_counter_that_goes_backwards_is_refused():
    with pytest.raises(UnavailableError, match="went backwards"):
        find_window(make_points([5, 6, 3, 4]))


@given(
    power_w=st.floats(10, 1000),
    update_ms=st.integers(10, 110),
    phase_ms=st.integers(0, 109),
    every_ms=st.integers(1, 40),
)
def test_the_power_is_right_within_the_resolution(power_w, update_ms, phase_ms, every_ms):
    # A counter that is brought up to date every update_ms, of a GPU that draws power_w steadily.
    points = [
        CounterPoint(
            at_ns=at_ms * 10**6,
            energy_mj=round(power_w * ((at_ms + phase_ms) // update_ms * update_ms)),
        )
        for at_ms in range(0, 2000, every_ms)
    ]
    window = find_window(points)
    rounding_ratio = 1 / (window.energy_j * 1e3)
    assert window.power_w == pytest.approx(
        power_w, rel=window.resolution_ratio / (1 - window.resolution_ratio) + rounding_ratio
    )
