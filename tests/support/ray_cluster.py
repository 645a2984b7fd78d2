"""A Ray cluster on this machine, kept by a process of its own that is told what to do, a line each.

Run as a program it is the keeper: it starts a head, prints its address, and then does "add" (with
GPUs that the node has to give, and variables of its environment; prints its id) and "kill ID",
until there are no more lines.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MARK = "FTAX_TEST_CLUSTER"  # a variable that all processes of a cluster have


class RayCluster:
    """Nodes of one core each; ``address`` is what a driver needs."""

    def __init__(self, keeper: subprocess.Popen[str]) -> None:
        self._keeper = keeper
        self.address = self._read()

    def find_workers(self) -> set[int]:
        """The processes that drivers have started as workers on its nodes."""
        mark, found = f"{_MARK}={os.getpid()}".encode(), set()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_worker = b"ftax.workers.child" in (path / "cmdline").read_bytes()
                if is_worker and mark in (path / "environ").read_bytes().split(b"\0"):
                    found.add(int(path.name))
        return found

    def add(self, gpus: int = 0, **variables: str) -> str:
        """Start a node with these variables in its environment; its id."""
        given = [f"{name}={text}" for name, text in variables.items()]
        return self._ask(" ".join(["add", str(gpus), *given]))

    def kill(self, node: str) -> None:
        """End a node at once, as when its machine loses its power."""
        self._ask(f"kill {node}")

    def _ask(self, line: str) -> str:
        self._keeper.stdin.write(line + "\n")
        self._keeper.stdin.flush()
        return self._read()

    def _read(self) -> str:
        line = self._keeper.stdout.readline().strip()
        assert line, "the keeper of the cluster has ended"
        return line


@contextmanager
def start_cluster() -> Iterator[RayCluster]:
    """A cluster whose head has no core to give."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve())], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, _MARK: str(os.getpid())},
    ) as keeper:  # fmt: skip
        try:
            yield RayCluster(keeper)
        finally:
            keeper.stdin.close()
            keeper.wait(60)


def _keep() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    nodes = {}
    print(cluster.address, file=answers, flush=True)
    for line in sys.stdin:
        what, *names = line.split()
        if what == "add":
            gpus, *given = names
            variables = dict(text.split("=", 1) for text in given)
            os.environ.update(variables)
            node = cluster.add_node(num_cpus=1, num_gpus=int(gpus))
            for name in variables:
                del os.environ[name]
            nodes[node.node_id] = node
            print(node.node_id, file=answers, flush=True)
        else:
            cluster.remove_node(nodes.pop(names[0]), allow_graceful=False)
            print("killed", file=answers, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    _keep()
