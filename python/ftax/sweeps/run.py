"""Runs a sweep: grids and a folder in, results out, with nothing lost that was measured.

The surprising choice: this process measures nothing. It takes answers of workers, of which one at a
time measures on a device, and writes each to the results file before it listens for the next.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ftax.errors import InvalidArgumentError
from ftax.machines.environment import Environment, collect_environment
from ftax.records.store import append_record
from ftax.steps.given import use_threads
from ftax.steps.setting import normalize_device
from ftax.sweeps.exports import make_units, read_exported
from ftax.sweeps.grid import Grid, join_cells
from ftax.sweeps.job import LOOKS, Group, Job
from ftax.sweeps.lane import WAITING, Lane
from ftax.sweeps.lock import lock_folder
from ftax.sweeps.plan import Task, TaskQueue, choose_items, make_tasks
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.record import SweepMachine, SweepRun, SweepTimes
from ftax.sweeps.results import RUNS_FILE, SweepResults
from ftax.sweeps.room import choose_exporters, choose_sharers
from ftax.sweeps.setup import (
    FULL,
    QUICK,
    choose_devices,
    choose_looks,
    read_known,
    set_aside,
)
from ftax.sweeps.store import CellStore
from ftax.sweeps.turns import Turn, Turns
from ftax.timing.session import Plan, Progress
from ftax.workers.process import Stop, work_side_by_side

LIMIT_S = 300.0
# Cells, in whole models, that a worker on a GPU times before it looks at any: its context, its
# libraries and its kernels are loaded once for all, and a trace makes it useless for timing.
_TOGETHER = 60
_TOLD = ("build", "measure", *LOOKS)  # in the progress


def run_sweep(
    grids: Sequence[Grid],
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    retry_failed: bool = False,
    quick: bool = False,
    plan: Plan | None = None,
    seed: int = 0,
    limit_s: float = LIMIT_S,
    time_limit_s: float | None = None,
    trace: bool = True,
    gpus: Sequence[str] = ("cuda:0",),
    exporters: int | None = None,
    workers: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> SweepResults:
    """Measure all cells of ``grids`` into ``folder``; see docs/sweep.md.

    Args:
        resume: the folder has results, and only what they lack is run.
        retry_failed: with ``resume``, cells that failed count as missing.
        quick: few and short rounds, for a first look.
        plan: how each size is timed; None: as a sweep does, or as a ``quick`` one does.
        seed: of the order, and of the rounds.
        limit_s: seconds that one step of a worker may take (building a model, making one runtime
            ready, the rounds of one size) before the worker is ended.
        time_limit_s: seconds for all. What was timed until then is looked at too, and what is left
            is for another call with ``resume``; `SweepResults.is_late` says whether anything is.
            Exports are not cut short.
        trace: on a GPU, trace kernels after the rounds.
        gpus: that share the cells of device "cuda".
        exporters: workers that export side by side before anything is timed; 0: each cell is
            exported when it is timed; None: as many as the machine has room for.
        workers: that share a GPU: they make runtimes ready side by side, and one at a time measures
            while the others idle; None: as many as the machine has room for, up to 4.
        threads: torch's intra-op threads; None leaves torch's setting.
        progress: called as ``progress(what, cells done, cells)``.

    Raises:
        InvalidArgumentError: the folder has results already, or a value is wrong.
        UnavailableError: this machine lacks a device of the grids.
        ResultsError: another process writes to the folder, or it cannot be written.
        RunnerError: workers do not start.
        KeyboardInterrupt: Ctrl-C; everything measured until then is in the folder.
    """
    if not 0 < limit_s < 1e9:
        raise InvalidArgumentError(f"limit_s is {limit_s}; it has to be above 0 and finite")
    if time_limit_s is not None and not 0 < time_limit_s < 1e9:
        raise InvalidArgumentError(f"time_limit_s is {time_limit_s}; it has to be above 0")
    end_at = None if time_limit_s is None else time.monotonic() + time_limit_s
    if exporters is not None and not 0 <= exporters < 1000:
        raise InvalidArgumentError(f"exporters is {exporters}; it has to be from 0 to 999")
    if workers is not None and not 1 <= workers < 100:
        raise InvalidArgumentError(f"workers is {workers}; it has to be from 1 to 99")
    if retry_failed and not resume:
        raise InvalidArgumentError(
            "retry_failed is for a folder with results; give resume too, or leave it out"
        )
    place, cells = Path(folder), join_cells(grids)
    plan = replace(plan or (QUICK if quick else FULL), seed=seed)
    devices = choose_devices(cells, gpus)
    with lock_folder(place), use_threads(threads):
        store = CellStore(place, cells, read_known(place, resume))
        machines = {
            device: SweepMachine.of(collect_environment(device=device))
            for device in dict.fromkeys(devices.values())
        }
        shared = [normalize_device(gpu) for gpu in gpus] if "cuda" in devices else []
        on_gpus = sorted({*devices.values(), *shared} - {"cpu"})
        if workers is None:
            workers = choose_sharers(machines.values(), len(on_gpus))
        items = choose_items(
            cells,
            known=store.known,
            looks=choose_looks(grids, trace),
            machines={name: machines[device].id for name, device in devices.items()},
            retry_failed=retry_failed,
        )
        settings = {
            "quick": quick, "trace": trace, "retry_failed": retry_failed, "limit_s": limit_s,
            "gpus": list(gpus), "workers": workers, "threads": torch.get_num_threads(),
        }  # fmt: skip
        run = SweepRun(
            utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
            seed=seed,
            grids=tuple(grid.to_dict() for grid in grids),
            settings=settings,
            cells=len(cells),
            missing=len(items),
        )
        append_record(place / RUNS_FILE, run)
        missing = set_aside(store, items, devices, machines)
        to_time = {place for place, item in missing.items() if item.time}
        tasks = make_tasks(cells, missing, seed)
        sweep = _Sweep(
            store=store,
            queue=TaskQueue(tasks),
            progress=SweepProgress(len(cells), to_time, progress),
            plan=plan,
            trace_iterations=2 if quick else 3,
            limit_s=limit_s,
            end_at=end_at,
            threads=torch.get_num_threads(),
            workers=workers,
            machines={device: machine.id for device, machine in machines.items()},
        )
        # A file is made for one device, and which of several takes a cell is not known.
        fixed = {name: device for name, device in devices.items()
                 if name != "cuda" or len(shared) == 1}  # fmt: skip
        try:
            sweep.export(
                make_units(tasks, cells, fixed, read_exported(place)),
                choose_exporters(machines.values()) if exporters is None else exporters,
            )
            sweep.run(on_gpus, shared)
            # Never beside a GPU: they share the host.
            sweep.run(["cpu"] if "cpu" in devices else [], [])
        finally:
            append_record(place / RUNS_FILE, SweepTimes(utc=run.utc, seconds=sweep.seconds))
        return replace(store.collect(), is_late=sweep.is_late)


@dataclass(slots=True, kw_only=True)
class _Sweep:
    """What the lanes of a sweep share."""

    store: CellStore
    queue: TaskQueue
    progress: SweepProgress
    plan: Plan
    trace_iterations: int
    limit_s: float
    end_at: float | None
    threads: int  # asked once: in another thread torch may answer otherwise
    workers: int  # of one GPU
    machines: Mapping[str, str]
    seconds: dict[str, float] = field(default_factory=dict)  # of each step, over all devices
    is_late: bool = False  # the time was over, and something was left
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run(self, devices: Sequence[str], shared: Sequence[str]) -> None:
        """The lanes of all devices side by side, until there is nothing left for any of them, or
        the time is over. GPUs in ``shared`` also take what is for any."""
        workers = self._count_workers(devices)
        turns = {device: Turns() for device in devices}
        with closing(Stop()) as stop:
            works = []
            # One of each GPU, then the next of each: tasks may be fewer than lanes, and the first
            # GPU's would take them all.
            for device in [*devices] * workers:
                lane = self._make_lane(device, turns[device], stop)
                jobs = self._list_jobs(device, workers, len(shared) if device in shared else 0)
                works.append(partial(self._follow, lane, jobs, workers))
            work_side_by_side(works, stop)

    def export(self, units: Sequence[Task], workers: int) -> None:
        """Have the units exported by so many workers; by none if one would do it all."""
        for device in dict.fromkeys(unit.device for unit in units):
            mine = [unit for unit in units if unit.device == device]
            count = min(workers, len(mine))
            if count < 2:
                continue
            start, threads = time.monotonic(), max(1, self.threads // count)
            # The iterator of a list, from which several threads may take.
            jobs = iter(
                [
                    self._make_job(device, unit.groups, threads=threads, exports=True)
                    for unit in mine
                ]
            )
            self.progress.expect_exports(sum(unit.size for unit in mine))
            with closing(Stop()) as stop:
                lanes = [self._make_lane(device, Turns(), stop) for _ in range(count)]
                try:
                    work_side_by_side(
                        [partial(self._follow_exports, lane, jobs) for lane in lanes], stop
                    )
                finally:
                    self._spend("export", start, 1)

    def _count_workers(self, devices: Sequence[str]) -> int:
        """Of each of the devices."""
        return 1 if "cpu" in devices else self.workers

    def _make_lane(self, device: str, turns: Turns, stop: Stop) -> Lane:
        return Lane(device=device, limit_s=self.limit_s, stop=stop, turn=Turn(turns, stop))

    def _list_jobs(self, device: str, workers: int, sharing: int) -> Iterator[dict[str, Any]]:
        """What one of ``workers`` on a device does, until the time is over; ``sharing``: how many
        devices take what is for any GPU, 0 if this one does not."""
        ahead = None if workers == 1 else max(1, self.threads // workers)
        while not self.is_late:
            most = 1 if device == "cpu" else _TOGETHER
            tasks = self.queue.take(device, sharing > 0, most, workers * max(1, sharing))
            if not tasks:
                return
            if self.end_at is not None and time.monotonic() > self.end_at:
                self.is_late = True
                return
            groups = tuple(group for task in tasks for group in task.groups)
            yield self._make_job(device, groups, threads_ahead=ahead)

    def _make_job(self, device: str, groups: tuple[Group, ...], **changes: Any) -> dict[str, Any]:
        job = Job(
            device=device,
            groups=groups,
            threads=self.threads,
            plan=self.plan,
            trace_iterations=self.trace_iterations,
            end_at=self.end_at,
        )
        return replace(job, **changes).to_dict()

    def _follow(self, lane: Lane, jobs: Iterable[Mapping[str, Any]], workers: int) -> None:
        """Have a lane, one of ``workers`` of its device, do jobs, and note each result at once."""
        machine = self.machines.get(lane.device, next(iter(self.machines.values()), ""))
        step, since = WAITING, time.monotonic()
        try:
            with closing(lane.run(jobs)) as results:
                for result in results:
                    if result["say"] == "begin":
                        step, since = result["step"], self._spend(step, since, workers)
                        self._tell(step, result["places"])
                    elif result["say"] == "machine":
                        environment = Environment.from_dict(result["environment"])
                        machine = self.store.add_machine(environment)
                    else:
                        self._note(result, machine, lane.device)
        finally:
            self._spend(step, since, workers)

    def _spend(self, step: str, since: float, workers: int) -> float:
        """Note the time since then as one of ``workers`` of a device; the time that it is now."""
        now = time.monotonic()
        with self._lock:
            self.seconds[step] = self.seconds.get(step, 0.0) + (now - since) / workers
        return now

    def _note(self, result: dict[str, Any], machine: str, device: str) -> None:
        say, place = result.pop("say"), result.pop("place", None)
        if say == "measured":
            self.store.add_measured(place, machine, device, result)
        elif say == "failed":
            self.store.add_failed(place, machine, **result)
        elif say == "looked":
            self.store.add_look(place, **result)
        elif say == "late":
            self.is_late = True
        if say in ("measured", "failed"):
            self.progress.finish([place])

    def _tell(self, step: str, places: Sequence[int]) -> None:
        if step == "prepare":
            self.progress.note_ready(places)
        if step in _TOLD and places:
            self.progress.tell(step, self.store.cells[places[0]].label(), len(places))

    def _follow_exports(self, lane: Lane, jobs: Iterable[Mapping[str, Any]]) -> None:
        with closing(lane.run(jobs)) as results:
            for result in results:
                if result["say"] == "exported":
                    self.store.add_export(result["place"], result["seconds"], result["reason"])
                elif result["say"] == "begin" and result["step"] == "export":
                    self.progress.tell_export(self.store.cells[result["places"][0]].label())
