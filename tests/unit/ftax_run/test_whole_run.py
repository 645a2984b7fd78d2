"""A program without a device, watched from its start to its end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ftax_run.causes import GIL, WAIT
from ftax_run.cli import run, watch
from ftax_run.errors import RunError
from ftax_run.report import describe
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
    assert spent.get("spin", 0) > 0.6 * host.total
    assert host.total == pytest.approx(sum(host.spent.values()))
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
    assert causes[GIL] > 0.05 * process.host.total
    assert spent["hold", GIL] > 0.8 * causes[GIL]  # the thread that has it meanwhile
    assert causes[WAIT] < 0.02 * process.host.total


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


def test_an_iteration_that_is_never_called(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(STEPS)
    account = watch([sys.executable, str(program)], 1000, "__main__:train")
    assert "__main__:train was not called twice, or is a coroutine" in "\n".join(describe(account))


@pytest.mark.parametrize("place", ["train_step", "main:", ":step"])
def test_an_iteration_that_is_no_place(place: str) -> None:
    with pytest.raises(RunError, match="give module:function, such as __main__:train_step"):
        run(["--iteration", place, __file__])


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
