"""Stacks of programs whose stacks are known."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ftax_run.errors import UnknownPythonError
from ftax_run.launch import list_processes, read_identity
from ftax_run.python_process import find_python
from ftax_run.sampler import Code, parse_lines

Launch = Callable[..., subprocess.Popen[str]]
Look = Callable[..., Any]
Ask = Callable[..., str]

SHARES = """
from time import perf_counter
def first(end):
    while perf_counter() < end: pass
def second(end):
    while perf_counter() < end: pass
def third(end):
    while perf_counter() < end: pass
print("ready", flush=True)
while True:
    first(perf_counter() + 0.010)
    second(perf_counter() + 0.005)
    third(perf_counter() + 0.005)
"""


@pytest.mark.timing
def test_shares_of_samples_are_shares_of_time(python: str, launch: Launch, look: Look) -> None:
    program = launch(python, SHARES)
    seen = look([program.pid], rate=4000, seconds=1.5)
    names = Counter(seen.list_names(stack)[-1] for stack in seen.samples["stack"])
    total = sum(names.values())
    assert total > 1000
    for name, share in (("first", 0.5), ("second", 0.25), ("third", 0.25)):
        assert names[name] / total == pytest.approx(share, rel=0.1)
    assert seen.lost == 0
    assert np.all(np.diff(seen.samples["time_ns"]) > 0)


DEPTH = 60


@pytest.mark.parametrize("inner", ["time.sleep(60)", "while True: pass"])
def test_a_deep_stack_is_whole_and_in_order(
    python: str, launch: Launch, look: Look, inner: str
) -> None:
    lines = ["import time"]
    for number in range(DEPTH - 1):
        lines += [f"def step_{number}():", f"    return step_{number + 1}() + 1"]
    lines += [f"def step_{DEPTH - 1}():", "    print('ready', flush=True)", f"    {inner}"]
    lines += ["step_0()"]
    program = launch(python, "\n".join(lines))
    seen = look([program.pid])
    wanted = [(f"step_{number}", 2 * number + 3) for number in range(DEPTH - 1)]
    wanted = [("<module>", len(lines)), *wanted, (f"step_{DEPTH - 1}", len(lines) - 1)]
    # The first of them may come before the program is where it stays.
    stacks = set(seen.samples["stack"][len(seen.samples) // 2 :].tolist())
    assert stacks
    for stack in stacks:
        frames = seen.list_frames(stack)
        assert [(name, line) for _, line, name in frames] == wanted
        assert {Path(file).name for file, _, _ in frames} == {"program.py"}


GENERATORS = """
import time
def inner():
    yield 1
    time.sleep(60)
def outer():
    yield from inner()
def use():
    for _ in outer():
        print("ready", flush=True)
use()
"""


def test_frames_of_generators(python: str, launch: Launch, look: Look) -> None:
    program = launch(python, GENERATORS)
    seen = look([program.pid])
    frames = [(name, line) for _, line, name in seen.list_frames(seen.samples["stack"][-1])]
    assert frames == [("<module>", 11), ("use", 9), ("outer", 7), ("inner", 5)]


THROUGH_C = """
import functools
import time
def compare(one, other):
    print("ready", flush=True)
    time.sleep(60)
def order():
    return sorted([2, 1], key=functools.cmp_to_key(compare))
order()
"""


def test_frames_on_both_sides_of_a_call_through_c(python: str, launch: Launch, look: Look) -> None:
    program = launch(python, THROUGH_C)
    seen = look([program.pid])
    assert seen.list_names(seen.samples["stack"][-1]) == ("<module>", "order", "compare")


RECURSION = """
import sys
import time
sys.setrecursionlimit(30_000)
def descend(left):
    if left:
        return descend(left - 1) + 1
    print("ready", flush=True)
    time.sleep(60)
