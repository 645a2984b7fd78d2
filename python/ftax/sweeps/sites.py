"""Where workers run: sites, which are devices of machines, of this one or of a cluster; and for how
many workers a site has room.

A sweep asks again and again which sites there are. Here the answer is always the same; on a cluster
machines come and go, and what they had begun goes back to the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ftax.errors import RunnerError
from ftax.machines.environment import Environment, collect_environment
from ftax.runtimes.catalogue import find_runtime
from ftax.steps.given import use_threads
from ftax.steps.setting import normalize_device
from ftax.sweeps.job import TASK, Wanted
from ftax.sweeps.sweep_records import SweepMachine
from ftax.timing.candidate import Host
from ftax.timing.cell import Cell
from ftax.workers.cluster import RemoteWorker
from ftax.workers.process import Stop, Worker

CPU = "cpu"
_MOST_SHARERS = 4  # workers of a GPU: so many get ready faster than one measures
_MOST_EXPORTERS = 12  # each starts with imports and a context on the GPU
DEVICES = "devices"  # what a worker is told from a job by: an argument of `describe_machine`


# A process at a site, on this machine or on another.
SiteWorker = Worker | RemoteWorker
Start = Callable[[Stop], SiteWorker]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Site:
    """A device of a machine.

    Attributes:
        device: as torch calls it there.
        host: one text for all sites that share cores.
        name: of the machine, for people; "" if there is no other.
        is_shared: whether it takes what is for any GPU.
        obstacles: why runtimes cannot run there, by "runtime/host".
    """

    device: str
    machine: SweepMachine
    host: str
    start: Start
    name: str = ""
    is_shared: bool = True
    obstacles: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.device != CPU

    @property
    def threads(self) -> int:
        """Of torch, within an operator, that it measures with."""
        return self.machine.environment.settings.num_threads

    def fits(self, wanted: Wanted) -> bool:
        """Whether it may measure what asks for that."""
        if wanted.machine not in ("", self.machine.id):
            return False
        if wanted.device == "cuda" and self.is_gpu and self.is_shared:
            gpu = self.machine.environment.gpu
            return wanted.gpu.lower() in (gpu.name.lower() if gpu else "")
        return wanted.device == self.device and not wanted.gpu


class LocalSites:
    """Devices of this machine: those that cells name, and for any GPU those in ``gpus``. Those of a
    cluster, `ftax.sweeps.fleet.RaySites`, have the same methods.

    Raises UnavailableError for a device that there is not.
    """

    may_change = False  # whether others may come

    def __init__(self, cells: Sequence[Cell], gpus: Iterable[str]) -> None:
        wanted = dict.fromkeys(cell.device for cell in cells)
        shared = [normalize_device(gpu) for gpu in gpus] if "cuda" in wanted else []
        named = [normalize_device(device) for device in wanted if device != "cuda"]
        runtimes = list_runtimes(cells)
        self._sites = tuple(
            Site(
                device=device,
                machine=SweepMachine.of(collect_environment(device=device)),
                host="",
                start=functools.partial(Worker, TASK),
                is_shared=device in shared,
                obstacles=find_obstacles(runtimes, device),
            )
            for device in sorted({*shared, *named}, key=lambda name: (name == CPU, name))
        )

    def find(self) -> tuple[Site, ...]:
        """Those that are there now."""
        return self._sites

    def lose(self, site: Site, reason: str) -> None:
        """Nothing can be done there any more. Raises RunnerError, since it is this machine."""
        raise RunnerError(f"{site.device}: {reason}")

    def list_notes(self) -> list[str]:
        """What is to be said of machines that were left out or lost."""
        return []

    def close(self) -> None:
        """Nothing was taken."""


def list_runtimes(cells: Iterable[Cell]) -> list[tuple[str, str]]:
    """The runtimes of cells with their hosts, each once."""
    return list(dict.fromkeys((cell.runtime, cell.host) for cell in cells))


def find_obstacles(runtimes: Iterable[Sequence[str]], device: str) -> dict[str, str]:
    """Why runtimes cannot run here, by "runtime/host"; what can is left out."""
    found = {}
    for runtime, host in runtimes:
        spec = find_runtime(runtime)
        obstacle = spec.find_obstacle(host=cast(Host, host), device=device)
        if obstacle is not None:
            found[f"{runtime}/{host}"] = obstacle
    return found


def describe_machine(
    *, devices: Iterable[str], runtimes: Sequence[Sequence[str]], threads: int | None
) -> list[dict[str, Any]]:
    """What each device of this machine is, and what cannot run there; for `make_sites`."""
    with use_threads(threads):
        return [
            {
                "device": device,
                "environment": collect_environment(device=device).to_dict(),
                "obstacles": find_obstacles(runtimes, device),
            }
            for device in devices
        ]


def make_sites(
    found: Iterable[Mapping[str, Any]], *, host: str, name: str, start: Start
) -> list[Site]:
    """The sites of a machine that `describe_machine` described."""
    return [
        Site(
            device=item["device"],
            machine=SweepMachine.of(Environment.from_dict(item["environment"])),
            host=host,
            name=name,
            start=start,
            obstacles=item["obstacles"],
        )
        for item in found
    ]


def choose_sharers(machine: SweepMachine, gpus: int) -> int:
    """How many workers share each of so many GPUs of a host: as many as have room, up to 4. Who
    waits keeps what is ready on the device."""
    room = _count_room(machine, cores=4, host_gib=8, gpu_gib=20, gpus=gpus)
    return max(1, min(_MOST_SHARERS, room))


def choose_exporters(machine: SweepMachine) -> int:
    """How many workers export side by side on a device, each a model of a gigabyte; 0 without room
    for two."""
    room = min(_MOST_EXPORTERS, _count_room(machine, cores=1, host_gib=4, gpu_gib=8, left=2))
    return room if room > 1 else 0


def _count_room(
    machine: SweepMachine, *, cores: int, host_gib: int, gpu_gib: int, gpus: int = 1, left: int = 0
) -> int:
    """How many workers of such needs each of ``gpus`` GPUs of a host can have; ``left`` cores are
    for the sweep itself and the machine. The needs are a guess for a large model: too few workers
    cost minutes, too many cost cells, by want of memory."""
    host, gpu = machine.environment.host, machine.environment.gpu
    in_memory = (host.memory_bytes >> 30) // host_gib
    rooms = [(host.usable_cpus - left) // cores // gpus, in_memory // gpus]
    if gpu is not None:
        rooms.append((gpu.memory_bytes >> 30) // gpu_gib)
    return min(rooms)
