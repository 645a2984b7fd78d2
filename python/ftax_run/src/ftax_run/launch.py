"""Starts a program as it is, and finds the processes that it becomes."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from ftax_run.errors import RunError

FOLDER = "FTAX_RUN_FOLDER"
ITERATION = "FTAX_RUN_ITERATION"
_TOOLS = frozenset({"uv", "pipx"})  # folders in which tools have environments for themselves
_INJECTION = "CUDA_INJECTION64_PATH"
# Those that tell a process of a fault, a child or its terminal are not passed on.
_FORWARDED = tuple(
    signal.valid_signals().difference(
        (signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
         signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGSEGV, signal.SIGBUS,
         signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS)
    )
)  # fmt: skip
_GROUP_S = 0.005


def find_interpreter() -> str:
    """The Python that the caller means: that of VIRTUAL_ENV, else that of the environment which
    this package was installed into; where that is a tool's alone (uvx, pipx), the first on the PATH
    that is not its own."""
    if environment := os.environ.get("VIRTUAL_ENV"):
        return str(Path(environment) / "bin" / "python")
    if not _TOOLS.intersection(Path(sys.prefix).parts):
        return sys.executable
    own = str(Path(sys.prefix) / "bin")
    folders = [item for item in os.environ.get("PATH", "").split(os.pathsep) if item != own]
    for name in ("python", "python3"):
        if found := shutil.which(name, path=os.pathsep.join(folders)):
            return found
    raise RunError("no Python is on the PATH: activate the program's environment, or give "
                   "`ftax run -- /path/to/python train.py`")  # fmt: skip


def make_environment(folder: Path) -> dict[str, str]:
    """That of the program, with which its driver loads what records its device."""
    watch = Path(__file__).with_name("libftax_watch.so")
    other = os.environ.get(_INJECTION)
    if other and Path(other).name != watch.name:  # an outer `ftax run` is no other
        raise RunError(
            f"another profiler is to be loaded by the driver ({_INJECTION} is {other}): unset it"
        )
    return {
        **os.environ,
        FOLDER: str(folder),
        **({_INJECTION: str(watch)} if watch.is_file() else {}),
    }


def add_hook(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Python runs `inside` at its start, which is copied into a folder."""
    for name, own in (("inside.py", "sitecustomize.py"), ("iteration.py", "iteration.py")):
        shutil.copy(Path(__file__).with_name(name), folder / own)
    path = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": os.pathsep.join([str(folder), *([path] if path else [])])}


def start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """With this process's own input, output, terminal, and the files that it was given."""
    try:
        return subprocess.Popen(list(command), env=dict(environment), close_fds=False)
    except OSError as error:
        raise RunError(f"{command[0]} cannot be started: {error.strerror or error}") from None


def raise_limit_of_files() -> None:
    """Some are open for each thread that is watched. The program, started before, has its own."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def pass_signals() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Signals that end or tell a program something are the program's, each once: give what is
    yielded the program as soon as it has been started. A terminal's Ctrl-C, `timeout` and job
    schedulers tell the whole process group, so the program has it already. Who watches goes on
    until the program has ended."""
    programs: list[subprocess.Popen[bytes]] = []
    early: list[int] = []  # before there was a program

    def forward(number: int, _frame: FrameType | None) -> None:
        with _block_signals(), suppress(ProcessLookupError):  # it has ended
            was_of_group = has_met(number)
            if not programs:
                early.append(number)
            elif not (was_of_group and os.getpgid(programs[0].pid) == os.getpgrp()):
                programs[0].send_signal(number)

    def begin(program: subprocess.Popen[bytes]) -> None:
        with _block_signals():
            programs.append(program)
            for number in early:
                program.send_signal(number)
        for number in ignored:
            signal.signal(number, forward)

    with _watch_group() as has_met:
        before = {number: signal.getsignal(number) for number in _FORWARDED}
        # A program ignores what was ignored where it was started (nohup), so that is left so far.
        ignored = [number for number in before if before[number] is signal.SIG_IGN]
        for number in set(before).difference(ignored):
            signal.signal(number, forward)
        try:
            yield begin
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _watch_group() -> Iterator[Callable[[int], bool]]:
    """What tells whether a signal was sent to the whole group of this process: then it is pending
    in a process of the group that blocks all signals, and ends with this one."""
    wait = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    met: set[int] = set()

    def add() -> subprocess.Popen[bytes]:
        with _block_signals():
            return subprocess.Popen(wait, stdin=subprocess.PIPE)

    witness = add()

    def end() -> None:
        witness.kill()
        witness.communicate()

    def has_met(number: int) -> bool:
        nonlocal witness
        time.sleep(_GROUP_S)  # a group's members are told one after the other
        status = Path(f"/proc/{witness.pid}/status").read_text()
        pending = int(status.partition("\nShdPnd:")[2].split(maxsplit=1)[0], 16)
        if pending:
            met.update(item for item in _FORWARDED if pending >> (item - 1) & 1)
            end()
            witness = add()
        found = number in met
        met.discard(number)
        return found

    try:
        yield has_met
    finally:
        end()


@contextmanager
def _block_signals() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def list_processes(first: int, *, by_all_threads: bool = True) -> Iterator[int]:
    """A process and all that it has started, and those these have started; of those that were
    started by main threads only, in less time."""
    waiting = [first]
    while waiting:
        pid = waiting.pop()
        yield pid
        try:
            for thread in os.listdir(f"/proc/{pid}/task") if by_all_threads else (pid,):
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as children:
                    waiting += map(int, children.read().split())
        except OSError:  # it has ended
            continue


def uses_gpu(pid: int) -> bool:
    """Whether a process has initialised CUDA: then it has this device open."""
    try:
        return any(
            item.readlink().name == "nvidia-uvm" for item in Path(f"/proc/{pid}/fd").iterdir()
        )
    except OSError:  # it has ended, or is another user's
        return False


def read_identity(pid: int) -> tuple[int, ...] | None:
    """What is another where a process has become another program: its file, and where its stack
    begins. None if it has ended. Raises PermissionError for one that may not be read."""
    try:
        status = os.stat(f"/proc/{pid}/exe")
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")  # its name may be any bytes
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    if fields[20] == "0":  # it ended between the two, and has no memory any more
        return None
    return status.st_dev, status.st_ino, int(fields[25])
