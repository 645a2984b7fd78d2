"""What a program gets of `ftax run`: nothing that it would not have had without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from ftax_run.cli import run as run_here
from ftax_run.launch import read_identity
from ftax_run.records import read as read_runs
from ftax_run.watcher import Watcher

RUN = (sys.executable, "-m", "ftax_run")
_OURS = ("VIRTUAL_ENV", "CUDA_INJECTION64_PATH", "FTAX_RUN_FOLDER")


def make_environment(**variables: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in _OURS}
    return {**kept, **variables}


def run(
    folder: Path, *words: str, given: bytes = b"", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*RUN, *words], cwd=folder, env=make_environment(**variables), input=given,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip


def write(folder: Path, source: str, name: str = "program.py") -> str:
    (folder / name).write_text(source, encoding="utf-8")
    return name


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("pass", 0),
        ("raise SystemExit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("import time; time.sleep(0.3); raise SystemExit(255)", 255),
    ],
)
def test_the_exit_code_is_the_programs(tmp_path: Path, source: str, code: int) -> None:
    done = run(tmp_path, write(tmp_path, source))
    assert done.returncode == code
    assert done.stdout == b""
    assert done.stderr.strip()
    assert b"Traceback" not in done.stderr


def test_an_error_of_the_program_is_the_programs(tmp_path: Path) -> None:
    done = run(tmp_path, write(tmp_path, "1 / 0"))
    assert done.returncode == 1
    assert done.stderr.count(b"Traceback") == 1
    assert b"ZeroDivisionError" in done.stderr


WORDS = (
    "--rate", "5", "--json", "-o", "x", "--output=y", "--show", "z", "--help", "-m", "--", "",
    "a b", "--chrome", "größe",
)  # fmt: skip


@pytest.mark.parametrize("options", [(), ("--rate", "500"), ("--json",), ("--rate=100", "--json")])
def test_the_words_of_the_program_are_its_own(tmp_path: Path, options: Sequence[str]) -> None:
    name = write(tmp_path, "import json, sys; print(json.dumps([sys.argv, __name__]))")
    done = run(tmp_path, *options, name, *WORDS)
    assert json.loads(done.stdout) == [[name, *WORDS], "__main__"]
    assert done.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_module(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    write(tmp_path, "import json, sys; print(json.dumps(sys.argv))", "pack/__main__.py")
    done = run(tmp_path, "--rate", "100", "-m", "pack", "-m", "--json")
    assert json.loads(done.stdout) == [str(tmp_path / "pack" / "__main__.py"), "-m", "--json"]
    assert done.returncode == 0


def test_a_command(tmp_path: Path) -> None:
    done = run(tmp_path, "--", "sh", "-c", 'printf "%s|" "$@"; exit 5', "sh", "--json", "-o")
    assert (done.stdout, done.returncode) == (b"--json|-o|", 5)


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path, "--", "no-such-command-of-anyone", "x")
    assert (done.stdout, done.returncode) == (b"", 2)
    (line,) = done.stderr.decode().splitlines()
    assert "no-such-command-of-anyone" in line


@pytest.mark.parametrize("words", [("none.py",), ("--rate", "100", "none.py", "--json")])
def test_a_script_that_is_not_there(tmp_path: Path, words: Sequence[str]) -> None:
    done = run(tmp_path, *words)
    assert (done.stdout, done.returncode) == (b"", 2)
    (line,) = done.stderr.decode().splitlines()
    assert "none.py" in line


@pytest.mark.parametrize("words", [(), ("--json",), ("-m",), ("--",)])
def test_no_program(tmp_path: Path, words: Sequence[str]) -> None:
    done = run(tmp_path, *words)
    assert (done.stdout, done.returncode) == (b"", 2)
    assert len(done.stderr.decode().splitlines()) == 1


def test_another_profiler_of_the_driver(tmp_path: Path) -> None:
    name = write(tmp_path, "print('ran')")
    done = run(tmp_path, name, CUDA_INJECTION64_PATH="/some/where/libother.so")
    assert (done.stdout, done.returncode) == (b"", 2)
    (line,) = done.stderr.decode().splitlines()
    assert "CUDA_INJECTION64_PATH" in line and "/some/where/libother.so" in line


def test_standard_input_and_output_are_the_programs(tmp_path: Path) -> None:
    source = """
