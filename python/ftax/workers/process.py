"""The one way to have something done in another process: started, asked, listened to within a time
limit, ended, and its death explained.

A worker leads its process group. Ctrl-C in a terminal so reaches the parent alone, which ends the
workers in order, and with a worker go the processes that its runtimes started. A limit is for the
worker's own work: starting Python, and waiting for a CPU that other programs have, do not count.
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
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from ftax import errors
from ftax.errors import FtaxError, RunnerError, describe, is_out_of_memory
from ftax.workers.child import DONE, REFUSED

_START_S = 300.0  # that a process has for its imports, on however busy a host
_TAIL_BYTES = 20_000
_SHOWN_BYTES = 200
_END_S = 10.0  # that a worker which closed its line has to end
_LOOK_S = 0.5  # Ctrl-C that another thread was given is seen after so long
_SIGNALS = {item.value: item.name for item in signal.Signals}


class WorkerDied(RunnerError):
    """It ended, or had to be ended, before it was done; the message says of what.

    ``killed``: by a signal that no program sends itself, so that no cell may be at fault.
    """

    def __init__(self, reason: str, *, killed: bool = False) -> None:
        super().__init__(reason)
        self.killed = killed


class Stopped(Exception):
    """The waiting is to end now."""


class Stop:
    """A flag that wakes all threads that listen to a worker."""

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


class Worker:
    """A process that does ``task``, a function named "module:function" of `ftax.workers.child`; it
    gets itself ready from the moment it is made.

    The function is given a job, which is JSON, and the `Line` to answer by. ``environment`` is
    added to ``base``, or to this process's; ``python`` is another interpreter that has ftax, and
    ``wrapper`` a command that runs it. Raises WorkerDied if no process can be started.
    """

    def __init__(
        self,
        task: str,
        stop: Stop | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        base: Mapping[str, str] | None = None,
        python: str = "",
        wrapper: Sequence[str] = (),
    ) -> None:
        self._woken_by = [] if stop is None else [stop.descriptor]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `end`)
        child = [python or sys.executable, "-m", "ftax.workers.child", task, str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                [*wrapper, *child],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                process_group=0,
                env={**(os.environ if base is None else base), **(environment or {})},
            )
        except OSError as error:
            self._errors.close()
            raise WorkerDied(f"no worker process could be started: {describe(error)}") from error
        self._buffer = b""
        self._is_ready = False

    @property
    def pid(self) -> int:
        """Of the process, which leads its group."""
        return self._process.pid

    def send(self, job: Any) -> None:
        """Ask for a job, or answer a question. Raises WorkerDied if it has ended."""
        assert self._process.stdin is not None  # a pipe, see above
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._explain() from None

    def wait_until_ready(self) -> None:
        """Return when it has its imports behind it. Raises WorkerDied, Stopped."""
        if not self._is_ready:
            self._receive(_Clock(self.pid, _START_S, "was not ready after"))
            self._is_ready = True

    def receive(self, limit_s: float) -> dict[str, Any]:
        """The next answer; of the last one of a job ``say`` is "done", and ``result`` what the
        task returned.

        Raises:
            WorkerDied: it ended, or was silent for so long.
            FtaxError: what the task was stopped by, of the same kind.
            Stopped: the waiting is to end.
        """
        self.wait_until_ready()
        return self._receive(_Clock(self.pid, limit_s))

    def listen(self, limit_s: float) -> Iterator[dict[str, Any]]:
        """The answers of a job before its last one, all of them within the limit. Raises what
        `receive` raises."""
        self.wait_until_ready()
        clock = _Clock(self.pid, limit_s)
        while (answer := self._receive(clock))["say"] != DONE:
            yield answer

    def finish(self, limit_s: float) -> None:
        """Let it end, having no more jobs. Raises WorkerDied if it dies of that."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        clock = _Clock(self.pid, limit_s)
        while self._read_piece(clock):
            pass
        self._check_end()

    def end(self) -> None:
        """End it and what it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _receive(self, clock: _Clock) -> dict[str, Any]:
        line = self._read_line(clock)
        try:
            answer: dict[str, Any] = json.loads(line)
            error = make_error(answer) if answer["say"] == REFUSED else None
        except (ValueError, TypeError, KeyError):
            shown = line[:_SHOWN_BYTES].decode(errors="replace")
            raise WorkerDied(f"the worker process answered what is no answer: {shown!r}") from None
        if error is not None:
            raise error
        return answer

    def _read_line(self, clock: _Clock) -> bytes:
        while b"\n" not in self._buffer:
            piece = self._read_piece(clock)
            if not piece:
                raise self._explain()
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _read_piece(self, clock: _Clock) -> bytes:
        """What there is of its answers; nothing if it has closed its end."""
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        while (left_s := clock.left_s) > 0:
            readable, _, _ = select.select([output, *self._woken_by], [], [], left_s)
            if any(descriptor in readable for descriptor in self._woken_by):
                raise Stopped
            if readable:
                return os.read(output, 1 << 16)
        raise WorkerDied(f"the worker process {clock.words} {clock.limit_s:g} s and was ended")

    def _explain(self) -> WorkerDied:
        """Why it ended, though it was not done."""
        try:
            self._check_end()
        except WorkerDied as death:
            return death
        return WorkerDied("the worker process ended without an answer")

    def _check_end(self) -> None:
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise WorkerDied("the worker process closed its output and did not end") from None
        if code == 0:
            return
        said = self._read_last_words()
        end = f": {said}" if said else ""
        if code < 0:
            name = _SIGNALS.get(-code, f"signal {-code}")
            killed = name == "SIGKILL"
            hint = ", as when the machine is out of memory" if killed else ""
            raise WorkerDied(f"the worker process was ended by {name}{hint}{end}", killed=killed)
        if is_out_of_memory(said):
            raise WorkerDied(describe(said))
        raise WorkerDied(f"the worker process ended with exit code {code}{end}")

    def _read_last_words(self) -> str:
        """The last line of standard error that says something; Python's own is the error."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _TAIL_BYTES))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def run_task(
    task: str,
    job: Any,
    *,
    limit_s: float,
    stop: Stop | None = None,
    environment: Mapping[str, str] | None = None,
) -> Generator[dict[str, Any]]:
    """Do one job in a fresh process: its answers, each as soon as it is given.

    Raises, after the answers that it gave before:
        WorkerDied: it died, at the job or of ending afterwards, or ran past the limit.
        FtaxError: what the task was stopped by, of the same kind.
        Stopped: the waiting is to end.
    """
    worker = Worker(task, stop, environment=environment)
    try:
        worker.send(job)
        yield from worker.listen(limit_s)
        worker.finish(limit_s)
    finally:
        worker.end()


