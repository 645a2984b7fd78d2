"""Runs a sweep: grids and a folder in, results out, with nothing lost that was measured.

The surprising choice: this process measures nothing. It takes answers of workers, of which one at a
time measures on a device, and writes each to the results file before it listens for the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import torch

from ftax.errors import InvalidArgumentError
from ftax.machines.environment import collect_environment
from ftax.steps.given import use_threads
from ftax.steps.setting import normalize_device
from ftax.sweeps.exports import Exporter, Unit, choose_workers, make_units, read_exported
from ftax.sweeps.grid import Grid, join_cells
from ftax.sweeps.job import Group, Job
from ftax.sweeps.lane import Lane, TaskQueue
from ftax.sweeps.lock import lock_folder
from ftax.sweeps.plan import choose_items, make_tasks
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.record import SweepMachine
from ftax.sweeps.results import SweepResults
from ftax.sweeps.setup import (
    FULL,
    QUICK,
    choose_devices,
    choose_looks,
    note_run,
    note_times,
    read_known,
    set_aside,
)
from ftax.sweeps.step_clock import StepClock
from ftax.sweeps.store import CellStore
from ftax.sweeps.turns import Turn, Turns, choose_sharers
from ftax.timing.session import Plan, Progress
from ftax.workers.process import Stop, work_side_by_side

LIMIT_S = 300.0


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
    effort = QUICK if quick else FULL
    plan = replace(plan or effort.plan, seed=seed)
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
        utc = note_run(place, grids, settings, seed, len(cells), len(items))
        missing = set_aside(store, items, devices, machines)
        done = len(cells) - sum(item.time for item in missing.values())
        tasks = make_tasks(cells, missing, seed)
        sweep = _Sweep(
            store=store,
            queue=TaskQueue(tasks),
            progress=SweepProgress(len(cells), done, progress),
            plan=plan,
            trace_iterations=effort.trace_iterations,
            limit_s=limit_s,
            end_at=end_at,
            threads=torch.get_num_threads(),
            workers=workers,
            machines={device: machine.id for device, machine in machines.items()},
        )
        # A file is made for one device, and which of several takes a cell is not known.
        fixed = {name: device for name, device in devices.items()
                 if name != "cuda" or len(shared) == 1}  # fmt: skip
        is_late = False
        try:
            sweep.export(
                make_units(tasks, cells, fixed, read_exported(place)),
                place,
                choose_workers(machines.values()) if exporters is None else exporters,
            )
            is_late |= sweep.run(on_gpus, shared)
            # Never beside a GPU: they share the host.
            is_late |= sweep.run(["cpu"] if "cpu" in devices else [], [])
        finally:
            note_times(place, utc, sweep.spent)
        return replace(store.collect(), is_late=is_late)


@dataclass(frozen=True, slots=True, kw_only=True)
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
    spent: list[dict[str, float]] = field(default_factory=list)  # of each device

    def run(self, devices: Sequence[str], shared: Sequence[str]) -> bool:
        """The lanes of all devices side by side, until there is nothing left for any of them, or
        the time is over, which is the answer."""
        with closing(Stop()) as stop:
            by_device = [self._make_lanes(device, shared, stop) for device in devices]
            # One of each GPU, then the next of each: tasks may be fewer than lanes, and the first
            # GPU's would take them all.
            lanes = list(chain.from_iterable(zip(*by_device, strict=True)))
            work_side_by_side([lane.run for lane in lanes], stop)
        return any(lane.is_late for lane in lanes)

    def export(self, units: list[Unit], folder: Path, workers: int) -> None:
        """Have the units exported by so many workers; by none if one would do it all."""
        workers = min(workers, len(units))
        if workers < 2:
            return
        start = time.monotonic()
        with closing(Stop()) as stop:
            exporter = Exporter(
                units=units,
                cells=self.store.cells,
                folder=folder,
                make_job=lambda device, groups: replace(
                    self._make_job(device, groups), threads=max(1, self.threads // workers)
                ),
                limit_s=self.limit_s,
                stop=stop,
                progress=self.progress,
            )
            try:
                work_side_by_side([exporter.work] * workers, stop)
            finally:
                self.spent.append({"export": time.monotonic() - start})

    def _make_turns(self, device: str, stop: Stop) -> list[Turn | None]:
        """One for each lane of the device; a lane that has it to itself needs none."""
        if device == "cpu" or self.workers == 1:
            return [None]
        turns = Turns()
        return [Turn(turns, stop) for _ in range(self.workers)]

    def _make_lanes(self, device: str, shared: Sequence[str], stop: Stop) -> list[Lane]:
        clock, turns = StepClock(), self._make_turns(device, stop)
        self.spent.append(clock.seconds)
        lanes = max(1, len(shared)) * len(turns)
        return [
            Lane(
                device=device,
                spend=clock.add_worker(),
                shares=device in shared,
                lanes=lanes,
                workers=len(turns),
                queue=self.queue,
                store=self.store,
                make_job=self._make_job if turn is None else self._make_job_ahead,
                machine=self.machines.get(device, next(iter(self.machines.values()))),
                limit_s=self.limit_s,
                end_at=self.end_at,
                stop=stop,
                turn=turn,
                progress=self.progress,
            )
            for turn in turns
        ]

    def _make_job_ahead(self, device: str, groups: tuple[Group, ...]) -> Job:
        threads = max(1, self.threads // self.workers)  # who get ready beside each other
        return replace(self._make_job(device, groups), threads_ahead=threads)

    def _make_job(self, device: str, groups: tuple[Group, ...]) -> Job:
        return Job(
            device=device,
            groups=groups,
            threads=self.threads,
            plan=self.plan,
            trace_iterations=self.trace_iterations,
            end_at=self.end_at,
        )
