"""What a sweep finds out before workers start: results, looks, and what new machines may do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ftax.errors import InvalidArgumentError
from ftax.machines.differences import TELLING_APART, describe_difference, find_differences
from ftax.records.fields import FrozenMap
from ftax.records.store import find_results
from ftax.sweeps.grid import Grid
from ftax.sweeps.job import LOOKS, Item
from ftax.sweeps.plan import TaskQueue, Unit, choose_items, make_tasks
from ftax.sweeps.progress import SweepProgress
from ftax.sweeps.results import CELLS_FILE, SweepResults
from ftax.sweeps.side_by_side import name_device
from ftax.sweeps.sites import Site, read_wanted
from ftax.sweeps.store import CellStore
from ftax.timing.cell import Cell
from ftax.timing.session import Plan

_ALL_ROUNDS = 1e-6  # a precision that is never met: unless the time limit comes first
# How long a sweep stays with a size.
FULL = Plan(max_rounds=20, round_ms=5.0, duration_s=2.0, patience_s=0.5, target_ratio=_ALL_ROUNDS)
QUICK = Plan(max_rounds=4, round_ms=4.0, duration_s=0.5, target_ratio=_ALL_ROUNDS)


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


def list_everywhere(grids: Sequence[Grid]) -> frozenset[str]:
    """The keys of the cells that every machine measures."""
    return frozenset(cell.key() for grid in grids if grid.every_machine for cell in grid.cells())


def read_known(folder: Path, resume: bool) -> SweepResults:
    """What the folder has. Raises InvalidArgumentError for cells that are not to be resumed."""
    path = find_results(folder / CELLS_FILE)
    if path is None or path.stat().st_size == 0:
        return SweepResults(cells=(), machines=FrozenMap({}))
    known = SweepResults.load(path)
    if known.cells and not resume:
        raise InvalidArgumentError(
            f"{folder} has {len(known.cells)} cells of a sweep already; resume it (--resume), "
            "which runs only what is missing, or choose another folder"
        )
    return known


def list_unlike_before(known: SweepResults, sites: Iterable[Site]) -> list[str]:
    """Devices of the same kind as one that the folder has results of, whose results are another
    machine's all the same: nobody would guess that a number of threads makes them so."""
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


def set_aside(
    store: CellStore, items: Mapping[Unit, Item], sites: Sequence[Site]
) -> dict[Unit, Item]:
    """The items that some site can run; cells whose runtime none can are unavailable, with why."""
    kept = {}
    for (place, machine), item in items.items():
        wanted = read_wanted(store.cells[place], machine)
        fitting = [site for site in sites if site.fits(wanted)]
        name = f"{item.runtime}/{item.host}"
        if not fitting or any(name not in site.obstacles for site in fitting):
            kept[place, machine] = item
        elif item.time:
            where = store.add_machine(fitting[0].machine.environment)
            store.add_failed(place, where, "unavailable", fitting[0].obstacles[name])
    return kept


@dataclass(slots=True, kw_only=True)
class Planner:
    """Finds out what there is to do whenever machines come.

    Attributes:
        machines: the ids of those that were there.
    """

    store: CellStore
    queue: TaskQueue
    progress: SweepProgress
    looks: Mapping[str, Sequence[str]]
    everywhere: Collection[str]  # the keys of the cells that each machine measures
    retry_failed: bool
    seed: int
    machines: set[str] = field(default_factory=set, init=False)

    def welcome(self, there: Sequence[Site]) -> int:
        """Have machines that are new do what is theirs, and the first what is anybody's; how many
        cells lack something for that."""
        new = [site for site in there if site.machine.id not in self.machines]
        if not new:
            return 0
        is_first, cells = not self.machines, self.store.cells
        items = choose_items(
            cells, known=self.store.known, looks=self.looks, everywhere=self.everywhere, sites=new,
            is_first=is_first, retry_failed=self.retry_failed,
        )  # fmt: skip
        self.machines.update(site.machine.id for site in new)
        missing = set_aside(self.store, items, new)
        to_time = [unit for unit, item in missing.items() if item.time]
        expected = count_units(cells, self.everywhere, new, is_first=is_first)
        self.progress.expect(to_time, expected - len(to_time))
        self.queue.add(make_tasks(cells, missing, self.seed))
        return len(items)

    def list_absent(self) -> list[str]:
        """Machines that were not there, and lack some of the cells that every machine measures."""
        known = self.store.known
        own = [cell for cell in self.store.cells if cell.key() in self.everywhere]
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


def count_units(
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