import sys
content = sys.stdin.buffer.read()
sys.stdout.buffer.write(content[::-1])
print("mine", file=sys.stderr)
"""
    given = bytes(range(256)) * 2000
    done = run(tmp_path, write(tmp_path, source), given=given)
    assert done.stdout == given[::-1]
    assert done.stderr.startswith(b"mine\n")
    assert len(done.stderr) > len(b"mine\n")


@pytest.mark.parametrize("there", [False, True])
def test_the_environment_decides_the_interpreter(tmp_path: Path, there: bool) -> None:
    name = write(tmp_path, "import sys; print(sys.executable)")
    python = tmp_path / "own" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(Path(sys.executable).resolve())
    variables = {"VIRTUAL_ENV": str(tmp_path / "own")} if there else {}
    done = run(tmp_path, name, **variables)
    assert done.stdout.decode().strip() == (str(python) if there else sys.executable)


def test_an_environment_without_an_interpreter(tmp_path: Path) -> None:
    name = write(tmp_path, "print('ran')")
    done = run(tmp_path, name, VIRTUAL_ENV=str(tmp_path / "gone"))
    assert (done.stdout, done.returncode) == (b"", 2)
    assert len(done.stderr.decode().splitlines()) == 1


def signal_when_ready(
    folder: Path, source: str, *numbers: int, group: bool
) -> tuple[int, str, str]:
    with subprocess.Popen(
        [*RUN, write(folder, source)], cwd=folder, env=make_environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as program:  # fmt: skip
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            for number in numbers:
                (os.killpg if group else os.kill)(program.pid, number)
            output, errors = program.communicate(timeout=30)
        finally:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
    return program.returncode, output, errors


HANDLER = """
import signal, sys, time
def end(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit(3)
signal.signal(signal.{name}, end)
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGWINCH",
           "SIGRTMAX"]  # fmt: skip
COUNTER = """
import signal, sys, time
counts = {{}}
def count(number, frame):
    counts[number] = counts.get(number, 0) + 1
for name in {names}:
    signal.signal(getattr(signal, name), count)
print("ready", flush=True)
while len(counts) < {wanted}:
    time.sleep(0.01)
time.sleep(0.5)  # for more of them
print(sorted(counts.values()), flush=True)
"""


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize(
    "names",
    [
        ["SIGTERM"],
        ["SIGINT"],
        ["SIGQUIT", "SIGUSR1", "SIGHUP"],
        ["SIGXCPU", "SIGWINCH", "SIGRTMAX"],
    ],
)
def test_a_signal_reaches_the_program_once(tmp_path: Path, names: list[str], group: bool) -> None:
    """As `timeout` and job schedulers send it, to the whole group."""
    source = COUNTER.format(names=SIGNALS, wanted=len(names))
    numbers = [signal.Signals[name] for name in names]
    code, output, _ = signal_when_ready(tmp_path, source, *numbers, group=group)
    assert (code, output) == (0, f"{[1] * len(names)}\n")


@pytest.mark.parametrize("name", SIGNALS)
def test_signals_reach_the_program(tmp_path: Path, name: str) -> None:
    number = signal.Signals[name]
    source = HANDLER.format(name=name)
    code, output, errors = signal_when_ready(tmp_path, source, number, group=False)
    assert (code, output) == (3, f"got {name}\n")
    assert errors.strip() and "Traceback" not in errors


def test_a_signal_without_a_handler(tmp_path: Path) -> None:
    source = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"
    code, output, errors = signal_when_ready(tmp_path, source, signal.SIGTERM, group=False)
    assert (code, output) == (-signal.SIGTERM, "")
    assert errors.strip() and "Traceback" not in errors


INTERRUPTED = """
import time
try:
    print("ready", flush=True)
    while True:
        time.sleep(0.01)  # a signal just before a sleep does not end it
except KeyboardInterrupt:
    end = time.perf_counter() + 0.2
    while time.perf_counter() < end: pass
    print("saved", flush=True)
    raise SystemExit(4)
"""


def test_an_interrupt_from_a_terminal(tmp_path: Path) -> None:
    code, output, errors = signal_when_ready(tmp_path, INTERRUPTED, signal.SIGINT, group=True)
    assert (code, output) == (4, "saved\n")
    assert "program.py" in errors
    assert "Traceback" not in errors


