"""The process that measures: jobs as lines of JSON on standard input, answers likewise on output.

Started as ``python -m ftax.sweeps.worker PARENT``. The surprising choice: it makes itself
ready before it reads its first job, and says so, so that a parent can start the next one while the
last one builds its model. Before it times anything it waits for the parent's word, who gives it
when nothing else is getting ready, and names the processes that idle on the device meanwhile.
"""

from __future__ import annotations

import json
import os
import sys

from ftax.workers.channel import claim_output, die_with
from ftax.workers.process import Stop, WorkerProcess


def start_worker(stop: Stop) -> WorkerProcess:
    """Such a process, as its parent sees it."""
    return WorkerProcess(stop, ("-m", "ftax.sweeps.worker", str(os.getpid())))


def main() -> None:
    """Work until standard input ends, or until a trace has made this process useless for timing."""
    die_with(int(sys.argv[1]))
    say = claim_output()
    # Imports take seconds. A GPU is left alone until there is a job: another worker may be on it.
    import torch.utils.flop_counter  # noqa: F401

    from ftax.machines.gpu_condition import expect_idle
    from ftax.sweeps.job import Job
    from ftax.sweeps.work import run_job

    def ask(purpose: str) -> None:
        say("ask", purpose=purpose)
        expect_idle(json.loads(sys.stdin.readline() or "[]"))

    say("ready")
    while line := sys.stdin.readline():
        clean = run_job(Job.from_dict(json.loads(line)), say, ask)
        say("done", clean=clean)
        if not clean:
            break


if __name__ == "__main__":
    main()
