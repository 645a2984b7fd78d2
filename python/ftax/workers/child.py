"""What a worker process runs: a task, which is a function named "module:function", once a job.

Started as ``python -m ftax.workers.child TASK PARENT``; `ftax.workers.process` is its parent. Jobs
and answers go over descriptors that nothing else uses. What a model or a library prints goes to
standard error, and standard input is empty for them, so that an answer is never anything else.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from importlib import import_module
from typing import Any

from ftax import errors

DONE, REFUSED = "done", "refused"  # the last answer to a job, said for the task
_PR_SET_PDEATHSIG = 1  # prctl(2)


class Line:
    """The worker's end of the line to its parent: JSON both ways, a line each."""

    def __init__(self, jobs: int, answers: int) -> None:
        self._jobs = os.fdopen(jobs, encoding="utf-8")
        self._answers = answers

    def say(self, what: str, **fields: Any) -> None:
        """Answer: what it is, and its fields."""
        line = json.dumps({"say": what, **fields}, allow_nan=False) + "\n"
        rest = line.encode()
        while rest:
            rest = rest[os.write(self._answers, rest) :]

    def hear(self) -> Any:
        """What the parent sends next, or None once it sends no more."""
        line = self._jobs.readline()
        return json.loads(line) if line else None


def main() -> None:
    """Do the task for each job, until there are no more. An error of ftax ends one job; any
    other that is raised ends the process, whose last words it is."""
    task, parent = sys.argv[1:]
    die_with(int(parent))
    line = Line(*_take_streams())
    module, _, name = task.partition(":")
    function = getattr(import_module(module), name)
    line.say("ready")
    while (job := line.hear()) is not None:
        try:
            result = function(job, line)
        except errors.FtaxError as error:
            line.say(REFUSED, error=name_kind(error), reason=str(error))
        else:
            line.say(DONE, result=result)


def _take_streams() -> tuple[int, int]:
    """Descriptors of the line, which nothing but the line has from now on."""
    jobs, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return jobs, answers


def die_with(parent: int) -> None:
    """Let the kernel end this process when the thread that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        sys.exit("the process that started this worker has ended")


def name_kind(error: errors.FtaxError) -> str:
    """The nearest of its classes that the parent finds in `ftax.errors`."""
    names = (kind.__name__ for kind in type(error).__mro__)
    return next(name for name in names if hasattr(errors, name))


if __name__ == "__main__":
    main()
