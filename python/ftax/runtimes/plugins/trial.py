"""Runs one check of a shared library in a process of its own, which the library may take with it.

The worker says the name of each call before it makes it: that is all that is left of a process
which crashed or had to be stopped. A limit is for the library: starting Python, and waiting for a
CPU that other programs have, do not count.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from ftax.errors import FtaxError, InvalidArgumentError, UnavailableError, describe
from ftax.runtimes.plugins.case import CheckSkippedError, PluginCase, TriedLibrary
from ftax.workers.child import Line
from ftax.workers.process import WorkerDied, run_task

Status = Literal["passed", "failed", "skipped"]

TASK = "ftax.runtimes.plugins.trial:run_check"
_CASE = "case.pt"  # in the folder of a session


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

    def run(self, check: str, *, limit_s: float) -> Answer:
        """Run ``check``, ``module:function`` that takes a TriedLibrary, within ``limit_s``.

        It passes if it returns; a process that dies or has to be stopped has failed. Raises
        UnavailableError if the process does not get as far as the library.
        """
        job = self.make_job(check)
        return self.read(run_task(TASK, job, limit_s=limit_s))

    def make_job(self, check: str) -> dict[str, str]:
        """What a worker is asked for."""
        return {"folder": str(self.folder), "library": self.path, "config": self.config,
                "check": check}  # fmt: skip

    def read(self, answers: Iterable[Mapping[str, Any]]) -> Answer:
        """How the check ended of which these are the answers."""
        call, answer = "", Answer(status="failed", reason="the check gave no answer")
        try:
            for said in answers:
                if said["say"] == "call":
                    call = said["name"]
                else:
                    answer = Answer(status=said["status"], reason=said["reason"])
        except WorkerDied as death:
            if not call:
                raise UnavailableError(f"{Path(self.path).name} was not tried: {death}") from death
            return Answer(status="failed", reason=f"{call}: {death}")
        return answer


@contextmanager
def open_session(library: str, config: str, case: PluginCase) -> Iterator[WorkerSession]:
    """Write the case for workers; it is gone when the block ends."""
    path = Path(library).absolute()
    if not path.is_file():
        raise InvalidArgumentError(f"there is no library {library}; give the path of a file")
    with tempfile.TemporaryDirectory(prefix="ftax-plugin-") as folder:
        case.save(Path(folder) / _CASE)
        yield WorkerSession(folder=Path(folder), path=str(path), config=config)


def run_check(job: Mapping[str, Any], line: Line) -> None:
    """The task of the worker: one check, and how it ended."""
    last = [""]

    def note(call: str) -> None:
        if call != last[0]:  # a loop over enqueue is not to be a loop over a line
            last[0] = call
            line.say("call", name=call)

    module, _, name = job["check"].partition(":")
    function = getattr(import_module(module), name)
    case = PluginCase.load(Path(job["folder"]) / _CASE)
    note("loading the library")
    try:
        said = function(
            TriedLibrary(path=job["library"], config=job["config"], case=case, note=note)
        )
        answer = Answer(status="passed", reason=said or "")
    except CheckSkippedError as skipped:
        answer = Answer(status="skipped", reason=describe(skipped))
    except (FtaxError, RuntimeError) as error:
        answer = Answer(status="failed", reason=describe(error))
    note("ending the process")
    line.say("answer", **asdict(answer))
