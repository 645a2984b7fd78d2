"""Sweeps over a real Ray cluster on this machine: nodes are killed and added, drivers are ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from ftax.errors import InvalidArgumentError, RunnerError, UnavailableError
from ftax.records.store import read_records
from ftax.sweeps.results import SweepResults
from ftax.sweeps.sweep import sweep
from ftax.sweeps.sweep_records import SweepCell
from ftax.workers.cluster import Cluster, _explain, read_environment
from support.ray_cluster import RayCluster, start_cluster

pytest.importorskip("ray")

# Layers: a worker that imports transformers for each model would take most of the time.
MODELS = [f"layer-norm-{width}" for width in (8, 16, 24, 32, 40)]
GRID = f"models = {MODELS}\nbatches = [1, 2]\n"


@pytest.fixture(scope="module")
def cluster():
    with start_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def nodes(cluster):
    """Two machines, as far as anybody can tell: their names differ."""
    return [cluster.add(FTAX_MACHINE=name) for name in ("east", "west")]


def start_sweep(
    cluster: RayCluster, grid: str, folder: Path, *options: str
) -> subprocess.Popen[str]:
    """The command, as a process group of its own, as in a terminal."""
    file = folder.with_suffix(".toml")
    file.write_text(grid)
    command = [sys.executable, "-m", "ftax", "sweep", str(file), "-o", str(folder), "--quick",
               "--on", f"ray={cluster.address}", *options]  # fmt: skip
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def read_cells(folder: Path) -> list[SweepCell]:
    """The measured lines of a folder so far."""
    path = folder / "cells.jsonl"
    records = read_records(path, skip_bad=True).records if path.exists() else ()
    return [item for item in records if isinstance(item, SweepCell) and item.values_ns]


def wait_for_cells(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 400  # where a machine does five things at once
    while len(read_cells(folder)) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def check_whole(folder: Path, cells: int) -> None:
    """Every cell is there, and none was timed twice but on purpose."""
    lines = [cell for cell in read_cells(folder) if "timed_again" not in cell.facts]
    assert Counter(Counter(cell.cell for cell in lines).values()) == {1: cells}


def test_a_node_dies_and_another_comes_and_no_cell_is_lost_or_made_twice(
    cluster, nodes, tmp_path, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # of the driver: a choice of its user
    third = cluster.add()
    folder = tmp_path / "swept"
    process = start_sweep(cluster, GRID, folder)
    wait_for_cells(folder, 1, process)
    cluster.kill(third)
    cluster.add(FTAX_MACHINE="north")
    code, out, err = finish(process)
    assert code == 0, err
    check_whole(folder, 10)
    assert "raylet" not in out + err and "ray." not in out + err  # Ray says nothing
    results = SweepResults.load(folder)
    names = {machine.environment.machine for machine in results.machines.values()}
    assert len(names) >= 2 and names & {"east", "west"}
    hosts = [name for name in names if name not in ("east", "west", "north")]
    assert all(len(name) == 6 for name in hosts)  # no host's name
    for machine in results.machines.values():
        assert machine.environment.settings.variables["OMP_NUM_THREADS"] == "1"
        assert machine.environment.settings.num_threads == 1
    written = "".join(path.read_text() for path in folder.glob("*.jsonl"))
    assert f'"{socket.gethostname()}"' not in written and cluster.address not in written
    run = json.loads((folder / "runs.jsonl").read_text().splitlines()[0])["record"]
    assert run["settings"]["on"] == "ray"


PRIORITY = """
import os, sys
from ftax.sweeps.job import TASK
from ftax.workers.cluster import Cluster
from ftax.workers.process import Stop
cluster, stop = Cluster(sys.argv[1]), Stop()
machine = cluster.take(next(node for node in cluster.list_nodes() if node.id == sys.argv[2]), {})
machine.open(stop)
worker = machine.start(TASK, stop)
environment = open(f"/proc/{worker.pid}/environ").read()
print(os.getpriority(os.PRIO_PROCESS, worker.pid), machine.niceness, "jemalloc" in environment)
machine.close()
cluster.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root raises a priority")
def test_workers_have_neither_rays_priority_nor_its_allocator(cluster, nodes):
    done = subprocess.run(
        [sys.executable, "-c", PRIORITY, cluster.address, nodes[0]], capture_output=True, text=True
    )
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert done.stdout.split() == [str(own), "0", "False"], done.stderr


def test_an_ended_driver_ends_its_workers_and_resume_goes_on(cluster, nodes, tmp_path):
    folder = tmp_path / "swept"
    process = start_sweep(cluster, GRID, folder)
    wait_for_cells(folder, 2, process)
    os.kill(process.pid, signal.SIGTERM)  # as Slurm at the end of a job; Ctrl-C goes the same way
    code, _, err = finish(process)
    assert code == 130 and "go on with --resume" in err and "SIGTERM" not in err
    assert cluster.find_workers() == set()
    before = len(read_cells(folder))
    assert before >= 2

    process = start_sweep(cluster, GRID, folder, "--resume")
    wait_for_cells(folder, before + 1, process)
    process.kill()
    finish(process)
    deadline = time.monotonic() + 30
    while cluster.find_workers():
        assert time.monotonic() < deadline
        time.sleep(0.1)

    code, _, err = finish(start_sweep(cluster, GRID, folder, "--resume"))
    assert code == 0, err
    check_whole(folder, 10)


