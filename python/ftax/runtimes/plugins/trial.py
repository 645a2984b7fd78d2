"""Runs one check of a shared library in a process of its own, which the library may take with it.

The surprising choice: the worker writes the name of each call into a file before it makes it. That
is all that is left of a process which crashed or had to be stopped, and it names the culprit. A
limit is for the library: starting Python, and waiting for a CPU that other programs have, do not
count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from ftax.errors import FtaxError, InvalidArgumentError, UnavailableError, describe
from ftax.runtimes.plugins.case import CheckSkippedError, PluginCase, Subject
from ftax.workers.death import name_signal, read_last_line

Status = Literal["passed", "failed", "skipped"]

_CASE, _CALL, _ANSWER = "case.pt", "call.txt", "answer.json"  # in the folder of a session
_FIRST_CALL = "loading the library"
_START_S = 300.0  # to start Python and import torch, on however busy a host
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a check ended. ``reason`` is one line, empty where it passed with nothing to say."""

    status: Status
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSession:
    """A library and a case on disk, for any number of workers, one after the other."""

    folder: Path
    path: str  # of the library
    config: str

    def run(
        self, check: str, *, limit_s: float, environment: Mapping[str, str] | None = None
    ) -> Answer:
        """Run ``check``, a function of a Subject named ``module:function``, within ``limit_s``.

        It passes if it returns; a process that dies or has to be stopped has failed. Raises
        UnavailableError if the process does not get as far as the library.
        """
        for name in (_CALL, _ANSWER):
            (self.folder / name).unlink(missing_ok=True)
        arguments = (str(self.folder), self.path, self.config, check)
        with subprocess.Popen(
            [sys.executable, "-m", "ftax.runtimes.plugins.trial", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **(environment or {})},
        ) as worker:
            try:
                said = self._wait(worker, limit_s)
            finally:
                worker.kill()
        answer = self.folder / _ANSWER
        if said is None:
            return self._fail(f"ran past {limit_s:g} s")
        if worker.returncode == 0 and answer.exists():
            return Answer(**json.loads(answer.read_text()))
        return self._fail(_explain_death(worker.returncode, said))

    def _wait(self, worker: subprocess.Popen[str], limit_s: float) -> str | None:
        """What the worker wrote on standard error; None if it ran past the limit."""
        call = self.folder / _CALL
        born, begun, queued_s = time.monotonic(), None, 0.0
        while True:
            try:
                return worker.communicate(timeout=_POLL_S)[1]
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if begun is None:
                if call.exists():
                    begun, queued_s = now, _read_queued_s(worker.pid)
                elif now - born > _START_S:
                    raise UnavailableError(
                        f"a process to try {Path(self.path).name} in was not ready after "
                        f"{_START_S:g} s: this machine is too busy. The library was not tried"
                    )
            elif now - begun - (_read_queued_s(worker.pid) - queued_s) > limit_s:
                return None

    def _fail(self, what: str) -> Answer:
        call = self.folder / _CALL
        where = call.read_text() if call.exists() else "starting the worker process"
        return Answer(status="failed", reason=f"{where}: {what}")


@contextmanager
def open_session(library: str, config: str, case: PluginCase) -> Iterator[WorkerSession]:
    """Write the case for workers; it is gone when the block ends."""
    path = Path(library).absolute()
    if not path.is_file():
        raise InvalidArgumentError(f"there is no library {library}; give the path of a file")
    with tempfile.TemporaryDirectory(prefix="ftax-plugin-") as folder:
        case.save(Path(folder) / _CASE)
        yield WorkerSession(folder=Path(folder), path=str(path), config=config)


def _read_queued_s(pid: int) -> float:
    """How long a thread of the process has waited for a CPU so far, the one that waited longest;
    0 where the kernel does not count it."""
    waits = [0.0]
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError, IndexError):  # a thread may end meanwhile
            waits.append(int(path.read_text().split()[1]) / 1e9)
    return max(waits)


def _explain_death(code: int, stderr: str) -> str:
    if (name := name_signal(code)) is not None:
        return f"the process was ended by {name}"
    last = read_last_line(stderr)
    return f"the process ended with exit code {code}{': ' + last if last else ''}"


def _work(folder: Path, library: str, config: str, check: str) -> None:
    last: list[str] = [""]

    def note(call: str) -> None:
        if call != last[0]:  # a loop over enqueue is not to be a loop over a disk
            last[0] = call
            (folder / _CALL).write_text(call)

    module, _, name = check.partition(":")
    function = getattr(import_module(module), name)
    case = PluginCase.load(folder / _CASE)
    note(_FIRST_CALL)
    try:
        said = function(Subject(path=library, config=config, case=case, note=note))
        answer = Answer(status="passed", reason=said or "")
    except CheckSkippedError as skipped:
        answer = Answer(status="skipped", reason=describe(skipped))
    except (FtaxError, RuntimeError) as error:
        answer = Answer(status="failed", reason=describe(error))
    note("ending the process")
    (folder / _ANSWER).write_text(json.dumps(asdict(answer)))


if __name__ == "__main__":
    _work(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4])