def work_side_by_side(works: Sequence[Callable[[], None]], stop: Stop) -> None:
    """Each in its thread until all have ended; raises the first error, and Ctrl-C, once
    ``stop`` has ended the others."""
    with ThreadPoolExecutor(len(works) or 1) as threads:
        left = {threads.submit(work) for work in works}
        try:
            while left:
                ended, left = wait(left, _LOOK_S, FIRST_EXCEPTION)
                for future in ended:
                    future.result()
        finally:
            stop.set()


def make_error(answer: Mapping[str, Any]) -> FtaxError:
    """What a task was stopped by, of an answer with its kind and reason."""
    kind: type[FtaxError] = vars(errors)[answer["error"]]
    return kind(answer["reason"])


class _Clock:
    """A time limit that stands still while the process waits for a CPU."""

    def __init__(self, pid: int, limit_s: float, words: str = "ran past") -> None:
        self.limit_s, self.words = limit_s, words
        self._pid, self._begun, self._queued_s = pid, time.monotonic(), _read_queued_s(pid)

    @property
    def left_s(self) -> float:
        """What is left of the limit; not above 0 when it is over."""
        left_s = self._begun + self.limit_s - time.monotonic()
        return left_s if left_s > 0 else left_s + _read_queued_s(self._pid) - self._queued_s


def _read_queued_s(pid: int) -> float:
    """How long a thread of the process has waited for a CPU so far, the one that waited longest;
    0 where the kernel does not count it."""
    waits = [0.0]
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError):  # a thread may end meanwhile
            waits.append(int(path.read_text().split()[1]) / 1e9)
    return max(waits)
