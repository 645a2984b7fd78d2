"""The GPU as its driver describes it, through NVML, without touching the running context: what it
is, and its passing state (clocks, what holds them down, power, and who else is on it).

Of the others: inside a container our own entry in the driver's list of
processes may carry a number of another world, or be missing. Then the list is corrected by one, or
not believed at all, rather than reporting ourselves as a stranger.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ftax.errors import UnavailableError
from ftax.machines.nvml import NvmlGpu, check_device, find_nvml, open_gpu
from ftax.records.record import Count, Name, PositiveInt, Record

# nvmlClocksEventReasons in nvml.h; the bits are part of NVML's interface and never change. The last
# column says which slow down a GPU that has work to do; the others are idleness or settings.
IDLE = "idle"
_REASONS = (
    (0x001, IDLE, False),
    (0x002, "clock setting", False),
    (0x004, "sw power cap", True),
    (0x008, "hw slowdown", True),
    (0x010, "sync boost", False),
    (0x020, "sw thermal slowdown", True),
    (0x040, "hw thermal slowdown", True),
    (0x080, "hw power brake", True),
    (0x100, "display clock setting", False),
    (0x200, "board limit", True),
    (0x400, "reliability limit", True),
)
SLOWING = tuple(name for _, name, slows in _REASONS if slows)
_PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCondition(Record):
    """What the GPU was like at one moment. None: this device, driver or user gets no answer."""

    sm_clock_mhz: Count | None
    memory_clock_mhz: Count | None
    throttle: tuple[Name, ...] | None  # why the clocks are not at their highest; () is no reason
    temperature_c: int | None
    power_mw: Count | None  # of the whole board, averaged by the driver over up to a second
    kernel_time_percent: Count | None  # of the driver's last period with any kernel running
    memory_time_percent: Count | None  # of that period with device memory read or written
    other_processes: Count | None
    other_memory_bytes: Count | None


_idle: set[int] = set()  # process ids


def expect_idle(processes: Iterable[int]) -> None:
    """Count these among the others no longer, and any that were named before again: who started
    them sees to it that they idle while this process measures."""
    _idle.clear()
    _idle.update(processes)


def decode_throttle(bits: int) -> tuple[str, ...]:
    """The names of nvmlClocksEventReasons in ``bits``; a bit without a name is given in hex."""
    names = tuple(name for bit, name, _ in _REASONS if bits & bit)
    unknown = bits & ~sum(bit for bit, _, _ in _REASONS)
    return (*names, f"unknown ({unknown:#x})") if unknown else names


def read_condition(gpu: NvmlGpu) -> GpuCondition:
    """Read an open GPU. Raises UnavailableError if NVML fails other than by refusing."""
    nvml = gpu.nvml
    utilisation = gpu.ask("nvmlDeviceGetUtilizationRates")
    others, other_memory_bytes = _find_others(gpu)
    return GpuCondition(
        sm_clock_mhz=read_sm_clock(gpu),
        memory_clock_mhz=gpu.ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        throttle=read_throttle(gpu),
        temperature_c=gpu.ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        power_mw=gpu.ask("nvmlDeviceGetPowerUsage"),
        kernel_time_percent=None if utilisation is None else utilisation.gpu,
        memory_time_percent=None if utilisation is None else utilisation.memory,
        other_processes=others,
        other_memory_bytes=other_memory_bytes,
    )


def read_sm_clock(gpu: NvmlGpu) -> int | None:
    """The SM clock in MHz."""
    clock: int | None = gpu.ask("nvmlDeviceGetClockInfo", gpu.nvml.NVML_CLOCK_SM)
    return clock


def read_throttle(gpu: NvmlGpu) -> tuple[str, ...] | None:
    """What holds the clocks down, by name."""
    bits = gpu.ask("nvmlDeviceGetCurrentClocksEventReasons")
    return None if bits is None else decode_throttle(bits)


def _ask_list(gpu: NvmlGpu, question: str) -> list[Any] | None:
    try:
        found: list[Any] | None = gpu.ask(question)
    except UnavailableError:  # virtual machines answer these, and only these, with odd errors
        return None
    return found


def _find_others(gpu: NvmlGpu) -> tuple[int | None, int | None]:
    """How many other processes are on the GPU, and the memory that they hold."""
    lists = [_ask_list(gpu, question) for question in _PROCESS_LISTS]
    if lists[0] is None:
        return None, None
    # A process that computes and draws is on two lists.
    held = {process.pid: process.usedGpuMemory for found in lists for process in found or ()}
    if os.getpid() in held:
        del held[os.getpid()]
    elif torch.cuda.is_initialized():
        if not held:
            return None, None  # we are on the GPU and not on the list: others may be missing too
        others = len(held) - 1
        return others, None if others else 0
    sizes = [size for pid, size in held.items() if pid not in _idle]
    return len(sizes), None if None in sizes else sum(sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts(Record):
    """The device at the moment of reading. None: this device or driver does not say."""

    name: Name
    driver: Name
    memory_bytes: PositiveInt
    sm_clock_mhz: Count | None
    max_sm_clock_mhz: Count | None
    memory_clock_mhz: Count | None
    max_memory_clock_mhz: Count | None
    power_limit_mw: Count | None
    power_mw: Count | None
    temperature_c: int | None
    throttle_reasons: Count | None  # bits of nvmlClocksEventReasons; 1 is idle
    persistence_mode: bool | None
    mig: bool | None


def collect_gpu(device: str, *, nvml: Any = None) -> GpuFacts | None:
    """Read the device that torch calls `device`; None without NVML's Python package.

    Raises:
        UnavailableError: torch sees no such device, or NVML fails on it.
    """
    check_device(device)
    nvml = find_nvml() if nvml is None else nvml
    if nvml is None:
        return None
    with open_gpu(device, nvml=nvml) as gpu:
        return _read_facts(gpu)


def _read_facts(gpu: NvmlGpu) -> GpuFacts:
    nvml, ask = gpu.nvml, gpu.ask
    persistence = ask("nvmlDeviceGetPersistenceMode")
    mig = ask("nvmlDeviceGetMigMode")  # (current, pending)
    return GpuFacts(
        name=gpu.require("nvmlDeviceGetName"),
        driver=nvml.nvmlSystemGetDriverVersion(),
        memory_bytes=gpu.require("nvmlDeviceGetMemoryInfo").total,
        sm_clock_mhz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        max_sm_clock_mhz=ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        memory_clock_mhz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        max_memory_clock_mhz=ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
        power_limit_mw=ask("nvmlDeviceGetEnforcedPowerLimit"),
        power_mw=ask("nvmlDeviceGetPowerUsage"),
        temperature_c=ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        throttle_reasons=ask("nvmlDeviceGetCurrentClocksEventReasons"),
        persistence_mode=None if persistence is None else bool(persistence),
        mig=None if mig is None else bool(mig[0]),
    )
