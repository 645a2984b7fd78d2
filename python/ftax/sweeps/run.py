"""Runs a sweep: grids and a folder in, results out, with nothing lost that was measured.

The surprising choice: this process measures nothing. It takes answers of workers, of which one at a
time measures on a device, and writes each to the results file before it listens for the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ftax.errors import InvalidArgumentError, UnavailableError, check_count, check_number
from ftax.records.store import append_record
from ftax.steps.given import use_threads
from ftax.sweeps.crews import Crews
from ftax.sweeps.exports import make_units, read_exported
from ftax.sweeps.grid import Grid, join_cells
from ftax.sweeps.grid_file import read_grids
from ftax.sweeps.lock import lock_folder
from ftax.sweeps.plan import Task, TaskQueue
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.record import SweepRun, SweepTimes
from ftax.sweeps.results import RUNS_FILE, SweepResults
from ftax.sweeps.setup import (
    FULL,
    QUICK,
    Planner,
    choose_looks,
    list_everywhere,
    list_unlike_before,
    read_known,
)
from ftax.sweeps.sites import LocalSites, Site, Sites, read_wanted
from ftax.sweeps.store import CellStore
from ftax.timing.cell import Cell
from ftax.timing.session import Plan, Progress

LIMIT_S = 300.0


def sweep(
    grids: Grid | Sequence[Grid] | str | os.PathLike[str],
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
    on: str = "local",
    mixed: bool = False,
    progress: Progress | None = None,
) -> SweepResults:
    """Measure all cells of ``grids`` into ``folder``; see docs/sweep.md.

    Args:
        grids: grids, one of them, or a file of them.
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
        on: "local", this machine; "ray" or "ray=HOST:PORT", the machines of a Ray cluster, which
            share the cells. See docs/fleet.md.
        mixed: of a cluster, also machines whose software is not that of most.
        progress: called as ``progress(what, cells done, cells)``.

    Raises:
        InvalidArgumentError: the folder has results already, or a value is wrong.
        UnavailableError: this machine lacks a device of the grids, or all of the cluster do; there
            is no cluster.
        ResultsError: another process writes to the folder, or it cannot be written.
        RunnerError: workers do not start, or no machine is left that may go on.
        KeyboardInterrupt: Ctrl-C; everything measured until then is in the folder.
    """
    check_number("limit_s", limit_s)
    if time_limit_s is not None:
        check_number("time_limit_s", time_limit_s)
    end_at = None if time_limit_s is None else time.monotonic() + time_limit_s
    if exporters is not None:
        check_count("exporters", exporters, least=0, most=999)
    if workers is not None:
        check_count("workers", workers, most=99)
    if retry_failed and not resume:
        raise InvalidArgumentError(
            "retry_failed is for a folder with results; give resume too, or leave it out"
        )
    if not gpus:
        raise InvalidArgumentError("gpus is empty; give at least one, such as 'cuda:0'")
    if isinstance(grids, Grid):
        grids = (grids,)
    elif isinstance(grids, str | os.PathLike):
        grids = read_grids(grids)
    place, cells = Path(folder), join_cells(grids)
    plan = replace(plan or (QUICK if quick else FULL), seed=seed)

    def tell(words: str) -> None:
        if progress is not None:
            progress(words, 0, len(cells))

    with use_threads(threads), lock_folder(place):
        known = read_known(place, resume)
        there = open_sites(on, cells, gpus, threads=threads, mixed=mixed, end_at=end_at, tell=tell)
        with closing(there) as sites:
            first = sites.find()
            check_devices(cells, first, sites.list_notes())
            for note in (unlike := list_unlike_before(known, first)):
                tell(note)
            everywhere = list_everywhere(grids)
            crews = Crews(
                store=CellStore(place, cells, known.cells, everywhere),
                queue=TaskQueue(),
                progress=SweepProgress(progress),
                sites=sites,
                plan=plan,
                trace_iterations=2 if quick else 3,
                limit_s=limit_s,
                end_at=end_at,
                workers=workers,
            )
            planner = Planner(
                store=crews.store,
                queue=crews.queue,
                progress=crews.progress,
                looks=choose_looks(grids, trace),
                everywhere=everywhere,
                retry_failed=retry_failed,
                seed=seed,
            )
            missing = planner.welcome(first)
            run = SweepRun(
                utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
                seed=seed,
                grids=tuple(grid.to_dict() for grid in grids),
                settings={
                    "quick": quick, "trace": trace, "retry_failed": retry_failed,
                    "limit_s": limit_s, "gpus": list(gpus), "workers": workers,
                    "threads": first[0].threads, "on": on.partition("=")[0], "mixed": mixed,
                    "machines": sorted(planner.machines),
                },
                cells=len(cells),
                missing=missing,
            )  # fmt: skip
            append_record(place / RUNS_FILE, run)
            try:
                for site, units in _share_exports(cells, crews.queue, first, place).items():
                    crews.export(units, site, exporters)
                crews.run(planner.welcome)
            finally:
                append_record(place / RUNS_FILE, SweepTimes(utc=run.utc, seconds=crews.seconds))
            found = crews.store.collect()
            notes = (*unlike, *sites.list_notes(), *planner.list_absent())
            problems = (*found.problems, *dict.fromkeys(notes))
            return replace(found, is_late=crews.is_late, problems=problems)


run_sweep = sweep  # its name inside, where a command has the other


def open_sites(
    on: str,
    cells: Sequence[Cell],
    gpus: Sequence[str],
    *,
    threads: int | None,
    mixed: bool,
    end_at: float | None,
    tell: Callable[[str], None],
) -> Sites:
    """Where to measure. Raises InvalidArgumentError for what is no such place, UnavailableError for
    one that cannot be had."""
    engine, equals, address = on.partition("=")
    if engine == "ray" and bool(equals) == bool(address):
        from ftax.sweeps.fleet import RaySites

        return RaySites(cells, address, threads=threads, is_mixed=mixed, end_at=end_at, tell=tell)
    if on != "local" or mixed:
        raise InvalidArgumentError(
            f"on is {on!r}{' and mixed is given' if mixed else ''}; give 'local', or 'ray' or "
            "'ray=HOST:PORT' for a cluster, which alone can be mixed"
        )
    return LocalSites(cells, gpus)


def check_devices(cells: Sequence[Cell], sites: Sequence[Site], notes: Sequence[str] = ()) -> None:
    """Raise UnavailableError for a device that no site has; ``notes`` may say why."""
    for wanted in dict.fromkeys(read_wanted(cell) for cell in cells):
        if not any(site.fits(wanted) for site in sites):
            gpus = [site.machine.environment.gpu for site in sites if site.is_gpu]
            names = dict.fromkeys(gpu.name if gpu else "a GPU without a name" for gpu in gpus)
            has_cpu = ["cpu"] if any(not site.is_gpu for site in sites) else []
            raise UnavailableError(
                f"devices has {wanted.describe()!r}, which no machine here has: there is "
                f"{'; '.join([', '.join([*names, *has_cpu]), *notes])}"
            )


def _share_exports(
    cells: Sequence[Cell], queue: TaskQueue, sites: Sequence[Site], folder: Path
) -> dict[Site, list[Task]]:
    """What is to be exported before anything is timed, by the site that will time it: a file is
    made for one device, and which of several takes a cell is not known."""
    tasks = queue.list_left()
    fixed = {}
    for task in tasks:
        fitting = [site for site in sites if site.fits(task.wanted)]
        if len(fitting) == 1:
            fixed[task.wanted] = fitting[0]
    shared: dict[Site, list[Task]] = {}
    for unit in make_units(tasks, cells, fixed, read_exported(folder)):
        shared.setdefault(fixed[unit.wanted], []).append(unit)
    return shared