def test_each_machine_measures_each_cell_and_odd_software_only_if_asked(cluster, nodes, tmp_path):
    info = tmp_path / "onnx-0.0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: onnx\nVersion: 0.0.1\n")
    odd = cluster.add(FTAX_MACHINE="odd", PYTHONPATH=str(tmp_path))
    grid = f"models = {MODELS[0]!r}\nbatches = [1, 2]\nevery_machine = true\n"
    folder = tmp_path / "swept"

    def count_by_name():
        results = SweepResults.load(folder)
        return {
            results.machines[name].environment.machine: len(part.cells)
            for name, part in results.split_by_machine().items()
        }

    try:
        code, _, err = finish(start_sweep(cluster, grid, folder))
        assert code == 0, err
        assert "was left out: onnx 0.0.1 there and" in " ".join(err.split())
        before = count_by_name()
        assert "odd" not in before and before["east"] == before["west"] == 2
        code, _, err = finish(start_sweep(cluster, grid, folder, "--resume", "--mixed"))
        assert code == 0, err
    finally:
        cluster.kill(odd)
    assert count_by_name() == {**before, "odd": 2}
    lines = [cell for cell in read_cells(folder) if "timed_again" not in cell.facts]
    assert set(Counter((cell.cell, cell.machine) for cell in lines).values()) == {1}


@pytest.mark.parametrize(
    ("on", "kind", "message"),
    [
        ("ray=127.0.0.1:9", UnavailableError, "there is no Ray cluster at 127.0.0.1:9: .*`ray sta"),
        ("ray=nowhere", InvalidArgumentError, "give HOST:PORT, such as 10.0.0.1:6379, or leave it"),
        ("ray=ray://localhost:10001", InvalidArgumentError, "give HOST:PORT"),
        ("ray=localhost:99999", InvalidArgumentError, "give HOST:PORT"),
        ("ray=", InvalidArgumentError, "on is 'ray='; give 'local', or 'ray' or 'ray=HOST:PORT'"),
    ],
)
def test_what_is_no_cluster_is_named(on, kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        sweep_one(tmp_path, on)
    assert not (tmp_path / "swept").exists()


def test_a_process_that_uses_another_cluster_is_told(monkeypatch, tmp_path):
    context = SimpleNamespace(gcs_address="10.0.0.1:6379")
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=r"uses the Ray cluster at .* already"):
            sweep_one(tmp_path, f"ray={address}")


def test_a_head_that_is_gone_ends_the_sweep_before_ray_ends_the_process(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        context = SimpleNamespace(gcs_address=address)
        monkeypatch.setattr("ray.is_initialized", lambda: True)
        monkeypatch.setattr("ray.get_runtime_context", lambda: context)
        monkeypatch.setattr("ray.nodes", lambda: [])
        cluster = Cluster(address)
        assert cluster.list_nodes() == ()
    cluster.list_nodes()
    cluster.list_nodes()
    with pytest.raises(RunnerError, match=f"{address}, is gone; .* go on with --resume"):
        cluster.list_nodes()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ModuleNotFoundError: No module named 'ftax'", "it has no ftax: install"),
        (
            "Traceback\n  x\nImportError: libcudart.so\n",
            "ftax does not start there: ImportError: l",
        ),
        ("The actor died", "it is gone, or does not answer any more"),
    ],
)
def test_what_became_of_a_machine_is_told(text, words):
    assert _explain(RuntimeError(text)).startswith(words)


def test_without_ray_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnavailableError, match=r"pip install 'ftax\[ray\]'"):
        sweep_one(tmp_path, "ray")


def sweep_one(folder: Path, on: str):
    file = folder / "grid.toml"
    file.write_text("models = 'bert-base'\ntiny = true\n")
    return sweep(file, folder / "swept", on=on)


def test_nothing_of_ray_is_imported_without_being_asked_for():
    code = "import sys, ftax.sweeps.sweep, ftax.sweeps.fleet; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_children_have_the_environment_that_a_node_was_started_with():
    preloaded = "/usr/lib/own.so:/somewhere/ray/core/libjemalloc.so"
    variables = {"FTAX_ONE": "1=1", "RAY_SOME": "2", "LD_PRELOAD": preloaded}
    with subprocess.Popen(["sleep", "60"], env={**os.environ, **variables}) as process:
        try:
            while "FTAX_ONE" not in (found := read_environment(process.pid)):
                time.sleep(0.01)  # it is not quite there yet
        finally:
            process.kill()
    assert found["FTAX_ONE"] == "1=1" and "RAY_SOME" not in found
    assert found["PATH"] == os.environ["PATH"]
    assert found["LD_PRELOAD"] == "/usr/lib/own.so"  # without that of Ray's daemons


def test_what_another_version_says_is_one_sentence(monkeypatch):
    def refuse(**_):
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 1.0.0\n")

    monkeypatch.setattr("ray.init", refuse)
    with pytest.raises(UnavailableError, match=r"Version mismatch: The cluster .*Ray: 1\.0\.0$"):
        Cluster()
