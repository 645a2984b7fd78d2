"""Energy, utilisation and memory of each runtime as tables, and why what is missing is missing.

Utilisation keeps the column names of Table 3 of "The Framework Tax", so that the two can be read
side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from ftax.instruments.energy import EnergyLine, IdlePower
from ftax.instruments.readings import GpuReadings
from ftax.reports.columns import PLACE, Column
from ftax.reports.table import Printout, Rows


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
    return Rows.of_columns(
        "Energy, utilisation and memory of one inference",
        readings,
        [*PLACE, *READINGS],
        gives_way=("reserved", "tensor active", "warp occupancy", "DRAM bandwidth", "mean power",
                   "peak memory", "SMs active"),
    )  # fmt: skip


def make_energy_tax_table(lines: Sequence[EnergyLine]) -> Rows:
    """What each step down the ladder saves of one inference's energy; lines sum to the top's."""
    return Rows.of(
        "Energy tax",
        lines,
        {
            "from": lambda line: line.upper + ("" if line.resolved else " (not resolved)"),
            "to": lambda line: line.lower or "(rest)",
            "energy": ("joules", format_joules),
            "above idle": ("joules_above_idle", format_joules),
            "share": ("share_ratio", "{:.1%}".format),
        },
        text=("from", "to"),
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


def _format_share(percent: float) -> str:
    return f"{percent:.1f} %"


def _describe_idle(idle: IdlePower) -> str:
    clock = "" if idle.sm_clock_mhz is None else f" at {idle.sm_clock_mhz} MHz"
    unsettled = "" if idle.settled else " and had not settled: what is above idle is too little"
    return f"Idle, the GPU drew {idle.power_w:.1f} W{clock}{unsettled}."


READINGS = (
    Column("energy", ("energy.joules_per_inference", format_joules), "energy_j"),
    Column("above idle", ("energy.joules_above_idle", format_joules), "energy_above_idle_j"),
    Column("mean power", ("energy.mean_power_w", "{:.0f} W".format), "mean_power_w"),
    Column("SMs active", ("utilisation.sms_active_pct", _format_share), "sms_active_pct"),
    Column(
        "warp occupancy", ("utilisation.warp_occupancy_pct", _format_share), "warp_occupancy_pct"
    ),
    Column(
        "DRAM bandwidth", ("utilisation.dram_bandwidth_pct", _format_share), "dram_bandwidth_pct"
    ),
    Column("tensor active", ("utilisation.tensor_active_pct", _format_share), "tensor_active_pct"),
    Column("peak memory", ("memory.allocated_bytes", format_bytes), "allocated_bytes"),
    Column("reserved", ("memory.reserved_bytes", format_bytes), "reserved_bytes"),
)
