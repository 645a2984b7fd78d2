"""How many workers there is room for side by side, when they measure by turns and when they export.

The surprising choice: a worker's need is a guess for a large model, not a measurement. Too few
workers cost minutes; too many cost cells, by want of memory.
"""

from __future__ import annotations

from ftax.sweeps.record import SweepMachine

_MOST_SHARERS = 4  # so many get ready faster than one measures
_MOST_EXPORTERS = 12  # each starts with imports and a context on the GPU


def choose_sharers(machine: SweepMachine, gpus: int) -> int:
    """How many workers share each of so many GPUs of a host: as many as have room, up to 4. Who
    waits keeps what is ready on the device."""
    room = _count(machine, cores=4, host_gib=8, gpu_gib=20, gpus=gpus)
    return max(1, min(_MOST_SHARERS, room))


def choose_exporters(machine: SweepMachine) -> int:
    """How many workers export side by side on a device, each a model of a gigabyte; 0 without room
    for two."""
    room = min(_MOST_EXPORTERS, _count(machine, cores=1, host_gib=4, gpu_gib=8, left=2))
    return room if room > 1 else 0


def _count(
    machine: SweepMachine, *, cores: int, host_gib: int, gpu_gib: int, gpus: int = 1, left: int = 0
) -> int:
    """How many workers of such needs each of ``gpus`` GPUs of a host can have; ``left`` cores are
    for the sweep itself and the machine."""
    host, gpu = machine.environment.host, machine.environment.gpu
    in_memory = (host.memory_bytes >> 30) // host_gib
    rooms = [(host.usable_cpus - left) // cores // gpus, in_memory // gpus]
    if gpu is not None:
        rooms.append((gpu.memory_bytes >> 30) // gpu_gib)
    return min(rooms)
