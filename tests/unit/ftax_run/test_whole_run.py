"""A program without a device, watched from its start to its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from ftax_run.causes import GIL, WAIT
from ftax_run.cli import run, watch
from ftax_run.errors import RunError
from ftax_run.findings import find
from ftax_run.report import describe, make_verdict
from ftax_run.sums import Sums

LOADER = """
import time
from multiprocessing import Process, Queue
from ftax_run import iteration

def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: pass

def decode(queue):
    for n in range(100):
        spin(0.008)
        queue.put(n)

def train(queue):
    queue.get()

if __name__ == "__main__":
    queue = Queue(2)
    process = Process(target=decode, args=(queue,))
    process.start()
    queue.get()
    spin(0.5)
    for _ in range(97):
        with iteration():
            train(queue)
    process.terminate()
"""


def test_iterations_that_wait_for_another_process(tmp_path: Path) -> None:
    program = tmp_path / "loader.py"
    program.write_text(LOADER)
    account = watch([sys.executable, str(program)], 1000)
    process = account.find_main()
    assert process is not None
    assert process.marked == 97
    host = process.host
    # The start and the half second before the loop are left out; it is the worker that is late.
    assert 0.5 < host.wall / 97 / 8e6 < 5
    spent: dict[str, float] = {}
    for (place, cause), amount in host.spent.items():
        if cause == WAIT:
            spent[place[2]] = spent.get(place[2], 0) + amount
    assert spent.get("spin", 0) * host.unit > 0.6 * host.wall
    assert "97 iterations that the program marks" in "\n".join(describe(account))


HOLDS = """
import hashlib, threading, time

def hold():
    while True:
        end = time.perf_counter() + 0.02
        while time.perf_counter() < end: pass
        time.sleep(0.001)

def work(content=bytes(1_000_000)):
    hashlib.sha256(content).digest()  # gives the GIL away, and has to have it again

threading.Thread(target=hold, daemon=True).start()
end = time.monotonic() + 2
while time.monotonic() < end:
    work()
"""


@pytest.mark.timing
def test_a_call_of_c_that_waits_for_the_gil(python: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(HOLDS)
    process = watch([python, str(program)], 1000).find_main()
    assert process is not None
    spent: Sums[tuple[str, str]] = Sums()
    for (place, cause), amount in process.host.spent.items():
        spent[place[2], cause] += amount
    causes: Sums[str] = Sums()
    for (_, cause), amount in spent.items():
        causes[cause] += amount
    every = sum(causes.values())
    assert causes[GIL] > 0.05 * every
    assert spent["hold", GIL] > 0.8 * causes[GIL]  # the thread that has it meanwhile
    assert causes[WAIT] < 0.02 * every


STEPS = """
import sys, time
class Trainer:
    def step(self, number, *, more=()):
        time.sleep(0.01)
        return number + len(more)
async def wait(): pass
trainer = Trainer()
bound = trainer.step
time.sleep(0.6)
print(sum(bound(number, more=[1]) for number in range(20)), sys.path[0], __name__)
"""


def test_iterations_that_an_option_names(
    python: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(STEPS)
    account = watch([python, str(program)], 1000, "__main__:Trainer.step")
    assert capfd.readouterr().out == f"210 {tmp_path} __main__\n"
    process = account.find_main()
    assert process is not None
    assert (process.marked, process.problem) == (19, "")  # the first was seen to begin
    assert 0.009 < process.host.wall / 19 / 1e9 < 0.5


RECURSIVE = """
import inspect, sys, threading, time
def step(depth: int = 5) -> int:
    time.sleep(0.005 * (depth == 0))
    frame, frames = sys._getframe(), 0
    while frame: frame, frames = frame.f_back, frames + 1
    return max(frames, step(depth - 1)) if depth else frames
