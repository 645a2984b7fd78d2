"""The sites of a Ray cluster: machines that it has, and that come and go while a sweep runs.

A machine is taken whole, its GPUs with all of its cores: what is measured beside other work
measures that too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ftax.errors import FtaxError, UnavailableError
from ftax.machines.differences import SOFTWARE, read_facts
from ftax.machines.environment import Environment, collect_environment, list_portable_variables
from ftax.sweeps.job import TASK
from ftax.sweeps.sites import CPU, DEVICES, LocalSites, Site, list_runtimes, make_sites
from ftax.timing.cell import Cell
from ftax.workers.cluster import Cluster, Node, RemoteMachine, RemoteWorker
from ftax.workers.process import Stop

_VERSIONS = tuple(
    name for name in SOFTWARE if name not in ("cuDNN", "the driver", "the kernel", "threads", "MIG")
)
_DESCRIBE_S = 300.0
_SLOW_S = 5.0  # that a free machine takes to answer at most
_OPEN_S = 30.0  # that others are waited for once a machine is ready
_LOOK_S = 0.2
_AT_ONCE = 64  # machines that are being got ready

Found = list[dict[str, Any]]  # what `describe_machine` answers


@dataclass(slots=True, kw_only=True)
class _Machine:
    """A node of the cluster, from when it was first seen: being got ready, then with sites."""

    remote: RemoteMachine
    mark: str  # what tells it from other nodes of its host
    coming: Future[tuple[Found, list[RemoteWorker]]]
    spares: list[RemoteWorker] = field(default_factory=list)  # that have their imports behind them
    sites: tuple[Site, ...] | None = None  # None: not ready yet
    is_gone: bool = False

    @property
    def name(self) -> str:
        """For people; records have it only where the user gave it."""
        return f"{self.remote.name}{self.mark}"

    def start(self, stop: Stop) -> RemoteWorker:
        """A worker for jobs."""
        if not self.spares:
            return self.remote.start(TASK, stop)
        worker = self.spares.pop()
        worker.stop = stop
        return worker


class RaySites:
    """Devices of the machines of a Ray cluster, as far as ``cells`` want them.

    A machine whose software is not that of the others is left out, unless ``is_mixed``.

    Raises UnavailableError if there is no cluster, or none of its machines can be used.
    """

    may_change = True

    def __init__(
        self,
        cells: Sequence[Cell],
        address: str,
        *,
        threads: int | None,
        is_mixed: bool,
        end_at: float | None,
        tell: Callable[[str], None],
    ) -> None:
        self._notes: list[str] = []
        self._end_at = end_at
        self._job = {"runtimes": list_runtimes(cells), "threads": threads}
        self._wants_cpu = any(cell.device == CPU for cell in cells)
        self._wants_gpu = any(cell.device != CPU for cell in cells)
        self._is_mixed = is_mixed
        self._usual: dict[str, str] = {}  # versions, of most machines
        self._machines: dict[str, _Machine] = {}
        self._cluster = Cluster(address)
        self._stop, self._threads = Stop(), ThreadPoolExecutor(_AT_ONCE)
        try:
            self._wait_for_first(tell)
        except BaseException:
            self.close()
            raise

    def find(self) -> tuple[Site, ...]:
        """The sites of the machines that are there and ready now."""
        self._look()
        for machine in self._machines.values():
            if machine.sites is None and machine.coming.done():
                machine.sites = self._settle(machine)
        machines = [item for item in self._machines.values() if not item.is_gone]
        return tuple(site for item in machines for site in item.sites or ())

    def lose(self, site: Site, reason: str) -> None:
        """Its machine does not answer any more, or no worker starts there."""
        for machine in self._machines.values():
            if site in (machine.sites or ()):
                if not machine.is_gone:
                    self._notes.append(f"{machine.name} was lost: {reason}")
                machine.is_gone = True

    def list_notes(self) -> list[str]:
        """Why machines were left out or lost."""
        waiting = [
            f"{machine.name} took no part: other Ray jobs used it, or it did not answer"
            for machine in self._machines.values()
            if machine.sites is None and not machine.is_gone
        ]
        return [*self._notes, *waiting]

    def close(self) -> None:
        """End all workers, and let go of the machines."""
        self._stop.set()
        self._threads.shutdown(cancel_futures=True)
        if self._machines:
            with ThreadPoolExecutor(len(self._machines)) as threads:
                list(threads.map(lambda item: item.remote.close(), self._machines.values()))
        self._cluster.close()
        self._stop.close()

    def _look(self) -> None:
        """Begin to get ready what has come, and forget what has gone."""
        nodes = {node.id: node for node in self._cluster.list_nodes()}
        names = Counter(node.name for node in nodes.values())
        for name, machine in self._machines.items():
            machine.is_gone |= name not in nodes
        for node in nodes.values():
            if node.id not in self._machines and self._is_wanted(node):
                remote = self._cluster.take(node, list_portable_variables())
                self._machines[node.id] = _Machine(
                    remote=remote,
                    mark="" if names[node.name] == 1 else f"/{node.id[:4]}",
                    coming=self._threads.submit(self._describe, remote),
                )

    def _is_wanted(self, node: Node) -> bool:
        return bool((self._wants_cpu and node.cpus) or (self._wants_gpu and node.gpus))

    def _describe(self, remote: RemoteMachine) -> tuple[Found, list[RemoteWorker]]:
        """What a machine is, once it is ours, and workers for the first job of each device, which
        have their imports behind them meanwhile."""
        remote.open(self._stop)
        devices = [CPU] if self._wants_cpu and remote.node.cpus else []
        devices += [f"cuda:{number}" for number in remote.gpus if self._wants_gpu]
        worker = remote.start(TASK, self._stop)
        spares = [worker]
        if devices != [CPU]:  # the one that describes a GPU may have a context on the first
            spares = [remote.start(TASK, self._stop) for _ in devices]
        worker.send({**self._job, DEVICES: devices})
        found: Found = worker.receive(_DESCRIBE_S)["result"]  # its only answer
        if worker not in spares:
            worker.end()
        return found, spares

    def _wait_for_first(self, tell: Callable[[str], None]) -> None:
        """Until every machine that is there now is ready, or out of the question; where some are
        ready, no longer than a while for those that others use."""
        self._look()
        first, begun = list(self._machines.values()), time.monotonic()
        if not first:
            raise UnavailableError(
                f"the Ray cluster has no {'CPU' if self._wants_cpu else 'GPU'} to give: add a "
                "machine with `ray start --address=HOST:PORT`, or name devices that it has"
            )
        while waiting := [item for item in first if not item.coming.done()]:
            used = all(not item.remote.host for item in waiting)
            if used and len(waiting) < len(first) and time.monotonic() - begun > _OPEN_S:
                break
            if self._end_at is not None and time.monotonic() > self._end_at:
                raise UnavailableError(
                    "the time is up, and no machine of the Ray cluster was free: "
                    f"{', '.join(item.name for item in waiting)}"
                )
            names = ", ".join(item.name for item in waiting)
            slow = used and time.monotonic() - begun > _SLOW_S
            tell(f"waiting for other Ray jobs on {names}" if slow else f"getting ready: {names}")
            time.sleep(_LOOK_S)
        done = [item.coming for item in first if item.coming.done()]
        kinds = Counter(
            tuple(_list_versions(_read_environment(future.result()[0][0])).items())
            for future in done
            if future.exception() is None
        )
        if kinds:
            self._usual = dict(kinds.most_common(1)[0][0])
        self._usual["ftax"] = read_facts(collect_environment(), ["ftax"])["ftax"]
        if not self.find():
            raise UnavailableError(
                f"no machine of the Ray cluster can be used: {'; '.join(self._notes)}"
            )

    def _settle(self, machine: _Machine) -> tuple[Site, ...]:
        """The sites of a machine that was described; none if it is left out, which is noted."""
        try:
            found, machine.spares = machine.coming.result()
        except FtaxError as error:
            self._notes.append(f"{machine.name} was left out: {error}")
            return ()
        kept = []
        for item in found:
            versions = _list_versions(_read_environment(item))
            odd = {
                name: value
                for name, value in versions.items()
                if self._usual.setdefault(name, value) != value
            }
            if not odd or self._is_mixed:
                kept.append(item)
                continue
            words = ", ".join(
                f"{name} {value} there and {self._usual[name]} elsewhere"
                for name, value in odd.items()
            )
            self._notes.append(
                f"{machine.name} was left out: {words}; install the same, or give --mixed to "
                "measure there too"
            )
            return ()
        if machine.remote.niceness:
            self._notes.append(
                f"{machine.name} measured with a niceness of {machine.remote.niceness}, giving way "
                "to all else there: start its node with RAY_worker_niceness=0 ray start ..."
            )
        return tuple(
            make_sites(
                kept,
                host=machine.remote.host,
                name=machine.name,
                start=machine.start,
            )
        )


Sites = LocalSites | RaySites


def _read_environment(item: Mapping[str, Any]) -> Environment:
    return Environment.from_dict(item["environment"])


def _list_versions(environment: Environment) -> dict[str, str]:
    """What has to be the same for latencies of two machines to differ for their hardware alone."""
    own = () if environment.gpu is None else ("the driver",)
    facts = read_facts(environment, (*_VERSIONS, *own))
    return {name: text or "none" for name, text in facts.items()}
