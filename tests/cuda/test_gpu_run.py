"""`ftax run` on a GPU: programs whose work is known, from the driver's records to the page.

Each runs for 4 s, in which all its work is recorded two or three times.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from ftax_run import records
from ftax_run.account import Account, ProcessAccount
from ftax_run.activities import ALL, CALL, COPY, DEVICE_KINDS, KERNEL, PHASE, ActivityReader
from ftax_run.cli import watch
from ftax_run.launch import make_environment
from ftax_run.report import describe

from ftax.ladders.receipt import Receipt
from ftax.records.store import read_records

# Alone: beside other work on the device each kernel takes longer, and idle time is less.
pytestmark = [pytest.mark.needs_cuda, pytest.mark.timing]
KERNELS = 10  # of an iteration
HOST_BOUND = """
import time, torch

def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end: pass

def step(x):
    for _ in range(10):
        x.add_(1)
    spin(0.003)
    return x.cpu()

x = torch.ones(64, device="cuda")
end = time.monotonic() + 4
while time.monotonic() < end:
    step(x)
print("done")
"""
DEVICE_BOUND = """
import time, torch

x = torch.ones(4096, 4096, device="cuda", dtype=torch.float16)
end = time.monotonic() + 4
while time.monotonic() < end:
    for _ in range(40):
        torch.mm(x, x)
    torch.cuda.synchronize()
"""
REPLAYED = """
import time, torch

x = torch.ones(64, device="cuda")
x.add_(1)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(10):
        x.add_(1)
end = time.monotonic() + 4
while time.monotonic() < end:
    graph.replay()
    x.cpu()