descend({depth})
"""


def test_a_stack_with_too_many_frames_is_left_out(python: str, launch: Launch, look: Look) -> None:
    program = launch(python, RECURSION.format(depth=15_000))
    seen = look([program.pid], least=20)
    assert len(seen.samples) == 0
    assert seen.torn >= 20


@pytest.mark.parametrize("depth", [150, 5000])
def test_a_stack_of_many_frames(python: str, launch: Launch, look: Look, depth: int) -> None:
    program = launch(python, RECURSION.format(depth=depth))
    seen = look([program.pid])
    stack = int(seen.samples["stack"][-1])
    assert [name for _, _, name in seen.places.list_frames(stack)] == (
        ["descend"] * (depth + 1) + ["<module>"]
    )
    outer = seen.list_names(stack)  # as it is drawn and kept
    assert outer[:2] == ("<module>", "descend") and outer[-1] == "descend"
    assert len(outer) == min(depth + 2, 201)
    assert seen.torn == 0


THREADS = """
import threading
import time
ids = {}
ready = threading.Barrier(4)
def spin():
    ids["spin"] = threading.get_native_id()
    ready.wait()
    while True: pass
def doze():
    ids["doze"] = threading.get_native_id()
    ready.wait()
    time.sleep(60)
def await_event():
    ids["await_event"] = threading.get_native_id()
    ready.wait()
    threading.Event().wait(60)
for work in (spin, doze, await_event):
    threading.Thread(target=work, daemon=True).start()
def rest():
    time.sleep(60)
ready.wait()
ids["rest"] = threading.get_native_id()
print("ready", flush=True)
print(ids, flush=True)
rest()
"""


@pytest.mark.timing
def test_threads_by_the_ids_of_the_system(python: str, launch: Launch, look: Look) -> None:
    program = launch(python, THREADS)
    assert program.stdout is not None
    ids = json.loads(program.stdout.readline().replace("'", '"'))
    assert ids["rest"] == program.pid
    time.sleep(0.1)  # until each has come to where it stays
    seen = look([program.pid], seconds=0.3, least=400)
    assert set(seen.samples["thread"].tolist()) == set(ids.values())
    for name, thread in ids.items():
        own = seen.samples[seen.samples["thread"] == thread]
        assert all(name in seen.list_names(stack) for stack in np.unique(own["stack"]))
        others = set(ids) - {name}
        assert not any(others & {*seen.list_names(stack)} for stack in np.unique(own["stack"]))
        state = ord("R" if name == "spin" else "S")
        assert np.mean(own["state"] == state) > 0.9, name


NAPS = """
from time import sleep
def first():
    sleep(0.010)
def second():
    sleep(0.005)
print("ready", flush=True)
while True:
    first()
    second()
"""


@pytest.mark.timing
def test_a_thread_that_sleeps_is_where_it_sleeps_now(
    python: str, launch: Launch, look: Look
) -> None:
    """A stack is taken again while its thread has no CPU, and no longer."""
    program = launch(python, NAPS)
    seen = look([program.pid], rate=4000, seconds=1.5)
    names = Counter(seen.list_names(stack)[-1] for stack in seen.samples["stack"])
    assert names["first"] / sum(names.values()) == pytest.approx(2 / 3, rel=0.1)
    assert names["second"] / sum(names.values()) == pytest.approx(1 / 3, rel=0.1)
    # One that sleeps is read once a nap: the others take a fraction of that.
    took = np.sort(seen.samples["took_ns"])
    assert np.mean(seen.samples["state"] == ord("S")) > 0.9
    assert took[len(took) // 2] < 0.5 * took[-len(took) // 50]


SCRIPTS = """
import time
class Größe:
    def länge(self):
        длина()
def длина():
    𠀀()
def 𠀀():
    print("ready", flush=True)
    time.sleep(60)
Größe().länge()
"""


@pytest.mark.parametrize("name", ["größe.py", "длина 長さ.py", "𠀀🐍.py"])
def test_names_in_other_scripts(
    python: str, launch: Launch, look: Look, tmp_path: Path, name: str
) -> None:
    program = launch(python, SCRIPTS, name)
    seen = look([program.pid])
    frames = seen.list_frames(seen.samples["stack"][-1])
    assert [name for _, _, name in frames] == ["<module>", "Größe.länge", "длина", "𠀀"]
    assert {file for file, _, _ in frames} == {str(tmp_path / name)}


LIST_CODES = """
import importlib.util, json, sys, types
def walk(code):
    yield code
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            yield from walk(item)
for name in sys.argv[1:]:
    path = importlib.util.find_spec(name).origin
    with open(path, encoding="utf-8") as file:
        for code in walk(compile(file.read(), path, "exec")):
            print(json.dumps([
                code.co_qualname, code.co_firstlineno, code.co_linetable.hex(), len(code.co_code),
                list(code.co_lines()),
            ]))
