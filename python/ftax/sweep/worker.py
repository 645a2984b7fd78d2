"""The process that measures: jobs as lines of JSON on standard input, answers likewise on output.

Started as ``python -m ftax.sweep.worker PARENT``. The surprising choice: it makes itself
ready before it reads its first job, so that a parent can start the next one while the last one is
still tracing. It dies with its parent, by the kernel's hand, whatever it is doing then.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

Say = Callable[..., None]

_PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with(parent: int) -> None:
    """Let the kernel end this process when the thread that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        sys.exit("the process that started this worker has ended")


def claim_output() -> Say:
    """What writes an answer. What a model prints goes to standard error from now on."""
    descriptor = os.dup(1)
    os.dup2(2, 1)

    def say(what: str, **fields: Any) -> None:
        line = json.dumps({"say": what, **fields}, allow_nan=False) + "\n"
        rest = line.encode()
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    return say


def main() -> None:
    """Work until standard input ends, or until a trace has made this process useless for timing."""
    die_with(int(sys.argv[1]))
    say = claim_output()
    # Imports take seconds. A GPU is left alone until there is a job: another worker may be on it.
    from ftax.sweep.bench import run_job
    from ftax.sweep.job import Job

    for line in sys.stdin:
        clean = run_job(Job.from_json(line), say)
        say("done", clean=clean)
        if not clean:
            break


if __name__ == "__main__":
    main()
