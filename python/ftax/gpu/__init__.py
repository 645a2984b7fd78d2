"""What one inference costs the GPU besides time: energy, utilisation and memory.

These are read after the rounds and never beside them, because a latency measured while somebody
reads counters is not a latency.
"""

from ftax.gpu.energy import (
    Energy,
    EnergyLine,
    IdlePower,
    compute_energy_tax,
    measure_energy,
    measure_idle_power,
)
from ftax.gpu.memory import PeakMemory, measure_peak_memory
from ftax.gpu.readings import GpuReadings, collect_gpu_readings
from ftax.gpu.utilisation import Utilisation, measure_utilisation

__all__ = [
    "Energy",
    "EnergyLine",
    "GpuReadings",
    "IdlePower",
    "PeakMemory",
    "Utilisation",
    "collect_gpu_readings",
    "compute_energy_tax",
    "measure_energy",
    "measure_idle_power",
    "measure_peak_memory",
    "measure_utilisation",
]
