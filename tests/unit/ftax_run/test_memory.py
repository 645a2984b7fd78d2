"""What `ftax run` keeps, of a program that makes new code and new processes all the time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from ftax_run import records, watcher
from ftax_run.account import ProcessAccount
from ftax_run.cli import watch
from ftax_run.sampler import SAMPLE, News, Sampler

MAKING = """
import itertools, time
SOURCE = '''
def outer_{0}(end):
    inner_{0}(end)
def inner_{0}(end):
    while clock() < end: pass
outer_{0}(clock() + 0.0003)
'''
end = time.perf_counter() + 20
for number in itertools.count():
    exec(compile(SOURCE.format(number), f"made_{number}.py", "exec"), {"clock": time.perf_counter})
    if time.perf_counter() > end:
        break
"""


def read_memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


@pytest.mark.slow
@pytest.mark.timing
def test_new_code_for_ever_takes_no_more_memory(tmp_path: Path) -> None:
    (tmp_path / "making.py").write_text(MAKING)
    record = tmp_path / "run.jsonl"
    words = ["--rate", "8000", "-o", str(record), "--", sys.executable, str(tmp_path / "making.py")]
    with subprocess.Popen(
        [sys.executable, "-m", "ftax_run", *words], stderr=subprocess.PIPE
    ) as run:
        time.sleep(12)  # until as much is kept as may be
        before = read_memory_mb(run.pid)
        time.sleep(7)
        after = read_memory_mb(run.pid)
        run.communicate(timeout=30)
    assert after < before + 16  # without a bound 40 and more
    (account,) = records.read(record)
    host = account.processes[0].host
    assert host.total > 10_000  # so that far more code was met than is kept apart
    assert sum(host.spent.values()) == pytest.approx(host.wall, rel=0.01)


SHORT = '''
import os, subprocess, sys, time
CHILD = """
import os, time
open(f"{os.environ['FTAX_RUN_FOLDER']}/{os.getpid()}.marks", "wb").close()
time.sleep(0.15)
"""
for _ in range(4):
    subprocess.run([sys.executable, "-S", "-c", CHILD], check=True)
time.sleep(0.1)
print(len(os.listdir(os.environ["FTAX_RUN_FOLDER"])))
'''


def test_processes_that_have_ended_are_not_all_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short.py").write_text(SHORT)
    monkeypatch.setattr(watcher, "_MOST_ENDED", 2)
    account = watch([sys.executable, str(tmp_path / "short.py")], 500)
    assert account.exit_code == 0
    assert 2 <= len(account.processes) <= 4  # the first, which lives, and two of its children
    assert account.samples > 100
    assert int(capfd.readouterr().out) <= 2  # files of those that are kept


class Told:
    """In the place of a sampler: a sample of a process every 10 ms, a second at a time."""

    def __init__(self) -> None:
        self.seconds = 0

    def drain(self) -> News:
        samples = np.zeros(100, SAMPLE)
        samples["time_ns"] = 1_000_000_000 * self.seconds + 10_000_000 * np.arange(100)
        self.seconds += 1
        return News(samples, {}, {}, 0, 0, (0, 0))


@pytest.mark.parametrize(("waits", "kept_s"), [(False, 3), (True, 10)])
def test_samples_are_kept_for_windows_and_for_iterations_that_last(
    tmp_path: Path, waits: bool, kept_s: int
) -> None:
    seen = watcher.Watcher(os.getpid(), tmp_path, cast(Sampler, Told()))
    if waits:
        first = np.zeros(1, SAMPLE)
        seen._processes[1] = watcher.Process(ProcessAccount(1), samples=[first])
    for _ in range(30):
        seen._collect()
    kept = np.concatenate(seen._recent)["time_ns"]
    assert kept[-1] - kept[0] == pytest.approx(1e9 * kept_s, abs=1e9)
