"""A program without a device, watched from its start to its end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ftax_run.causes import WAIT
from ftax_run.cli import watch
from ftax_run.report import describe

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
    assert 0.5 < host.wall / 97 / 8e6 < 1.5
    spent: dict[str, float] = {}
    for (place, cause), amount in host.spent.items():
        if cause == WAIT:
            spent[place[2]] = spent.get(place[2], 0) + amount
    assert spent.get("spin", 0) > 0.6 * host.total
    assert host.total == pytest.approx(sum(host.spent.values()))
    assert "97 iterations that the program marks" in "\n".join(describe(account))


def test_a_gpu_that_nothing_is_recorded_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device file is the mark of a process that has initialised CUDA."""
    (tmp_path / "nvidia-uvm").touch()
    program = tmp_path / "program.py"
    program.write_text(f"import time\nfile = open({str(tmp_path / 'nvidia-uvm')!r})\ntime.sleep(3)")
    monkeypatch.setattr("ftax_run.watcher._ASK_EVERY", 20)
    text = "\n".join(describe(watch([sys.executable, str(program)], 1000)))
    assert "uses a GPU, and its driver did not load what records it: another profiler" in text
    assert "No work on a GPU was seen" in text
