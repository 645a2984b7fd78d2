"""What a sweep has to do: which cells lack something, and in which order and jobs they are done.

The order is random in two steps. Models are shuffled, and within a model dtypes and sizes; a model
is so built once for all its cells, and yet a drift of the machine falls on no size or runtime in
particular. What shows that drift, cells measured once more, stands at equal distances.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

from ftax.records.store import find_results, read_records
from ftax.runtimes.catalogue import find_runtime
from ftax.sweeps.grid import Grid, read_cell
from ftax.sweeps.job import LOOKS, Cells, Job, JobCell, Wanted
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.results import EXPORTS_FILE
from ftax.sweeps.sites import Site
from ftax.sweeps.store import CellStore
from ftax.sweeps.sweep_records import GPU, REPETITION, SweepCell, SweepExport
from ftax.timing.cell import Cell

_FEWEST = 12  # cells of a model that it is built once more for, by another worker
_FEW = 2  # sizes of a job of exports: none takes much longer than the others
_Key = Callable[[JobCell], object]


class JobQueue:
    """Jobs in their order, which several workers take."""

    def __init__(self, jobs: Sequence[Job] = ()) -> None:
        self._jobs = list(jobs)
        self._lock = threading.Lock()

    def add(self, jobs: Sequence[Job]) -> None:
        """These are to be done too."""
        with self._lock:
            self._jobs += jobs

    def list_left(self) -> list[Job]:
        """Those that no worker has taken."""
        with self._lock:
            return list(self._jobs)

    def take(self, site: Site, most: int = 1, workers: int = 1) -> list[Job]:
        """The next jobs that the site may do: as many as have ``most`` cells, at least one.

        Several workers take their share of what is left and no more, so that they end together; a
        model that has more than that is divided by its sizes.
        """
        with self._lock:
            fitting = [job for job in self._jobs if site.fits(job.cells[0].wanted)]
            if fitting and workers > 1:
                share = sum(job.to_time for job in fitting) // workers
                at = self._jobs.index(fitting[0])
                parts = _divide(fitting[0], max(_FEWEST, share))
                self._jobs[at : at + 1] = fitting[:1] = parts
                most = min(most, share)
            cells = accumulate(job.to_time for job in fitting)
            found = fitting[: max(1, sum(count <= most for count in cells))]
            self._jobs = [job for job in self._jobs if job not in found]
        return found

    def put_back(self, jobs: Sequence[Job], left: Iterable[JobCell]) -> None:
        """What is left of jobs whose machine was lost goes to others, first of all; but for looks,
        which are of the machine that timed the cell."""
        still = {cell.place: cell for cell in left if cell.time}
        again = [
            replace(job, cells=tuple(still[c.place] for c in job.cells if c.place in still))
            for job in jobs
        ]
        with self._lock:
            self._jobs = [job for job in again if job.cells] + self._jobs


def _divide(job: Job, share: int) -> list[Job]:
    """The first of parts of one size, about that many cells each, and the rest; or the job."""
    parts, count = max(1, round(job.to_time / share)), 0
    for cells in job.sizes:
        if sum(cell.time for cell in job.cells[:count]) * parts >= job.to_time:
            break
        count += len(cells)
    if parts == 1 or count == len(job.cells):
        return [job]
    return [Job(cells=job.cells[:count]), Job(cells=job.cells[count:])]


def choose_missing(
    cells: Sequence[Cell],
    *,
    known: Mapping[str, Mapping[str, SweepCell]],
    looks: Mapping[str, Sequence[str]],
    everywhere: Collection[str] = (),
    sites: Sequence[Site],
    is_first: bool = True,
    retry_failed: bool = False,
) -> list[JobCell]:
    """What is missing of each cell; nothing of one that has all it can have.

    Args:
        known: the last line of a cell by each machine, by its key, the latest machine last.
        looks: what is asked of a cell beside its rounds, by its key.
        everywhere: the keys of cells that every machine measures.
        sites: of machines that are new. A cell of another machine is not looked at there: its
            latency and this busy time would have nothing to do with each other.
        is_first: whether no machines were there before, so that what any may do is chosen too.
    """
    machines = list(dict.fromkeys(site.machine.id for site in sites))
    missing: list[JobCell] = []

    def is_open(line: SweepCell | None) -> bool:
        return line is None or (line.status == "failed" and retry_failed)

    for place, cell in enumerate(cells):
        lines, asked = known.get(cell.key(), {}), tuple(looks.get(cell.key(), ()))
        last = [None, *lines.values()][-1]
        pairs: list[tuple[str, SweepCell | None]] = []
        if cell.key() in everywhere:
            wanted = [read_wanted(cell, machine) for machine in machines]
            pairs = [
                (want.machine, lines.get(want.machine))
                for want in wanted
                if any(site.fits(want) for site in sites)
            ]
        elif is_open(last):
            pairs = [("", last)] if is_first else []
        elif last is not None and last.machine in machines:
            pairs = [(last.machine, last)]
        for machine, line in pairs:
            time, left = is_open(line), asked
            if line is not None and not time:
                has_rounds = line.status == "measured"
                left = tuple(name for name in asked if has_rounds and name not in line.facts)
            if time or left:
                missing.append(make_job_cell(place, cell, machine, time=time, looks=left))
    return missing


def make_job_cell(
    place: int, cell: Cell, machine: str = "", *, time: bool = True, looks: Sequence[str] = ()
) -> JobCell:
    """What is missing of a cell of a grid, and the only machine that may do it, if there is one."""
    return JobCell(
        place=place,
        model=cell.model,
        setting=read_cell(cell),
        runtime=cell.runtime,
        host=cell.host,
        wanted=read_wanted(cell, machine),
        time=time,
        looks=tuple(looks),
        repetition=int(cell.options.get(REPETITION) or 0),
    )


def read_wanted(cell: Cell, machine: str = "") -> Wanted:
    """What a cell asks for."""
    return Wanted(device=cell.device, gpu=str(cell.options.get(GPU, "")), machine=machine)


def make_jobs(missing: Iterable[JobCell], seed: int) -> list[Job]:
    """What is missing as jobs, in the random order of ``seed``: one a model, and between them,
    evenly, one for each repetition, with all that is measured once more."""
    shuffler = random.Random(seed)
    parts: dict[tuple[Wanted, object], list[JobCell]] = {}
    for cell in sorted(missing, key=lambda cell: (cell.place, cell.wanted.machine)):
        parts.setdefault((cell.wanted, cell.repetition or cell.variant), []).append(cell)
    order = list(parts)
    shuffler.shuffle(order)
    jobs = [Job(cells=_shuffle(parts[key], _LEVELS, shuffler)) for key in order]
    return _spread(
        [job for job in jobs if not job.cells[0].repetition],
        [job for job in jobs if job.cells[0].repetition],
    )


# What is kept together: a model, then each dtype, for which it is built anew, then each size.
_LEVELS: tuple[_Key, ...] = (
    lambda cell: cell.variant,
    lambda cell: cell.setting.dtype,
    lambda cell: (cell.setting.batch, cell.setting.sequence),
)


def _shuffle(cells: Iterable[JobCell], levels: Sequence[_Key], shuffler: random.Random) -> Cells:
    """Cells whose keys are equal stay beside each other, level by level."""
    if not levels:
        return tuple(cells)
    parts: dict[object, list[JobCell]] = {}
    for cell in cells:
        parts.setdefault(levels[0](cell), []).append(cell)
    order = list(parts)
    shuffler.shuffle(order)
    return tuple(cell for key in order for cell in _shuffle(parts[key], levels[1:], shuffler))


def _spread(jobs: Sequence[Job], repeated: Sequence[Job]) -> list[Job]:
    """``repeated`` between ``jobs``, at equal distances of cells."""
    total, before = sum(job.to_time for job in jobs), 0
    waiting, spread = list(repeated), []
    for job in jobs:
        while waiting and before * len(repeated) >= total * (len(repeated) - len(waiting) + 0.5):
            spread.append(waiting.pop(0))
        spread.append(job)
        before += job.to_time
    return spread + waiting


def make_export_jobs(
    jobs: Sequence[Job], cells: Sequence[Cell], wanted: Collection[Wanted], exported: set[str]
) -> list[Job]:
    """What is to be exported before anything is timed, the largest first: few sizes of a model in
    one dtype at a time, which one worker makes with the model built once.

    An export keeps one core busy for seconds, in which a GPU idles. What is not made here is made
    when its cell is timed. Jobs that want none of ``wanted`` are left out, and on a GPU what
    chooses kernels by timing them.
    """

    def is_exported(cell: JobCell) -> bool:
        spec = find_runtime(cell.runtime)
        may_share = cell.wanted.device == "cpu" or not spec.tunes
        is_new = cells[cell.place].key() not in exported
        return cell.time and bool(spec.files) and may_share and is_new

    models: dict[tuple[Wanted, object], list[Cells]] = {}
    for job in jobs:
        for size in job.sizes if job.cells[0].wanted in wanted else ():
            if kept := tuple(cell for cell in size if is_exported(cell)):
                models.setdefault((kept[0].wanted, kept[0].build_key), []).append(kept)
    made = [
        Job(cells=sum(sizes[first : first + _FEW], ()), exports=True)
        for sizes in models.values()
        for first in range(0, len(sizes), _FEW)
    ]
    return sorted(made, key=lambda job: -job.to_time)


def read_exported(folder: Path) -> set[str]:
    """The keys of the cells that an earlier run into the folder exported, or could not."""
    path = find_results(folder / EXPORTS_FILE)
    if path is None:
        return set()
    records = read_records(path, skip_bad=True).records
    return {item.cell.key() for item in records if isinstance(item, SweepExport)}


def choose_looks(grids: Sequence[Grid], trace: bool) -> dict[str, tuple[str, ...]]:
    """What is asked of each cell on a GPU beside its rounds, by its key."""
    looks: dict[str, tuple[str, ...]] = {}
    for grid in grids:
        asked = {"utilisation": grid.utilisation, "trace": trace, "memory": grid.memory}
        for cell in grid.cells():
            if cell.device != "cpu":
                before = looks.get(cell.key(), ())
                looks[cell.key()] = tuple(name for name in LOOKS if asked[name] or name in before)
    return looks


@dataclass(slots=True, kw_only=True)
class Planner:
    """Finds out what there is to do whenever machines come.

    Attributes:
        machines: the ids of those that were there.
    """

    store: CellStore
    queue: JobQueue
    progress: SweepProgress
    looks: Mapping[str, Sequence[str]]
    retry_failed: bool
    seed: int
    machines: set[str] = field(default_factory=set, init=False)

    def add_sites(self, there: Sequence[Site]) -> int:
        """Have machines that are new do what is theirs, and the first all else; how many
        cells lack something for that."""
        new = [site for site in there if site.machine.id not in self.machines]
        if not new:
            return 0
        is_first, store = not self.machines, self.store
        missing = choose_missing(
            store.cells, known=store.known, looks=self.looks, everywhere=store.everywhere,
            sites=new, is_first=is_first, retry_failed=self.retry_failed,
        )  # fmt: skip
        self.machines.update(site.machine.id for site in new)
        runnable = [item for item in missing if not self._set_aside(item, new)]
        to_time = [(item.place, item.wanted.machine) for item in runnable if item.time]
        expected = count_expected(store.cells, store.everywhere, new, is_first=is_first)
        self.progress.expect(to_time, expected - len(to_time))
        self.queue.add(make_jobs(runnable, self.seed))
        return len(missing)

    def _set_aside(self, item: JobCell, sites: Sequence[Site]) -> bool:
        """Whether no site can run a cell's runtime; it is unavailable then, with why."""
        fitting = [site for site in sites if site.fits(item.wanted)]
        name = f"{item.runtime}/{item.host}"
        if not fitting or any(name not in site.obstacles for site in fitting):
            return False
        if item.time:
            where = self.store.add_machine(fitting[0].machine.environment)
            self.store.add_failed(item.place, where, "unavailable", fitting[0].obstacles[name])
        return True

    def list_absent(self) -> list[str]:
        """Machines that were not there, and lack some of the cells that every machine measures."""
        known = self.store.known
        own = [cell for cell in self.store.cells if cell.key() in self.store.everywhere]
        before = dict.fromkeys(name for cell in own for name in known.get(cell.key(), {}))
        notes = []
        for machine in before:
            if machine in self.machines:
                continue
            measured = [cell for cell in own if machine in known.get(cell.key(), {})]
            kinds = {cell.device.split(":")[0] for cell in measured}
            like = [cell for cell in own if cell.device.split(":")[0] in kinds]
            if len(measured) < len(like):
                notes.append(
                    f"machine {machine[:6]} was not there: {len(like) - len(measured)} of the "
                    f"{len(like)} cells that every machine measures have no result of it; start it "
                    "again and give --resume"
                )
        return notes


def count_expected(
    cells: Sequence[Cell], everywhere: Collection[str], sites: Sequence[Site], *, is_first: bool
) -> int:
    """How many cells are measured, or were, now that machines have come: those that each of them
    measures, and with the first the others."""
    machines = dict.fromkeys(site.machine.id for site in sites)
    own = [cell for cell in cells if cell.key() in everywhere]
    count = sum(
        any(site.fits(read_wanted(cell, machine)) for site in sites)
        for machine in machines
        for cell in own
    )
    return count + (len(cells) - len(own) if is_first else 0)