"""
MODULES = (
    "argparse", "ast", "asyncio.base_events", "dataclasses", "datetime", "decimal", "enum",
    "functools", "inspect", "json.decoder", "pickle", "subprocess", "typing", "unittest.mock",
)  # fmt: skip


def test_lines_are_those_that_python_gives(python: str, ask: Ask) -> None:
    rows = [json.loads(line) for line in ask(python, LIST_CODES, *MODULES).splitlines()]
    assert len(rows) > 500
    for name, first, table, size, ranges in rows:
        content = bytes.fromhex(table)
        starts, lines = parse_lines(content, first)
        code = Code(1, first, "file.py", name, content)
        met = 0
        for begin, end, line in ranges:
            for offset in range(begin, end, 2):
                met += 1
                place = int(np.searchsorted(starts, offset, side="right")) - 1
                assert lines[place] == (line or 0), (name, offset)
                assert code.find_line(offset) == (line or first), (name, offset)
        assert met == size // 2


@pytest.mark.parametrize("table", [b"", b"\xe8", b"\xff\xff\xff", b"\x80", bytes(range(200, 256))])
def test_a_broken_line_table_is_no_error(table: bytes) -> None:
    code = Code(1, 7, "file.py", "name", table)
    assert all(isinstance(code.find_line(offset), int) for offset in (0, 2, 10**6))


ENDING = """
import sys, time
print("ready", flush=True)
end = time.perf_counter() + 0.4
def work():
    return [work, {}]
while time.perf_counter() < end:
    work()
"""


@pytest.mark.parametrize("kills", [False, True])
def test_a_process_that_ends(python: str, launch: Launch, look: Look, kills: bool) -> None:
    program = launch(python, ENDING)
    if kills:
        seen = look([program.pid], rate=10_000, seconds=0.1)
    else:
        seen = look([program.pid], rate=10_000, seconds=0.5, until=lambda: program.poll() == 0)
        assert program.returncode == 0
    assert len(seen.samples)
    outer = {seen.list_names(stack)[0] for stack in np.unique(seen.samples["stack"])}
    assert "<module>" in outer


def test_a_process_that_is_killed_while_it_is_sampled(
    python: str, launch: Launch, look: Look
) -> None:
    program, other = launch(python, SHARES), launch(python, SHARES, "other.py")
    killed = []

    def kill() -> bool:
        if not killed:
            killed.append(time.monotonic())
            program.send_signal(signal.SIGKILL)
        return program.poll() is not None and time.monotonic() > killed[0] + 0.2

    seen = look([program.pid, other.pid], rate=10_000, until=kill)
    assert program.returncode == -signal.SIGKILL
    last = {
        index: seen.samples["time_ns"][seen.samples["process"] == index][-1] for index in (0, 1)
    }
    assert last[1] > last[0]  # who lives is sampled on
    with pytest.raises(OSError, match=r"."):
        find_python(program.pid)
    assert read_identity(program.pid) is None
    assert list(list_processes(program.pid)) == [program.pid]


FORK = """
import os, time
def in_child():
    time.sleep(60)
def in_parent():
    time.sleep(60)
child = os.fork()
if child == 0:
    in_child()
print("ready", flush=True)
print(child, flush=True)
in_parent()
"""


def test_a_forked_child(python: str, launch: Launch, look: Look) -> None:
    program = launch(python, FORK)
    assert program.stdout is not None
    child = int(program.stdout.readline())
    try:
        assert list(list_processes(program.pid)) == [program.pid, child]
        time.sleep(0.05)
        seen = look([program.pid, child])
        for index, (pid, name) in enumerate(((program.pid, "in_parent"), (child, "in_child"))):
            own = seen.samples[seen.samples["process"] == index]
            assert set(own["thread"].tolist()) == {pid}
            assert seen.list_names(own["stack"][-1]) == ("<module>", name)
    finally:
        os.kill(child, signal.SIGKILL)


EXEC = """
import os, sys
if len(sys.argv) == 1:
    print("ready", flush=True)
    input()
    command = {command}
    os.execvp(command[0], command)
