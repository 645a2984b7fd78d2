"""Sweeps without processes: cells made of given numbers, and workers that follow a script.

A scripted worker answers like a healthy one until its script, which sees every step before it is
taken, raises what ends it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from ftax.errors import RunnerError
from ftax.machines.environment import collect_environment
from ftax.sweeps.crews import Crews
from ftax.sweeps.job import LOOKS, Group, Job
from ftax.sweeps.plan import Task, TaskQueue, choose_items, make_tasks
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.record import SweepCell, SweepMachine
from ftax.sweeps.sites import Site
from ftax.sweeps.store import CellStore
from ftax.timing.cell import Cell
from ftax.timing.session import Plan
from ftax.workers.process import Stop, WorkerDied

# (step, places, number of the worker) -> nothing, or what the worker dies of.
Script = Callable[[str, list[int], int], None]

MACHINE = SweepMachine.of(collect_environment())


def make_cell(runtime: str = "eager", **changes: Any) -> Cell:
    fields: dict[str, Any] = {"model": "m", "host": "python", "batch": 1, "sequence": 8}
    return Cell(runtime=runtime, **{**fields, **changes})


def make_measured(cell: Cell, *, machine: str = MACHINE.id, **changes: Any) -> SweepCell:
    fields: dict[str, Any] = {"status": "measured", "values_ns": (1.0, 3.0)}
    return SweepCell(cell=cell, machine=machine, **{**fields, **changes})


def make_failed(cell: Cell, *, machine: str = MACHINE.id, **changes: Any) -> SweepCell:
    fields: dict[str, Any] = {"status": "failed", "reason": "it broke"}
    return SweepCell(cell=cell, machine=machine, **{**fields, **changes})


def list_places(job: Job | Task) -> list[int]:
    """Of all its cells."""
    return [item.place for group in job.groups for item in group.items]


_pids = count()


class ScriptedWorker:
    """In the place of `Worker`; `jobs` is what all of them were asked for."""

    script: Script
    jobs: list[Job]
    pids: set[int]
    told_idle: list[list[int]]
    ended: int
    lock: threading.Lock

    def __init__(self, stop: Stop) -> None:
        self.number, self.pid = -1, next(_pids)
        type(self).pids.add(self.pid)

    def wait_until_ready(self) -> None:
        pass

    def send(self, job: Any) -> None:
        if isinstance(job, list):  # after a question
            type(self).told_idle.append(job)
            return
        with self.lock:
            self.number = len(self.jobs)
            self.jobs.append(Job.from_dict(json.loads(json.dumps(job))))
        self._answers = self._work(self.jobs[self.number])

    def receive(self, limit_s: float) -> dict[str, Any]:
        return next(self._answers)

    def end(self) -> None:
        type(self).ended += 1

    def _work(self, job: Job) -> Iterator[dict[str, Any]]:
        self._at("start", [])
        yield {"say": "machine", "environment": collect_environment().to_dict()}
        yield self._begin("build", list_places(job))
        timed = job.groups if job.end_at is None else job.groups[:1]
        for group in timed:
            yield from self._time(group)
        if timed != job.groups:
            yield {"say": "late"}
        for look in LOOKS:
            for group in timed:
                for item in group.items:
                    if look in item.looks:
                        yield self._begin(look, [item.place])
                        self._at(look, [item.place])
                        yield {"say": "looked", "place": item.place, "look": look, "fact": "found",
                               "seconds": 1.0, "fields": {"busy_ns": 2.0}}  # fmt: skip
        yield {"say": "done", "result": not any(i.looks for g in job.groups for i in g.items)}

    def _time(self, group: Group) -> Iterator[dict[str, Any]]:
        places = [item.place for item in group.items if item.time]
        is_first = group == self.jobs[self.number].groups[0]
        for place in places:
            if is_first:  # and the GPU not this worker's yet
                yield {"say": "ask", "purpose": "going on"}
            yield self._begin("prepare", [place])
            self._at("prepare", [place])
        if places and is_first:
            yield {"say": "ask", "purpose": "measuring"}
        reason = None
        for step in ("count", "measure") if group.count else ("measure",):
            if places:
                yield self._begin(step, places)
                reason = self._at(step, places)
        for place in places:
            if reason is not None:
                yield {"say": "failed", "place": place, "status": "failed", "reason": reason}
                continue
            yield {"say": "measured", "place": place, "seconds": 1.0, "values_ns": [5.0, 7.0],
                   "facts": {}, "warnings": ["apart"] if group.apart else []}  # fmt: skip

    def _begin(self, step: str, places: list[int]) -> dict[str, Any]:
        return {"say": "begin", "step": step, "places": places}

    def _at(self, step: str, places: list[int]) -> str | None:
        """Why it fails, if the script says so."""
        return type(self).script(step, places, self.number)


def script_workers(script: Script) -> type[ScriptedWorker]:
    """Workers that follow ``script``, for `run_lanes`."""
    return type(
        "Scripted",
        (ScriptedWorker,),
        {
            "script": staticmethod(script),
            "jobs": [],
            "ended": 0,
            "pids": set(),
            "told_idle": [],
            "lock": threading.Lock(),
        },
    )


class FixedSites:
    """Sites that stay."""

    may_change = False

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites, self.notes = list(sites), list[str]()

    def find(self) -> tuple[Site, ...]:
        return tuple(self.sites)

    def lose(self, site: Site, reason: str) -> None:
        raise RunnerError(reason)

    def list_notes(self) -> list[str]:
        return self.notes

    def close(self) -> None:
        pass


def make_site(start: Any, device: str = "cpu", **changes: Any) -> Site:
    fields: dict[str, Any] = {"machine": MACHINE, "host": "here", **changes}
    return Site(device=device, start=start, **fields)


def die(reason: str = "it died", *, killed: bool = False) -> None:
    raise WorkerDied(reason, killed=killed)


def run_lanes(
    workers_of: type[ScriptedWorker],
    folder: Path,
    cells: Sequence[Cell],
    *,
    looks: Sequence[str] = (),
    known: Sequence[SweepCell] = (),
    devices: Sequence[str] = ("cpu",),
    retry_failed: bool = False,
    time_limit_s: float | None = None,
    workers: int = 1,
) -> dict[int, SweepCell]:
    """Run cells with scripted workers, one lane a device, or several that take turns; the last line
    of each cell.

    With a time limit, a worker times the first of its groups and is late for the others.
    """
    end_at = None if time_limit_s is None else time.monotonic() + time_limit_s
    store = CellStore(folder, tuple(cells), known)
    sites = [make_site(workers_of, device) for device in devices]
    items = choose_items(
        cells,
        known=store.known,
        looks={cell.key(): looks for cell in cells},
        sites=sites,
        retry_failed=retry_failed,
    )
    crews = Crews(
        store=store,
        queue=TaskQueue(make_tasks(cells, items, 0)),
        progress=SweepProgress(None),
        sites=FixedSites(sites),
        plan=Plan(),
        trace_iterations=1,
        limit_s=1.0,
        end_at=end_at,
        workers=workers,
    )
    crews.run(lambda there: None)
    return {
        place: list(store.known[cell.key()].values())[-1]
        for place, cell in enumerate(cells)
        if cell.key() in store.known
    }
