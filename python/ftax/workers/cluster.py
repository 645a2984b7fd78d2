"""Worker processes on the machines of a Ray cluster.

Ray only reaches a machine. An actor there starts workers as one would by hand, from the environment
that `ray start` had, and hands lines on. Nothing is measured in one of Ray's processes, and what is
sent is JSON, both ways.

Who reaches Ray's port can run code on all of its machines; docs/fleet.md says what to do.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftax.errors import FtaxError, InvalidArgumentError, RunnerError, UnavailableError, describe
from ftax.workers.child import name_kind
from ftax.workers.process import Stop, Stopped, Worker, WorkerDied, make_error

MACHINE = "FTAX_MACHINE"  # the variable that names a machine in records
_AT_ONCE = 200  # calls of one actor: each worker has one open all the time
_CONNECT_S = 5.0
_LOOK_S = 0.2  # at whether the waiting is to end
_END_S = 5.0  # that a machine has to end its workers
_PING_S, _SILENT_S = 15.0, 45.0  # of waiting, until it is asked whether it is there, and given up
_PING = json.dumps({"what": "ping"})
_MOST_MISSES = 3


class MachineLost(WorkerDied):
    """A machine is gone, or cannot be reached. Nothing that it was asked for is to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What Ray calls a node: a machine, or one of several on a machine."""

    id: str
    name: str  # of the host
    cpus: float
    gpus: float


class Cluster:
    """The Ray cluster at an address ("10.0.0.1:6379"), or the one that this machine belongs to.

    Raises UnavailableError if Ray is not installed, there is no cluster, or it has another version
    of Ray or Python; InvalidArgumentError for an address that is none.
    """

    def __init__(self, address: str = "") -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            self._ray: Any = importlib.import_module("ray")
        except ModuleNotFoundError as error:
            raise UnavailableError(
                "on is 'ray', but the package ray is not installed: pip install 'ftax[ray]', here "
                "and on every machine"
            ) from error
        self._undo: list[Callable[[], object]] = []
        address = "" if address == "auto" else address
        if address:
            _check_address(address)
        if self._ray.is_initialized():
            self._check_own(address)
        else:
            self._connect(address)
        self._address = self._ray.get_runtime_context().gcs_address
        self._misses, self._nodes = 0, tuple[Node, ...]()  # of the head, in a row

    def _check_own(self, address: str) -> None:
        """Raise UnavailableError if this process uses another cluster already."""
        own = self._ray.get_runtime_context().gcs_address
        if address and address != own:
            raise UnavailableError(
                f"this process uses the Ray cluster at {own} already, not {address}: call "
                "ray.shutdown() first, or leave the address out"
            )

    def _connect(self, address: str) -> None:
        worker = vars(importlib.import_module("ray._private.worker"))
        # What Ray says of its nodes, in the middle of a progress bar. There is no option for it.
        spoken = worker["print_to_stdstream"]
        worker["print_to_stdstream"] = lambda *_, **__: None
        self._undo.append(lambda: worker.update(print_to_stdstream=spoken))
        in_main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGTERM)
        remedy = "start one with `ray start --head`, or give its address: --on ray=HOST:PORT"
        try:
            self._ray.init(
                address=address or "auto", log_to_driver=False, logging_level=logging.CRITICAL
            )
        except ConnectionError as error:
            where = f"at {address}" if address else "that this machine belongs to"
            raise UnavailableError(f"there is no Ray cluster {where}; {remedy}") from error
        except (RuntimeError, ValueError) as error:
            raise UnavailableError(
                f"Ray does not connect to its cluster: {' '.join(str(error).split())}"
            ) from error
        self._undo.append(self._ray.shutdown)
        if in_main:  # in place of Ray's, which ends with a code that looks like a fault
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            self._undo.append(lambda: signal.signal(signal.SIGTERM, before))

    def list_nodes(self) -> tuple[Node, ...]:
        """The nodes that are alive. Raises RunnerError once the head of the cluster is gone, which
        Ray waits for, and then ends this process."""
        self._misses = 0 if _is_there(self._address) else self._misses + 1
        if self._misses >= _MOST_MISSES:
            raise RunnerError(
                f"the head of the Ray cluster, at {self._address}, is gone; what was measured is "
                "kept: start it again, and go on with --resume"
            )
        if self._misses:
            return self._nodes
        self._nodes = tuple(
            Node(
                id=node["NodeID"],
                name=node["NodeManagerHostname"],
                cpus=node["Resources"].get("CPU", 0.0),
                gpus=node["Resources"].get("GPU", 0.0),
            )
            for node in self._ray.nodes()
            if node["Alive"]
        )
        return self._nodes

    def take(self, node: Node, environment: Mapping[str, str]) -> RemoteMachine:
        """Take a whole node, as soon as no other job has a part of it."""
        return RemoteMachine(self._ray, node, environment)

    def close(self) -> None:
        """Let go of the cluster, which stays as it is."""
        if self._misses < _MOST_MISSES:  # or Ray would wait for it
            for undo in reversed(self._undo):
                undo()


class RemoteMachine:
    """A node that is ours, with workers on it.

    Attributes:
        name: what people call the machine: what the variable FTAX_MACHINE said there, or its host.
        host: a text that all nodes with the same cores share; "" until it is `opened`.
        niceness: by how much its workers give way to what else runs there.
        gpus: their numbers, as CUDA counts them there.
    """

    def __init__(self, ray: Any, node: Node, environment: Mapping[str, str]) -> None:
        self.node, self.name, self.host, self.gpus = node, node.name, "", tuple[int, ...]()
        self.niceness = 0
        self._ray, self._environment = ray, dict(environment)
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        self._actor = (
            ray.remote(Agent)
            .options(
                num_cpus=node.cpus,
                num_gpus=node.gpus,
                max_concurrency=_AT_ONCE,
                scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            .remote()
        )

    def open(self, stop: Stop) -> None:
        """Wait until no other job has a part of it. Raises what `ask` raises."""
        found = self.ask("open", stop, environment=self._environment, folder=os.getcwd())
        self.host, self.gpus = found["host"], tuple(found["gpus"])
        self.name, self.niceness = found["name"] or self.name, found["niceness"]

    def start(self, task: str, stop: Stop) -> RemoteWorker:
        """A worker there. Raises what `ask` raises."""
        return RemoteWorker(self, self.ask("start", stop, task=task), stop)

    def ask(self, what: str, stop: Stop | None = None, **fields: Any) -> Any:
        """What the `Agent` there answers.

        Raises:
            MachineLost: it does not answer any more.
            WorkerDied: the worker that it is about did.
            FtaxError: what it was refused for, of the same kind.
            Stopped: the waiting is to end.
        """
        errors = self._ray.exceptions
        try:
            asked = self._actor.ask.remote(json.dumps({"what": what, **fields}))
            ping, pinged = None, time.monotonic()
            while not self._ray.wait([asked], timeout=_LOOK_S)[0]:
                if stop is not None and stop.is_set:
                    raise Stopped
                waited_s = time.monotonic() - pinged
                if ping is not None and self._ray.wait([ping], timeout=0)[0]:
                    ping, pinged = None, time.monotonic()
                elif ping is not None and waited_s > _SILENT_S:
                    raise MachineLost(f"it has not answered for {waited_s:.0f} s")
                elif ping is None and self.host and waited_s > _PING_S:
                    ping, pinged = self._actor.ask.remote(_PING), time.monotonic()
            answer = json.loads(self._ray.get(asked))
        except errors.RayError as error:
            raise MachineLost(_explain(error)) from None
        if "died" in answer:
            raise WorkerDied(answer["died"], killed=answer["killed"])
        if "error" in answer:
            raise make_error(answer)
        return answer["answer"]

    def tell(self, what: str, **fields: Any) -> None:
        """Ask without waiting for the answer."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._actor.ask.remote(json.dumps({"what": what, **fields}))

    def close(self) -> None:
        """End its workers, and let go of the node."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            if self.host:
                ended = self._actor.ask.remote(json.dumps({"what": "close"}))
                self._ray.wait([ended], timeout=_END_S)
            self._ray.kill(self._actor)


class RemoteWorker:
    """A `Worker` on another machine, with the same methods and errors, and MachineLost. ``stop``
    may be another later."""

    def __init__(self, machine: RemoteMachine, pid: int, stop: Stop) -> None:
        self.pid, self.stop = pid, stop
        self._machine = machine

    def send(self, job: Any) -> None:
        """Ask for a job, or answer a question."""
        self._ask("send", job=job)

    def wait_until_ready(self) -> None:
        """Return when it has its imports behind it."""
        self._ask("wait_until_ready")

    def receive(self, limit_s: float) -> dict[str, Any]:
        """The next answer. What a job was refused for is its machine's fault: others did the
        same."""
        try:
            answer: dict[str, Any] = self._ask("receive", limit_s=limit_s)
        except WorkerDied:
            raise
        except FtaxError as error:
            raise MachineLost(str(error)) from error
        return answer

    def end(self) -> None:
        """End it and what it started."""
        self._machine.tell("end", pid=self.pid)

    def _ask(self, method: str, **fields: Any) -> Any:
        return self._machine.ask("call", self.stop, pid=self.pid, method=method, **fields)


class Agent:
    """In a process of Ray's on a machine: starts workers there, and hands lines on.

    It has one method, which takes and gives JSON. Workers end when the thread that started them
    does, so one thread starts them all.
    """

    def __init__(self) -> None:
        self._starter = ThreadPoolExecutor(1)
        self._base: dict[str, str] = {}
        self._workers: dict[int, Worker] = {}

    def ask(self, text: str) -> str:
        """Do what the JSON asks for; the answer as JSON, or why there is none."""
        asked = json.loads(text)
        tasks: Mapping[str, Callable[..., Any]] = {
            "open": self._open, "start": self._start, "call": self._call, "end": self._end,
            "close": self._close, "ping": lambda: None,
        }  # fmt: skip
        try:
            return json.dumps({"answer": tasks[asked.pop("what")](**asked)})
        except WorkerDied as death:
            return json.dumps({"died": str(death), "killed": death.killed})
        except FtaxError as error:
            return json.dumps({"error": name_kind(error), "reason": str(error)})
        except Exception as error:  # never pickled: a pickle is code to its reader
            return json.dumps({"error": RunnerError.__name__, "reason": describe(error)})

    def _open(self, environment: dict[str, str], folder: str) -> dict[str, Any]:
        ray = importlib.import_module("ray")
        raylet = int(os.environ["RAY_RAYLET_PID"])
        given = read_environment(raylet)
        name = given.pop(MACHINE, "")
        hashed = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:6]
        self._base = {MACHINE: name or hashed, **given, **environment}
        if Path(folder).is_dir():  # where grids name files, if the machines share them
            os.chdir(folder)
        ids = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        visible = given.get("CUDA_VISIBLE_DEVICES", "").split(",")
        return {
            "name": name,
            "niceness": self._starter.submit(_be_as_nice_as, raylet).result(),
            "host": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            "gpus": sorted(visible.index(text) if text in visible else int(text) for text in ids),
        }

    def _start(self, task: str) -> int:
        worker = self._starter.submit(Worker, task, base=self._base).result()
        self._workers[worker.pid] = worker
        return worker.pid

    def _call(self, pid: int, method: str, **given: Any) -> Any:
        return getattr(self._workers[pid], method)(**given)

    def _end(self, pid: int) -> None:
        self._workers.pop(pid).end()

    def _close(self) -> None:
        for pid in list(self._workers):
            self._end(pid)


def _be_as_nice_as(pid: int) -> int:
    """Give this thread, and what it starts, the priority of another process: Ray's own processes
    give way to all others. By how much it still gives way to that one: lowering it needs rights."""
    wanted = os.getpriority(os.PRIO_PROCESS, pid)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, wanted)
    return os.getpriority(os.PRIO_PROCESS, 0) - wanted


def read_environment(pid: int) -> dict[str, str]:
    """The variables that a process was started with, but for Ray's own: as the user left them, who
    may have set OMP_NUM_THREADS, CUDA_VISIBLE_DEVICES or LD_PRELOAD."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        raise RunnerError(f"its node of Ray has ended, or is another user's: {error}") from error
    pairs = (line.partition("=") for line in text.split("\0") if "=" in line)
    found = {name: value for name, _, value in pairs if not name.startswith("RAY_")}
    # Ray has its daemons allocate by another library, and with it a CPU's layers take less time.
    preloaded = [name for name in found.pop("LD_PRELOAD", "").split(":") if name]
    own = [name for name in preloaded if "/ray/core/" not in name]
    return {**found, **({"LD_PRELOAD": ":".join(own)} if own else {})}


def _check_address(address: str) -> None:
    """Raise InvalidArgumentError for what is no address, and UnavailableError, within seconds,
    unless something listens there."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536 or "://" in address:
        raise InvalidArgumentError(
            f"the address of the Ray cluster is {address!r}; give HOST:PORT, such as "
            "10.0.0.1:6379, or leave it out on a machine of the cluster"
        )
    try:
        _knock(address)
    except OSError as error:
        raise UnavailableError(
            f"there is no Ray cluster at {address}: {describe(error)}; `ray start --head` prints "
            "the address of one"
        ) from error


def _knock(address: str) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()


def _is_there(address: str) -> bool:
    try:
        _knock(address)
    except OSError:
        return False
    return True


def _explain(error: Exception) -> str:
    """What became of a machine, in words: why our code did not start there, if that is it."""
    if "No module named 'ftax'" in str(error):
        return "it has no ftax: install the same one there"
    faults = re.findall(r"^(?:\w+\.)*(\w*Error: .+)$", str(error), re.MULTILINE)
    if faults:
        return f"ftax does not start there: {faults[-1]}"
    return "it is gone, or does not answer any more"