print("again", flush=True)
input()
"""


def wait_for(ask: Callable[[], Any]) -> bool:
    end = time.monotonic() + 20
    while not ask() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(ask())


def test_another_program_after_exec(python: str, launch: Launch) -> None:
    program = launch(python, EXEC.format(command=["sleep", "60"]))
    assert program.stdin is not None
    before = read_identity(program.pid)
    assert before is not None
    assert read_identity(program.pid) == before
    program.stdin.write("\n")
    program.stdin.flush()
    assert wait_for(lambda: read_identity(program.pid) != before)
    assert find_python(program.pid) is None


def test_the_same_python_after_exec(python: str, launch: Launch) -> None:
    program = launch(python, EXEC.format(command="[sys.executable, *sys.argv, 'again']"))
    assert program.stdin is not None and program.stdout is not None
    before, place = read_identity(program.pid), find_python(program.pid)
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.stdout.readline() == "again\n"
    if find_python(program.pid) == place:
        pytest.skip("this Python lies where it lay")
    assert read_identity(program.pid) != before


def test_which_python_it_is(python: str, launch: Launch, ask: Ask) -> None:
    found = find_python(launch(python, SHARES).pid)
    assert found is not None
    said = ask(python, "import sys; print(list(sys.version_info[:3]))")
    assert list(found.version) == json.loads(said)


def test_an_old_python_is_refused(old_python: str, launch: Launch) -> None:
    program = launch(old_python, SHARES)
    with suppress(UnknownPythonError):
        assert find_python(program.pid) is None


def test_a_shell_is_no_python() -> None:
    shell = shutil.which("sh")
    assert shell is not None
    with subprocess.Popen([shell, "-c", "read line; exit 0"], stdin=subprocess.PIPE) as program:
        assert find_python(program.pid) is None
        program.communicate(b"\n")


# Of Python's own code that stands between a call of a class and its `__init__`.
SHIMS = ("<shim>", "__init__")
CHANGING = """
import importlib, itertools, sys
print("ready", flush=True)
SOURCE = '''
class Made_{0}:
    def call(self):
        return [made_{0}(n) for n in range(20)]
def made_{0}(n):
    x = n
    for i in range(20):
        x += i
    return x
Made_{0}().call()
'''
def make(number):
    exec(compile(SOURCE.format(number), f"made_{number}.py", "exec"), {})
def load(name):
    sys.modules.pop(name, None)
    importlib.import_module(name)