first = step()
signature = str(inspect.signature(step)), inspect.getsource(step)[:8]
again = [step() for _ in range(20)]
threads = [threading.Thread(target=step) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(first, max(again) - first, *signature)
"""


def test_a_recursion_is_one_iteration_and_as_deep_as_without(
    python: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(RECURSIVE)
    account = watch([python, str(program)], 1000, "__main__:step")
    first, more, *signature = capfd.readouterr().out.split(" ")
    assert signature == ["(depth:", "int", "=", "5)", "->", "int", "def", "step\n"]
    assert int(first) + int(more) <= 10  # the 7 without, and once what stands in
    process = account.find_main()
    assert process is not None
    assert 20 <= process.marked <= 28  # of those that overlap one


def test_an_iteration_that_is_never_called(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(STEPS)
    account = watch([sys.executable, str(program)], 1000, "__main__:train")
    assert "__main__:train was not seen to be called twice" in "\n".join(describe(account))


@pytest.mark.parametrize("place", ["train_step", "main:", ":step"])
def test_an_iteration_that_is_no_place(place: str) -> None:
    with pytest.raises(RunError, match="give module:function, such as __main__:train_step"):
        run(["--iteration", place, __file__])


LOCKED = """
import threading, time
lock = threading.Lock()
def hold():
    while True:
        with lock: time.sleep(0.02)
        time.sleep(0.0001)
threading.Thread(target=hold, daemon=True).start()
def work():
    with lock:
        pass
end = time.monotonic() + 1
while time.monotonic() < end: work()
"""


def test_a_lock_is_not_the_gil(python: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(LOCKED)
    process = watch([python, str(program)], 1000).find_main()
    assert process is not None
    causes: Sums[str] = Sums()
    for (_, cause), amount in process.host.spent.items():
        causes[cause] += amount
    assert causes[WAIT] > 0.7 * sum(causes.values())
    assert causes[GIL] < 0.05 * sum(causes.values())


STOPPED = """
import os, signal, subprocess, sys, time
def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end: pass
spin(0.5)
subprocess.Popen(["sh", "-c", f"sleep 1; kill -CONT {os.getpid()}"])
os.kill(os.getpid(), signal.SIGSTOP)
spin(0.5)
if len(sys.argv) == 1:
    os.execvp("sh", ["sh", "-c", f"sleep 1; exec {sys.executable} {sys.argv[0]} again"])
"""


@pytest.mark.timing
def test_a_pause_is_not_of_the_program(tmp_path: Path) -> None:
    """Stopped for a second, another program for a second, and again what it was."""
    program = tmp_path / "program.py"
    program.write_text(STOPPED)
    process = watch([sys.executable, str(program)], 1000).find_main()
    assert process is not None
    found = find(process)
    assert 2.0 < found.wall / 1e9 < 2.8
    spins = sum(line.time for line in found.lines if line.place[2] in ("<module>", "spin"))
    assert spins > 0.85 * found.wall  # the rest is Python's start, twice


MANY = """
import subprocess, sys
for number in range(6):
    subprocess.run([sys.executable, "child.py"])
subprocess.run([sys.executable, "child.py", "other"])
"""


POOL = """
import multiprocessing, sys, time
def work(number):
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end: pass
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    with multiprocessing.Pool(1) as pool:
        pool.map(work, range(20))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_is_what_the_program_waits_for(tmp_path: Path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(POOL)
    account = watch([sys.executable, str(program), method], 1000)
    main = account.find_main()
    assert main is account.processes[0]
    line, *_ = find(main).lines
    assert line.place[2] == "work" and line.cause == WAIT
    others = "\n".join(describe(account)).partition("Other processes\n")[2]
    assert all(
        "program.py:" not in line for line in others.splitlines() if "resource_tracker" in line
    )


def test_other_processes_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "child.py").write_text(
        "import time\ndef spin():\n    end = time.perf_counter() + 0.3\n"
        "    while time.perf_counter() < end: pass\nspin()\n"
    )
    (tmp_path / "program.py").write_text(MANY)
    account = watch([sys.executable, "program.py"], 1000)
    text = "\n".join(describe(account))
    main = account.find_main()
    assert main is not None and main.command.endswith("program.py")
    first, second = text.partition("Other processes\n")[2].splitlines()[:2]
    assert first.startswith(f"  6 x {sys.executable} child.py: ")
    assert "most at child.py:4 spin" in first
    assert second.startswith(f"  {sys.executable} child.py other: ")
    verdict: dict[str, Any] = make_verdict(account)
    assert verdict["verdict"] == "no device" and verdict["wall_us"] > 7 * 0.3e6
    assert verdict["lines"][0]["line"] == 4 and verdict["lines"][0]["time_us"] > 6 * 0.3e6


def test_a_package_that_is_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages" / "pack"
    folder.mkdir(parents=True)
    (folder / "__main__.py").write_text("from pack.work import spin\nspin()\n")
    (folder / "work.py").write_text(
        "import time\ndef spin():\n    end = time.perf_counter() + 0.5\n"
        "    while time.perf_counter() < end: pass\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder.parent))
    assert "pack/work.py:4 spin" in "\n".join(describe(watch([sys.executable, "-m", "pack"], 1000)))
    command = tmp_path / "bin" / "pack"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom pack.work import spin\nspin()\n")
    command.chmod(0o755)
    assert "pack/work.py:4 spin" in "\n".join(describe(watch([str(command)], 1000)))


def test_a_gpu_that_nothing_is_recorded_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device file is the mark of a process that has initialised CUDA."""
    (tmp_path / "nvidia-uvm").touch()
    program = tmp_path / "program.py"
    program.write_text(f"import time\nfile = open({str(tmp_path / 'nvidia-uvm')!r})\ntime.sleep(3)")
    monkeypatch.setattr("ftax_run.watcher._ASK_EVERY", 20)
    text = "\n".join(describe(watch([sys.executable, str(program)], 1000)))
    assert "uses a GPU, and its driver did not load what records it: another profiler" in text
    assert "No work on a GPU was seen" in text


def test_a_driver_that_loads_its_library_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-uvm").touch()
    program = tmp_path / "program.py"
    program.write_text(
        "import os, time\n"
        f"file = open({str(tmp_path / 'nvidia-uvm')!r})\n"
        "time.sleep(2)\n"
        "open(f\"{os.environ['FTAX_RUN_FOLDER']}/{os.getpid()}-1.activity\", 'w').close()\n"
        "time.sleep(1)\n"
    )
    monkeypatch.setattr("ftax_run.watcher._ASK_EVERY", 20)
    account = watch([sys.executable, str(program)], 1000)
    assert [process.problem for process in account.processes] == [""]


@pytest.mark.parametrize(("recorded", "told"), [(True, 0), (False, 1)])
def test_forked_workers_cannot_use_the_device_that_they_inherit(
    recorded: bool, told: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a DataLoader."""
    (tmp_path / "nvidia-uvm").touch()
    program = tmp_path / "program.py"
    write = "open(f\"{os.environ['FTAX_RUN_FOLDER']}/{os.getpid()}-1.activity\", 'w').close()\n"
    program.write_text(
        "import multiprocessing, os, time\n"
        f"file = open({str(tmp_path / 'nvidia-uvm')!r})\n"
        f"{write if recorded else ''}"
        "fork = multiprocessing.get_context('fork')\n"
        "workers = [fork.Process(target=time.sleep, args=(2,)) for _ in range(2)]\n"
        "for worker in workers: worker.start()\n"
        "for worker in workers: worker.join()\n"
    )
    monkeypatch.setattr("ftax_run.watcher._ASK_EVERY", 20)
    account = watch([sys.executable, str(program)], 1000)
    assert len({process.pid for process in account.processes if process.command}) == 3
    assert sum(process.problem != "" for process in account.processes) == told
