"""The process that measures: jobs as lines of JSON on standard input, answers likewise on output.

Started as ``python -m ftax.sweep.worker PARENT``. The surprising choice: it makes itself
ready before it reads its first job, and says so, so that a parent can start the next one while the
last one builds its model. Before it times anything it waits for the parent's word, who gives it
when nothing else is getting ready, and names the processes that idle on the device meanwhile. It
dies with its parent, by the kernel's hand, whatever it is doing then.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

from ftax.sweep.job import Say

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
    import torch.utils.flop_counter  # noqa: F401

    from ftax.environment.gpu_condition import expect_idle
    from ftax.sweep.job import Job
    from ftax.sweep.work import run_job

    def ask(purpose: str) -> None:
        say("ask", purpose=purpose)
        expect_idle(json.loads(sys.stdin.readline() or "[]"))

    say("ready")
    while line := sys.stdin.readline():
        clean = run_job(Job.from_json(line), say, ask)
        say("done", clean=clean)
        if not clean:
            break


if __name__ == "__main__":
    main()
