"""What a sweep has to do: which cells are missing, and in which order and groups they are run.

The surprising choice: the order is random in two steps. Models are shuffled, and within a model
dtypes and sizes; a model is so built once for all its cells, and yet a drift of the machine falls
on no size or runtime in particular. What shows that drift, cells measured once more, is not left to
chance: it stands at equal distances.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

from ftax.steps.setting import Setting
from ftax.steps.spec import Dtype
from ftax.sweeps.grid import read_cell
from ftax.sweeps.job import Group, Item
from ftax.sweeps.record import REPETITION, SweepCell
from ftax.sweeps.sites import Site, Wanted, read_wanted
from ftax.timing.cell import Cell

# What a sweep does once: the place of a cell, and the id of the machine if it has to be that one.
Unit = tuple[int, str]
_FEWEST = 12  # cells of a model that it is built once more for, by another worker
_Key = tuple[str, Setting]  # model, and all of the setting but dtype and size
_Sizes = dict[tuple[Dtype, int, int | None], list[Item]]  # by dtype, batch and sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """All that is missing of one model on one kind of site, what a worker builds it for; or of
    one repetition of several."""

    wanted: Wanted
    groups: tuple[Group, ...]

    @property
    def size(self) -> int:
        """How many cells it is to time."""
        return sum(item.time for group in self.groups for item in group.items)


class TaskQueue:
    """Tasks in their order, shared by lanes."""

    def __init__(self, tasks: Sequence[Task] = ()) -> None:
        self._tasks = list(tasks)
        self._lock = threading.Lock()

    def add(self, tasks: Sequence[Task]) -> None:
        """These are to be done too."""
        with self._lock:
            self._tasks += tasks

    def list_left(self) -> list[Task]:
        """What nobody has taken."""
        with self._lock:
            return list(self._tasks)

    def take(self, site: Site, most: int = 1, lanes: int = 1) -> list[Task]:
        """The next tasks that the site may do: as many as have ``most`` cells, at least one.

        Several lanes take their share of what is left and no more, so that they end together; a
        model that has more than that is divided by its sizes.
        """
        with self._lock:
            fitting = [task for task in self._tasks if site.fits(task.wanted)]
            if fitting and lanes > 1:
                share = sum(task.size for task in fitting) // lanes
                at = self._tasks.index(fitting[0])
                parts = _divide(fitting[0], max(_FEWEST, share))
                self._tasks[at : at + 1] = fitting[:1] = parts
                most = min(most, share)
            cells = accumulate(task.size for task in fitting)
            found = fitting[: max(1, sum(count <= most for count in cells))]
            self._tasks = [task for task in self._tasks if task not in found]
        return found

    def put_back(self, tasks: Sequence[Task], left: Sequence[Group]) -> None:
        """What is left of tasks whose machine was lost goes to others, first of all; but for looks,
        which are of the machine that timed the cell."""
        open_items = {item.place: item for group in left for item in group.items if item.time}
        again = []
        for task in tasks:
            groups = []
            for group in task.groups:
                items = [open_items[i.place] for i in group.items if i.place in open_items]
                if items:
                    groups.append(replace(group, items=tuple(items)))
            if groups:
                again.append(replace(task, groups=tuple(groups)))
        with self._lock:
            self._tasks = again + self._tasks


def _divide(task: Task, share: int) -> list[Task]:
    """The first of parts of one size, about that many cells each, and the rest; or the task."""
    parts, first = max(1, round(task.size / share)), list[Group]()
    while sum(item.time for group in first for item in group.items) * parts < task.size:
        first.append(task.groups[len(first)])
    rest = task.groups[len(first) :]
    if parts == 1 or not rest:
        return [task]
    return [replace(task, groups=tuple(first)), replace(task, groups=rest)]


def choose_items(
    cells: Sequence[Cell],
    *,
    known: Mapping[str, Mapping[str, SweepCell]],
    looks: Mapping[str, Sequence[str]],
    everywhere: Collection[str] = (),
    sites: Sequence[Site],
    is_first: bool = True,
    retry_failed: bool = False,
) -> dict[Unit, Item]:
    """What is to be done for each cell; nothing for one that has all it can have.

    Args:
        known: the last line of a cell by each machine, by its key, the latest machine last.
        looks: what is asked of a cell beside its rounds, by its key.
        everywhere: the keys of cells that every machine measures.
        sites: of machines that are new. A cell of another machine is not looked at there: its
            latency and this busy time would have nothing to do with each other.
        is_first: whether no machines were there before, so that what any may do is chosen too.
    """
    machines = list(dict.fromkeys(site.machine.id for site in sites))
    items: dict[Unit, Item] = {}

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
            item = Item(place=place, runtime=cell.runtime, host=cell.host, time=time, looks=left)
            if not item.is_done:
                items[place, machine] = item
    return items


def make_tasks(cells: Sequence[Cell], items: Mapping[Unit, Item], seed: int) -> list[Task]:
    """The items as tasks, in the random order of ``seed``: one a model, and between them, evenly,
    one for each repetition, with all that is measured once more."""
    shuffler = random.Random(seed)
    tasks: dict[tuple[Wanted, object], dict[_Key, _Sizes]] = {}
    for place, machine in sorted(items):
        cell = cells[place]
        wanted, repetition = read_wanted(cell, machine), cell.options.get(REPETITION)
        key = (cell.model, read_cell(cell))
        models = tasks.setdefault((wanted, key if repetition is None else repetition), {})
        size = (cell.dtype, cell.batch, cell.sequence)
        models.setdefault(key, {}).setdefault(size, []).append(items[place, machine])
    order = list(tasks)
    shuffler.shuffle(order)
    made = [(name, _make_task(name[0], tasks[name], shuffler)) for name in order]
    return _spread(
        [task for (_, what), task in made if not isinstance(what, int)],
        [task for (_, what), task in made if isinstance(what, int)],
    )


def _make_task(wanted: Wanted, models: Mapping[_Key, _Sizes], shuffler: random.Random) -> Task:
    order = list(models)
    shuffler.shuffle(order)
    groups = (_order_groups(key, models[key], shuffler) for key in order)
    return Task(wanted=wanted, groups=tuple(chain.from_iterable(groups)))


def _spread(tasks: Sequence[Task], repeated: Sequence[Task]) -> list[Task]:
    """``repeated`` between ``tasks``, at equal distances of cells."""
    total, before = sum(task.size for task in tasks), 0
    waiting, spread = list(repeated), []
    for task in tasks:
        while waiting and before * len(repeated) >= total * (len(repeated) - len(waiting) + 0.5):
            spread.append(waiting.pop(0))
        spread.append(task)
        before += task.size
    return spread + waiting


def _order_groups(key: _Key, sizes: _Sizes, shuffler: random.Random) -> tuple[Group, ...]:
    """One dtype after the other, since each is a model of its own; sizes of each at random."""
    model, setting = key
    dtypes = list(dict.fromkeys(dtype for dtype, _, _ in sizes))
    shuffler.shuffle(dtypes)
    groups = []
    for dtype in dtypes:
        mine = [size for size in sizes if size[0] == dtype]
        shuffler.shuffle(mine)
        groups += [
            Group(
                model=model,
                setting=replace(setting, dtype=dtype, batch=batch, sequence=sequence),
                items=tuple(sizes[dtype, batch, sequence]),
            )
            for _, batch, sequence in mine
        ]
    return tuple(groups)