"""


def write(folder: Path, source: str) -> list[str]:
    """The command of a program."""
    path = folder / "program.py"
    path.write_text(source)
    return [sys.executable, str(path)]


def find_main(account: Account) -> ProcessAccount:
    process = account.find_main()
    assert process is not None
    assert (account.exit_code, process.problem, process.lost) == (0, "", 0)
    return process


def test_the_drivers_records(tmp_path: Path) -> None:
    before = time.monotonic_ns()
    with subprocess.Popen(
        write(tmp_path, HOST_BOUND), env=make_environment(tmp_path), stdout=subprocess.DEVNULL
    ) as program:
        pass
    after = time.monotonic_ns()
    (path,) = tmp_path.glob("*.activity")
    assert path.name.startswith(f"{program.pid}-")
    assert path.stat().st_size % 32 == 0
    reader = ActivityReader(path)
    found = reader.read()
    assert (len(found) * 32, reader.problem) == (path.stat().st_size, "")
    assert np.all((found["start"] > before) & (found["start"] <= found["end"]))
    assert np.all(found["end"] < after)

    phases = found[(found["kind"] == PHASE) & (found["symbol"] == ALL)]
    assert len(phases) >= 2
    work = found[np.isin(found["kind"], DEVICE_KINDS)]
    inside = [np.sum((work["start"] >= begin) & (work["start"] < end))
              for begin, end in zip(phases["start"], phases["end"], strict=True)]  # fmt: skip
    assert sum(inside) > 0.9 * len(work)  # kernels are recorded while all is, and hardly later

    calls = found[found["kind"] == CALL]
    assert set(calls["stream"].tolist()) == {program.pid}
    begins = dict(zip(calls["correlation"].tolist(), calls["start"].tolist(), strict=True))
    known = [begins.get(item["correlation"].item(), 0) for item in work]
    assert np.mean(np.array(known) > 0) > 0.99
    assert np.all(work["start"] > np.array(known))
    names = {reader.names[number] for number in np.unique(work["symbol"]).tolist()}
    assert any("elementwise" in name for name in names)
    assert np.sum(work["kind"] == KERNEL) == pytest.approx(
        KERNELS * np.sum(work["kind"] == COPY), rel=0.05
    )


@pytest.mark.parametrize("iteration", ["", "__main__:step"])
def test_a_host_bound_program(tmp_path: Path, iteration: str) -> None:
    command = write(tmp_path, HOST_BOUND)
    account = watch(command, 1000, iteration)
    process = find_main(account)
    window = process.find_steady()
    assert window.count > 50
    assert (process.marked > 50) == bool(iteration)
    each = {name: amount / window.count for name, amount in window.work.items() if amount}
    assert each == pytest.approx({"kernels": KERNELS, "copies": 1, "launches": KERNELS}, rel=0.03)
    lines = window.sum_lines()
    (file, _, name), _ = lines.list_largest(1)[0]
    assert (Path(file).name, name) == ("program.py", "spin")
    # Meanwhile the device has nothing to do.
    spinning = sum(amount for line, amount in lines.items() if line[2] == "spin") / window.count
    assert spinning == pytest.approx(3e6, rel=0.1)
    booked = sum(window.sum_causes().values())
    assert booked == pytest.approx(window.wall - window.busy, rel=1e-6)
    assert re.match(r"Host-bound: the device idles (9\d|100) %", describe(account)[0])
    assert process.correct()[1] is not None  # what recording cost


def test_a_device_bound_program_is_not_called_idle(tmp_path: Path) -> None:
    account = watch(write(tmp_path, DEVICE_BOUND), 1000)
    window = find_main(account).find_steady()
    assert window.work["kernels"] / window.count % 40 == pytest.approx(0, abs=1)
    assert window.busy > 0.9 * window.wall
    assert describe(account)[0].startswith("Device-bound")


def test_replays_are_whole_graphs(tmp_path: Path) -> None:
    window = find_main(watch(write(tmp_path, REPLAYED), 1000)).find_steady()
    each = {name: amount / window.count for name, amount in window.work.items() if amount}
    assert each == pytest.approx({"graphs": 1, "copies": 1, "launches": 1}, rel=0.03)
    assert 0 < window.busy < window.wall


def test_the_command_writes_a_record_and_a_page(tmp_path: Path) -> None:
    words = ["-o", "run.jsonl", "--html", "page.html", "--", *write(tmp_path, HOST_BOUND)]
    done = subprocess.run(
        [sys.executable, "-m", "ftax", "run", *words], cwd=tmp_path, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    (account,) = records.read(tmp_path / "run.jsonl")
    assert "\n".join(describe(account)) in done.stderr
    page = (tmp_path / "page.html").read_text()
    (text,) = re.findall(r'<script type="application/json" id="values">(.*?)</script>', page)
    (process,) = json.loads(text)["processes"]
    window, _ = find_main(account).correct()
    assert process["wall"] == pytest.approx(window.wall / window.count)
    assert 0 < process["busy"] < 0.5 * process["wall"]
    assert dict(process["work"])["kernels"] == pytest.approx(KERNELS, rel=0.03)
    assert len(process["stacks"]) > 2
    rows = [row.rpartition(" ")[0] or row for row, _ in process["timeline"]["rows"]]
    assert {"iterations", "device stream", "calls of thread", "Python thread"} <= set(rows)
    idle = sum(end - begin for begin, end in process["timeline"]["idle"])
    assert 0.5 < idle / process["timeline"]["end"] < 1


@pytest.mark.parametrize(("most", "code"), [(1, 0), (0, 1)])
def test_a_budget_of_synchronisations(tmp_path: Path, most: int, code: int) -> None:
    budget = tmp_path / "ftax.toml"
    budget.write_text(f"[run]\nbudget = {{synchronisations = {most}, launches = {2 * KERNELS}}}\n")
    done = subprocess.run(
        [sys.executable, "-m", "ftax", "run", "--budget", str(budget), "--",
         *write(tmp_path, HOST_BOUND)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, "done\n"), done.stderr
    assert re.search(rf"launches: \d+\.\d of {2 * KERNELS}\n", done.stderr)
    assert f"synchronisations: 1.0 of {most}{', over' if code else ''}\n" in done.stderr
    # Each takes some us, so a sample within one is rare.
    assert bool(re.search(r"    1\.0 (at|near) program.py:1[0-2] step", done.stderr)) == bool(code)


SERVICE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(20))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x

model, x = Net().cuda().eval(), torch.ones(5, 64, device="cuda")
with torch.inference_mode():
    for _ in range(6000):
        model(x).cpu()
print("done")
"""


# Two runs of a program that imports torch and starts CUDA.
@pytest.mark.slow
def test_the_receipt_of_the_hottest_call(tmp_path: Path) -> None:
    words = ["--receipt", "--duration", "2", "-o", "run.jsonl", "--", *write(tmp_path, SERVICE)]
    done = subprocess.run(
        [sys.executable, "-m", "ftax_run", *words], cwd=tmp_path, capture_output=True, text=True,
        timeout=300, check=False, env={**os.environ, "FTAX_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "Host-bound: the device idles" in done.stderr
    (receipt,) = read_records(tmp_path / "run.receipt.jsonl").records
    assert isinstance(receipt, Receipt)
    top = receipt.rungs[0]
    assert (top.cell.model, top.cell.batch, top.cell.device[:4]) == ("Net", 5, "cuda")
    assert {"kernels", "launch"} <= {line.name for line in receipt.lines}
    assert [item.place.runtime for item in receipt.others] == ["capture"]
