"""Programs that are started, built or guarded in other ways than a script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ftax_run import activities, python_process, watcher
from ftax_run.account import Account
from ftax_run.causes import UNSEEN
from ftax_run.cli import watch
from ftax_run.errors import UnknownPythonError
from ftax_run.python_process import PythonProcess, explain_refusal, find_python
from ftax_run.report import describe

STREAMS = Path(__file__).parent / "streams"

SPIN = """
import time
def spin():
    end = time.perf_counter() + {seconds}
    while time.perf_counter() < end:
        pass
spin()
"""
# What follows is installed in a process of Python, before it goes on or becomes another program.
NO_READING = """
import ctypes, os, platform, struct
def deny_reading():
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 310, "aarch64": 270}[platform.machine()]
    words = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
    content = b"".join(struct.pack("<HBBI", *word) for word in words)
    filters = ctypes.create_string_buffer(content)
    program = struct.pack("<HxxxxxxQ", len(words), ctypes.addressof(filters))
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, program, 0, 0) == 0  # PR_SET_SECCOMP
    assert libc.process_vm_readv(os.getpid(), None, 0, None, 0, 0) == -1
deny_reading()
"""
NO_TRACING = """
import ctypes
ctypes.CDLL(None).prctl(24, 19, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_SYS_PTRACE: of root
"""
HIDE = """
import ctypes
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
"""
BECOME_NOBODY = "import os\nos.setgid(65534)\nos.setuid(65534)\n"
BECOME = "import os, sys\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"


def run(folder: Path, *words: str, guard: str = "") -> subprocess.CompletedProcess[str]:
    """A command that is watched; ``guard`` is run in the process that becomes `ftax run`."""
    ours = ["-m", "ftax_run", "--", *words]
    return subprocess.run(
        [sys.executable, "-c", guard + BECOME, *ours], cwd=folder, text=True, capture_output=True,
        timeout=60, check=False,
    )  # fmt: skip


def write(folder: Path, source: str, name: str = "program.py") -> str:
    (folder / name).write_text(source)
    return name


def build(folder: Path, source: str, name: str, *flags: str, compiler: str = "gcc") -> Path:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    (folder / "program.c").write_text(source)
    words = [compiler, "-O1", "-o", str(folder / name), str(folder / "program.c"), *flags]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        pytest.skip(f"{compiler} cannot make it here: {done.stderr[-200:]}")
    return folder / name


HELLO = '#include <stdio.h>\nint main(void) { puts("hello"); return 7; }\n'


@pytest.mark.parametrize(
    ("compiler", "flag"), [("gcc", "-static"), ("gcc", "-s"), ("musl-gcc", "-s")]
)
def test_a_program_without_python(tmp_path: Path, compiler: str, flag: str) -> None:
    program = build(tmp_path, HELLO, "hello", flag, compiler=compiler)
    done = run(tmp_path, str(program))
    assert (done.stdout, done.returncode) == ("hello\n", 7)
    (line,) = done.stderr.strip().splitlines()
    assert "no process used a GPU, or ran a Python that is known" in line


@pytest.mark.parametrize("kind", ["renamed", "stripped", "linked", "deleted"])
def test_an_executable_that_is_not_called_python(python: str, tmp_path: Path, kind: str) -> None:
    app = tmp_path / "app"
    if kind == "linked":
        app.symlink_to(python)
    else:
        shutil.copy(Path(python).resolve(), app)
    if kind == "stripped":
        if shutil.which("strip") is None:
            pytest.skip("there is no strip")
        subprocess.run(["strip", str(app)], check=True, timeout=60)
    ask = "import sys, sysconfig; print(sys.base_prefix, sysconfig.get_config_var('LIBDIR'))"
    said = subprocess.run([python, "-c", ask], stdout=subprocess.PIPE, text=True, check=True)
    home, libraries = said.stdout.split()
    source = SPIN.format(seconds=0.5)
    if kind == "deleted":
        source = f"import os; os.remove({str(app)!r}){source}"
    variables = [f"PYTHONHOME={home}", f"LD_LIBRARY_PATH={libraries}"]
    done = run(tmp_path, "env", *variables, str(app), write(tmp_path, source))
    assert done.returncode == 0
    assert "program.py:5 spin" in done.stderr


@pytest.mark.parametrize("flags", ["-I", "-S", "-E -s -B", "-O", "-X dev", "-u -q"])
def test_options_of_python(tmp_path: Path, flags: str) -> None:
    name = write(tmp_path, SPIN.format(seconds=0.4))
    done = run(tmp_path, sys.executable, *flags.split(), name)
    assert done.returncode == 0
    assert "program.py:5 spin" in done.stderr


EMBEDDED = """
#include <Python.h>
int main(void) {
  Py_Initialize();
  int code = PyRun_SimpleString("import time\\n"
    "def spin():\\n"
    "    end = time.perf_counter() + 0.5\\n"
    "    while time.perf_counter() < end: pass\\n"
    "spin()\\n");
  return code || Py_FinalizeEx();
}
"""
LIST_FLAGS = """
import sys, sysconfig
names = ("INCLUDEPY", "LIBDIR", "LIBPL", "LDVERSION", "LIBS", "SYSLIBS")
include, folder, other, version, libraries, more = map(sysconfig.get_config_var, names)
print(sys.base_prefix, f"-I{include}", f"-L{folder}", f"-L{other}", f"-Wl,-rpath,{folder}",
      f"-lpython{version}", libraries, more)
"""


def test_python_in_another_program(python: str, tmp_path: Path) -> None:
    said = subprocess.run([python, "-c", LIST_FLAGS], stdout=subprocess.PIPE, text=True, check=True)
    home, *flags = said.stdout.split()
    server = build(tmp_path, EMBEDDED, "server", *flags)
    done = run(tmp_path, "env", f"PYTHONHOME={home}", str(server))
    assert done.returncode == 0
    assert "<string>:4 spin" in done.stderr


def test_a_filter_of_the_programs_calls_does_not_matter(tmp_path: Path) -> None:
    name = write(tmp_path, NO_READING + SPIN.format(seconds=0.5))
    done = run(tmp_path, sys.executable, name)
    assert done.returncode == 0
    assert " spin  " in done.stderr


def test_without_the_call_that_reads_memory_its_file_is_read(tmp_path: Path) -> None:
    name = write(tmp_path, SPIN.format(seconds=1))
    done = run(tmp_path, sys.executable, name, guard=NO_READING)
    assert done.returncode == 0
    assert "program.py:5 spin" in done.stderr


def test_a_program_that_hides_its_memory(tmp_path: Path) -> None:
    name = write(tmp_path, f"{HIDE}{SPIN.format(seconds=0.3)}print('done')")
    done = run(tmp_path, sys.executable, name, guard=NO_TRACING)
    assert (done.stdout, done.returncode) == ("done\n", 0)
    remedy = "allow ptrace" if os.geteuid() == 0 else "run `ftax run` as that user or root"
    assert "(python" in done.stderr and "may not be read, so it has no stacks" in done.stderr
    assert "hides itself" in done.stderr and remedy in done.stderr


def test_a_python_that_is_about_to_be_loaded_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def find_later(pid: int) -> PythonProcess | None:
        asked.append(pid)
        if asked.count(pid) <= 3:
            raise UnknownPythonError("this Python 3.13 does not say where its frames lie")
        return find_python(pid)

    monkeypatch.setattr(watcher, "find_python", find_later)
    program = tmp_path / write(tmp_path, SPIN.format(seconds=0.5))
    account = watch([sys.executable, str(program)], 500)
    (process,) = account.processes
    assert process.problem == ""
    assert account.samples > 10


RECORDED = """
import os, sys, time
for source, name in ((sys.argv[1], "activity"), (sys.argv[2], "names")):
    with open(source, "rb") as file:
        content = file.read()
    with open(f"{os.environ['FTAX_RUN_FOLDER']}/{os.getpid()}-1.{name}", "wb") as file:
        file.write(content)
time.sleep(0.4)
"""


def watch_records(
    folder: Path, records: np.ndarray, start: int, end: int, names: dict[str, str]
) -> Account:
    """What is found where a driver has written these in one phase."""
    phase = np.zeros(1, dtype=activities.RECORD)
    phase["start"], phase["end"] = start, end
    phase["kind"], phase["symbol"] = activities.PHASE, activities.ALL
    (folder / "a").write_bytes(np.concatenate([records, phase]).tobytes())
    (folder / "n").write_text("".join(f"{number} {name}\n" for number, name in names.items()))
    (folder / "program.py").write_text(RECORDED)
    words = [str(folder / name) for name in ("program.py", "a", "n")]
    return watch([sys.executable, *words], 500)


@pytest.mark.parametrize("lost", [0, 100])
def test_holes_of_lost_records_are_no_work_that_waits(tmp_path: Path, lost: int) -> None:
    """Two kernels each millisecond, launched at once; the second begins 600 us after the first."""
    records = np.zeros(40, dtype=activities.RECORD)
    for number, record in enumerate(records):
        base, order = number // 4 * 1_000_000, number % 4
        begin = base + (0, 2000, 10_000, 710_000)[order]
        record["start"], record["end"] = begin, begin + (1000, 1000, 100_000, 100_000)[order]
        record["correlation"] = number // 4 * 2 + order % 2
        record["kind"] = activities.CALL if order < 2 else activities.KERNEL
        record["symbol"] = 1 if order < 2 else order
    more = np.zeros(1, dtype=activities.RECORD)
    more["kind"], more["symbol"], more["start"] = activities.LOST, lost, 1
    names = {"1": "cudaLaunchKernel", "2": "first", "3": "second"}
    account = watch_records(tmp_path, np.concatenate([records, more]), 1, 10_000_000, names)
    (process,) = account.processes
    window = process.find_steady()
    assert window.count >= 8
    assert process.lost == lost
    assert (window.blocked > 0) == (not lost)
    assert window.blocked + window.gaps > 0.5 * window.wall


def test_without_stacks_the_device_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> None:
        raise PermissionError(pid)

    monkeypatch.setattr(watcher, "find_python", refuse)
    with np.load(STREAMS / "eager_planted_1ms.npz") as stream:
        records, meta = stream["records"], json.loads(stream["meta"].tobytes())
    account = watch_records(tmp_path, records, meta["start"], meta["end"], meta["names"])
    (process,) = account.processes
    window = process.find_steady()
    assert window.count > 10
    assert 0.08 < window.busy / window.wall < 0.14
    assert window.sum_causes()[UNSEEN] > 0.8 * window.wall
    said = "\n".join(describe(account))
    assert "idle: not sampled" in said
    assert "may not be read, so it has no stacks" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_program_of_another_user(tmp_path: Path) -> None:
    name = write(tmp_path, f"{BECOME_NOBODY}{SPIN.format(seconds=0.3)}print('done')")
    done = run(tmp_path, sys.executable, name, guard=NO_TRACING)
    assert (done.stdout, done.returncode) == ("done\n", 0)
    assert "it is of user 65534, or hides itself: run `ftax run` as that user" in done.stderr


def test_a_sandbox_with_numbers_of_processes_for_itself(tmp_path: Path) -> None:
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("namespaces cannot be made here")
    name = write(tmp_path, SPIN.format(seconds=0.3))
    done = run(tmp_path, *apart, sys.executable, name)
    assert done.returncode == 0
    assert "start `ftax run` inside it" in done.stderr


@pytest.mark.parametrize(
    ("scope", "remedy"), [(2, "sudo sysctl kernel.yama.ptrace_scope=1"), (3, "boot with 1")]
)
def test_a_system_that_restricts_debuggers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: int, remedy: str
) -> None:
    (tmp_path / "scope").write_text(f"{scope}\n")
    monkeypatch.setattr(python_process, "_PTRACE_SCOPE", tmp_path / "scope")
    said = explain_refusal(os.getpid())
    assert f"kernel.yama.ptrace_scope is {scope}: {remedy}" in said


@pytest.mark.parametrize("scope", ["0", "1", None])
def test_a_container_that_forbids_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str | None
) -> None:
    if scope is not None:
        (tmp_path / "scope").write_text(scope)
    monkeypatch.setattr(python_process, "_PTRACE_SCOPE", tmp_path / "scope")
    assert "--cap-add=SYS_PTRACE" in explain_refusal(os.getpid())
