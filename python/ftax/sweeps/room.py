"""How many workers there is room for side by side.

The surprising choice: a worker's need is a guess for a large model, not a measurement. Too few
workers cost minutes; too many cost cells, by want of memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ftax.sweeps.record import SweepMachine


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one worker needs."""

    cores: int
    host_gib: int
    gpu_gib: int


def count_room(
    machines: Iterable[SweepMachine], need: Need, *, most: int, gpus: int = 1, cores_left: int = 0
) -> int:
    """How many workers each of ``gpus`` GPUs of a host can have, on any of ``machines``; at most
    ``most``, and 0 without room for one."""
    room = [most]
    for machine in machines:
        host, gpu = machine.environment.host, machine.environment.gpu
        room.append((host.usable_cpus - cores_left) // need.cores // gpus)
        room.append((host.memory_bytes >> 30) // need.host_gib // gpus)
        if gpu is not None:
            room.append((gpu.memory_bytes >> 30) // need.gpu_gib)
    return max(0, min(room))
