"""Tries each alternative in a process of its own before a receipt measures them all in one.

A runtime that faults on a GPU takes the process with it, and every round measured there. The
surprising choice: a rehearsal does all that the receipt will do (requests, gate, trace), because a
fault may wait in any of them; and it is cheap all the same, since processes run side by side and
what they compile is in the cache afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import replace
from typing import Any

from ftax.errors import FtaxError, describe
from ftax.ladders.job import Job, build
from ftax.timing.session import Plan, Progress, measure, require
from ftax.workers.child import Line
from ftax.workers.process import Stop, run_task
from ftax.workers.time_limit import default_seconds

_MOST = 8  # processes side by side: each holds a copy of the model
_AFTER_PREPARING_S = 120.0
_PLAN = Plan(rounds=3, warmup=3, round_ms=20.0)


def rehearse(job: Job, progress: Progress | None = None) -> dict[tuple[str, str], str]:
    """Those of the job's runtimes that took their process down, and how.

    A runtime that merely raises is none of them: it will say so again where it is measured. The
    hosts of a runtime share a process, and what is found of one is found of both.
    """
    runtimes = sorted({runtime for runtime, _ in job.places})
    found: dict[tuple[str, str], str] = {}
    with closing(Stop()) as stop, ThreadPoolExecutor(min(_MOST, os.cpu_count() or 1)) as pool:
        begun = {}
        for runtime in runtimes:
            places = tuple(place for place in job.places if place[0] == runtime)
            begun[pool.submit(_try, replace(job, places=places), stop)] = places
        try:
            for done, future in enumerate(as_completed(begun)):
                if progress:
                    progress("trying each runtime in a process of its own", done, len(begun))
                if (death := future.result()) is not None:
                    found |= dict.fromkeys(begun[future], death)
        finally:
            stop.set()  # or Ctrl-C would wait for all of them
    return found


def _try(job: Job, stop: Stop) -> str | None:
    limit_s = default_seconds() + _AFTER_PREPARING_S
    answers = run_task("ftax.ladders.rehearsal:try_out", job.to_dict(), limit_s=limit_s, stop=stop)
    try:
        with closing(answers):  # at the first answer: a fault at its exit costs a receipt nothing
            fault: str = next(answers)["fault"]
    except FtaxError as error:
        fault = describe(error)
    return f"tried in a process of its own: {fault}" if fault else None


def try_out(data: Mapping[str, Any], line: Line) -> None:
    """The task of the process: all that a receipt does, and a word on what it left behind."""
    from ftax.ladders.look import gate_runners, trace_runners
    from ftax.runtimes.catalogue import check_host, find_runtime

    workspace = build(data)
    loaded = workspace.loaded
    try:  # what only raises is raised again where it is measured, and is told there
        prepared = [
            find_runtime(runtime).prepare(workspace, check_host(host))
            for runtime, host in data["places"]
        ]
        require(measure(loaded, prepared, _PLAN))
        if loaded.device != "cpu":
            for _ in (*gate_runners(prepared), *trace_runners(loaded, prepared)):
                pass
    except (FtaxError, RuntimeError):
        pass
    line.say("tried", fault=_find_fault(loaded.device))


def _find_fault(device: str) -> str:
    """Why the device refuses all that comes next, which no handler in this process could mend."""
    import torch

    if device == "cpu":
        return ""
    try:
        torch.ones(1, device=device).add_(1).item()
    except RuntimeError as error:
        return f"the device refuses all that comes after it: {describe(error)}"
    return ""
