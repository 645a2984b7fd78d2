"""The GPU as its driver describes it, through NVML, without touching the running context."""

from dataclasses import dataclass
from typing import Any

from ftax.machines.nvml import NvmlGpu, check_device, find_nvml, open_gpu
from ftax.records.record import Count, Name, PositiveInt, Record


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
