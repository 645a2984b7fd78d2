"""The GPU as its driver describes it, through NVML, without touching the running context.

NVML counts the devices of the machine while torch counts those that CUDA_VISIBLE_DEVICES leaves,
so the device is found by the UUID that both know, never by its number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ftax.errors import UnavailableError
from ftax.records import Count, Name, PositiveInt, Record


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


def collect_gpu(device: str) -> GpuFacts | None:
    """Read the device that torch calls `device`; None without NVML's Python package.

    Raises:
        UnavailableError: torch sees no such device, or NVML fails on it.
    """
    index = torch.device(device).index
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0 or (index is not None and index >= count):
        raise UnavailableError(
            f"device is {device!r} but torch sees {count} CUDA devices; choose another device, or "
            "install a torch with CUDA and a driver"
        )
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        try:
            uuid = str(torch.cuda.get_device_properties(device).uuid)
            return _read_device(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise UnavailableError(
            f"NVML cannot describe {device!r}: {error}; check that nvidia-smi works here"
        ) from error


def _read_device(nvml: Any, handle: Any) -> GpuFacts:
    def ask(function: Callable[..., Any], *args: int) -> Any:
        try:
            return function(handle, *args)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission):
            return None

    persistence = ask(nvml.nvmlDeviceGetPersistenceMode)
    mig = ask(nvml.nvmlDeviceGetMigMode)  # (current, pending)
    return GpuFacts(
        name=nvml.nvmlDeviceGetName(handle),
        driver=nvml.nvmlSystemGetDriverVersion(),
        memory_bytes=nvml.nvmlDeviceGetMemoryInfo(handle).total,
        sm_clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        max_sm_clock_mhz=ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
        max_memory_clock_mhz=ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
        power_limit_mw=ask(nvml.nvmlDeviceGetEnforcedPowerLimit),
        power_mw=ask(nvml.nvmlDeviceGetPowerUsage),
        temperature_c=ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        throttle_reasons=ask(nvml.nvmlDeviceGetCurrentClocksEventReasons),
        persistence_mode=None if persistence is None else bool(persistence),
        mig=None if mig is None else bool(mig[0]),
    )
