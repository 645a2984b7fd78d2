"""The passing state of a GPU, from a pretended NVML and, where there is one, from a real GPU."""

import os
import types

import pytest
import torch

from ftax.machines.gpu import (
    GpuCondition,
    decode_throttle,
    expect_idle,
    read_condition,
)
from ftax.machines.nvml import open_gpu
from support.fake_nvml import (
    NoPermissionError,
    NVMLError,
    list_processes,
    open_fake,
)

COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses_v3"
ME = os.getpid()


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, ()),
        (0x1, ("idle",)),
        (0x4 | 0x40, ("sw power cap", "hw thermal slowdown")),
        (0x8 | 0x20 | 0x80, ("hw slowdown", "sw thermal slowdown", "hw power brake")),
        (0x1 | 0x8000, ("idle", "unknown (0x8000)")),
    ],
)
def test_throttle_bits_have_names(bits, names):
    assert decode_throttle(bits) == names


def test_every_answer_lands_in_its_field():
    gpu = open_fake(
        nvmlDeviceGetClockInfo=lambda handle, clock: {1: 1755, 2: 3201}[clock],
        nvmlDeviceGetCurrentClocksEventReasons=0x4,
        nvmlDeviceGetTemperature=61,
        nvmlDeviceGetPowerUsage=698_000,
        nvmlDeviceGetUtilizationRates=types.SimpleNamespace(gpu=99, memory=40),
        **{COMPUTE: list_processes((ME, 500))},
    )
    condition = read_condition(gpu)
    assert condition == GpuCondition(
        sm_clock_mhz=1755,
        memory_clock_mhz=3201,
        throttle=("sw power cap",),
        temperature_c=61,
        power_mw=698_000,
        kernel_time_percent=99,
        memory_time_percent=40,
        other_processes=0,
        other_memory_bytes=0,
    )
    assert GpuCondition.from_dict(condition.to_dict()) == condition


def test_a_gpu_that_answers_nothing_has_only_unknowns():
    assert set(read_condition(open_fake()).to_dict().values()) == {None}


@pytest.fixture(autouse=True)
def no_context(monkeypatch):
    """Other tests may have put this process on a real GPU."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)


def find_others(**lists):
    condition = read_condition(open_fake(**lists))
    return condition.other_processes, condition.other_memory_bytes


def test_others_are_counted_once_and_without_ourselves():
    compute = list_processes((ME, 7), (ME + 1, 100), (ME + 2, 20))
    graphics = list_processes((ME + 2, 20), (ME + 3, 3))
    assert find_others(**{COMPUTE: compute, GRAPHICS: graphics}) == (3, 123)


def test_memory_that_the_driver_withholds_is_unknown():
    assert find_others(**{COMPUTE: list_processes((ME + 1, None))}) == (1, None)


def test_processes_that_are_known_to_idle_are_no_others(monkeypatch):
    monkeypatch.setattr("ftax.machines.gpu._idle", set())
    lists = {COMPUTE: list_processes((ME, 7), (ME + 1, 100), (ME + 2, 20), (ME + 3, 3))}
    assert find_others(**lists) == (3, 123)
    expect_idle([ME + 1, ME + 9])
    assert find_others(**lists) == (2, 23)
    expect_idle([])
    assert find_others(**lists) == (3, 123)


def test_a_refused_list_is_unknown_and_an_empty_one_is_nobody():
    for error in (NoPermissionError("no"), NVMLError("Unknown Error")):
        assert find_others(**{COMPUTE: error}) == (None, None)
    assert find_others(**{COMPUTE: []}) == (0, 0)


def test_ourselves_under_another_number_are_not_a_stranger(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert find_others(**{COMPUTE: list_processes((ME + 1, 9))}) == (0, 0)
    assert find_others(**{COMPUTE: list_processes((ME + 1, 9), (ME + 2, 9))}) == (1, None)
    # We hold a context and are not on the list, so what else is missing from it?
    assert find_others(**{COMPUTE: []}) == (None, None)


@pytest.mark.needs_cuda
def test_a_real_gpu_is_plausible():
    pytest.importorskip("pynvml")
    torch.ones(1, device="cuda")
    torch.cuda.synchronize()
    with open_gpu("cuda") as gpu:
        condition = read_condition(gpu)
    known = {name: value for name, value in condition.to_dict().items() if value is not None}
    bounds = {
        "sm_clock_mhz": (100, 5000),
        "memory_clock_mhz": (100, 20_000),
        "power_mw": (10_000, 2_000_000),
        "temperature_c": (5, 110),
        "kernel_time_percent": (0, 100),
        "memory_time_percent": (0, 100),
    }
    assert {"sm_clock_mhz", "power_mw"} <= set(known)
    for name, (least, most) in bounds.items():
        if name in known:
            assert least <= known[name] <= most, name
