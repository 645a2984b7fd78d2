"""Which files that runtimes load are made before anything is timed, by several workers at once.

An export or a trace keeps one core busy for seconds, in which the GPU idles. The surprising
choice: nothing depends on it. What is not made here is made when its cell is timed, which then
blames whom it has to blame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ftax.records.store import read_records
from ftax.runtimes.catalogue import find_runtime
from ftax.sweeps.cells import SHARING
from ftax.sweeps.job import Group, Item
from ftax.sweeps.plan import Task
from ftax.sweeps.record import SweepExport
from ftax.sweeps.results import EXPORTS_FILE
from ftax.timing.cell import Cell

_FEW = 2  # sizes of a unit whose cells have a file each: none takes much longer than the others


def read_exported(folder: Path) -> set[str]:
    """The keys of the cells that an earlier run into the folder exported, or could not."""
    path = folder / EXPORTS_FILE
    if not path.exists():
        return set()
    records = read_records(path, skip_bad=True).records
    return {item.cell.key() for item in records if isinstance(item, SweepExport)}


def make_units(
    tasks: Sequence[Task], cells: Sequence[Cell], devices: Mapping[str, str], exported: set[str]
) -> list[Task]:
    """What one worker exports at a time with one model built once, the largest first: of a model in
    one dtype all cells that share an export, and few of those that do not.

    ``devices`` are those that tasks of a device will run on; tasks of others are left out, and on a
    GPU what chooses kernels by timing them.
    """

    def is_wanted(item: Item, device: str) -> bool:
        spec = find_runtime(item.runtime)
        may_share = device == "cpu" or not spec.tunes
        is_new = cells[item.place].key() not in exported
        return item.time and bool(spec.files) and may_share and is_new

    units: list[Task] = []
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
                Task(device=devices[task.device], groups=tuple(groups[first : first + step]))
                for first in range(0, len(groups), step)
            ]
    return sorted(units, key=lambda unit: -unit.size)
