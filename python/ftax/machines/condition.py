"""The passing state of the machine, cheap enough to read before and after each measurement."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

from ftax.machines._files import read_cpu_fields, read_text
from ftax.records.fields import Rule
from ftax.records.record import Count, PositiveInt, Record


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
