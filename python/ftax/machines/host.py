"""The machine itself: what stays the same while a process runs, and its passing state.

Both are read from small files of /proc and /sys, where a missing file is an answer: unknown.
"""

import functools
import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from ftax.records.fields import Rule
from ftax.records.record import Count, Name, PositiveInt, Record

# Replaced in tests by a directory that describes another machine.
SYSTEM_ROOT = Path("/")


def _is_utc(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).utcoffset() == timedelta(0)
    except ValueError:
        return False


UtcTime = Annotated[str, Rule("an ISO 8601 time in UTC (2026-01-31T12:00:00.000+00:00)", _is_utc)]
PositiveFloat = Annotated[float, Rule("a number above 0", lambda value: value > 0)]
LoadAverage = Annotated[
    tuple[float, ...],
    Rule("three numbers of at least 0", lambda loads: len(loads) == 3 and min(loads) >= 0),
]


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
    for topology in Path(SYSTEM_ROOT / "sys/devices/system/cpu").glob("cpu[0-9]*/topology"):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(Record):
    """What the machine was like at one moment."""

    utc: UtcTime
    load_average: LoadAverage  # runnable threads, over 1, 5 and 15 minutes
    steal_ticks: Count | None  # since boot, all CPUs; given to others by the hypervisor
    ticks_hz: PositiveInt  # how many ticks make a second
    cpu_low_mhz: PositiveFloat | None  # slowest usable CPU; None where the kernel does not say
    cpu_high_mhz: PositiveFloat | None  # fastest usable CPU


def collect_condition() -> Condition:
    """Read load, steal time and CPU clocks; for before and after a measurement."""
    clocks = [float(cpu["cpu MHz"]) for cpu in read_cpu_fields() if "cpu MHz" in cpu]
    return Condition(
        utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
        load_average=os.getloadavg(),
        steal_ticks=_read_steal_ticks(),
        ticks_hz=os.sysconf("SC_CLK_TCK"),
        cpu_low_mhz=min(clocks, default=None),
        cpu_high_mhz=max(clocks, default=None),
    )


def _read_steal_ticks() -> int | None:
    # proc(5), /proc/stat: "cpu" user nice system idle iowait irq softirq steal ...
    for line in (read_text("proc/stat") or "").splitlines():
        words = line.split()
        if words[:1] == ["cpu"] and len(words) > 8:
            return int(words[8])
    return None


def read_text(path: str) -> str | None:
    """Return the stripped content of `path` (relative to the root), None if it cannot be read."""
    try:
        return (SYSTEM_ROOT / path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_number(path: str) -> int | None:
    """Return the integer that `path` holds, None if it holds none."""
    text = read_text(path)
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def read_cpu_fields() -> list[dict[str, str]]:
    """Return the fields of each CPU in /proc/cpuinfo that this process may run on."""
    usable = os.sched_getaffinity(0)
    cpus = []
    for block in (read_text("proc/cpuinfo") or "").split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        if fields.get("processor", "").isdigit() and int(fields["processor"]) in usable:
            cpus.append(fields)
    return cpus
