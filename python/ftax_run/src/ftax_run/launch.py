"""Starts a program as it is, and finds the processes that it becomes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from ftax_run.errors import RunError

FOLDER = "FTAX_RUN_FOLDER"
ITERATION = "FTAX_RUN_ITERATION"
_TOOLS = frozenset({"uv", "pipx"})  # folders in which tools have environments for themselves
_INJECTION = "CUDA_INJECTION64_PATH"
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


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
    if other := os.environ.get(_INJECTION):
        raise RunError(
            f"another profiler is to be loaded by the driver ({_INJECTION} is {other}): unset it"
        )
    watch = Path(__file__).with_name("libftax_watch.so")
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
    """With this process's own input, output and terminal."""
    try:
        return subprocess.Popen(list(command), env=dict(environment))
    except OSError as error:
        raise RunError(f"{command[0]} cannot be started: {error.strerror or error}") from None


@contextmanager
def pass_signals(program: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals that end or tell a program something are the program's. A terminal gives Ctrl-C to
    both; who watches goes on until the program has ended."""

    def forward(number: int, _frame: FrameType | None) -> None:
        if program.poll() is None:
            program.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[20] == "0":  # it ended between the two, and has no memory any more
        return None
    return status.st_dev, status.st_ino, int(fields[25])
