"""Runs a sweep: grids and a folder in, results out, with nothing lost that was measured.

This process measures nothing. It takes answers of workers, and writes each to the results file
before it listens for the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

from ftax.errors import InvalidArgumentError, UnavailableError, check_count, check_number
from ftax.machines.differences import TELLING_APART, describe_difference, find_differences
from ftax.records.store import append_record
from ftax.steps.given import use_threads
from ftax.sweeps.fleet import RaySites, Sites
from ftax.sweeps.grid import Grid, join_cells, read_grids
from ftax.sweeps.job import Job
from ftax.sweeps.plan import (
    JobQueue,
    Planner,
    choose_looks,
    make_export_jobs,
    read_exported,
    read_wanted,
)
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.results import RUNS_FILE, SweepResults
from ftax.sweeps.scheduler import Scheduler
from ftax.sweeps.side_by_side import name_device
from ftax.sweeps.sites import LocalSites, Site
from ftax.sweeps.store import CellStore, lock_folder, read_known
from ftax.sweeps.sweep_records import SweepRun, SweepTimes
from ftax.timing.cell import Cell
from ftax.timing.plan import Plan, Progress

LIMIT_S = 300.0
_ALL_ROUNDS = 1e-6  # a precision that is never met: unless the time limit comes first
# How long a sweep stays with a size.
FULL = Plan(max_rounds=20, round_ms=5.0, duration_s=2.0, patience_s=0.5, target_ratio=_ALL_ROUNDS)
QUICK = Plan(max_rounds=4, round_ms=4.0, duration_s=0.5, target_ratio=_ALL_ROUNDS)


class SiteOptions(TypedDict, total=False):
    """The keywords of `sweep` that say where its workers run."""

    gpus: Sequence[str]
    workers: int | None
    on: str
    mixed: bool


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
            own = [grid for grid in grids if grid.every_machine]
            everywhere = frozenset(cell.key() for grid in own for cell in grid.cells())
            scheduler = Scheduler(
                store=CellStore(place, cells, known.cells, everywhere),
                queue=JobQueue(),
                progress=SweepProgress(progress),
                sites=sites,
                plan=plan,
                trace_iterations=2 if quick else 3,
                limit_s=limit_s,
                end_at=end_at,
                workers=workers,
            )
            planner = Planner(
                store=scheduler.store,
                queue=scheduler.queue,
                progress=scheduler.progress,
                looks=choose_looks(grids, trace),
                retry_failed=retry_failed,
                seed=seed,
            )
            missing = planner.add_sites(first)
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
                for site, jobs in _share_exports(cells, scheduler.queue, first, place).items():
                    scheduler.export(jobs, site, exporters)
                scheduler.run(planner.add_sites)
            finally:
                append_record(place / RUNS_FILE, SweepTimes(utc=run.utc, seconds=scheduler.seconds))
            found = scheduler.store.collect()
            notes = (*unlike, *sites.list_notes(), *planner.list_absent())
            problems = (*found.problems, *dict.fromkeys(notes))
            return replace(found, is_late=scheduler.is_late, problems=problems)


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
        return RaySites(cells, address, threads=threads, is_mixed=mixed, end_at=end_at, tell=tell)
    if on != "local" or mixed:
        raise InvalidArgumentError(
            f"on is {on!r}{' and mixed is given' if mixed else ''}; give 'local', or 'ray' or "
            "'ray=HOST:PORT' for a cluster, which alone can be mixed"
        )
    return LocalSites(cells, gpus)


def list_unlike_before(known: SweepResults, sites: Iterable[Site]) -> list[str]:
    """Devices of the same kind as one that the folder has results of, whose results are another
    machine's all the same, as by another number of threads."""
    notes = []
    for now in {site.machine.id: site.machine for site in sites}.values():
        name = name_device(now.environment)
        if now.id in known.machines:
            continue
        for before in known.machines.values():
            if name_device(before.environment) != name:
                continue
            sides = {"the folder's cells": [before.environment], "this run": [now.environment]}
            apart = find_differences(sides, TELLING_APART)
            if apart and now.environment.machine == before.environment.machine:
                told = "; ".join(describe_difference(fact, of) for fact, of in apart.items())
                notes.append(
                    f"what this run measures on {name} counts as another machine's: {told}. Tables "
                    "and verdicts keep them apart; to go on with the one, start as it was started"
                )
                break
    return notes


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
    cells: Sequence[Cell], queue: JobQueue, sites: Sequence[Site], folder: Path
) -> dict[Site, list[Job]]:
    """What is to be exported before anything is timed, by the site that will time it: a file is
    made for one device, and which of several takes a cell is not known."""
    left = queue.list_left()
    fixed = {}
    for wanted in dict.fromkeys(job.cells[0].wanted for job in left):
        fitting = [site for site in sites if site.fits(wanted)]
        if len(fitting) == 1:
            fixed[wanted] = fitting[0]
    shared: dict[Site, list[Job]] = {}
    for job in make_export_jobs(left, cells, fixed, read_exported(folder)):
        shared.setdefault(fixed[job.cells[0].wanted], []).append(job)
    return shared
