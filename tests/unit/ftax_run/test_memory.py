"""What `ftax run` keeps, of a program that makes new code and new processes all the time."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ftax_run import records, watcher
from ftax_run.cli import watch

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
        time.sleep(12)  # until samples of 10 s are kept
        before = read_memory_mb(run.pid)
        time.sleep(7)
        after = read_memory_mb(run.pid)
        run.communicate(timeout=30)
    assert after < before + 16  # without a bound 40 and more
    (account,) = records.read(record)
    host = account.processes[0].host
    assert host.total > 10_000  # so that far more code was met than is kept apart
    assert sum(host.spent.values()) > 0.75 * host.total


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
