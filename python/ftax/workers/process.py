"""A worker as its parent sees it: started, asked, listened to within a time limit, and ended.

The surprising choice: it leads a process group of its own. Ctrl-C in a terminal so reaches the
parent alone, which ends the workers in order, and with a worker go the processes that its
runtimes started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

from ftax.errors import describe, is_out_of_memory
from ftax.workers.death import name_signal, read_last_line

START_S = 120.0  # that a process has for its imports, whatever the limit of a step
_TAIL_BYTES = 20_000
_END_S = 10.0  # that a worker without a job has to leave by itself


class WorkerDied(Exception):
    """It ended, or had to be ended, before it was done; the message says of what.

    ``killed``: by a signal that no program sends itself, so that it may be nobody's fault here.
    """

    def __init__(self, reason: str, *, killed: bool = False) -> None:
        super().__init__(reason)
        self.killed = killed


class Stopped(Exception):
    """Whoever waits is to end now."""


class Stop:
    """A flag that wakes whoever listens to a worker."""

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe()
        self._lock = threading.Lock()

    @property
    def is_set(self) -> bool:
        """Whether everybody was woken."""
        with self._lock:
            return self._write < 0

    def set(self) -> None:
        """Wake everybody, now and from now on."""
        with self._lock:
            if self._write >= 0:
                os.close(self._write)
                self._write = -1

    def close(self) -> None:
        """Give the pipe back."""
        self.set()
        os.close(self.descriptor)


class WorkerProcess:
    """One worker, which gets itself ready from the moment it is made.

    ``arguments`` are Python's: a module or a script, and the options that make it a worker.
    """

    def __init__(self, stop: Stop, arguments: Sequence[str]) -> None:
        self._stop = stop
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `end`)
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            process_group=0,
        )
        self._buffer = b""
        self._is_ready = False

    @property
    def pid(self) -> int:
        """Of the process, which leads its group."""
        return self._process.pid

    def send(self, line: str) -> None:
        """Ask for a job. Raises WorkerDied if nobody is there to ask."""
        assert self._process.stdin is not None  # a pipe, see above
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._explain() from None

    def wait_until_ready(self, limit_s: float) -> None:
        """Return when it has its imports behind it. Raises what `receive` raises."""
        if not self._is_ready:
            self.receive(limit_s)  # the first thing that it says
            self._is_ready = True

    def receive(self, limit_s: float) -> dict[str, Any]:
        """The next answer. Raises WorkerDied if it ends or is silent for so long, Stopped if the
        waiting is to end."""
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            self._wait(deadline, limit_s)
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """End it and what it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _wait(self, deadline: float, limit_s: float) -> None:
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        left_s = max(0.0, deadline - time.monotonic())
        readable, _, _ = select.select([output, self._stop.descriptor], [], [], left_s)
        if self._stop.descriptor in readable:
            raise Stopped
        if not readable:
            raise WorkerDied(f"it ran past {limit_s:g} s and was ended")
        piece = os.read(output, 1 << 16)
        if not piece:
            raise self._explain()
        self._buffer += piece

    def _explain(self) -> WorkerDied:
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return WorkerDied("it closed its output and did not end")
        said = read_last_line(self._read_errors())
        end = f": {said}" if said else ""
        if (name := name_signal(code)) is not None:
            killed = name == "SIGKILL"
            hint = ", as when the machine is out of memory" if killed else ""
            return WorkerDied(f"the worker process was ended by {name}{hint}{end}", killed=killed)
        if is_out_of_memory(said):
            return WorkerDied(describe(said))
        return WorkerDied(f"the worker process ended with exit code {code}{end}")

    def _read_errors(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _TAIL_BYTES))
        return self._errors.read().decode(errors="replace")
