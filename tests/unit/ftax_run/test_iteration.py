"""Marks of a program that says itself what an iteration is."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

HEAD = "import os, sys, time\nimport ftax_run\n"
LOOP = "def loop(count):\n    for _ in range(count):\n        with ftax_run.iteration(): pass\n"


def run(source: str, folder: Path | None) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "FTAX_RUN_FOLDER"}
    if folder is not None:
        environment["FTAX_RUN_FOLDER"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-c", HEAD + LOOP + source], env=environment, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def read(path: Path) -> list[tuple[int, int]]:
    content = path.read_bytes()
    assert len(content) % 24 == 0
    return [(start, end) for start, end, _ in struct.iter_unpack("<QQQ", content)]


def check(marks: list[tuple[int, int]]) -> None:
    times = [time for mark in marks for time in mark]
    assert times == sorted(times)


@pytest.mark.parametrize("count", [0, 1, 3, 63, 64, 65, 500])
def test_marks_of_each_iteration(tmp_path: Path, count: int) -> None:
    said = run(
        f"begin = time.monotonic_ns(); loop({count})\nprint(os.getpid(), begin, "
        "time.monotonic_ns())",
        tmp_path,
    )
    pid, begin, end = map(int, said.split())
    if not count:
        assert all(not path.stat().st_size for path in tmp_path.iterdir())
        return
    assert list(tmp_path.iterdir()) == [tmp_path / f"{pid}.marks"]
    marks = read(tmp_path / f"{pid}.marks")
    assert len(marks) == count
    check([(begin, begin), *marks, (end, end)])


def test_an_iteration_takes_as_long_as_its_body(tmp_path: Path) -> None:
    run("with ftax_run.iteration(): time.sleep(0.05)", tmp_path)
    (path,) = tmp_path.iterdir()
    ((start, end),) = read(path)
    assert end - start >= 50_000_000


def test_without_a_watcher_nothing_is_written(tmp_path: Path) -> None:
    assert run(f"os.chdir({str(tmp_path)!r}); loop(200); print('end')", None) == "end\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("watched", [False, True])
def test_an_error_passes_through(tmp_path: Path, watched: bool) -> None:
    source = """
try:
    with ftax_run.iteration() as value:
        assert value is None
        raise KeyError("mine")
except KeyError as error:
    print(error.args[0])
"""
    assert run(source, tmp_path if watched else None) == "mine\n"
    if watched:
        (path,) = tmp_path.iterdir()
        assert len(read(path)) == 1


INSIDE = """
import threading
def other():
    loop(3)
with ftax_run.iteration():
    loop(2)
    thread = threading.Thread(target=other)
    thread.start(); thread.join()
loop(1)
thread = threading.Thread(target=other)
thread.start(); thread.join()
"""


def test_what_begins_in_an_iteration_is_a_part_of_it(tmp_path: Path) -> None:
    run(INSIDE, tmp_path)
    (path,) = tmp_path.iterdir()
    assert len(read(path)) == 1 + 1 + 3
    check(read(path))
    threads = [thread for _, _, thread in struct.iter_unpack("<QQQ", path.read_bytes())]
    assert threads[0] == threads[1] != threads[2] == threads[4]


def test_a_fork_in_an_iteration(tmp_path: Path) -> None:
    source = """
with ftax_run.iteration():
    child = os.fork()
    if child == 0:
        loop(2)
if child:
    os.waitpid(child, 0)
print(os.getpid(), end=" ")
"""
    child, parent = run(source, tmp_path).split()
    assert len(read(tmp_path / f"{parent}.marks")) == 1
    check(read(tmp_path / f"{child}.marks"))


def test_a_forked_child_has_its_own(tmp_path: Path) -> None:
    source = """
loop(5)
child = os.fork()
if child == 0:
    loop(7)
    sys.exit()
os.waitpid(child, 0)
loop(2)
print(os.getpid(), child)
"""
    parent, child = run(source, tmp_path).split()
    assert {path.name for path in tmp_path.iterdir()} == {f"{parent}.marks", f"{child}.marks"}
    marks, own = read(tmp_path / f"{parent}.marks"), read(tmp_path / f"{child}.marks")
    assert (len(marks), len(own)) == (7, 7)
    check(marks[:5] + own + marks[5:])


def test_a_child_of_multiprocessing(tmp_path: Path) -> None:
    source = """
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=loop, args=(3,))
child.start(); child.join()
print(child.pid, child.exitcode)
"""
    pid, code = run(source, tmp_path).split()
    assert code == "0"
    assert len(read(tmp_path / f"{pid}.marks")) == 3


@pytest.mark.parametrize("count", [3, 200])
def test_a_program_that_outlives_its_watcher(tmp_path: Path, count: int) -> None:
    assert run(f"loop({count}); print('end')", tmp_path / "gone") == "end\n"
