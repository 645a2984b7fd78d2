"""Runs one check of a shared library in a process of its own, which the library may take with it.

The surprising choice: the worker writes the name of each call into a file before it makes it. That
is all that is left of a process which crashed or had to be stopped, and it names the culprit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from ftax.errors import FtaxError, InvalidArgumentError, describe
from ftax.runtimes.plugins.case import CheckSkippedError, PluginCase, Subject
from ftax.workers.death import name_signal, read_last_line

Status = Literal["passed", "failed", "skipped"]

_CASE, _CALL, _ANSWER = "case.pt", "call.txt", "answer.json"  # in the folder of a session


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

        It passes if it returns; a process that dies or has to be stopped has failed.
        """
        for name in (_CALL, _ANSWER):
            (self.folder / name).unlink(missing_ok=True)
        arguments = (str(self.folder), self.path, self.config, check)
        try:
            worker = subprocess.run(
                [sys.executable, "-m", "ftax.runtimes.plugins.trial", *arguments],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                timeout=limit_s,
                env={**os.environ, **(environment or {})},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return self._fail(f"ran past {limit_s:g} s")
        answer = self.folder / _ANSWER
        if worker.returncode == 0 and answer.exists():
            return Answer(**json.loads(answer.read_text()))
        return self._fail(_explain_death(worker.returncode, worker.stderr))

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
