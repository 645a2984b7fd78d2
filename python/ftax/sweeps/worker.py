"""The process that measures, as its parent starts it and as it answers.

The surprising choice: it has all its imports behind it before its first job, so that a parent can
start the next one while the last one builds its model. Before it times anything it waits for the
parent's word, who gives it when nothing else is getting ready, and names the processes that idle on
the device meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Imports take seconds. A GPU is left alone until there is a job: another worker may be on it.
import torch.utils.flop_counter  # noqa: F401

from ftax.machines.gpu_condition import expect_idle
from ftax.sweeps.job import Job
from ftax.sweeps.work import run_job
from ftax.workers.child import Line


def work(job: Mapping[str, Any], line: Line) -> bool:
    """The task of a worker: one job; whether the process is still fit for timing."""

    def ask(purpose: str) -> None:
        line.say("ask", purpose=purpose)
        expect_idle(line.hear() or [])

    return run_job(Job.from_dict(job), line.say, ask)
