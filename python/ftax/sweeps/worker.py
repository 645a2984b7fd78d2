"""Does one job, in a worker: all rounds first, then the looks that would disturb them. What was
timed beside a neighbour on the host is timed once more, when the rest is done.

What looks at the GPU is imported only when the last round is over, so that nothing of it can have
been there during one; all else is imported before the first job. Where time
is short, timing ends early enough for the looks: a cell without them has to be made ready once
more, which takes longer than all else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
import torch.utils.flop_counter  # seconds, of counting work

from ftax.errors import UnavailableError
from ftax.machines.environment import collect_environment
from ftax.machines.gpu import expect_idle
from ftax.machines.nvml import open_gpu
from ftax.steps.given import use_threads
from ftax.sweeps.cells import CellTimer
from ftax.sweeps.job import Ask, Cells, Job, Say
from ftax.sweeps.sites import DEVICES, describe_machine
from ftax.timing.session import quiet
from ftax.workers.child import Line

# Seconds, all generous: a look, what has to be made ready again for it, and timing.
_LOOK_S = {"utilisation": 1.0, "trace": 0.3, "memory": 6.0}
_ANEW_S, _SIZE_S = 2.7, 5.0
_LATER_SIZE_S = 1.5  # timing one more: not generous, since many make up for each other


def work(job: Mapping[str, Any], line: Line) -> Any:
    """The task of a worker: one job; whether the process is still fit for timing. Or to say what
    its machine is.

    Before it goes on it asks its parent, who answers when it may, and names the processes that idle
    on the device meanwhile.
    """

    def ask(purpose: str) -> None:
        line.say("ask", purpose=purpose)
        expect_idle(line.hear() or [])

    if DEVICES in job:
        return describe_machine(**job)
    return run_job(Job.from_dict(job), line.say, ask)


def run_job(job: Job, say: Say, ask: Ask = lambda purpose: None) -> bool:
    """Time all sizes, then look at what is to be looked at; whether the process is as before.

    Asks for "measuring" once, before the first round, and is answered when nothing disturbs it;
    for "going on" between what it makes ready ahead. Says "late" if it leaves sizes alone because
    the job's time would be over before their looks.
    """
    if job.device != "cpu":
        # Or what asks for "cuda" here gets a context on the first GPU, which another worker has.
        torch.cuda.set_device(job.device)
    with use_threads(job.threads):
        say("machine", environment=collect_environment(device=job.device).to_dict())
        timer = CellTimer(job, say, ask)
        if job.exports:
            for cells in job.sizes:
                timer.export_size(cells)
            return True
        if job.threads_ahead is not None:
            with use_threads(job.threads_ahead):
                timer.get_ready_ahead(_take_in_time(job))
            timer.wait()
        timed: list[Cells] = []
        noisy = {}
        with _keep_ready(job.device):
            for cells in job.sizes:
                if is_late(job, [*timed, cells]):
                    say("late")
                    break
                if outcome := timer.time_size(cells):
                    noisy[cells] = outcome
                timed.append(cells)
            for cells, outcome in noisy.items():
                if not is_late(job, timed):
                    timer.time_again(cells, outcome)
        wanted = [cells for cells in timed if any(cell.looks for cell in cells)]
        if not wanted:
            return True
        timer.wait()  # unless something was timed
        from ftax.sweeps.looks import look_at

        look_at(timer, wanted)
        return False


def _take_in_time(job: Job) -> Iterator[Cells]:
    """The sizes that can all be timed and looked at in the time that is left."""
    sizes = job.sizes
    for count, cells in enumerate(sizes, start=1):
        if is_late(job, sizes[:count], untimed=count):
            return
        yield cells


def is_late(job: Job, sizes: Sequence[Cells], untimed: int = 1) -> bool:
    """Whether timing the last ``untimed`` of ``sizes`` would leave no time to look at them all."""
    if job.end_at is None:
        return False
    looks_s = sum(
        _LOOK_S[look] + (0 if cell.time else _ANEW_S)
        for cells in sizes
        for cell in cells
        for look in cell.looks
    )
    rounds_s = _SIZE_S + (untimed - 1) * _LATER_SIZE_S
    return time.monotonic() + rounds_s + looks_s > job.end_at


@contextmanager
def _keep_ready(device: str) -> Iterator[None]:
    """What each measurement does anew unless it is done already: starting NVML, and collecting the
    garbage of a process that has imported everything."""
    with ExitStack() as stack:
        if device != "cpu":
            with suppress(UnavailableError):  # a measurement says why
                stack.enter_context(open_gpu(device))
        stack.enter_context(quiet())
        yield
