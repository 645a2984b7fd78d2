"""Tries each alternative in a process of its own before a receipt measures them all in one.

A runtime that faults on a GPU takes the process with it, and every round measured there. The
surprising choice: a rehearsal does all that the receipt will do (requests, gate, trace), because a
fault may wait in any of them; and it is cheap all the same, since processes run side by side and
what they compile is in the cache afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ftax.errors import describe
from ftax.steps.setting import Setting
from ftax.timing.session import Plan, Progress, measure, require
from ftax.workers.death import name_signal, read_last_line
from ftax.workers.time_limit import default_seconds

_MOST = 8  # processes side by side: each holds a copy of the model
_AFTER_PREPARING_S = 120.0
_PLAN = Plan(rounds=3, warmup=3, round_ms=20.0)

Place = tuple[str, str]  # runtime, host


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What one process tries: a model that `load_model` makes, and runtimes with their hosts."""

    model: str
    places: tuple[Place, ...]
    setting: Setting = field(default_factory=Setting)

    def to_dict(self) -> dict[str, Any]:
        """The job as JSON."""
        return {**asdict(self), "setting": self.setting.to_dict()}


def rehearse(job: Rehearsal, progress: Progress | None = None) -> dict[Place, str]:
    """Those of the job's runtimes that took their process down, and how.

    A runtime that merely raises is none of them: it will say so again where it is measured. The
    hosts of a runtime share a process, and what is found of one is found of both.
    """
    runtimes = sorted({runtime for runtime, _ in job.places})
    found: dict[Place, str] = {}
    with ThreadPoolExecutor(min(_MOST, os.cpu_count() or 1)) as pool:
        begun = {}
        for runtime in runtimes:
            places = tuple(place for place in job.places if place[0] == runtime)
            begun[pool.submit(_try, replace(job, places=places))] = places
        for done, future in enumerate(as_completed(begun)):
            if progress:
                progress("trying each runtime in a process of its own", done, len(begun))
            if (death := future.result()) is not None:
                found |= dict.fromkeys(begun[future], death)
    return found


def _try(job: Rehearsal) -> str | None:
    limit_s = default_seconds() + _AFTER_PREPARING_S
    try:
        worker = subprocess.run(
            [sys.executable, "-m", "ftax.ladders.rehearsal"],
            input=json.dumps(job.to_dict()),
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return f"tried in a process of its own, it was not done after {limit_s:g} s"
    except OSError as error:
        return f"it could not be tried in a process of its own: {describe(error)}"
    if worker.returncode == 0:
        return None
    how = name_signal(worker.returncode) or f"exit code {worker.returncode}"
    said = read_last_line(worker.stderr)
    return f"tried in a process of its own, it ended that by {how}{': ' + said if said else ''}"


def _work() -> None:
    from ftax.errors import FtaxError
    from ftax.ladders.look import look_at
    from ftax.runtimes.catalogue import check_host, find_runtime
    from ftax.runtimes.workspace import Workspace
    from ftax.steps.load import load_model

    data = json.load(sys.stdin)
    loaded = load_model(data["model"], **data["setting"])
    workspace = Workspace(loaded)
    try:  # what only raises is raised again where it is measured, and is told there
        prepared = [
            find_runtime(runtime).prepare(workspace, check_host(host))
            for runtime, host in data["places"]
        ]
        require(measure(loaded, prepared, _PLAN))
        if loaded.device != "cpu":
            look_at(loaded, prepared, job=None, progress=None)
    except (FtaxError, RuntimeError):
        pass
    fault = _find_fault(loaded.device)
    print(fault, file=sys.stderr, flush=True)
    # Without tearing down what libraries loaded: a fault at exit costs a receipt nothing.
    os._exit(1 if fault else 0)


def _find_fault(device: str) -> str:
    """Why the device refuses all that comes next, which no handler in this process could mend."""
    import torch

    if device == "cpu":
        return ""
    try:
        torch.ones(1, device=device).add_(1).item()
    except RuntimeError as error:
        return describe(error)
    return ""


if __name__ == "__main__":
    _work()
