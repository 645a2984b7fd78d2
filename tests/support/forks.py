"""Processes that need not import torch first: the command `ftax`, Python, and workers.

Each is a fork of a server that has the imports behind it, which takes hundredths of a second
instead of seconds. Its parent, streams, environment, folder and exit code are as they would be.
What is not the same is how Python starts and ends: `tests/end_to_end/cli/test_ending.py` and
`tests/unit/workers` ask that of processes which nobody has forked.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

COMMAND = "from ftax.cli import main; main()"
_WORKER = "from ftax.workers.child import main; main()"
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
_ENVIRONMENT = dict(os.environ)  # before a test has changed it


def run_command(
    *arguments: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``ftax ARGUMENTS`` on one thread; ``environment`` is added to this process's."""
    return _run(COMMAND, ["ftax", *arguments], cwd, environment)


class Running:
    """A command that goes on: what it says comes line by line, what it prints at its end."""

    def __init__(self, *arguments: str, environment: Mapping[str, str]) -> None:
        wanted = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        reading, writing = os.pipe()
        self.stderr = open(reading, encoding="utf-8")  # noqa: SIM115  (closed in `end`)
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115
        with open(os.devnull, "rb") as nothing:
            streams = (nothing.fileno(), self._output.fileno(), writing)
            self._process = _start(COMMAND, ["ftax", *arguments], streams, wanted, None)
        os.close(writing)

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def end(self, timeout: float) -> subprocess.CompletedProcess[str]:
        """Wait for it; what it printed, and what it said that nobody has read."""
        with self.stderr, self._output:
            code = self._process.wait(timeout)
            self._output.seek(0)
            return subprocess.CompletedProcess((), code, self._output.read(), self.stderr.read())


def run_python(
    code: str, *, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Like ``python -c CODE`` on one thread, with ftax and transformers imported."""
    return _run(code, ["-c"], cwd, environment)


def _run(
    code: str, command: Sequence[str], cwd: Path | None, environment: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str]:
    wanted = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    with (
        open(os.devnull, "rb") as nothing,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
    ):
        streams = [stream.fileno() for stream in (nothing, output, errors)]
        end = _start(code, command, streams, wanted, cwd).wait()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(list(command), end, output.read(), errors.read())


def _start(
    code: str,
    command: Sequence[str],
    streams: Sequence[int],
    environment: Mapping[str, str],
    cwd: Path | None,
) -> Fork | subprocess.Popen[bytes]:
    if can_fork():
        return Fork(code, command, streams, environment, cwd=cwd)
    named = f"import sys; sys.argv[0] = {command[0]!r}\n{code}"
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [sys.executable, "-c", named, *command[1:]],
        stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=environment,
    )  # fmt: skip


@contextlib.contextmanager
def forked_workers(module: Any) -> Iterator[None]:
    """Let `ftax.workers.process`, which is ``module``, fork its workers; but for those with an
    environment or an interpreter of their own."""
    real, interpreter = module.subprocess, sys.executable

    def start(command: Sequence[str], **options: Any) -> Any:
        if command[0] != interpreter or options["env"] != os.environ:
            return real.Popen(command, **options)
        *_, task, parent = command
        given, stdin = os.pipe()
        stdout, answers = os.pipe()
        try:
            streams = [given, answers, options["stderr"].fileno()]
            fork = Fork(_WORKER, ["-m", task, parent], streams, options["env"], leads_group=True)
        finally:
            os.close(given)
            os.close(answers)
        fork.stdin, fork.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        return fork

    module.subprocess = SimpleNamespace(
        Popen=start, PIPE=real.PIPE, TimeoutExpired=real.TimeoutExpired
    )
    yield
    module.subprocess = real


@functools.cache
def can_fork() -> bool:
    """CUDA does not survive a fork of a process that has so much as looked for a device."""
    import torch

    return not torch.cuda.is_available()


class Fork:
    """A child of this process, for which the server forked; used like a `subprocess.Popen`."""

    stdin: Any = None
    stdout: Any = None
    _one_at_a_time = threading.Lock()

    def __init__(
        self,
        code: str,
        command: Sequence[str],
        streams: Sequence[int],
        environment: Mapping[str, str],
        *,
        cwd: Path | None = None,
        leads_group: bool = False,
    ) -> None:
        asked = {
            "code": code,
            "command": list(command),
            "environment": dict(environment),
            "folder": str(cwd or Path.cwd()),
            "leads_group": leads_group,
        }
        self.returncode: int | None = None
        reading, writing = os.pipe()
        with self._one_at_a_time, open(reading, encoding="utf-8") as answer:
            _adopt(True)
            try:
                socket.send_fds(_start_server(), [json.dumps(asked).encode()], [*streams, writing])
            finally:
                os.close(writing)
            self.pid = int(answer.read())
            _adopt(False)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; raises TimeoutExpired."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            pid, status = os.waitpid(self.pid, 0 if end is None else os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                raise subprocess.TimeoutExpired("a fork", timeout)
            else:
                time.sleep(0.005)
        return self.returncode


def _adopt(is_wanted: bool) -> None:
    """Let those below this process whose parent has ended be its own children."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0)


@functools.cache
def _start_server() -> socket.socket:
    """The line to the process that forks, of which there is one for all tests of this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**_ENVIRONMENT, "OMP_NUM_THREADS": "1"},  # read when torch is imported
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(line: socket.socket) -> dict[str, Any]:
    """Fork for whatever is asked; returns in each fork, with what was asked of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for who tests
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks in between
    while True:
        message, descriptors, _, _ = socket.recv_fds(line, 1 << 20, 4)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    line.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == between:  # until who asked is its parent
        time.sleep(0.0005)
    asked: dict[str, Any] = json.loads(message)
    if asked["leads_group"]:
        os.setpgid(0, 0)
    *streams, answer = descriptors
    os.write(answer, str(os.getpid()).encode())
    for place, descriptor in enumerate(streams):
        os.dup2(descriptor, place)
    for descriptor in descriptors:
        os.close(descriptor)
    return asked


def _become(asked: dict[str, Any]) -> None:
    """The process that was asked for, up to its end."""
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = asked["command"]
    added = asked["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [asked["folder"], *(path for path in added if path and path not in sys.path)]
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, closefd=False)
    code: Any = 0
    try:
        exec(compile(asked["code"], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            raise
    except Exception:
        sys.excepthook(*sys.exc_info())
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Python's own end looks once more through all that was imported


if __name__ == "__main__":
    import ftax
    import ftax.cli.commands

    for _model in ("bert-base", "gpt2", "resnet-50"):
        ftax.load_model(_model, tiny=True)  # which imports what their libraries load late
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))
