"""Keeps every site of a sweep busy: so many workers each, until nothing is left for it.

No worker waits for jobs. The thread of one that finds none ends, and a site whose threads have
ended gets new ones if there is something for it again, because a machine was lost that had it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from ftax.errors import RunnerError, is_out_of_memory
from ftax.machines.environment import Environment
from ftax.sweeps.fleet import Sites
from ftax.sweeps.job import LOOKS, Job, JobCell, remove_done
from ftax.sweeps.plan import JobQueue
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.sites import Site, choose_exporters, choose_sharers
from ftax.sweeps.store import CellStore
from ftax.sweeps.supervisor import WAITING, DeviceLock, Supervisor, make_failure
from ftax.timing.plan import Plan
from ftax.workers.cluster import MachineLost
from ftax.workers.process import Stop, work_side_by_side

# Cells, in whole models, that a worker on a GPU times before it looks at any: its context, its
# libraries and its kernels are loaded once for all, and a trace makes it useless for timing.
_TOGETHER = 60
_TOLD = ("build", "measure", *LOOKS)  # in the progress
_LOOK_S = 0.5  # at machines that come, and at Ctrl-C
_ALONE_S = 60.0  # that a sweep without any machine waits for one
_MOST_THREADS = 1000  # of workers
_MOST_LOSSES = 2  # of machines at the same cell, from which on it is to blame

Busy = dict[Site, list[Future[None]]]  # the threads of workers


@dataclass(slots=True, kw_only=True)
class Scheduler:
    """Starts workers at all sites, and notes what they answer."""

    store: CellStore
    queue: JobQueue
    progress: SweepProgress
    sites: Sites
    plan: Plan
    trace_iterations: int
    limit_s: float
    end_at: float | None
    workers: int | None = None  # of one GPU; None: as many as its machine has room for
    seconds: dict[str, float] = field(default_factory=dict)  # of each step, over all devices
    is_late: bool = False  # the time was over, and something was left
    _locks: dict[tuple[str, str], DeviceLock] = field(default_factory=dict, init=False)
    _losses: dict[int, int] = field(default_factory=dict, init=False)  # of machines, by place
    # What ran out of memory beside other workers, which is tried once more when they have ended.
    _kept: list[JobCell] = field(default_factory=list, init=False)
    _is_quiet: bool = field(default=False, init=False)  # one worker a device, from here on
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run(self, add_sites: Callable[[Sequence[Site]], object]) -> None:
        """Until nothing is left, or the time is over. ``add_sites`` is called with all
        sites that are there, again and again, before any new one starts.

        Raises RunnerError if something is left that no site can do.
        """
        busy: Busy = {}
        alone_since: float | None = None
        with closing(Stop()) as stop, ThreadPoolExecutor(_MOST_THREADS) as threads:
            try:
                while True:
                    sites = self.sites.find()
                    add_sites(sites)
                    if not self.is_late:
                        self._start(sites, busy, threads, stop)
                    if busy:
                        alone_since = None
                        _wait_a_while(busy)
                        continue
                    if not (self.is_late or self.queue.list_left()):
                        self._put_back_kept()
                    if self.is_late or not self.queue.list_left():
                        return
                    alone_since = alone_since or time.monotonic()
                    self._wait_for_machine(time.monotonic() - alone_since)
            finally:
                stop.set()

    def _start(
        self, sites: Sequence[Site], busy: Busy, threads: ThreadPoolExecutor, stop: Stop
    ) -> None:
        """Start workers at the sites that may, one at each, then the next at each: jobs may be
        fewer than workers, and the first site's would take them all."""
        counts = {site: self._count_workers(site, sites) for site in self._choose(sites, busy)}
        total = sum(counts.values()) + sum(map(len, busy.values()))
        for number in range(max(counts.values(), default=0)):
            for site, count in counts.items():
                if number < count:
                    work = threads.submit(self._work, site, count, total, stop)
                    busy.setdefault(site, []).append(work)

    def export(self, jobs: Sequence[Job], site: Site, exporters: int | None) -> None:
        """Have jobs of exports done at a site by so many workers, or as many as it has room for; by
        none if one would do it all."""
        most = choose_exporters(site.machine) if exporters is None else exporters
        count = min(most, len(jobs))
        if count < 2:
            return
        start, threads = time.monotonic(), max(1, site.threads // count)
        # The iterator of a list, from which several threads may take.
        left = iter([self._complete(site, [job], threads=threads, exports=True) for job in jobs])
        self.progress.expect_exports(sum(job.to_time for job in jobs))

        def work() -> None:
            with closing(self._make_supervisor(site, DeviceLock(), stop)) as supervisor:
                for job in left:
                    for result in supervisor.do(job):
                        self._note_export(result)

        with closing(Stop()) as stop:
            try:
                work_side_by_side([work] * count, stop)
            except MachineLost as lost:
                self.sites.lose(site, str(lost))
            finally:
                self._spend("export", start, 1)

    def _choose(self, sites: Sequence[Site], busy: Mapping[Site, object]) -> list[Site]:
        """The sites that are to start now. CPUs are never measured beside a GPU of their host:
        first GPUs, as long as there is anything for them."""
        left = self.queue.list_left()
        wanted = [site for site in sites if any(site.fits(job.cells[0].wanted) for job in left)]
        for_gpus = {site.host for site in (*wanted, *busy) if site.is_gpu}
        on_cpus = {site.host for site in busy if not site.is_gpu}
        return [
            site
            for site in wanted
            if site not in busy and site.host not in (on_cpus if site.is_gpu else for_gpus)
        ]

    def _wait_for_machine(self, waited_s: float) -> None:
        left = self.queue.list_left()
        kinds = ", ".join(dict.fromkeys(job.cells[0].wanted.describe() for job in left))
        if not self.sites.may_change or waited_s > _ALONE_S:
            count = sum(len(job.cells) for job in left)
            notes = "".join(f"; {note}" for note in self.sites.list_notes())
            raise RunnerError(
                f"{count} cells are left, and no machine is there that may do them ({kinds})"
                f"{notes}; what was measured is kept, go on with --resume"
            )
        self.progress.say(f"waiting for a machine with {kinds}")
        time.sleep(_LOOK_S)

    def _count_workers(self, site: Site, sites: Iterable[Site]) -> int:
        """Of one site."""
        if not site.is_gpu or self._is_quiet:
            return 1
        gpus = sum(other.is_gpu and other.host == site.host for other in sites)
        return choose_sharers(site.machine, gpus) if self.workers is None else self.workers

    def _make_supervisor(self, site: Site, lock: DeviceLock, stop: Stop) -> Supervisor:
        return Supervisor(start=site.start, limit_s=self.limit_s, lock=lock, stop=stop)

    def _complete(self, site: Site, jobs: Sequence[Job], **changes: Any) -> Job:
        """Jobs of the queue as one, with how and where it is done."""
        fields = {
            "device": site.device, "cells": tuple(cell for job in jobs for cell in job.cells),
            "threads": site.threads, "plan": self.plan, "end_at": self.end_at,
            "trace_iterations": self.trace_iterations,
        }  # fmt: skip
        return Job(**{**fields, **changes})

    def _take(self, site: Site, total: int) -> list[Job]:
        """The next jobs of one of ``total`` workers; none if there are none, or the time is
        over."""
        if self.is_late:
            return []
        jobs = self.queue.take(site, _TOGETHER if site.is_gpu else 1, total)
        if jobs and self.end_at is not None and time.monotonic() > self.end_at:
            self.is_late = True
            return []
        return jobs

    def _work(self, site: Site, workers: int, total: int, stop: Stop) -> None:
        """The thread of one of ``workers`` of a site, of ``total`` in all: have jobs done as long
        as there are any, and note each result at once."""
        ahead = None if workers == 1 else max(1, site.threads // workers)
        lock = self._locks.setdefault((site.host, site.device), DeviceLock())
        machine = site.machine.id
        step, since = WAITING, time.monotonic()
        with closing(self._make_supervisor(site, lock, stop)) as supervisor:
            try:
                while not stop.is_set and (jobs := self._take(site, total)):
                    job = self._complete(site, jobs, threads_ahead=ahead)
                    for result in supervisor.do(job):
                        if result["say"] == "begin":
                            step, since = result["step"], self._spend(step, since, workers)
                            self._tell(site, step, result["places"], machine)
                        elif result["say"] == "machine":
                            environment = Environment.from_dict(result["environment"])
                            machine = self.store.add_machine(environment)
                        elif workers == 1 or not self._keep_for_later(result, job):
                            self._note(result, machine, site.device)
            except MachineLost as lost:
                self._give_up(site, supervisor, jobs, lost)
            finally:
                self._spend(step, since, workers)

    def _keep_for_later(self, result: Mapping[str, Any], job: Job) -> bool:
        """Whether a cell failed for want of memory, which other workers may hold: then it is kept
        for when they have ended."""
        if result["say"] != "failed" or not is_out_of_memory(result["reason"]):
            return False
        with self._lock:
            self._kept += [cell for cell in job.cells if cell.place == result["place"]]
        return True

    def _put_back_kept(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, []
        self.queue.add([Job(cells=(cell,)) for cell in kept])
        self._is_quiet = self._is_quiet or bool(kept)

    def _give_up(
        self, site: Site, supervisor: Supervisor, jobs: Sequence[Job], lost: MachineLost
    ) -> None:
        """A machine was lost: what it had not done is done by others, but for a cell at which that
        happens again."""
        left = supervisor.left
        for place in supervisor.places:
            self._losses[place] = self._losses.get(place, 0) + 1
            if self._losses[place] >= _MOST_LOSSES:
                reason = f"{_MOST_LOSSES} machines were lost while they were at it"
                answer = make_failure(place, reason)
                left = remove_done(left, answer)
                machine = self.store.add_machine(site.machine.environment)
                self._note(answer, machine, site.device)
        self.queue.put_back(jobs, left)
        self.sites.lose(site, str(lost))

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
            self.store.add_look(place, machine, **result)
        elif say == "late":
            self.is_late = True
        if say in ("measured", "failed"):
            self.progress.finish([place], machine)

    def _tell(self, site: Site, step: str, places: Sequence[int], machine: str) -> None:
        if step == "prepare":
            self.progress.note_ready(places, machine)
        if step in _TOLD and places:
            label = self.store.cells[places[0]].label()
            self.progress.tell(step, label, len(places), site.name)

    def _note_export(self, result: Mapping[str, Any]) -> None:
        if result["say"] == "exported":
            self.store.add_export(result["place"], result["seconds"], result["reason"])
        elif result["say"] == "begin" and result["step"] == "export":
            self.progress.tell_export(self.store.cells[result["places"][0]].label())


def _wait_a_while(busy: Busy) -> None:
    """Until a worker's thread ends, or machines are to be looked at; threads that have ended are
    taken out. Raises what one was ended by."""
    wait([work for works in busy.values() for work in works], _LOOK_S, FIRST_COMPLETED)
    for site, works in list(busy.items()):
        for work in works:
            if work.done():
                work.result()
        busy[site] = [work for work in works if not work.done()]
        if not busy[site]:
            del busy[site]