CHILDREN = """
import multiprocessing, os, subprocess, sys
def work(queue):
    queue.put(sum(range(1000)))
if __name__ == "__main__":
    os.system("echo shell")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    print(queue.get(), flush=True)
    child.join()
    print(child.exitcode, flush=True)
    words = [sys.executable, "-c", "import sys; print(sys.argv[1:]); sys.exit(6)", "a", "b"]
    print(subprocess.run(words).returncode, flush=True)
"""


def test_ctrl_c_ends_the_loop_of_a_shell(tmp_path: Path) -> None:
    write(tmp_path, "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    loop = f"for _ in 1 2; do {sys.executable} -m ftax_run program.py; done; echo after"
    with subprocess.Popen(
        ["bash", "-c", loop], cwd=tmp_path, env=make_environment(), stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    ) as shell:  # fmt: skip
        try:
            assert shell.stdout is not None
            assert shell.stdout.readline() == "ready\n"
            os.killpg(shell.pid, signal.SIGINT)
            assert shell.communicate(timeout=30)[0] == ""
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == -signal.SIGINT


def test_files_that_are_open_for_the_program(tmp_path: Path) -> None:
    read, write_end = os.pipe()
    name = write(tmp_path, "import os, sys; os.write(int(sys.argv[1]), b'passed')")
    with os.fdopen(read, "rb") as file:
        done = subprocess.run(
            [*RUN, name, str(write_end)], cwd=tmp_path, env=make_environment(), timeout=60,
            pass_fds=[write_end], capture_output=True, check=False,
        )  # fmt: skip
        os.close(write_end)
        assert (file.read(), done.returncode) == (b"passed", 0)


@pytest.mark.parametrize("errors", ["2>&-", "2>/dev/full"])
def test_where_nothing_can_be_said_the_record_is_written(tmp_path: Path, errors: str) -> None:
    write(tmp_path, "import time; time.sleep(0.3); print('mine'); raise SystemExit(7)")
    shell = f"exec {sys.executable} -m ftax_run -o found.jsonl program.py {errors}"
    done = subprocess.run(
        ["sh", "-c", shell], cwd=tmp_path, env=make_environment(), stdout=subprocess.PIPE,
        timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == (b"mine\n", 7)
    assert read_runs(tmp_path / "found.jsonl")[0].samples > 0


@pytest.mark.parametrize("option", ["-o", "--html", "--speedscope", "--chrome"])
def test_a_file_of_the_user_is_not_overwritten(tmp_path: Path, option: str) -> None:
    source = "print('ran')"
    done = run(tmp_path, option, write(tmp_path, source), "program.py")
    assert (done.stdout, done.returncode) == (b"", 2)
    assert b"program.py is there and is nothing that ftax wrote" in done.stderr
    assert (tmp_path / "program.py").read_text() == source
    done = run(tmp_path, option, "none/x", "program.py")
    assert (done.stdout, done.returncode) == (b"", 2)
    assert b"none/x cannot be written: there is no folder none" in done.stderr
    for _ in range(2):  # what ftax wrote is replaced, or appended to
        assert run(tmp_path, option, "found", "program.py").returncode == 0


def test_where_watching_fails_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(watcher: Watcher) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Watcher, "_collect", fail)
    program = write(tmp_path, "import time; time.sleep(0.5); print('ran'); raise SystemExit(7)")
    assert run_here([str(tmp_path / program)]) == 7
    said = capfd.readouterr()
    assert said.out == "ran\n"
    assert "Watching ended after 0." in said.err
    assert "the program went on: OSError: [Errno 24] Too many open files (test_launch" in said.err


NAMES = """
import ctypes, os, time
ctypes.CDLL(None).prctl(15, b"\\xff\\xfe) R", 0, 0, 0)  # PR_SET_NAME
end = time.perf_counter() + 0.5
while time.perf_counter() < end: pass
"""


def test_names_that_are_no_text(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    python = os.fsdecode(folder + b"/python")
    os.symlink(Path(sys.executable).resolve(), python)
    done = run(tmp_path, "--", python, write(tmp_path, NAMES))
    assert done.returncode == 0
    assert b"program.py:5 <module>" in done.stderr
    assert b"Watching ended" not in done.stderr


def test_a_program_that_empties_its_folder_for_temporary_files(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    source = "import os, shutil, time; shutil.rmtree(os.environ['TMPDIR']); time.sleep(0.5)"
    done = run(tmp_path, write(tmp_path, source), TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode == 0
    assert b"program.py:1 <module>" in done.stderr
    assert b"Watching ended" not in done.stderr


def test_a_run_of_a_run(tmp_path: Path) -> None:
    name = write(tmp_path, "import time; time.sleep(0.5); print('ran')")
    done = run(tmp_path, "--", *RUN, name)
    assert (done.stdout, done.returncode) == (b"ran\n", 0)
    assert done.stderr.count(b"program.py:1 <module>") >= 1


@pytest.mark.parametrize("words", [("-c", "{}", "-o", "x"), ("-", "-o", "x")])
def test_code_for_python(tmp_path: Path, words: tuple[str, ...]) -> None:
    source = "import sys, time; print(sys.argv); time.sleep(0.5)"
    done = run(tmp_path, *[word.format(source) for word in words], given=source.encode())
    assert done.stdout.decode() == f"{[words[0], '-o', 'x']}\n"
    assert b":1 <module>" in done.stderr


def test_children_of_the_program(tmp_path: Path) -> None:
    done = run(tmp_path, write(tmp_path, CHILDREN))
    assert done.stdout.decode().splitlines() == ["shell", "499500", "0", "['a', 'b']", "6"]
    assert done.returncode == 0


INSIDE = """
import os, signal, sys, threading, time
time.sleep(0.4)  # until it is watched
print(threading.active_count(), len(os.listdir("/proc/self/task")))
print(sorted(os.listdir("/proc/self/fd")), os.getcwd(), sys.flags, sys.path[0])
print(sys.gettrace(), sys.getprofile(), sys.getrecursionlimit(), sys.getswitchinterval())
print([signal.getsignal(number) for number in sorted(signal.valid_signals())])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), os.getpgid(0) == os.getpgid(os.getppid()))
print(sorted(name for name in sys.modules if "ftax" in name))
print(sorted(set(os.environ) - {"FTAX_RUN_FOLDER", "CUDA_INJECTION64_PATH"}))
"""


def test_the_program_is_as_without(tmp_path: Path) -> None:
    name = write(tmp_path, INSIDE)
    plain = subprocess.run(
        [sys.executable, name], cwd=tmp_path, env=make_environment(), input=b"",
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    watched = run(tmp_path, name)
    assert watched.stdout.decode() == plain.stdout.decode()
    assert watched.stdout.startswith(b"1 1\n")


FORK = """
import os, time, warnings
time.sleep(0.3)  # until it is watched
child = os.fork()
if child == 0:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_is_not_one_of_many_threads(python: str, tmp_path: Path) -> None:
    done = run(tmp_path, "--", python, "-W", "error", write(tmp_path, FORK))
    assert (done.stdout, done.returncode) == (b"0\n", 0)
    assert b"Warning" not in done.stderr


AGAIN = """
import os, sys, time
def after_exec():
    end = time.perf_counter() + 0.5
    while time.perf_counter() < end: pass
if len(sys.argv) == 1:
    time.sleep(0.3)  # until it is watched
    os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
after_exec()
"""


def test_a_program_that_starts_itself_again(tmp_path: Path) -> None:
    done = run(tmp_path, write(tmp_path, AGAIN))
    assert done.returncode == 0
    assert b"after_exec" in done.stderr


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    name = write(tmp_path, "import os; print(os.environ['FTAX_RUN_FOLDER'])")
    done = run(tmp_path, name, TMPDIR=str(tmp_path / "tmp"))
    folder = Path(done.stdout.decode().strip())
    assert folder.parent == tmp_path / "tmp"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_process_that_ends_while_it_is_asked_has_not_become_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        while read_identity(program.pid) is None:
            time.sleep(0.01)
        real = os.stat

        def end(path: str) -> os.stat_result:
            found = real(path)
            program.kill()
            while "\nState:\tZ" not in Path(f"/proc/{program.pid}/status").read_text():
                time.sleep(0.01)
            return found

        with monkeypatch.context() as patched:
            patched.setattr("ftax_run.launch.os.stat", end)
            assert read_identity(program.pid) is None
