"""The machine itself: what stays the same while a process runs, but for the CPUs it may use."""

import functools
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ftax.machines import _files
from ftax.machines._files import read_cpu_fields, read_number, read_text
from ftax.records.record import Name, PositiveInt, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts(Record):
    """The CPU, the memory and the kernel. None: the system does not say."""

    cpu_model: Name | None
    architecture: Name  # "x86_64"
    usable_cpus: PositiveInt  # logical CPUs that this process may run on
    logical_cpus: PositiveInt  # of the machine
    physical_cores: PositiveInt | None  # of the machine
    smt: bool | None  # whether cores run several threads at a time
    memory_bytes: PositiveInt
    governor: Name | None  # of the usable CPUs; several are joined by "+"
    min_frequency_hz: PositiveInt | None
    max_frequency_hz: PositiveInt | None
    virtualised: bool | None
    hypervisor: Name | None
    kernel: Name
    distribution: Name | None


def collect_host() -> HostFacts:
    """Read the machine."""
    cpus = sorted(os.sched_getaffinity(0))
    cpu_fields = next(iter(read_cpu_fields()), {})
    hypervisor = _find_hypervisor()
    return HostFacts(
        cpu_model=cpu_fields.get("model name") or platform.processor() or None,
        architecture=platform.machine(),
        usable_cpus=len(cpus),
        logical_cpus=os.cpu_count() or len(cpus),
        physical_cores=_count_cores(),
        smt={"0": False, "1": True}.get(read_text("sys/devices/system/cpu/smt/active") or ""),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        governor=_read_governor(cpus),
        min_frequency_hz=_read_frequency(cpus[0], "cpuinfo_min_freq"),
        max_frequency_hz=_read_frequency(cpus[0], "cpuinfo_max_freq"),
        virtualised=_is_virtualised(cpu_fields.get("flags"), hypervisor),
        hypervisor=hypervisor,
        kernel=f"{platform.system()} {platform.release()}",
        distribution=_read_distribution(),
    )


def _count_cores() -> int | None:
    cores = set()
    for topology in Path(_files.SYSTEM_ROOT / "sys/devices/system/cpu").glob("cpu[0-9]*/topology"):
        # The threads that share a core name it, whatever the numbering of packages and dies.
        cores.add(read_text(f"{topology}/thread_siblings_list"))
    cores.discard(None)
    return len(cores) or None


def _read_governor(cpus: list[int]) -> str | None:
    directory = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
    found = {read_text(directory.format(cpu)) for cpu in cpus} - {None, ""}
    return "+".join(sorted(str(name) for name in found)) or None


def _read_frequency(cpu: int, name: str) -> int | None:
    khz = read_number(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}")
    return khz * 1000 if khz else None


@functools.cache
def _find_hypervisor() -> str | None:
    # lscpu asks the CPUID leaf that names the hypervisor, which Python cannot reach.
    try:
        done = subprocess.run(
            ["lscpu"], capture_output=True, text=True, timeout=5, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    for line in done.stdout.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "Hypervisor vendor":
            return value.strip() or None
    return None


def _is_virtualised(flags: str | None, hypervisor: str | None) -> bool | None:
    if hypervisor is not None:
        return True
    # Only x86 has the flag that says so; elsewhere its absence says nothing.
    return None if flags is None else "hypervisor" in flags.split()


@functools.cache
def _read_distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None
