"""What a sweep has to do: which cells are missing, and in which order and groups they are run.

The surprising choice: the order is random in two steps. Models are shuffled, and within a model
dtypes and sizes; a model is so built once for all its cells, and yet a drift of the machine falls
on no size or runtime in particular. What shows that drift, cells measured once more, is not left to
chance: it stands at equal distances.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

from ftax.steps.setting import Setting
from ftax.steps.spec import Dtype
from ftax.sweeps.grid import read_cell
from ftax.sweeps.job import Group, Item
from ftax.sweeps.record import REPETITION, SweepCell
from ftax.timing.cell import Cell

_Key = tuple[str, str, Setting]  # model, device, and all of the setting but dtype and size
_Sizes = dict[tuple[Dtype, int, int | None], list[Item]]  # by dtype, batch and sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """All that is missing of one model on one kind of device, what a worker builds it for; or of
    one repetition of several."""

    device: str  # as in the grid; "cuda" is any GPU
    groups: tuple[Group, ...]

    @property
    def size(self) -> int:
        """How many cells it is to time."""
        return sum(item.time for group in self.groups for item in group.items)


class TaskQueue:
    """Tasks in their order, shared by lanes."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = list(tasks)
        self._lock = threading.Lock()

    def take(self, device: str, shares: bool, most: int = 1, lanes: int = 1) -> list[Task]:
        """The next tasks for a device, with ``shares`` also of those for any GPU: as many as have
        ``most`` cells, at least one, and with several lanes no more than half of what is left, so
        that they end together."""
        with self._lock:
            found = [
                task
                for task in self._tasks
                if task.device == device or (shares and task.device == "cuda")
            ]
            if lanes > 1:
                found = found[: max(1, len(found) // 2)]
            cells = accumulate(task.size for task in found)
            found = found[: max(1, sum(count <= most for count in cells))]
            self._tasks = [task for task in self._tasks if task not in found]
        return found


def choose_items(
    cells: Sequence[Cell],
    *,
    known: Mapping[str, SweepCell],
    looks: Mapping[str, Sequence[str]],
    machines: Mapping[str, str],
    retry_failed: bool,
) -> dict[int, Item]:
    """What is to be done for each cell, by its place; nothing for one that has all it can have.

    Args:
        known: the last line of cells, by their keys.
        looks: what is asked of a cell beside its rounds, by its key.
        machines: the machine that a device belongs to. A cell of another machine is not looked at
            here: its latency and this busy time would have nothing to do with each other.
    """
    items: dict[int, Item] = {}
    for place, cell in enumerate(cells):
        line, wanted = known.get(cell.key()), tuple(looks.get(cell.key(), ()))
        time = line is None or (line.status == "failed" and retry_failed)
        if line is not None and not time:
            here = line.status == "measured" and line.machine == machines.get(cell.device)
            wanted = tuple(name for name in wanted if here and name not in line.facts)
        item = Item(place=place, runtime=cell.runtime, host=cell.host, time=time, looks=wanted)
        if not item.is_done:
            items[place] = item
    return items


def make_tasks(cells: Sequence[Cell], items: Mapping[int, Item], seed: int) -> list[Task]:
    """The items as tasks, in the random order of ``seed``: one a model, and between them, evenly,
    one for each repetition, with all that is measured once more."""
    shuffler = random.Random(seed)
    tasks: dict[tuple[str, object], dict[_Key, _Sizes]] = {}
    for place in sorted(items):
        cell = cells[place]
        repetition = cell.options.get(REPETITION)
        key = (cell.model, cell.device, read_cell(cell))
        models = tasks.setdefault((cell.device, key if repetition is None else repetition), {})
        size = (cell.dtype, cell.batch, cell.sequence)
        models.setdefault(key, {}).setdefault(size, []).append(items[place])
    order = list(tasks)
    shuffler.shuffle(order)
    made = [(name, _make_task(name[0], tasks[name], shuffler)) for name in order]
    return _spread(
        [task for (_, what), task in made if not isinstance(what, int)],
        [task for (_, what), task in made if isinstance(what, int)],
    )


def _make_task(device: str, models: Mapping[_Key, _Sizes], shuffler: random.Random) -> Task:
    order = list(models)
    shuffler.shuffle(order)
    groups = (_order_groups(key, models[key], shuffler) for key in order)
    return Task(device=device, groups=tuple(chain.from_iterable(groups)))


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
    model, _, setting = key
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
