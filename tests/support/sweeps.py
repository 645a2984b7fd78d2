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
from ftax.sweeps.job import LOOKS, Cells, Job
from ftax.sweeps.plan import JobQueue, choose_missing, make_jobs
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.scheduler import Scheduler
from ftax.sweeps.sites import Site
from ftax.sweeps.store import CellStore
from ftax.sweeps.sweep_records import SweepCell, SweepMachine
from ftax.timing.cell import Cell
from ftax.timing.plan import Plan
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


def list_places(job: Job) -> list[int]:
    """Of all its cells."""
    return [cell.place for cell in job.cells]


_pids = count(1)


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
        timed = job.sizes if job.end_at is None else job.sizes[:1]
        for cells in timed:
            yield from self._time(cells)
        if timed != job.sizes:
            yield {"say": "late"}
        for look in LOOKS:
            for cells in timed:
                for cell in cells:
                    if look in cell.looks:
                        yield self._begin(look, [cell.place])
                        self._at(look, [cell.place])
                        yield {"say": "looked", "place": cell.place, "look": look, "fact": "found",
                               "seconds": 1.0, "fields": {"busy_ns": 2.0}}  # fmt: skip
        yield {"say": "done", "result": not any(cell.looks for cell in job.cells)}

    def _time(self, cells: Cells) -> Iterator[dict[str, Any]]:
        places = [cell.place for cell in cells if cell.time]
        is_first = cells == self.jobs[self.number].sizes[0]
        for place in places:
            if is_first:  # and the GPU not this worker's yet
                yield {"say": "ask", "purpose": "going on"}
            yield self._begin("prepare", [place])
            self._at("prepare", [place])
        if places and is_first:
            yield {"say": "ask", "purpose": "measuring"}
        reason = None
        for step in ("count", "measure") if cells[0].count else ("measure",):
            if places:
                yield self._begin(step, places)
                reason = self._at(step, places)
        for place in places:
            if reason is not None:
                yield {"say": "failed", "place": place, "status": "failed", "reason": reason}
                continue
            yield {"say": "measured", "place": place, "seconds": 1.0, "values_ns": [5.0, 7.0],
                   "facts": {}, "warnings": ["apart"] if cells[0].apart else []}  # fmt: skip

    def _begin(self, step: str, places: list[int]) -> dict[str, Any]:
        return {"say": "begin", "step": step, "places": places}

    def _at(self, step: str, places: list[int]) -> str | None:
        """Why it fails, if the script says so."""
        return type(self).script(step, places, self.number)


def script_workers(script: Script) -> type[ScriptedWorker]:
    """Workers that follow ``script``, for `run_cells`."""
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


def run_cells(
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
    """Run cells with scripted workers, one a device, or several that share it; the last line of
    each cell.

    With a time limit, a worker times the first of its sizes and is late for the others.
    """
    end_at = None if time_limit_s is None else time.monotonic() + time_limit_s
    store = CellStore(folder, tuple(cells), known)
    sites = [make_site(workers_of, device) for device in devices]
    missing = choose_missing(
        cells,
        known=store.known,
        looks={cell.key(): looks for cell in cells},
        sites=sites,
        retry_failed=retry_failed,
    )
    scheduler = Scheduler(
        store=store,
        queue=JobQueue(make_jobs(missing, 0)),
        progress=SweepProgress(None),
        sites=FixedSites(sites),
        plan=Plan(),
        trace_iterations=1,
        limit_s=1.0,
        end_at=end_at,
        workers=workers,
    )
    scheduler.run(lambda there: None)
    return {
        place: list(store.known[cell.key()].values())[-1]
        for place, cell in enumerate(cells)
        if cell.key() in store.known
    }
