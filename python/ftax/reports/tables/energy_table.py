"""Energy, utilisation and memory of each runtime as tables, and why what is missing is missing.

Utilisation keeps the column names of Table 3 of "The Framework Tax", so that the two can be read
side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from ftax.instruments.energy import Energy, EnergyLine, IdlePower
from ftax.instruments.memory import PeakMemory
from ftax.instruments.readings import GpuReadings
from ftax.instruments.utilisation import Utilisation
from ftax.reports.table import Printout, Rows

_MISSING = "-"


def draw_gpu_readings(
    readings: Sequence[GpuReadings], lines: Sequence[EnergyLine] = ()
) -> Printout:
    """The tables, what the GPU drew idle, and the reasons for every dash."""
    tables = [make_gpu_table(readings)] if readings else []
    if lines:
        tables.append(make_energy_tax_table(lines))
    return Printout(
        tables=tuple(tables),
        notes=tuple(describe_idle(readings)),
        warnings=tuple(describe_missing(readings)),
    )


def make_gpu_table(readings: Sequence[GpuReadings]) -> Rows:
    """A row a runtime; energies are of one inference."""
    numeric = (
        "energy",
        "above idle",
        "mean power",
        "SMs active",
        "warp occupancy",
        "DRAM bandwidth",
        "tensor active",
        "peak memory",
        "reserved",
    )
    return Rows(
        title="Energy, utilisation and memory of one inference",
        columns=("runtime", "host", *numeric),
        numeric=numeric,
        gives_way=("reserved", "tensor active", "warp occupancy", "DRAM bandwidth", "mean power",
                   "peak memory", "SMs active"),
        rows=tuple(
            (
                item.runtime,
                item.host,
                *_format_energy(item.energy),
                *_format_utilisation(item.utilisation),
                *_format_memory(item.memory),
            )
            for item in readings
        ),
    )  # fmt: skip


def make_energy_tax_table(lines: Sequence[EnergyLine]) -> Rows:
    """What each step down the ladder saves of one inference's energy; lines sum to the top's."""
    return Rows(
        title="Energy tax",
        columns=("from", "to", "energy", "above idle", "share"),
        numeric=("energy", "above idle", "share"),
        rows=tuple(
            (
                line.upper if line.resolved else f"{line.upper} (not resolved)",
                line.lower or "(rest)",
                format_joules(line.joules),
                format_joules(line.joules_above_idle),
                f"{line.share_ratio:.1%}",
            )
            for line in lines
        ),
    )


def describe_idle(readings: Sequence[GpuReadings]) -> list[str]:
    """A sentence on the idle power that "above idle" refers to."""
    idles = [item.energy.idle for item in readings if item.energy is not None]
    return list(dict.fromkeys(_describe_idle(idle) for idle in idles))


def describe_missing(readings: Sequence[GpuReadings]) -> list[str]:
    """A line for each reason, with what it concerns."""
    concerned: dict[tuple[str, str], list[str]] = {}
    for item in readings:
        for name, reason in item.missing.items():
            concerned.setdefault((name, reason), []).append(str(item.place))
    return [
        f"no {name} of {', '.join(labels)}: {reason}"
        for (name, reason), labels in concerned.items()
    ]


def format_joules(joules: float) -> str:
    """``'1.23 J'``, ``'456 mJ'``, ``'78.9 uJ'``."""
    for scale, unit in ((1.0, "J"), (1e3, "mJ")):
        if abs(joules) * scale >= 1.0:
            return f"{_round(joules * scale)} {unit}"
    return f"{_round(joules * 1e6)} uJ"


def format_bytes(count: int) -> str:
    """``'1.5 GiB'``, ``'12 MiB'``, ``'640 KiB'``."""
    for size, unit in ((2**30, "GiB"), (2**20, "MiB")):
        if count >= size:
            return f"{_round(count / size)} {unit}"
    return f"{_round(count / 2**10)} KiB"


def _round(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:.3g}"


def _format_energy(energy: Energy | None) -> tuple[str, ...]:
    if energy is None:
        return (_MISSING,) * 3
    return (
        format_joules(energy.joules_per_inference),
        format_joules(energy.joules_above_idle),
        f"{energy.mean_power_w:.0f} W",
    )


def _format_utilisation(utilisation: Utilisation | None) -> tuple[str, ...]:
    if utilisation is None:
        return (_MISSING,) * 4
    values = (
        utilisation.sms_active_pct,
        utilisation.warp_occupancy_pct,
        utilisation.dram_bandwidth_pct,
        utilisation.tensor_active_pct,
    )
    return tuple(_MISSING if value is None else f"{value:.1f} %" for value in values)


def _format_memory(memory: PeakMemory | None) -> tuple[str, ...]:
    if memory is None:
        return (_MISSING,) * 2
    return format_bytes(memory.allocated_bytes), format_bytes(memory.reserved_bytes)


def _describe_idle(idle: IdlePower) -> str:
    clock = "" if idle.sm_clock_mhz is None else f" at {idle.sm_clock_mhz} MHz"
    unsettled = "" if idle.settled else " and had not settled: what is above idle is too little"
    return f"Idle, the GPU drew {idle.power_w:.1f} W{clock}{unsettled}."
