"""Has the files that runtimes load made before anything is timed, by several workers at once.

An export or a trace keeps one core busy for seconds, in which the GPU idles. The surprising
choice: nothing depends on it. A worker that dies here is not asked why, and what it left is made
when its cell is timed, which then blames whom it has to blame.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ftax.records.store import append_record, read_records
from ftax.runtimes.catalogue import find_runtime
from ftax.sweeps.cells import SHARING
from ftax.sweeps.job import Group, Item, Job, start_worker
from ftax.sweeps.plan import Task
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.record import SweepExport, SweepMachine
from ftax.sweeps.room import Need, count_room
from ftax.timing.cell import Cell
from ftax.workers.child import DONE
from ftax.workers.process import Stop, Stopped, Worker, WorkerDied

EXPORTS_FILE = "exports.jsonl"
_FEW = 2  # sizes of a unit whose cells have a file each: none takes much longer than the others
_MOST = 12  # workers: each starts with imports and a context on the GPU
_CORES_LEFT = 2  # for the sweep itself, and the machine
_NEED = Need(cores=1, host_gib=4, gpu_gib=8)  # of a model of a gigabyte and its export


def choose_workers(machines: Iterable[SweepMachine]) -> int:
    """How many workers export side by side here, on any of the devices; 0 without room for two."""
    room = count_room(machines, _NEED, most=_MOST, cores_left=_CORES_LEFT)
    return room if room > 1 else 0


def read_exported(folder: Path) -> set[str]:
    """The keys of the cells that an earlier run into the folder exported, or could not."""
    path = folder / EXPORTS_FILE
    if not path.exists():
        return set()
    records = read_records(path, skip_bad=True).records
    return {item.cell.key() for item in records if isinstance(item, SweepExport)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What one worker exports with one model built once."""

    device: str
    groups: tuple[Group, ...]

    @property
    def places(self) -> list[int]:
        """Of its cells."""
        return [item.place for group in self.groups for item in group.items]


def make_units(
    tasks: Sequence[Task], cells: Sequence[Cell], devices: Mapping[str, str], exported: set[str]
) -> list[Unit]:
    """What is to be exported, the largest first: of a model in one dtype all cells that share an
    export, and few at a time of those that do not.

    ``devices`` are those that tasks of a device will run on; tasks of others are left out, and on a
    GPU what chooses kernels by timing them.
    """

    def is_wanted(item: Item, device: str) -> bool:
        spec = find_runtime(item.runtime)
        may_share = device == "cpu" or not spec.tunes
        is_new = cells[item.place].key() not in exported
        return item.time and bool(spec.files) and may_share and is_new

    units: list[Unit] = []
    for task in tasks:
        if task.device not in devices:
            continue
        models: dict[tuple[object, bool], list[Group]] = {}
        for group in task.groups:
            for shares in (True, False):
                items = tuple(
                    item
                    for item in group.items
                    if is_wanted(item, task.device) and item.runtime.startswith(SHARING) == shares
                )
                if items:
                    part = replace(group, items=items)
                    models.setdefault((group.build_key, shares), []).append(part)
        for (_, shares), groups in models.items():
            step = len(groups) if shares else _FEW
            units += [
                Unit(device=devices[task.device], groups=tuple(groups[first : first + step]))
                for first in range(0, len(groups), step)
            ]
    return sorted(units, key=lambda unit: -len(unit.places))


@dataclass(slots=True, kw_only=True)
class Exporter:
    """Workers that take units from one list until it is empty."""

    units: list[Unit]
    cells: Sequence[Cell]
    folder: Path
    make_job: Callable[[str, tuple[Group, ...]], Job]
    limit_s: float
    stop: Stop
    progress: SweepProgress
    _done: int = field(default=0, init=False)
    _total: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self._total = sum(len(unit.places) for unit in self.units)

    def work(self) -> None:
        """Be one of the workers. Raises ResultsError if the folder cannot be written."""
        worker = None
        try:
            while (unit := self._take()) is not None:
                worker = worker or start_worker(self.stop)
                try:
                    self._export(unit, worker)
                except WorkerDied:
                    worker.end()
                    worker = None
        except Stopped:
            pass
        finally:
            if worker is not None:
                worker.end()

    def _take(self) -> Unit | None:
        with self._lock:
            return self.units.pop(0) if self.units else None

    def _export(self, unit: Unit, worker: Worker) -> None:
        worker.wait_until_ready()
        worker.send(replace(self.make_job(unit.device, unit.groups), exports=True).to_dict())
        answer = worker.receive(self.limit_s)
        while (say := answer.pop("say")) != DONE:
            if say == "begin" and answer["step"] == "export":
                label = self.cells[answer["places"][0]].label()
                self.progress.tell_export(label, self._done, self._total)
            elif say == "exported":
                self._note(answer["place"], answer["seconds"], answer["reason"])
            answer = worker.receive(self.limit_s)

    def _note(self, place: int, seconds: float, reason: str) -> None:
        with self._lock:
            self._done += 1
            append_record(
                self.folder / EXPORTS_FILE,
                SweepExport(cell=self.cells[place], seconds=seconds, reason=reason),
            )
