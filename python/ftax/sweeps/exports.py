"""Which files that runtimes load are made before anything is timed, by several workers at once.

An export or a trace keeps one core busy for seconds, in which the GPU idles. The surprising
choice: nothing depends on it. What is not made here is made when its cell is timed, which then
blames whom it has to blame.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from ftax.records.store import find_results, read_records
from ftax.runtimes.catalogue import find_runtime
from ftax.sweeps.job import Group, Item
from ftax.sweeps.plan import Task
from ftax.sweeps.record import SweepExport
from ftax.sweeps.results import EXPORTS_FILE
from ftax.sweeps.sites import Wanted
from ftax.timing.cell import Cell

_FEW = 2  # sizes of a unit: none takes much longer than the others


def read_exported(folder: Path) -> set[str]:
    """The keys of the cells that an earlier run into the folder exported, or could not."""
    path = find_results(folder / EXPORTS_FILE)
    if path is None:
        return set()
    records = read_records(path, skip_bad=True).records
    return {item.cell.key() for item in records if isinstance(item, SweepExport)}


def make_units(
    tasks: Sequence[Task], cells: Sequence[Cell], devices: Collection[Wanted], exported: set[str]
) -> list[Task]:
    """What is to be exported, the largest first: few sizes of a model in one dtype at a time, which
    one worker makes with the model built once.

    Tasks that want none of ``devices`` are left out, and on a GPU what chooses kernels by timing
    them.
    """

    def is_wanted(item: Item, device: str) -> bool:
        spec = find_runtime(item.runtime)
        may_share = device == "cpu" or not spec.tunes
        is_new = cells[item.place].key() not in exported
        return item.time and bool(spec.files) and may_share and is_new

    units: dict[tuple[Wanted, object], list[Group]] = {}
    for task in tasks:
        for group in task.groups if task.wanted in devices else ():
            items = tuple(item for item in group.items if is_wanted(item, task.wanted.device))
            if items:
                units.setdefault((task.wanted, group.build_key), []).append(
                    replace(group, items=items)
                )
    made = [
        Task(wanted=wanted, groups=tuple(groups[first : first + _FEW]))
        for (wanted, _), groups in units.items()
        for first in range(0, len(groups), _FEW)
    ]
    return sorted(made, key=lambda unit: -unit.size)
