"""How many workers there is room for side by side, when they measure by turns and when they export.

The surprising choice: a worker's need is a guess for a large model, not a measurement. Too few
workers cost minutes; too many cost cells, by want of memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from ftax.sweeps.record import SweepMachine

_MOST_SHARERS = 4  # so many get ready faster than one measures
_MOST_EXPORTERS = 12  # each starts with imports and a context on the GPU
_CORES_LEFT = 2  # by exporters, for the sweep itself and the machine


def choose_sharers(machines: Iterable[SweepMachine], gpus: int) -> int:
    """How many workers share each of so many GPUs of one host: as many as have room, up to 4; 1 if
    there is no GPU. Who waits keeps what is ready on the device."""
    if not gpus:
        return 1
    room = [
        min(
            machine.environment.host.usable_cpus // 4 // gpus,
            _count_memory(machine, host_gib=8, gpu_gib=20, gpus=gpus),
        )
        for machine in machines
    ]
    return max(1, min(_MOST_SHARERS, *room))


def choose_exporters(machines: Iterable[SweepMachine]) -> int:
    """How many workers export side by side on any of the devices, each a model of a gigabyte; 0
    without room for two."""
    room = [
        min(
            machine.environment.host.usable_cpus - _CORES_LEFT,
            _count_memory(machine, host_gib=4, gpu_gib=8),
        )
        for machine in machines
    ]
    fitting = min(_MOST_EXPORTERS, *room)
    return fitting if fitting > 1 else 0


def _count_memory(machine: SweepMachine, *, host_gib: int, gpu_gib: int, gpus: int = 1) -> int:
    """How many workers of such needs fit into the memory of the host, and of each GPU."""
    host, gpu = machine.environment.host, machine.environment.gpu
    fitting = (host.memory_bytes >> 30) // host_gib // gpus
    return fitting if gpu is None else min(fitting, (gpu.memory_bytes >> 30) // gpu_gib)