for number in itertools.count():
    make(number)
    if number % 4 == 0:
        load(MODULES[number // 4 % len(MODULES)])
"""
LOADED = ["colorsys", "textwrap", "string", "shlex", "fnmatch", "bisect", "heapq", "quopri"]
LIST_NAMES = """
import json, os, sys, types
def walk(code):
    yield code.co_qualname
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            yield from walk(item)
names = {}
for file in json.load(sys.stdin):
    path = file
    if file.startswith("<frozen "):
        name = file[8:-1].replace("importlib._bootstrap", "importlib/_bootstrap")
        path = os.path.join(os.path.dirname(os.__file__), name + ".py")
    with open(path, encoding="utf-8") as opened:
        names[file] = sorted(set(walk(compile(opened.read(), path, "exec"))))
print(json.dumps(names))
"""


@pytest.mark.timing
def test_code_that_comes_and_goes(
    python: str, launch: Launch, look: Look, ask: Ask, tmp_path: Path
) -> None:
    program = launch(python, f"MODULES = {LOADED}\n{CHANGING}")
    seen = look([program.pid], rate=15_000, seconds=1.5)
    assert program.poll() is None
    assert len(seen.samples) > 500
    others: dict[str, set[str]] = {}
    made = set()
    for code in seen.codes.values():
        if code.file in SHIMS:  # the test below is about these
            continue
        found = re.fullmatch(r"made_(\d+)\.py", code.file)
        if found is None:
            others.setdefault(code.file, set()).add(code.name)
            continue
        number = found[1]
        made.add(number)
        call = f"Made_{number}.call"
        assert code.name in {
            "<module>", f"Made_{number}", call, f"{call}.<locals>.<listcomp>", f"made_{number}",
        }  # fmt: skip
    assert made  # such a module lives for microseconds: how many are met is chance
    (tmp_path / "files.json").write_text(json.dumps(sorted(others)))
    with (tmp_path / "files.json").open() as file:
        known = json.loads(ask(python, LIST_NAMES, stdin=file))
    for path, names in others.items():
        assert names <= set(known[path]), path
    assert seen.torn < 0.05 * (seen.torn + len(seen.samples))


INITS = """
import time
class Made:
    def __init__(self, end):
        while time.perf_counter() < end: pass
def use():
    for number in range(1001):
        if number == 1000:
            print("ready", flush=True)
        Made(0.0 if number < 1000 else time.perf_counter() + 60)
use()
"""


def test_no_frame_of_pythons_own_stands_before_init(
    python: str, launch: Launch, look: Look
) -> None:
    program = launch(python, INITS)  # the call is made often enough to be specialised
    seen = look([program.pid])
    names = {seen.list_names(stack) for stack in np.unique(seen.samples["stack"][10:])}
    assert names == {("<module>", "use", "Made.__init__")}


GRAPH = """
def a():
    b()
    c()
def b():
    d()
def c():
    d()
    e()
def d():
    e()
def e():
    f()
    for _ in range(3): pass
def f():
    pass
def main():
    while True:
        a()
        d()
print("ready", flush=True)
main()
"""
CALLS = {
    number: found[1]
    for number, line in enumerate(GRAPH.splitlines(), 1)
    if (found := re.fullmatch(r" *(\w+)\(\)", line))
}


@pytest.mark.timing
def test_stacks_that_change_are_never_mixed(python: str, launch: Launch, look: Look) -> None:
    program = launch(python, GRAPH)
    seen = look([program.pid], rate=10_000, seconds=1.0)
    wrong = Counter()
    for stack in seen.samples["stack"].tolist():
        frames = seen.list_frames(stack)
        right = frames[0][2] == "<module>" and all(
            CALLS.get(line) == name for (_, line, _), (_, _, name) in pairwise(frames)
        )
        if not right:
            wrong[tuple((name, line) for _, line, name in frames)] += 1
    assert wrong.total() <= 0.05 * len(seen.samples), wrong.most_common(5)


SHORT_FUNCTIONS = """
import time
def work():
    for _ in range(300): pass
def other():
    for _ in range(300): pass
def main():
    while True:
        work()
        other()
print("ready", flush=True)
main()
"""


@pytest.mark.timing
def test_functions_of_microseconds_have_their_time(python: str, launch: Launch, look: Look) -> None:
    program = launch(python, SHORT_FUNCTIONS)
    seen = look([program.pid], seconds=1.0)
    names = Counter(seen.list_names(stack)[-1] for stack in seen.samples["stack"].tolist())
    assert names["main"] < 0.2 * names.total(), names
    assert names["work"] / names["other"] == pytest.approx(1, abs=0.3), names


SHORT_GENERATORS = """
def short():
    yield 1
    yield 2
def main():
    while True:
        for _ in short():
            pass
print("ready", flush=True)
main()
"""


@pytest.mark.timing
def test_no_stack_begins_with_a_generator(python: str, launch: Launch, look: Look) -> None:
    program = launch(python, SHORT_GENERATORS)
    seen = look([program.pid], rate=10_000, seconds=1.0)
    outer = Counter(seen.list_names(stack)[0] for stack in seen.samples["stack"].tolist())
    assert set(outer) == {"<module>"}


CALLERS = """
import time
def work(seconds):
    time.sleep(seconds)
def step():
    work(0.01)
    work(0.03)
print("ready", flush=True)
while True:
    step()
"""


@pytest.mark.timing
def test_a_wait_is_told_by_its_caller(python: str, launch: Launch, look: Look) -> None:
    program = launch(python, CALLERS)
    seen = look([program.pid], seconds=1.0)
    lines = Counter(
        frames[1][1]
        for stack in seen.samples["stack"].tolist()
        if len(frames := seen.list_frames(stack)) == 3
    )
    total = lines.total()
    assert total > 300
    assert lines[6] / total == pytest.approx(0.25, abs=0.05), lines
    assert lines[7] / total == pytest.approx(0.75, abs=0.05), lines
